"""`dna bench`: how fast, beside whom, and how close to what the machine can do."""

import json
import statistics
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dna.common.errors import BadInput
from dna.common.messages import nearest, quoted


def bench(
    family: Annotated[
        Literal["atari", "mujoco", "minatar", "procgen"], typer.Argument(help="What to run")
    ],
    against: Annotated[
        str, typer.Option(metavar="PEER,...", help="sb3, cleanrl-style, sbx; see `make peers`")
    ] = "",
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Turns of everybody")] = 5,
    out: Annotated[Path | None, typer.Option(help="Also write the figures as JSON")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables")] = False,
) -> None:
    """Measure interactions per second, where the time goes, and the percentage of the limit.

    The limit is the machine's own: the algorithm's floating-point operations at the speed of a
    large matrix product, plus stepping the environments. Peers do the same work in turns with
    us. Nothing else should run meanwhile.

    Examples:

      dna bench minatar

      dna bench atari --against sb3,cleanrl-style --repeats 5 --out atari.json
    """
    names = _peers(against, family)
    from dna.cli.bench.contest import contest
    from dna.cli.bench.report import figures
    from dna.common.storage import write_json

    console = Console(stderr=True)
    with console.status(f"{family}: starting") as status:
        results = contest(family, names, repeats, lambda text: status.update(escape(text)))
    found = figures(family, results)
    if out is not None:
        write_json(out, found)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _print(found)


def _peers(text: str, family: str) -> list[str]:
    from dna.cli.bench import PEERS, cases

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            hint = nearest(name, list(PEERS)) or f"; known: {', '.join(PEERS)}"
            raise BadInput(f"--against {quoted(name)}: no such peer{hint}")
    able = {peer for case in cases(family) for peer in case.peers}
    for name in names:
        if name not in able:
            known = ", ".join(sorted(able))
            raise BadInput(f"--against {name}: does not do {family}'s work; {known} can")
    return names


def _print(found: dict[str, Any]) -> None:
    console = Console()
    table = Table(box=None, header_style="bold")
    for name in ("case", "who", "interactions/s", "ours is", "% of limit", "memory"):
        table.add_column(name, justify="left" if name in ("case", "who") else "right")
    for case in found["cases"]:
        for who, numbers in case["rates"].items():
            first = who == "ours"
            low, middle, high = numbers["min"], numbers["median"], numbers["max"]
            ratio = case["ratios"].get(who)
            table.add_row(
                case["name"] if first else "",
                who,
                f"{middle:,.0f} ({low:,.0f}-{high:,.0f})",
                "" if ratio is None else f"{ratio['median']:.2f} ×",
                f"{100 * case['of_limit']['median']:.0f} %" if first else "",
                f"{(case['memory'] + case['workers']) / 1e9:.2f} GB" if first else "",
            )
    console.print(table)
    for case in found["cases"]:
        parts = sorted(case["split"].items(), key=lambda item: -item[1])
        text = ", ".join(f"{part} {share:.0%}" for part, share in parts if share >= 0.005)
        console.print(f"{case['name']}: {text}", markup=False, highlight=False)
    for case in found["cases"]:
        if case["paper_hours"]:
            time = f"{case['time']['median']:.2f} × the time of DNA"
            paper = f"{case['paper_hours'] / 4:.2f}"
            text = f"{time}; in the paper {paper}"
            console.print(f"{case['name']}: {text}", markup=False, highlight=False)
        for who, ratio in case["beside"].items():
            text = f"{ratio['median']:.2f} × as fast as {who}'s PPO"
            console.print(f"{case['name']}: {text}", markup=False, highlight=False)
    limits = [case["limit"] for case in found["cases"]]
    gflops = statistics.median(limit["matmul"] for limit in limits) / 1e9
    env = statistics.median(limit["env"] for limit in limits)
    console.print(f"limit: matrix product {gflops:,.0f} GFLOP/s, environments {env:,.0f}/s")


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command()(bench)
