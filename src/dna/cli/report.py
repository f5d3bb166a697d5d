"""`dna report` and `dna watch`: a run as a page, once or live."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dna.common.errors import BadInput

Reproductions = Annotated[Path, typer.Option(help="Where `dna reproduce` wrote, for names")]


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, an experiment's folder, or its name"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page [RUN/report.html; of several runs, report.html]"),
    ] = None,
    reproductions: Reproductions = Path("reproductions"),
) -> None:
    """Write one HTML page on runs or an experiment; it needs no network and no account.

    Learning curves, losses, gradient noise, time, settings beside their preset, the machine,
    evaluation, recorded episodes and checkpoints: what the folders hold, and nothing else.

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

    data = page_of(paths).encode()
    write(target, data)
    typer.echo(f"{target}: {len(data) / 1e3:,.0f} kB")


def _experiment(given: Path, root: Path) -> Path:
    """The newest folder of an experiment that is given by name or alias; else as given."""
    if os.path.exists(given) or len(given.parts) != 1:  # of any name, without an error
        return given
    from dna.paper.experiments import experiment

    try:
        chosen = experiment(str(given))
    except BadInput as error:
        raise BadInput(f"{given}: no such folder; and {error}") from None
    found = [
        path for path in root.glob(f"{chosen.name}-*") if (path / "experiment.json").is_file()
    ]
    if not found:
        raise BadInput(
            f"{given}: nothing of {chosen.name} in {root}; first `dna reproduce {given}`, "
            "or --reproductions FOLDER"
        )
    return max(found, key=lambda path: (path / "experiment.json").stat().st_mtime_ns)


def watch(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's folder, or one that holds its seeds")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one")] = 0,
) -> None:
    """Show the page of `dna report` in a browser on this machine, while the run trains.

    Nobody but this machine can reach it. Ctrl-C ends it; the run goes on.

    Examples:

      dna watch runs/3f2a9c01d4e5

      dna watch runs/3f2a9c01d4e5 --port 8000
    """
    from dna.evaluation.report.live import Live, Server

    with Server(Live(run), port) as server:
        typer.echo(f"{run}: {server.address}  (Ctrl-C ends)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command()(report)
    app.command()(watch)
