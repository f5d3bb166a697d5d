"""The command line: `dna VERB …`. Typer and Rich live here only.

Settings are `key=value` words through `tweak`, so there is no option list to maintain;
options with dashes only say *how* to run. Whatever pulls in torch is imported inside a verb,
after the settings were checked. Every error is one line on stderr and an exit code.
"""

import sys
import traceback
import warnings
from contextlib import nullcontext
from importlib.metadata import version
from typing import Annotated

import typer

from dna.cli import evaluation, export, look, measure, noise, paper, play, report, run, sweep
from dna.cli.ranks import is_quiet, leave, leave_in_peace, let_the_first_speak
from dna.common.console import redirect_to_null, safe_stderr, say
from dna.common.errors import DnaError
from dna.common.process import stop_signals

HELP = """DNA, PPO and PPG on any Gymnasium environment.

Exit codes: 0 done, 2 bad input, 3 folder busy, 4 not finite, 5 environment failed,
6 storage failed, 7 ranks lost or no longer alike, 75 stopped by a signal after saving. Any
command takes --debug for a full traceback."""

app = typer.Typer(
    help=HELP,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ppo-dna {version('ppo-dna')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version")
    ] = False,
) -> None:
    pass


_root.__doc__ = HELP
run.register(app)
evaluation.register(app)
play.register(app)
look.register(app)
measure.register(app)
noise.register(app)
paper.register(app)
report.register(app)
sweep.register(app)
export.register(app)


def main(argv: list[str] | None = None) -> int:
    """Run a command; the value is its exit code."""
    with safe_stderr():
        code = _run(argv)
        leave(code)
    return code


def _run(argv: list[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    warnings.showwarning = _note
    words = [word for word in words if word != "--debug"] or ["--help"]
    # A run listens before torch is loaded; other commands end as any program does.
    listening = stop_signals() if words[0] in ("train", "resume") else nullcontext()
    try:
        with listening:
            code = _call(words)
        return code if isinstance(code, int) else 0
    except DnaError as error:
        return _fail(error, str(error), error.exit_code, debug)
    except KeyboardInterrupt as error:
        return _fail(error, "interrupted", 130, debug)
    except OSError as error:
        return _fail(
            error, f"{error.filename or 'output'}: {error.strerror or error}", 6, debug
        )
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command line itself
            text = " ".join(error.format_message().split())
            return _fail(error, text or "see dna --help", 2, debug)
        if type(error).__name__ in ("Exit", "Abort"):
            return int(getattr(error, "exit_code", 1))
        text = f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return _fail(error, f"{text}; --debug shows the traceback", 1, debug)


def _call(words: list[str]) -> object:
    """The verb's value. Whoever read stdout and closed it has seen enough: all is well."""
    try:
        return app(words, prog_name="dna", standalone_mode=False)
    except SystemExit as error:  # Click makes this of a closed pipe
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        redirect_to_null(sys.stdout)
        return 0


def _note(message: Warning | str, *_: object, **__: object) -> None:
    say(f"dna: {message}")


def _fail(error: BaseException, text: str, code: int, debug: bool) -> int:
    let_the_first_speak(error, code)
    leave_in_peace()
    if debug:
        traceback.print_exception(error)
    if not is_quiet(error, code):
        say(f"dna: {text}")
    return code
