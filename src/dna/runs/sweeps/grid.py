"""Many settings over many seeds: runs by digest, and a table of what they came to.

A sweep's folder holds what it is (`sweep.json`) and what came of it, for programs and people
(`results.json`, `results.csv`, `results.md`); the runs lie where `dna train` puts them too.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dna.common.errors import BadInput, Preempted
from dna.common.lock import locked
from dna.common.storage import read_json, write, write_json
from dna.config import Config
from dna.config.overrides import digest
from dna.config.search_space import label, value_text
from dna.runs.folder import RunFolder
from dna.runs.sweeps.objectives import Average, Objective, average, read_curve, standard_error
from dna.runs.sweeps.pool import run_all
from dna.runs.sweeps.task import Place, Task, threads_for

Told = Callable[[Sequence[Task]], None]
#: A run that counts in none of the sums.
NO_SCORE = "-"


@dataclass(frozen=True)
class Point:
    """Settings of a sweep, and what they change."""

    changes: Mapping[str, Any]
    config: Config
    trial: int | None = None  # of a search

    def tasks(self, seeds: range, runs: Path) -> list[Task]:
        """A run per seed, named by its digest."""
        name = label(self.changes)
        text = name if self.trial is None else f"trial {self.trial}: {name}"
        config = self.config
        return [Task(config, s, runs / digest(config, s), label=text) for s in seeds]


@dataclass(frozen=True)
class Sweep:
    """What is to be done, and how it is judged."""

    about: Mapping[str, Any]  # environment and what is varied: what must not change
    seeds: range
    runs: Path
    out: Path
    objective: Objective = field(default_factory=lambda: Objective("score"))
    average: Average = "mean"


def run_grid(
    sweep: Sweep,
    points: Sequence[Point],
    place: Place,
    words: Sequence[str] = (),
    told: Told = lambda tasks: None,
) -> tuple[dict[str, Any], list[Task]]:
    """Train what is not finished, seed by seed; returns what `results.json` holds."""
    with locked(sweep.out):
        remember(sweep)
        tasks = grid_tasks(sweep, points)
        for task in tasks if "--threads" not in words else ():
            task.options = threads_for(task.config, place)
        try:
            run_all(tasks, place, words, told)
        except Preempted as error:
            raise going_on(error) from None
        finally:
            tree = write_results(sweep, [row(sweep, point) for point in points])
        return tree, tasks


def grid_tasks(sweep: Sweep, points: Sequence[Point]) -> list[Task]:
    """Seed by seed, so that a sweep that is stopped early has all of its points."""
    found = {t.folder: t for point in points for t in point.tasks(sweep.seeds, sweep.runs)}
    return sorted(found.values(), key=lambda task: task.seed)


def going_on(error: Preempted) -> Preempted:
    """What to do about a sweep that was stopped."""
    return Preempted(f"{str(error).partition(';')[0]}; the same command goes on where it was")


def remember(sweep: Sweep) -> None:
    """Write down what the sweep is; a folder of another one is refused."""
    path = sweep.out / "sweep.json"
    if path.is_file():
        if read_json(path) != dict(sweep.about):
            raise BadInput(f"--out {sweep.out}: holds another sweep; choose another folder")
    elif any(sweep.out.glob("results.*")):
        raise BadInput(f"--out {sweep.out}: holds results that are no sweep's")
    else:
        write_json(path, dict(sweep.about))


def row(sweep: Sweep, point: Point, state: str | None = None) -> dict[str, Any]:
    """What a point came to: each run, scores and the objective over those that are over."""
    runs = [_run(sweep, task) for task in point.tasks(sweep.seeds, sweep.runs)]
    over = [run for run in runs if run["state"] == "done"]
    scores = [run["score"] for run in over if run["score"] is not None]
    values = [run["value"] for run in over if run["value"] is not None]
    found: dict[str, Any] = {} if point.trial is None else {"trial": point.trial}
    found |= {"changes": dict(point.changes)}
    found |= {"state": state or ("done" if len(over) == len(runs) else "unfinished")}
    found |= {"seeds": len(scores)}
    found |= {"score": average(scores, "mean") if scores else None}
    found |= {"standard_error": standard_error(scores)}
    found |= {"value": average(values, sweep.average) if values else None}
    return found | {"value_error": standard_error(values), "runs": runs}


def _run(sweep: Sweep, task: Task) -> dict[str, Any]:
    folder = RunFolder(task.folder)
    result = folder.result() if folder.exists else None
    about: dict[str, Any] = {"seed": task.seed, "digest": task.folder.name}
    about |= {"folder": str(task.folder), "state": "unfinished", "score": None, "value": None}
    if result is None:
        return about
    curve = read_curve(task.folder)
    value = sweep.objective.value(curve, task.config.interactions)
    return about | {"state": "done", "score": result["score"], "value": value}


def write_results(sweep: Sweep, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Best first, as JSON, CSV and Markdown."""
    ordered = ranked(rows, sweep.objective)
    tree = dict(sweep.about) | {"objective": sweep.objective.name, "average": sweep.average}
    tree |= {"seeds": list(sweep.seeds), "points": ordered}
    cells = table(ordered, sweep.objective)
    write_json(sweep.out / "results.json", tree)
    write(sweep.out / "results.csv", _csv(ordered).encode())
    write(sweep.out / "results.md", _markdown(cells, sweep).encode())
    return tree


def ranked(rows: Sequence[dict[str, Any]], objective: Objective) -> list[dict[str, Any]]:
    """Best first; what is pruned, failed or not finished after that, as it came."""
    sign = 1 if objective.minimize else -1

    def place(item: dict[str, Any]) -> tuple[bool, bool, float]:
        value = item["value"]
        return item["state"] != "done", value is None, 0.0 if value is None else sign * value

    return sorted(rows, key=place)


def table(rows: Sequence[Mapping[str, Any]], objective: Objective) -> list[dict[str, str]]:
    """One row per point, for people: mean ± standard error over seeds."""
    found = []
    for number, item in enumerate(rows, 1):
        cells = {"": str(number)}
        if "trial" in item:
            cells["trial"] = str(item["trial"])
        cells |= {key: value_text(value) for key, value in item["changes"].items()}
        if objective.kind != "score":
            cells[objective.name] = plus_minus(item["value"], item["value_error"])
        cells["score"] = plus_minus(item["score"], item["standard_error"])
        cells["seeds"], cells["state"] = str(item["seeds"]), item["state"]
        found.append(cells)
    return found


def plus_minus(mean: float | None, error: float | None) -> str:
    """`499.30 ± 0.70`."""
    if mean is None:
        return NO_SCORE
    return f"{mean:,.2f}" if error is None else f"{mean:,.2f} ± {error:,.2f}"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Numbers as they are."""
    numbers = ("score", "standard_error", "value", "value_error", "seeds", "state")
    lines = [
        ({"trial": item["trial"]} if "trial" in item else {})
        | {
            key: value_text(v) if isinstance(v, list | dict) else v
            for key, v in item["changes"].items()
        }
        | {name: item[name] for name in numbers}
        for item in rows
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _markdown(cells: Sequence[Mapping[str, str]], sweep: Sweep) -> str:
    head = f"# {sweep.about['env']}\n\nBest first by {sweep.objective.name}"
    head += f" ({sweep.average} over seeds); score: mean ± standard error over seeds.\n\n"
    if not cells:
        return head
    columns = list(cells[0])
    lines = ["| " + " | ".join(columns) + " |", "|--:" * len(columns) + "|"]
    lines += [
        "| " + " | ".join(line[c].replace("|", r"\|") for c in columns) + " |" for line in cells
    ]
    return head + "\n".join(lines) + "\n"
