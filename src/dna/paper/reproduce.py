"""Reproduce an experiment of the paper: plan, train what is missing, measure, write.

Finished runs are skipped and interrupted ones resumed. A run that fails does not stop the
others.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dna.common.console import typed
from dna.common.errors import BadInput, DnaError, Preempted, StorageFailure
from dna.common.storage import make_folder, write_json
from dna.paper import toy
from dna.paper.claims.verdicts import COMPUTED, joined
from dna.paper.experiments import EXPERIMENTS
from dna.paper.figures.layouts import draw, draw_toy
from dna.paper.output import (
    folder_of,
    largest,
    read_experiment,
    verdict_rows,
    verdicts,
    write_all,
)
from dna.paper.plan import Experiment, Limits, PlannedRun, Scale, planned
from dna.paper.results import Results, collect
from dna.paper.tables import caption
from dna.runs.setup import How
from dna.runs.sweeps.pool import Local, Place, Task, run_all, threads_for, uses_all_cores
from dna.runs.train import train


@dataclass(frozen=True)
class Where:
    """Folders: of the runs, by digest, and of the experiments made from them."""

    runs: Path = Path("runs")
    out: Path = Path("reproductions")


@dataclass(frozen=True)
class Watcher:
    """Callbacks that report progress."""

    tasks: Callable[[Sequence[Task]], None] = lambda tasks: None
    words: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class FailedRun:
    """A run that did not finish, and why."""

    run: PlannedRun
    words: str
    code: int  # exit code

    def __str__(self) -> str:
        return f"{self.run.arm} in {self.run.env}, seed {self.run.seed}: {self.words}"


class RunsFailed(DnaError):
    """Some runs failed. The results of the others are written, and in `tree`."""

    def __init__(self, failed: Sequence[FailedRun], planned: int, tree: dict[str, Any]) -> None:
        super().__init__(
            f"{len(failed)} of {planned} runs failed; {'; '.join(map(str, failed))}"
        )
        self.exit_code = failed[0].code
        self.tree = tree


def reproduce(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    place: Place | None = None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Run an experiment; return the contents of its `experiment.json`.

    Failed runs raise `RunsFailed` after the others are finished and summarized.
    """
    watcher = watcher or Watcher()
    check_cut(experiment, limits)
    make_folder(where.out)  # fails now, not after hours of training
    runs = planned(experiment, scale, limits)
    check_environments(unfinished(runs, where.runs))
    try:
        failed = execute(runs, where.runs, scale, place, watcher.tasks)
    except Preempted:
        text = (
            "stopped; the same command continues where it was, --finished shows what there is"
        )
        raise Preempted(text) from None
    return summarize(experiment, scale, where, limits, watcher, failed)


def check_cut(experiment: Experiment, limits: Limits | None) -> None:
    """Refuse to limit the interactions of an experiment that has no runs."""
    if limits is not None and limits.interactions and not experiment.studies:
        raise BadInput(f"--interactions: {experiment.alias} trains no agent, so it has none")


def check_environments(runs: Sequence[PlannedRun]) -> None:
    """Refuse environments that cannot be made (a library may be missing) before training."""
    from dna.envs import Making, make

    seen: set[str] = set()
    for run in runs:
        family = run.env.partition("/")[0]
        if family in seen:
            continue
        seen.add(family)
        try:
            make(run.config.env, Making(1, (0,))).close()
        except BadInput as error:
            raise BadInput(f"{run.env}: {error}") from None


# --- Training -----------------------------------------------------------------------------


def unique(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Remove duplicates: runs that several arms or figures share."""
    return list({run.digest: run for run in runs}.values())


def unfinished(runs: Sequence[PlannedRun], root: Path) -> list[PlannedRun]:
    """Return the runs that are left to do."""
    return [run for run in unique(runs) if not (root / run.digest / "done").is_file()]


def execute(
    runs: Sequence[PlannedRun],
    root: Path,
    scale: Scale,
    place: Place | None = None,
    report: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> list[FailedRun]:
    """Train what is not finished, in subprocesses; return what failed.

    Smoke runs are trained one after the other in this process.
    """
    left = unfinished(runs, root)
    if scale == "smoke" and (place is None or not place.preempts):
        return [found for run in left if (found := _train_here(run, root)) is not None]
    tasks = {run.digest: Task(run.config, run.seed, root / run.digest) for run in left}
    for group, where in _groups(list(tasks.values()), place):
        for task in group:
            task.options = threads_for(task.config, where)
        run_all(group, where, report=report)
    failed = []
    for run in left:
        task = tasks[run.digest]
        if task.state != "done":
            words = task.message or f"`dna resume {typed(task.folder)}` continues it"
            failed.append(FailedRun(run, words, max(task.code, 1)))
    return failed


def _train_here(run: PlannedRun, root: Path) -> FailedRun | None:
    """Train in this process."""
    how = How(tensorboard=False, compile="off", threads=1)
    try:
        train(run.config, run.seed, root / run.digest, how=how)
    except Preempted:
        raise
    except DnaError as error:
        return FailedRun(run, str(error), error.exit_code)
    return None


def _groups(tasks: list[Task], place: Place | None) -> list[tuple[list[Task], Place]]:
    """Decide where tasks run by default: large ones use all cores, so one at a time."""
    if place is not None:
        return [(tasks, place)] if tasks else []
    small = [task for task in tasks if not uses_all_cores(task.config)]
    large = [task for task in tasks if uses_all_cores(task.config)]
    groups: list[tuple[list[Task], Place]] = [
        (small, Local(os.cpu_count() or 1)),
        (large, Local(1)),
    ]
    return [(group, where) for group, where in groups if group]


# --- Summarizing --------------------------------------------------------------------------


def summarize(
    experiment: Experiment,
    scale: Scale,
    where: Where,
    limits: Limits | None = None,
    watcher: Watcher | None = None,
    failed: Sequence[FailedRun] | None = None,
) -> dict[str, Any]:
    """Write figures, tables and verdicts of whatever is finished; then raise what failed.

    `failed`: of the runs just made. None: nothing was run, so nothing is measured either.
    """
    watcher = watcher or Watcher()
    folder = folder_of(experiment, scale, where.out, limits)
    runs = planned(experiment, scale, limits)
    results = collect(experiment, scale, runs, where.runs, limits)
    results = replace(results, extra=_extra(results, folder, watcher, failed is not None))
    every_failed = list(failed or ())
    for run, words in results.damaged:
        text = f"{words}; delete its folder to train it again"
        every_failed.append(FailedRun(run, text, StorageFailure.exit_code))
    watcher.words("drawing")
    pictures = draw(results)
    if "toy" in results.extra:
        found = toy.run_toy(folder / "toy", scale, seeds=results.limits.seeds)
        pictures["figure.png"] = draw_toy(found, caption(results))
    tree = write_all(results, folder, pictures)
    if every_failed:
        tree["failed"] = [str(one) for one in every_failed]
        write_json(folder / "experiment.json", tree)
        raise RunsFailed(every_failed, len(unique(runs)), tree)
    return tree


def _extra(results: Results, folder: Path, watcher: Watcher, ran: bool) -> dict[str, Any]:
    """Return what is measured after the runs; it is kept for as long as the runs are the same.

    Without runs there is nothing to recognize it by: it is measured again.
    """
    kept: dict[str, Any] = {}
    with suppress(StorageFailure):  # a damaged file is about to be overwritten
        kept = read_experiment(folder) or {}
    runs = sorted(one.run.digest for one in results.outcomes)
    same = runs and sorted(run["digest"] for run in kept.get("runs", [])) == runs
    found: dict[str, Any] = {}
    for name, measure in results.experiment.extra.items():
        value = kept.get("extra", {}).get(name) if same or (not runs and not ran) else None
        if value is None and ran:
            value = measure(results, folder, watcher.words)
        if value is not None:
            found[name] = value
    return found


def all_verdicts(
    scale: Scale, where: Where, limits: Limits | None = None, only: Experiment | None = None
) -> list[dict[str, str]]:
    """Return the verdicts on all claims of the paper, or on those of one experiment.

    They are read from the experiment's folder, else judged on its finished runs. Where only
    limited experiments exist, the largest is taken and its folder is named.
    """
    rows: list[dict[str, str]] = []
    for one in EXPERIMENTS if only is None else (only,):
        found = largest(one, scale, where.out, limits or Limits())
        if found is None:
            runs = planned(one, scale, limits) if where.runs.is_dir() else ()
            results = collect(one, scale, runs, where.runs, limits)
            rows += verdict_rows(verdicts(results))
            continue
        folder, tree = found
        cut = folder != folder_of(one, scale, where.out)
        for row in tree["verdicts"]:
            source = f"from {folder.name}" if cut and row["note"] != COMPUTED else ""
            rows.append(row | {"note": joined(row["note"], source)})
    return sorted(rows, key=lambda row: row["id"])
