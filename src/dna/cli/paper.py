"""`dna reproduce`: any figure or table of the paper, at a scale that the machine can bear."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dna.cli import places
from dna.cli.plan import show_plan
from dna.common.errors import BadInput

if TYPE_CHECKING:
    from dna.paper.experiments.plan import Experiment, Limits, Scale
    from dna.paper.reproduce import Watcher, Where
    from dna.runs.sweeps.task import Task

HELP = """Run an experiment of the paper, draw its figure, and say which claims held.

Runs that are finished are skipped, runs that were interrupted go on; what two experiments
share is trained once. At `small` scale MinAtar stands for Atari, and is said to.

Examples:

  dna reproduce toy --scale small

  dna reproduce ablation --scale small --plan

  dna reproduce fig13 --scale small --seeds 2

  dna reproduce mujoco --finished

  dna reproduce --claims

  dna reproduce mujoco --claims
"""
STYLES = {"held": "green", "not held": "red", "not tested": "dim"}


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="fig04, epochs, …")
    ] = None,
    scale: Annotated[
        Literal["smoke", "small", "paper"], typer.Option(help="Seconds, hours, as published")
    ] = "small",
    plan: Annotated[bool, typer.Option("--plan", help="Only say what it would take")] = False,
    claims: Annotated[bool, typer.Option("--claims", help="Verdicts: NAME's, or all")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Show, do not train")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fewer (or more) seeds")] = None,
    interactions: Annotated[int | None, typer.Option(min=1, help="Shorter runs")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time [cores]")] = None,
    runs: Annotated[Path, typer.Option(help="Where runs are kept, by digest")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Figures and tables")] = Path("reproductions"),
    ray: places.Ray = None,
    cpus_per_run: places.CpusPerRun = None,
    gpus_per_run: places.GpusPerRun = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables")] = False,
) -> None:
    from dna.paper.experiments.output import folder_of
    from dna.paper.experiments.plan import Limits, cut
    from dna.paper.reproduce import Where, check_cut, summarize
    from dna.paper.reproduce import reproduce as run

    where, limits = Where(runs, out), Limits(seeds, interactions)
    chosen = _chosen(name, plan, claims, finished)
    limits = limits if chosen is None else cut(chosen, scale, limits)
    if chosen is None or claims:
        return _claims(chosen, scale, where, limits, as_json)
    check_cut(chosen, limits)
    if plan:
        return show_plan(chosen, scale, limits, where, jobs, as_json)
    where_to = places.the_place(jobs, ray, cpus_per_run, gpus_per_run)
    with where_to as place, _watching(chosen) as watcher:
        if finished:
            tree = summarize(chosen, scale, where, limits, watcher)
        else:
            tree = run(chosen, scale, where, limits, place, watcher)
    _tell(tree, folder_of(chosen, scale, out, limits), as_json)


def _chosen(name: str | None, plan: bool, claims: bool, finished: bool) -> "Experiment | None":
    """What was asked for; None: the claims of every experiment."""
    from dna.paper.experiments import experiment

    if sum((claims, plan, finished)) > 1:
        raise BadInput("--claims, --plan, --finished: ask for one of them; none of them trains")
    if name is None and not claims:
        raise BadInput("NAME: which experiment? `dna list experiments` shows all")
    return None if name is None else experiment(name)


def _claims(
    chosen: "Experiment | None", scale: "Scale", where: "Where", limits: "Limits", as_json: bool
) -> None:
    """Claims: of the scale's experiments, cut or not, the others as without runs."""
    from dna.paper.reproduce import all_verdicts

    rows = all_verdicts(scale, where, limits, chosen)
    if as_json:
        return typer.echo(json.dumps(rows))
    _verdicts(rows)
    counts = {status: sum(row["status"] == status for row in rows) for status in STYLES}
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    typer.echo(f"{len(rows)} claims: {words}")


def _tell(tree: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        return typer.echo(json.dumps(tree))
    console = Console()
    if tree["caption"]:
        console.print(Text(tree["caption"], style="yellow"), highlight=False)
    _verdicts(tree["verdicts"])
    for name in (*tree["figures"], *tree["tables"], "experiment.json"):
        # A folder's name is no markup: `re[red]p` is another path without its brackets.
        console.print(f"{folder / name}", markup=False, highlight=False, soft_wrap=True)


def _verdicts(rows: Sequence[dict[str, str]]) -> None:
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


@contextmanager
def _watching(chosen: "Experiment") -> Iterator["Watcher"]:
    from dna.paper.reproduce import Watcher

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Watcher(_lines(), lambda text: typer.echo(text, err=True))
        return
    with Live(console=console, refresh_per_second=2) as live:
        yield Watcher(
            lambda tasks: live.update(_progress(chosen, tasks)),
            lambda text: live.update(Text(text)),
        )


def _progress(chosen: "Experiment", tasks: Sequence["Task"]) -> Table:
    table = Table(title=chosen.title, box=None, header_style="bold")
    for head in ("environment", "algorithm", "seed", "done", "score"):
        table.add_column(head)
    for task in [task for task in tasks if task.state == "running"]:
        score = "-" if task.score is None else f"{task.score:.2f}"
        share = f"{task.interactions / task.config.interactions:.0%}"
        env, algorithm = str(task.config.env.id), task.config.algorithm
        table.add_row(env, algorithm, str(task.seed), share, score)
    over = sum(task.state == "done" for task in tasks)
    table.caption = f"{over} of {len(tasks)} runs finished"
    return table


def _lines() -> Callable[[Sequence["Task"]], None]:
    """Off a terminal: a line whenever another run is over."""
    said = [-1]

    def tell(tasks: Sequence["Task"]) -> None:
        over = sum(task.state == "done" for task in tasks)
        if over != said[0]:
            said[0] = over
            typer.echo(f"{over} of {len(tasks)} runs finished", err=True)

    return tell


def print_experiments() -> None:
    """Name, alias, what it covers."""
    from dna.paper.experiments import EXPERIMENTS

    table = Table(box=None, header_style="bold")
    for head in ("name", "alias", "title", "covers"):
        table.add_column(head)
    for one in EXPERIMENTS:
        table.add_row(one.name, one.alias, one.title, " ".join(one.covers))
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command(help=HELP)(reproduce)
