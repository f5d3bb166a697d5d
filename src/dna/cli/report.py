"""Commands that show the results of runs: `dna plot`, `dna report` and `dna watch`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dna.common.errors import BadInput


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs")],
    out: Annotated[Path | None, typer.Option(help="Image file [RUN/curve.png]")] = None,
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


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, or the folder or name of an experiment"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file [RUN/report.html; report.html for several runs]"),
    ] = None,
    reproductions: Annotated[
        Path, typer.Option(help="Folder in which experiments are looked up by name")
    ] = Path("reproductions"),
) -> None:
    """Write a self-contained HTML page about runs or an experiment.

    As far as the folders contain them, it shows learning curves, losses, gradient noise, time,
    settings compared with their preset, the machine, evaluations, recorded episodes and
    checkpoints.

    Examples:

      dna report runs/3f2a9c01d4e5

      dna report runs/a runs/b runs/c --out report.html

      dna report toy --out toy.html

      dna report reproductions/fig04-small --out fig04.html
    """
    if len(paths) == 1:
        paths = [_experiment(paths[0], reproductions)]
    target = out or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    if target.suffix not in (".html", ".htm"):
        raise BadInput(f"--out {target}: must end in .html")
    from dna.common.storage import write
    from dna.evaluation.report.page import page_of

    data = page_of(paths, _judge).encode()
    write(target, data)
    typer.echo(f"{target}: {len(data) / 1e3:,.0f} kB")


def _judge(tree: dict[str, Any]) -> list[dict[str, str]]:
    from dna.paper.reproduce import current_verdicts  # imports torch: only for an experiment

    return current_verdicts(tree)


def _experiment(given: Path, root: Path) -> Path:
    """Return the newest folder of an experiment given by name or alias; otherwise `given`."""
    # os.path.exists, unlike Path.exists, accepts names that are too long for a file.
    if os.path.exists(given) or len(given.parts) != 1:
        return given
    from dna.paper.experiments import experiment

    try:
        chosen = experiment(str(given))
    except BadInput as error:
        words = "neither a folder nor an experiment"
        raise BadInput(str(error).replace("no such experiment", words)) from None
    found = [
        path for path in root.glob(f"{chosen.name}-*") if (path / "experiment.json").is_file()
    ]
    if not found:
        raise BadInput(
            f"{given}: no results of {chosen.name} in {root}; run `dna reproduce {given}` "
            "first or give --reproductions FOLDER"
        )
    return max(found, key=lambda path: (path / "experiment.json").stat().st_mtime_ns)


def watch(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a run, or a folder written by --seeds"),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one")] = 0,
) -> None:
    """Serve the page of `dna report` on this machine and update it while the run trains.

    Only this machine can reach the page. Ctrl-C stops the server, not the run.

    Examples:

      dna watch runs/3f2a9c01d4e5

      dna watch runs/3f2a9c01d4e5 --port 8000
    """
    from dna.evaluation.report.live import Live, Server

    with Server(Live(run), port) as server:
        typer.echo(f"{run}: {server.address}  (Ctrl-C stops)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")
