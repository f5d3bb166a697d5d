"""From a name to figures, tables and verdicts: plan, train what is missing, measure, write."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dna.errors import DnaError, Preempted
from dna.experiments import EXPERIMENTS
from dna.experiments.caption import caption
from dna.experiments.execute import check_worlds, execute, unfinished
from dna.experiments.output import (
    folder_of,
    read_experiment,
    verdict_rows,
    verdicts,
    write_all,
)
from dna.experiments.plan import Experiment, Limits, Scale, planned
from dna.experiments.results import Results, collect
from dna.figures.layouts import draw
from dna.figures.toy import draw_toy
from dna.task import Place, Task
from dna.toy import run_toy


@dataclass(frozen=True)
class Where:
    """Folders: of the runs, by digest, and of what is made of them."""

    runs: Path = Path("runs")
    out: Path = Path("reproductions")


@dataclass(frozen=True)
class Watcher:
    """Who is told what goes on."""

    tasks: Callable[[Sequence[Task]], None] = lambda tasks: None
    words: Callable[[str], None] = lambda text: None


def reproduce(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    place: Place | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Do an experiment; returns what its `experiment.json` holds."""
    watcher = watcher or Watcher()
    runs = planned(experiment, scale, limits)
    check_worlds(unfinished(runs, where.runs))
    try:
        execute(runs, where.runs, scale, place, watcher.tasks)
    except Preempted:
        raise Preempted("stopped; the same command goes on where it was") from None
    except DnaError:
        # What is finished is drawn, with what lacks named; then the failure is told.
        _try_to_summarize(experiment, scale, where, limits, watcher)
        raise
    return summarize(experiment, scale, where, limits, watcher)


def _try_to_summarize(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None,
    watcher: Watcher,
) -> None:
    """Draw what there is; a second failure must not hide the first."""
    with suppress(DnaError):
        folder = folder_of(experiment, scale, where.out, limits)
        tree = summarize(experiment, scale, where, limits, watcher)
        watcher.words(f"{folder}: drawn from {len(tree['runs'])} finished runs")


def summarize(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Figures, tables and verdicts of whatever is finished."""
    watcher = watcher or Watcher()
    folder = folder_of(experiment, scale, where.out, limits)
    runs = planned(experiment, scale, limits)
    results = collect(experiment, scale, runs, where.runs, limits)
    results = replace(results, extra=_extra(results, folder, watcher))
    watcher.words("drawing")
    pictures = draw(results)
    if "toy" in results.extra:
        pictures["figure.png"] = draw_toy(run_toy(folder / "toy", scale), caption(results))
    return write_all(results, folder, pictures)


def _extra(results: Results, folder: Path, watcher: Watcher) -> dict[str, Any]:
    """What is measured after the runs, once: it is kept with the runs that it is of."""
    kept = read_experiment(folder) or {}
    runs = sorted(one.run.digest for one in results.outcomes)
    same = sorted(run["digest"] for run in kept.get("runs", [])) == runs
    found: dict[str, Any] = {}
    for name, measure in results.experiment.extra.items():
        old = kept.get("extra", {}).get(name)
        found[name] = (
            old if same and old is not None else measure(results, folder, watcher.words)
        )
    return found


def all_verdicts(scale: Scale, where: Where) -> list[dict[str, str]]:
    """Every claim of the paper: as its experiment found, or as can be computed without runs."""
    rows: list[dict[str, str]] = []
    for one in EXPERIMENTS:
        tree = read_experiment(folder_of(one, scale, where.out))
        if tree is not None:
            rows += tree["verdicts"]
        else:
            rows += verdict_rows(verdicts(Results(one, scale, ())))
    return sorted(rows, key=lambda row: row["id"])
