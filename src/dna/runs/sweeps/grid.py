"""Sweeps: many settings over many seeds, how they are judged, and the table of their results.

The folder of a sweep holds its definition (`sweep.json`) and its results (`results.json`,
`results.csv`, `results.md`); its runs are named by digest, where `dna train` puts them too.
`dna.runs.sweeps.search` chooses the settings by itself; its results have the same form.

Objectives:
    score               mean of the last 100 episodes at the end of the run
    area                mean of the score over the run (area under the curve / length)
    interactions-to=V   interactions until the score first reaches V; less is better
"""

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from dna.common import json_lines
from dna.common.errors import BadInput, Preempted
from dna.common.lock import locked
from dna.common.messages import quoted
from dna.common.storage import read_json, write, write_json
from dna.config import Config
from dna.config.overrides import digest
from dna.config.search_space import label, value_text
from dna.runs.folder import RunFolder
from dna.runs.sweeps.pool import Place, Task, run_all, threads_for

#: Called with all tasks of a sweep whenever they may have changed.
Report = Callable[[Sequence[Task]], None]
#: (interactions, score) of each iteration of a run since its first episode ended.
Curve = list[tuple[int, float]]
Average = Literal["mean", "median"]
#: Table cell of a value that does not exist.
NO_SCORE = "-"


# ── objectives ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Objective:
    """How a run is judged; `goal` is that of `interactions-to`."""

    kind: Literal["score", "area", "interactions-to"]
    goal: float = 0.0

    @property
    def name(self) -> str:
        """The objective as it is written on the command line."""
        return f"{self.kind}={self.goal:g}" if self.kind == "interactions-to" else self.kind

    @property
    def minimize(self) -> bool:
        """Whether less is better."""
        return self.kind == "interactions-to"

    def value(self, curve: Curve, total: int) -> float | None:
        """Judge a run of `total` interactions; None if no episode has ended."""
        if self.kind == "interactions-to":
            return self._interactions_to(curve, total)
        if not curve:
            return None
        return curve[-1][1] if self.kind == "score" else _area(curve)

    def _interactions_to(self, curve: Curve, total: int) -> float:
        """Interactions until the goal.

        A run that never reaches it counts as one to two times its length, depending on how far
        it fell short, so that a search can tell a near miss from no learning at all.
        """
        for interactions, score in curve:
            if score >= self.goal:
                return float(interactions)
        if not curve:
            return 2.0 * total
        best = max(score for _, score in curve)
        return total * (1 + (self.goal - best) / (abs(self.goal) + abs(best)))


def _area(curve: Curve) -> float:
    """Mean height by trapezoids; before its first episode a run has its first score."""
    area = curve[0][0] * curve[0][1]
    for (x0, y0), (x1, y1) in pairwise(curve):
        area += (x1 - x0) * (y0 + y1) / 2
    return area / curve[-1][0]


def objective(text: str) -> Objective:
    """Parse `score`, `area` or `interactions-to=475`."""
    kind, equals, goal = text.partition("=")
    if kind in ("score", "area") and not equals:
        return Objective("score" if kind == "score" else "area")
    try:
        if kind == "interactions-to" and math.isfinite(float(goal)):
            return Objective("interactions-to", float(goal))
    except ValueError:
        pass
    known = "score, area or interactions-to=NUMBER"
    raise BadInput(f"--objective: given {quoted(text)}, must be {known}")


def read_curve(folder: Path, *, whole: bool = True) -> Curve:
    """Read the curve of a run; `whole=False` allows an incomplete last line."""
    path = folder / "metrics.jsonl"
    return json_lines.curve(path, whole=whole) if path.is_file() else []


def average(values: Sequence[float], how: Average) -> float:
    """Return the mean or the median over seeds."""
    found = statistics.fmean(values) if how == "mean" else statistics.median(values)
    return float(found)


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean; None for fewer than two values."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


# ── sweeps ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Point:
    """One combination of settings of a sweep."""

    changes: Mapping[str, Any]
    config: Config
    trial: int | None = None  # of a search

    def tasks(self, seeds: range, runs: Path) -> list[Task]:
        """Return one run per seed, named by its digest."""
        name = label(self.changes)
        text = name if self.trial is None else f"trial {self.trial}: {name}"
        config = self.config
        return [Task(config, s, runs / digest(config, s), label=text) for s in seeds]


@dataclass(frozen=True)
class Sweep:
    """The definition of a sweep."""

    about: Mapping[str, Any]  # the environment and what is varied: content of `sweep.json`
    seeds: range
    runs: Path
    out: Path
    objective: Objective = field(default_factory=lambda: Objective("score"))
    average: Average = "mean"


def run_grid(
    sweep: Sweep,
    points: Sequence[Point],
    place: Place,
    options: Sequence[str] = (),
    report: Report = lambda tasks: None,
) -> tuple[dict[str, Any], list[Task]]:
    """Train what is not finished; returns the content of `results.json` and the tasks."""
    with locked(sweep.out):
        remember(sweep)
        tasks = grid_tasks(sweep, points)
        if "--threads" not in options:
            for task in tasks:
                task.options = threads_for(task.config, place)
        try:
            run_all(tasks, place, options, report)
        except Preempted as error:
            raise resumable(error) from None
        finally:
            tree = write_results(sweep, [row(sweep, point) for point in points])
        return tree, tasks


def grid_tasks(sweep: Sweep, points: Sequence[Point]) -> list[Task]:
    """Order tasks by seed, so that a sweep that is stopped early has all of its points."""
    found = {t.folder: t for point in points for t in point.tasks(sweep.seeds, sweep.runs)}
    return sorted(found.values(), key=lambda task: task.seed)


def resumable(error: Preempted) -> Preempted:
    """Say how to continue a sweep that was stopped."""
    return Preempted(f"{str(error).partition(';')[0]}; the same command continues it")


def remember(sweep: Sweep) -> None:
    """Write `sweep.json`; refuse the folder of another sweep."""
    path = sweep.out / "sweep.json"
    if path.is_file():
        if read_json(path) != dict(sweep.about):
            raise BadInput(f"--out {sweep.out}: holds another sweep; choose another folder")
    elif any(sweep.out.glob("results.*")):
        raise BadInput(f"--out {sweep.out}: holds results, but no sweep; choose another folder")
    else:
        write_json(path, dict(sweep.about))


# ── results ───────────────────────────────────────────────────────────────────────────────


def row(sweep: Sweep, point: Point, state: str | None = None) -> dict[str, Any]:
    """Return the results of a point: each run, and averages over the finished ones."""
    runs = [_run(sweep, task) for task in point.tasks(sweep.seeds, sweep.runs)]
    done = [run for run in runs if run["state"] == "done"]
    scores = [run["score"] for run in done if run["score"] is not None]
    values = [run["value"] for run in done if run["value"] is not None]
    trial = {} if point.trial is None else {"trial": point.trial}
    return {
        **trial,
        "changes": dict(point.changes),
        "state": state or ("done" if len(done) == len(runs) else "unfinished"),
        "seeds": len(scores),
        "score": average(scores, "mean") if scores else None,
        "standard_error": standard_error(scores),
        "value": average(values, sweep.average) if values else None,
        "value_error": standard_error(values),
        "runs": runs,
    }


def _run(sweep: Sweep, task: Task) -> dict[str, Any]:
    folder = RunFolder(task.folder)
    result = folder.result() if folder.exists else None
    about: dict[str, Any] = {
        "seed": task.seed,
        "digest": task.folder.name,
        "folder": str(task.folder),
        "state": "unfinished",
        "score": None,
        "value": None,
    }
    if result is None:
        return about
    curve = read_curve(task.folder)
    value = sweep.objective.value(curve, task.config.interactions)
    return about | {"state": "done", "score": result["score"], "value": value}


def write_results(sweep: Sweep, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Write the results, best first, as JSON, CSV and Markdown."""
    ordered = ranked(rows, sweep.objective)
    tree = {
        **sweep.about,
        "objective": sweep.objective.name,
        "average": sweep.average,
        "seeds": list(sweep.seeds),
        "points": ordered,
    }
    cells = table(ordered, sweep.objective)
    write_json(sweep.out / "results.json", tree)
    write(sweep.out / "results.csv", _csv(ordered).encode())
    write(sweep.out / "results.md", _markdown(cells, sweep).encode())
    return tree


def ranked(rows: Sequence[dict[str, Any]], objective: Objective) -> list[dict[str, Any]]:
    """Order points best first; pruned, failed and unfinished ones follow."""
    sign = 1 if objective.minimize else -1

    def place(item: dict[str, Any]) -> tuple[bool, bool, float]:
        value = item["value"]
        return item["state"] != "done", value is None, 0.0 if value is None else sign * value

    return sorted(rows, key=place)


def table(rows: Sequence[Mapping[str, Any]], objective: Objective) -> list[dict[str, str]]:
    """Format one table row per point: mean ± standard error over seeds."""
    found = []
    for number, item in enumerate(rows, 1):
        cells = {"": str(number)}
        if "trial" in item:
            cells["trial"] = str(item["trial"])
        cells |= {key: value_text(value) for key, value in item["changes"].items()}
        if objective.kind != "score":
            cells[objective.name] = plus_minus(item["value"], item["value_error"])
        cells["score"] = plus_minus(item["score"], item["standard_error"])
        cells["seeds"] = str(item["seeds"])
        cells["state"] = item["state"]
        found.append(cells)
    return found


def plus_minus(mean: float | None, error: float | None) -> str:
    """Format `499.30 ± 0.70`."""
    if mean is None:
        return NO_SCORE
    return f"{mean:,.2f}" if error is None else f"{mean:,.2f} ± {error:,.2f}"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the results as CSV, numbers in full."""
    numbers = ("score", "standard_error", "value", "value_error", "seeds", "state")
    lines = []
    for item in rows:
        line = {"trial": item["trial"]} if "trial" in item else {}
        for key, value in item["changes"].items():
            line[key] = value_text(value) if isinstance(value, list | dict) else value
        lines.append(line | {name: item[name] for name in numbers})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _markdown(cells: Sequence[Mapping[str, str]], sweep: Sweep) -> str:
    head = (
        f"# {sweep.about['env']}\n\nBest first by {sweep.objective.name}"
        f" ({sweep.average} over seeds); score: mean ± standard error over seeds.\n\n"
    )
    if not cells:
        return head
    columns = list(cells[0])
    lines = ["| " + " | ".join(columns) + " |", "|--:" * len(columns) + "|"]
    for line in cells:
        lines.append("| " + " | ".join(line[c].replace("|", r"\|") for c in columns) + " |")
    return head + "\n".join(lines) + "\n"
