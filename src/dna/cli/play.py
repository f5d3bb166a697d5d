"""`dna record` and `dna plot`: looking at what a run learned."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dna.cli.display import counting
from dna.cli.evaluation import AllowImport, Deterministic, Seed
from dna.common.errors import BadInput

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder")]
Format = Literal["mp4", "gif"]


FormatOption = Annotated[
    Format | None, typer.Option("--format", help="[as --out ends, else mp4]")
]
Plain = Annotated[bool, typer.Option("--plain", help="Only the pictures, no panel beside them")]
BestOf = Annotated[
    int, typer.Option(min=1, max=10_000, help="Play so many episodes, film the best")
]
Frames = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Cut the film after so many steps")
]


def record_(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="The film [RUN/episode.mp4]")] = None,
    form: FormatOption = None,
    plain: Plain = False,
    best_of: BestOf = 1,
    frames: Frames = 5000,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    allow_import: AllowImport = False,
) -> None:
    """Film an episode, mp4 or gif, beside what the agent thinks of it.

    A panel shows the score, V_π and V_V over the last 200 steps, the actions' probabilities.

    Example: dna record runs/3f2a9c01d4e5 --best-of 3 --out breakout.gif
    """
    from dna.agents.hub import find
    from dna.common.storage import write
    from dna.evaluation.evaluate import Playing, policy_of
    from dna.evaluation.film import Film, best_episode, default_video
    from dna.evaluation.video import gif, mp4

    folder = find(run)
    kind = _format(out, form)
    target = out or default_video(folder, kind)
    policy = policy_of(folder)
    with counting("episodes to choose from", best_of) as told:
        how = Playing(allow_import, None, told)
        episode = best_episode(policy, best_of, seed=seed, deterministic=deterministic, how=how)
    note = f"best of {best_of}" if best_of > 1 else ""
    film = Film(policy, seed, episode, deterministic, allow_import, frames, plain, note)
    write(target, (mp4 if kind == "mp4" else gif)(film.frames(), film.fps))
    said = f"score {film.score:.2f}" + (f", the {note}" if note else "")
    said += "" if film.whole else f" so far: the film was cut after {frames:,} steps"
    typer.echo(f"{target}: {film.pictures} frames, {said}")


def _format(out: Path | None, form: Format | None) -> Format:
    """As the option says, or the file's name; the two must agree."""
    ending = None if out is None else out.suffix
    if ending not in (None, ".mp4", ".gif") or (ending and form and ending != f".{form}"):
        raise BadInput(f"--out {out}: must end in .{form or 'mp4 or .gif'}")
    if form is not None:
        return form
    return "gif" if ending == ".gif" else "mp4"


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs")],
    out: Annotated[Path | None, typer.Option(help="The picture [RUN/curve.png]")] = None,
) -> None:
    """Draw learning curves; several seeds of an algorithm become a mean with a band.

    Example: dna plot runs/a runs/b runs/c --out curves.png
    """
    from dna.common.storage import write
    from dna.evaluation.plots import default_plot, learning_curves, random_score
    from dna.runs.folder import RunFolder

    folders = [RunFolder.of(run) for run in runs]
    target = out or default_plot(folders[0])
    write(target, learning_curves(folders, random_score(folders[0])))
    typer.echo(str(target))


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command("record")(record_)
    app.command()(plot)
