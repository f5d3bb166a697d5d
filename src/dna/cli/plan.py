"""`dna reproduce NAME --plan`: what an experiment would take here, before anything is run."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from dna.paper.experiments.cost import Cost
    from dna.paper.experiments.plan import Experiment, Limits, Planned, Scale
    from dna.paper.experiments.toy_cost import ToyCost
    from dna.paper.reproduce import Where


def show_plan(
    chosen: "Experiment",
    scale: "Scale",
    limits: "Limits",
    where: "Where",
    jobs: int | None,
    as_json: bool,
) -> None:
    """Print runs, interactions, hours, disk; what is measured is said on stderr meanwhile."""
    from dna.paper.experiments import EXPERIMENTS
    from dna.paper.experiments.cost import cost
    from dna.paper.experiments.output import folder_of
    from dna.paper.experiments.plan import planned
    from dna.paper.experiments.speed import remembered
    from dna.paper.experiments.toy_cost import toy_cost

    mine, toy = planned(chosen, scale, limits), None
    others = [(o, planned(o, scale, limits)) for o in EXPERIMENTS if o.name != chosen.name]
    with _telling() as told:
        bill = cost(mine, where.runs, others, remembered(where.runs, told), jobs)
        if "toy" in chosen.extra:
            folder = folder_of(chosen, scale, where.out, limits) / "toy"
            toy = toy_cost(scale, folder, told, seeds=limits.seeds)
    if as_json:
        tree: dict[str, Any] = vars(bill) | ({"toy": toy.to_json()} if toy else {})
        return typer.echo(json.dumps(tree))
    _print(chosen, mine, bill, toy)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """A line that changes on a terminal, a line for each elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: typer.echo(text, err=True)
        return
    with console.status("measuring the speed of one run of every kind") as status:
        yield status.update


def _print(
    chosen: "Experiment", mine: Sequence["Planned"], bill: "Cost", toy: "ToyCost | None"
) -> None:
    if toy:
        left = "" if toy.finished == toy.cells else f"; about {spoken(toy.hours)} left"
        return typer.echo(f"{toy.words}{left}")
    if not mine:
        return typer.echo("0 runs: nothing is trained, every claim is computed on the spot")
    Console().print(_table(mine))
    typer.echo(
        f"{bill.runs} runs, {bill.finished} of them finished; {bill.interactions / 1e6:,.1f} "
        f"million interactions left{_hours(bill)}, up to {bill.gigabytes:.1f} GB of checkpoints"
    )
    if chosen.extra:
        typer.echo(f"measured after the runs, not in the hours: {', '.join(chosen.extra)}")
    if bill.shared:
        words = ", ".join(f"{count} with {other}" for other, count in bill.shared.items())
        typer.echo(f"shared runs: {words}")


def _hours(bill: "Cost") -> str:
    """`, about 4.1 hours one after the other (2.1 hours side by side)`"""
    words = f", about {spoken(bill.hours)} one after the other"
    less = bill.wall_hours < bill.hours
    return f"{words} ({spoken(bill.wall_hours)} side by side)" if less else words


def _table(mine: Sequence["Planned"]) -> Table:
    table = Table(box=None, header_style="bold")
    for head in ("study", "arm", "environments", "seeds", "interactions each"):
        table.add_column(
            head, justify="right" if head[0] in "is" and head != "study" else "left"
        )
    for study, arm in dict.fromkeys((run.study, run.arm) for run in mine):
        of_arm = [run for run in mine if (run.study, run.arm) == (study, arm)]
        envs, seed_count = {run.env for run in of_arm}, {run.seed for run in of_arm}
        length = f"{of_arm[0].config.interactions:,}"
        table.add_row(study, arm, str(len(envs)), str(len(seed_count)), length)
    return table


def spoken(hours: float) -> str:
    """Seconds, minutes, hours or days."""
    if hours < 1 / 30:
        return f"{3600 * hours:.0f} seconds"
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:,.1f} hours" if hours < 48 else f"{hours / 24:,.0f} days"
