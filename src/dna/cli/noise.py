"""`dna noise`: how noisy the gradients of a trained run are, and what that means."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dna.cli.display import counting
from dna.common.process import wait_briefly

if TYPE_CHECKING:
    from dna.paper.noise_report import Finding


def noise(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder")],
    rollouts: Annotated[int, typer.Option(min=1, max=10_000, help="To measure on")] = 4,
    samples: Annotated[int, typer.Option(min=2, help="Small mini-batches of each")] = 64,
    b_small: Annotated[int, typer.Option(min=1, help="Rows of a small mini-batch")] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table")] = False,
) -> None:
    """Measure the gradient noise scale of every phase of a saved run, and say what to change.

    B_simple is the mini-batch size at which noise and gradient are of one length; σ is its
    square root. The run's newest checkpoint plays a few rollouts; its folder is not changed.

    Examples:

      dna noise runs/3f2a9c01d4e5

      dna noise runs/3f2a9c01d4e5 --rollouts 16 --json
    """
    from dna.algorithm.noise_scale import Sizes
    from dna.runs.folder import RunFolder

    wait_briefly()
    config, _ = RunFolder.of(run).read()
    sizes = Sizes(b_small, None, samples)
    from dna.paper.noise_report import check_sizes, noise_of

    check_sizes(config, sizes)
    with counting(f"measuring {run}", rollouts) as told:
        found = noise_of(run, rollouts, sizes, told=told)
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in found]))
    else:
        _print(found)


def _print(found: list["Finding"]) -> None:
    table = Table(box=None, header_style="bold")
    for name in ("phase", "σ", "B_simple", "95 %", "mini-batch", ""):
        table.add_column(name, justify="left" if name in ("phase", "") else "right")
    for one in found:
        sigma = "?" if one.sigma is None else f"{one.sigma:,.1f}"
        simple = "?" if one.b_simple is None else f"{one.b_simple:,.0f}"
        high = "∞" if one.high is None else f"{one.high:,.0f}"
        span = f"{one.low:,.0f} – {high}"
        table.add_row(one.phase, sigma, simple, span, f"{one.minibatch:,}", one.advice)
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(noise)
