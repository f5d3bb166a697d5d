"""`dna reproduce`: run an experiment of the paper, draw its figure and judge its claims."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dna.cli.options import AsJson, RayOptions, expand
from dna.cli.progress import show_runs
from dna.common.errors import BadInput

if TYPE_CHECKING:
    from dna.paper.plan import Experiment, Limits, Scale
    from dna.paper.reproduce import Where

STYLES = {"held": "green", "not held": "red", "not tested": "dim"}


@expand
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Experiment or alias, for example fig04, epochs"),
    ] = None,
    *,
    scale: Annotated[
        Literal["smoke", "small", "paper"],
        typer.Option(help="smoke: seconds; small: hours; paper: the published size"),
    ] = "small",
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Print what it would cost (runs, time, disk) and stop"),
    ] = False,
    claims: Annotated[
        bool,
        typer.Option("--claims", help="Print the verdicts on the claims of NAME, or of all"),
    ] = False,
    finished: Annotated[
        bool,
        typer.Option("--finished", help="Draw and judge the finished runs without training"),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds [that of the scale]")
    ] = None,
    interactions: Annotated[
        int | None, typer.Option(min=1, help="Length of the runs [that of the scale]")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Parallel runs [number of cores]")
    ] = None,
    runs: Annotated[
        Path, typer.Option(help="Folder of all runs, each named by its digest")
    ] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of figures and tables")] = Path(
        "reproductions"
    ),
    cluster: RayOptions,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper, draw its figure and judge its claims.

    Finished runs are skipped, interrupted runs continue, and runs that two experiments share
    are trained once. At scale `small`, MinAtar takes the place of Atari; the captions say so.

    Examples:

      dna reproduce toy --scale small

      dna reproduce ablation --scale small --plan

      dna reproduce fig13 --scale small --seeds 2

      dna reproduce mujoco --finished

      dna reproduce --claims

      dna reproduce mujoco --claims
    """
    from dna.paper.plan import Limits, cut
    from dna.paper.reproduce import Watcher, Where, check_cut, folder_of, summarize
    from dna.paper.reproduce import reproduce as run

    where = Where(runs, out)
    limits = Limits(seeds, interactions)
    chosen = _chosen(name, plan, claims, finished)
    if chosen is not None:
        limits = cut(chosen, scale, limits)
    if chosen is None or claims:
        _print_claims(chosen, scale, where, limits, as_json)
        return
    check_cut(chosen, limits)
    if plan:
        _print_plan(chosen, scale, limits, where, jobs, as_json)
        return
    with cluster.place(jobs) as place, show_runs(title=chosen.title) as display:
        watcher = Watcher(display.update, display.note)
        if finished:
            tree = summarize(chosen, scale, where, limits, watcher)
        else:
            tree = run(chosen, scale, where, limits, place, watcher)
    _print_results(tree, folder_of(chosen, scale, out, limits), as_json)


def _chosen(name: str | None, plan: bool, claims: bool, finished: bool) -> "Experiment | None":
    """Return the experiment; None for the claims of all experiments."""
    from dna.paper.experiments import experiment

    if sum((claims, plan, finished)) > 1:
        raise BadInput("--claims, --plan, --finished: give only one of them")
    if name is None and not claims:
        raise BadInput("NAME: which experiment? `dna list experiments` lists them")
    return None if name is None else experiment(name)


def _print_plan(
    chosen: "Experiment",
    scale: "Scale",
    limits: "Limits",
    where: "Where",
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print runs, interactions, hours and disk; measurements are reported on stderr."""
    from dna.paper.costs import cost, cost_text, plan_rows, remembered, toy_cost
    from dna.paper.experiments import EXPERIMENTS
    from dna.paper.plan import planned
    from dna.paper.reproduce import folder_of

    runs = planned(chosen, scale, limits)
    others = [(o, planned(o, scale, limits)) for o in EXPERIMENTS if o.name != chosen.name]
    toy = None
    with _measuring() as report:
        found = cost(runs, where.runs, others, remembered(where.runs, report), jobs)
        if "toy" in chosen.extra:
            folder = folder_of(chosen, scale, where.out, limits) / "toy"
            toy = toy_cost(scale, folder, report, seeds=limits.seeds)
    if as_json:
        typer.echo(json.dumps(vars(found) | ({"toy": toy.to_json()} if toy else {})))
        return
    if toy:
        typer.echo(toy.words)
        return
    if not runs:
        typer.echo("0 runs: nothing is trained, every claim is computed on the spot")
        return
    table = Table(box=None, header_style="bold")
    table.add_column("study")
    table.add_column("arm")
    table.add_column("environments")
    table.add_column("seeds", justify="right")
    table.add_column("interactions each", justify="right")
    for row in plan_rows(runs):
        table.add_row(*row)
    Console().print(table)
    typer.echo(cost_text(found))
    if chosen.extra:
        typer.echo(f"measured after the runs, not in the hours: {', '.join(chosen.extra)}")
    if found.shared:
        words = ", ".join(f"{count} with {other}" for other, count in found.shared.items())
        typer.echo(f"shared runs: {words}")


@contextmanager
def _measuring() -> Iterator[Callable[[str], None]]:
    """Yield a function that reports measurements: a changing line on a terminal, else lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: typer.echo(text, err=True)
        return
    with console.status("measuring the speed of one run of every kind") as status:
        yield status.update


def _print_claims(
    chosen: "Experiment | None", scale: "Scale", where: "Where", limits: "Limits", as_json: bool
) -> None:
    """Print the verdicts at this scale; experiments without runs count as not tested."""
    from dna.paper.reproduce import all_verdicts

    rows = all_verdicts(scale, where, limits, chosen)
    if as_json:
        typer.echo(json.dumps(rows))
        return
    _print_verdicts(rows)
    counts = {status: sum(row["status"] == status for row in rows) for status in STYLES}
    text = ", ".join(f"{count} {status}" for status, count in counts.items())
    typer.echo(f"{len(rows)} claims: {text}")


def _print_results(tree: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(tree))
        return
    console = Console()
    if tree["caption"]:
        console.print(Text(tree["caption"], style="yellow"), highlight=False)
    _print_verdicts(tree["verdicts"])
    for name in (*tree["figures"], *tree["tables"], "experiment.json"):
        # Brackets in the name of a folder are not markup.
        console.print(f"{folder / name}", markup=False, highlight=False, soft_wrap=True)


def _print_verdicts(rows: Sequence[dict[str, str]]) -> None:
    table = Table(box=None, header_style="bold")
    table.add_column("claim")
    table.add_column("verdict", no_wrap=True)
    table.add_column("what the paper says", ratio=2)
    table.add_column("what was found", ratio=3)
    for row in rows:
        found = "; ".join(part for part in (row["effect"], row["note"]) if part)
        status = Text(row["status"], style=STYLES[row["status"]])
        table.add_row(row["id"], status, Text(row["claim"]), Text(found))
    Console().print(table)
