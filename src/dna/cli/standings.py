"""Evaluations of several runs: a table, and the mean over the seeds of a configuration."""

import json
from statistics import fmean
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dna.common.intervals import METHOD, interval

if TYPE_CHECKING:
    from dna.runs.folder import RunFolder
    from dna.runs.policy import SavedPolicy

Summary = dict[str, Any]
WIDE = 10_000
HEAD = ("run", "who", "seed", "mean", "95 % interval", "median", "IQM", "normalized")


def show(
    policies: list[tuple["RunFolder", "SavedPolicy"]], results: list[Summary], *, as_json: bool
) -> None:
    """The runs and, of each configuration, the mean of its seeds."""
    groups: dict[str, list[int]] = {}
    for i, (folder, _) in enumerate(policies):
        groups.setdefault(folder.read()[0].model_dump_json(), []).append(i)
    means = []
    for rows in groups.values():
        about = policies[rows[0]][1]
        means.append(_about(about) | over_seeds([results[i] for i in rows]))
    if as_json:
        typer.echo(json.dumps({"runs": results, "configurations": means}))
        return
    lines = [row for pair in zip(policies, results, strict=True) for row in _rows(*pair)]
    _print(lines, [_mean_row(mean) for mean in means if len(mean["runs"]) > 1])


def _rows(played: tuple["RunFolder", "SavedPolicy"], result: Summary) -> list[list[str]]:
    folder, policy = played
    rows = []
    for who in ("policy", "random"):
        if who in result:
            name = _name(_about(policy)) if who == "policy" else "random agent"
            seed = str(policy.about.get("seed", "–"))
            rows.append([str(folder.path), name, seed, *_cells(result[who])])
    return rows


def _mean_row(mean: Summary) -> list[str]:
    return [f"mean of {len(mean['runs'])} runs", _name(mean), "", *_cells(mean)]


def _print(rows: list[list[str]], means: list[list[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(HEAD):
        table.add_column(name, justify="left" if i < 2 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    for row in means:
        table.add_row(*map(Text, row), style="bold")
    console = Console()
    # Without a terminal there is no width to fit into: a pipe gets whole lines.
    (console if console.is_terminal else Console(width=WIDE)).print(table)


def over_seeds(results: list[Summary]) -> Summary:
    """The mean of the runs' means, with Student's interval over runs: seeds, not episodes."""
    players = [result["policy"] for result in results]
    low, high = interval([p["mean"] for p in players]) or (None, None)
    same = ("mean", "median", "iqm", "human_normalized", "normalized")
    mean = {key: fmean(p[key] for p in players) for key in same if key in players[0]}
    runs = [result["run"] for result in results]
    return {"runs": runs, "low": low, "high": high, "interval": f"{METHOD}, over runs", **mean}


def _about(policy: "SavedPolicy") -> Summary:
    return {"algorithm": policy.about.get("algorithm"), "env": policy.env.id}


def _name(about: Summary) -> str:
    return f"{(about['algorithm'] or '').upper()} {about['env'] or ''}".strip()


def _cells(summary: Summary) -> list[str]:
    around = "–"
    if summary["low"] is not None:
        around = f"{summary['low']:.2f} to {summary['high']:.2f}"
    scaled = scaled_words(summary).rpartition("normalized ")[2] or "–"
    middle = [f"{summary[key]:.2f}" for key in ("median", "iqm")]
    return [f"{summary['mean']:.2f}", around, *middle, scaled]


def scaled_words(summary: Summary) -> str:
    """The mean on its benchmark's scale, in words."""
    if "human_normalized" in summary:
        return f"human-normalized {summary['human_normalized']:.1f} %"
    return f"normalized {summary['normalized']:.3f}" if "normalized" in summary else ""
