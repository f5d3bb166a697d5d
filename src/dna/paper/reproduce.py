"""From a name to figures, tables and verdicts: plan, train what is missing, measure, write."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dna.common.errors import BadInput, DnaError, Preempted, StorageFailure
from dna.common.storage import make_folder, write_json
from dna.paper.claims.verdicts import COMPUTED
from dna.paper.experiments import EXPERIMENTS
from dna.paper.experiments.caption import caption
from dna.paper.experiments.execute import Failed, check_worlds, execute, unfinished, unique
from dna.paper.experiments.output import (
    folder_of,
    largest,
    read_experiment,
    verdict_rows,
    verdicts,
    write_all,
)
from dna.paper.experiments.plan import Experiment, Limits, Planned, Scale, planned
from dna.paper.experiments.results import Results, collect
from dna.paper.figures.layouts import draw
from dna.paper.figures.toy import draw_toy
from dna.paper.toy import run_toy
from dna.runs.sweeps.pool import Place, Task


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


class RunsFailed(DnaError):
    """Some runs came to no end. What the others came to is written, and is `tree`."""

    def __init__(self, failed: Sequence[Failed], planned: int, tree: dict[str, Any]) -> None:
        super().__init__(
            f"{len(failed)} of {planned} runs failed; {'; '.join(map(str, failed))}"
        )
        self.exit_code, self.tree = failed[0].code, tree


def reproduce(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    place: Place | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Do an experiment; returns what its `experiment.json` holds.

    Runs that fail are named by an error once the others are finished and summarized.
    """
    watcher = watcher or Watcher()
    check_cut(experiment, limits)
    make_folder(where.out)  # refused now, not after hours of training
    runs = planned(experiment, scale, limits)
    check_worlds(unfinished(runs, where.runs))
    try:
        failed = execute(runs, where.runs, scale, place, watcher.tasks)
    except Preempted:
        text = "stopped; the same command goes on where it was, --finished shows what there is"
        raise Preempted(text) from None
    return summarize(experiment, scale, where, limits, watcher, failed)


def check_cut(experiment: Experiment, limits: Limits | None) -> None:
    """Refuse to shorten what has no runs: it would be called cut, and would not be."""
    if limits is not None and limits.interactions and not experiment.studies:
        raise BadInput(f"--interactions: {experiment.alias} trains no agent, so it has none")


def summarize(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    watcher: Watcher | None = None,
    failed: Sequence[Failed] | None = None,
) -> dict[str, Any]:
    """Figures, tables and verdicts of whatever is finished; then says what failed.

    `failed`: of the runs just made. Without it nothing was made, and nothing is measured.
    """
    watcher = watcher or Watcher()
    folder = folder_of(experiment, scale, where.out, limits)
    runs = planned(experiment, scale, limits)
    results = collect(experiment, scale, runs, where.runs, limits)
    results = replace(results, extra=_extra(results, folder, watcher, failed is not None))
    failed = [*(failed or ()), *(_unreadable(*one) for one in results.damaged)]
    watcher.words("drawing")
    pictures = draw(results)
    if "toy" in results.extra:
        toy = run_toy(folder / "toy", scale, seeds=results.limits.seeds)
        pictures["figure.png"] = draw_toy(toy, caption(results))
    tree = write_all(results, folder, pictures)
    if failed:
        tree |= {"failed": [str(one) for one in failed]}
        write_json(folder / "experiment.json", tree)
        raise RunsFailed(failed, len(unique(runs)), tree)
    return tree


def _unreadable(run: Planned, words: str) -> Failed:
    """A finished run whose files somebody damaged."""
    return Failed(run, f"{words}; delete its folder to train it anew", StorageFailure.exit_code)


def _extra(results: Results, folder: Path, watcher: Watcher, anew: bool) -> dict[str, Any]:
    """What is measured after the runs, once: it is kept with the runs that it is of.

    Without runs there is nothing to know it by again: it is asked for anew.
    """
    kept: dict[str, Any] = {}
    with suppress(StorageFailure):  # a file that is damaged is about to be written anew
        kept = read_experiment(folder) or {}
    runs = sorted(one.run.digest for one in results.outcomes)
    same = runs and sorted(run["digest"] for run in kept.get("runs", [])) == runs
    found: dict[str, Any] = {}
    for name, measure in results.experiment.extra.items():
        old = kept.get("extra", {}).get(name) if same or (not runs and not anew) else None
        if old is None and anew:
            old = measure(results, folder, watcher.words)
        found |= {name: old} if old is not None else {}
    return found


def all_verdicts(
    scale: Scale, where: Where, limits: Limits | None = None, only: Experiment | None = None
) -> list[dict[str, str]]:
    """Every claim of the paper: as its experiment found, or of the runs that are finished.

    Where only cut experiments are there, the largest is taken and its folder is named.
    `only`: the claims of one experiment.
    """
    rows: list[dict[str, str]] = []
    for one in EXPERIMENTS if only is None else (only,):
        found = largest(one, scale, where.out, limits or Limits())
        if found is None:
            runs = planned(one, scale, limits) if where.runs.is_dir() else ()
            found_runs = collect(one, scale, runs, where.runs, limits)
            rows += verdict_rows(verdicts(found_runs))
            continue
        folder, tree = found
        cut = folder != folder_of(one, scale, where.out)
        rows += [_named(row, folder) if cut else row for row in tree["verdicts"]]
    return sorted(rows, key=lambda row: row["id"])


def _named(row: dict[str, str], folder: Path) -> dict[str, str]:
    """A verdict that says where it is from, unless it needed no runs."""
    words = [row["note"]] + [f"from {folder.name}"] * (row["note"] != COMPUTED)
    return row | {"note": "; ".join(filter(None, words))}
