"""The command line: `dna COMMAND …`, one module per command or group of related commands.

Only this package imports Typer and Rich. Settings are `key=value` words, so there is no list of
options to maintain for them. Modules that load torch are imported inside the commands, after
the settings were checked, and every error is one line on stderr and an exit code.
"""

import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib.metadata import version
from typing import Annotated, Any

import typer

from dna.cli import bench, doctor, evaluate, export, report, reproduce, show, sweep, train
from dna.common.console import redirect_to_null, safe_stderr, say
from dna.common.errors import BadInput, DnaError, exit_code
from dna.common.messages import plain_english, printable, text_of
from dna.common.process import stop_signals
from dna.distributed.launch import launched

HELP = """DNA, PPO and PPG on any Gymnasium environment.

Exit codes: 0 success, 2 bad input, 3 run folder in use, 4 non-finite number, 5 environment
failed, 6 storage failed, 7 ranks lost or out of step, 75 stopped by a signal after saving,
130 interrupted by a second Ctrl-C.
Every command accepts --debug, which prints a full traceback."""

COMMANDS: dict[str, Callable[..., None]] = {
    "train": train.train,
    "resume": train.resume,
    "eval": evaluate.eval_,
    "record": evaluate.record,
    "noise": evaluate.noise,
    "plot": report.plot,
    "report": report.report,
    "watch": report.watch,
    "show": show.show,
    "list": show.list_,
    "sweep": sweep.sweep,
    "reproduce": reproduce.reproduce,
    "export": export.export,
    "push": export.push,
    "import-sb3": export.import_sb3,
    "bench": bench.bench,
    "doctor": doctor.doctor,
}
#: Seconds that a rank waits for rank 0 to report the error that both have met.
REPORT_TIMEOUT = 20.0
#: Seconds that threads, such as those of an executor, have to end after the command.
THREADS_TIMEOUT = 3.0

app = typer.Typer(
    help=HELP,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command in COMMANDS.items():
    # A given short_help is wrapped in `dna --help`; one that Click takes itself is cut off.
    app.command(_name, short_help=(_command.__doc__ or "").partition("\n")[0])(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ppo-dna {version('ppo-dna')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version"),
    ] = False,
) -> None:
    pass


_root.__doc__ = HELP


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    hook = sys.unraisablehook
    sys.unraisablehook = _show_unraisable
    with safe_stderr():
        code = _run(argv)
        _exit_rank(code)
    if argv is None:  # the process itself, which ends now
        _end_despite_threads(code)
    else:
        sys.unraisablehook = hook
    return code


def _run(argv: list[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    warnings.showwarning = _show_warning
    # Training handles stop signals from before torch is loaded; other commands just end.
    signals = stop_signals() if words[0] in ("train", "resume") else nullcontext()
    try:
        with signals:
            code = _call(words)
        if code == 130:  # what Typer makes of a KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except DnaError as error:
        return _fail(error, str(error), exit_code(error), debug)
    except KeyboardInterrupt as error:
        return _fail(error, "interrupted", exit_code(error), debug)
    except OSError as error:
        return _fail(
            error,
            f"{error.filename or 'output'}: {error.strerror or error}",
            exit_code(error),
            debug,
        )
    except BaseException as error:
        if hasattr(error, "format_message"):  # a usage error raised by Click
            text = plain_english(" ".join(error.format_message().split()))
            return _fail(error, text or "see dna --help", 2, debug)
        if type(error).__name__ in ("Exit", "Abort"):
            return int(getattr(error, "exit_code", 1))
        text = f"unexpected {type(error).__name__}: {' '.join(text_of(error).split())[:200]}"
        return _fail(error, f"{text}; --debug shows the traceback", 1, debug)


def _call(words: list[str]) -> object:
    """Call the command. A reader that closes the pipe to stdout early is not an error."""
    try:
        return app(words, prog_name="dna", standalone_mode=False)
    except SystemExit as error:  # Click turns a closed pipe into this
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        redirect_to_null(sys.stdout)
        return 0


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    text = message if isinstance(message, str) else text_of(message)
    say(f"dna: {printable(' '.join(text.splitlines()))}")


def _show_unraisable(caught: Any) -> None:
    """Print an error that nobody can catch, such as one in `__del__`, in one line."""
    error = caught.exc_value
    text = " ".join(text_of(error).split())[:200] if error is not None else ""
    name = getattr(caught.object, "__qualname__", type(caught.object).__qualname__)
    say(f"dna: {printable(f'{caught.exc_type.__name__} in {name} was ignored: {text}')}")


def _fail(error: BaseException, text: str, code: int, debug: bool) -> int:
    other_rank_reports = _other_rank_reports(error, code)
    if other_rank_reports and getattr(error, "quiet", None) is None:
        # torchrun ends all ranks as soon as one leaves: let rank 0 report its error first.
        time.sleep(REPORT_TIMEOUT)
    _ignore_sigterm_of_torchrun()
    if debug:
        traceback.print_exception(error)
    if not other_rank_reports:
        say(f"dna: {printable(text)}")
    return code


def _other_rank_reports(error: BaseException, code: int) -> bool:
    """Whether another rank prints this error.

    Ranks that have joined agree on who does (`DnaError.quiet`). Before that, all of them refuse
    the same bad input, and rank 0 prints it.
    """
    quiet: bool | None = getattr(error, "quiet", None)
    if quiet is not None:
        return quiet
    try:
        return code == BadInput.exit_code and launched().rank > 0
    except BadInput:  # the variables of torchrun are themselves invalid
        return False


def _ignore_sigterm_of_torchrun() -> None:
    """Let a failed rank finish: torchrun sends SIGTERM to all ranks once one has failed."""
    with suppress(BadInput, ValueError):  # ValueError: not in the main thread
        if launched().size > 1:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _exit_rank(code: int) -> None:
    """End the process of a rank immediately; do nothing in a single process.

    Threads of the communication library may request the GIL during the interpreter's shutdown,
    which aborts the process; this was observed on a busy machine.
    """
    with suppress(BadInput):
        if launched().size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _end_despite_threads(code: int) -> None:
    """Make sure that threads left behind by an environment do not keep the process alive.

    Python waits for them when it exits. Those that end by themselves in time are not noticed.
    """
    if not _left_behind():
        return

    def end() -> None:
        time.sleep(THREADS_TIMEOUT)
        names = ", ".join(sorted({thread.name for thread in _left_behind()}))[:200]
        if names:  # without any, Python is doing its own last work
            say(f"dna: ending in spite of threads that are still running: {printable(names)}")
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            os._exit(code)

    threading.Thread(target=end, daemon=True).start()


def _left_behind() -> list[threading.Thread]:
    main_thread = threading.main_thread()
    return [one for one in threading.enumerate() if not one.daemon and one is not main_thread]
