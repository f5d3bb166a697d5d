"""Bringing an experiment's runs to their end: what is finished is skipped, the rest resumes.

A run that fails does not keep the others from their end.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dna.common.console import typed
from dna.common.errors import BadInput, DnaError, Preempted
from dna.paper.experiments.plan import Planned, Scale
from dna.runs.setup import How
from dna.runs.sweeps.pool import Local, Place, Task, run_all, threads_for, uses_all_cores
from dna.runs.train import train


@dataclass(frozen=True)
class Failed:
    """A run that did not come to its end, and why."""

    run: Planned
    words: str
    code: int  # exit code

    def __str__(self) -> str:
        return f"{self.run.arm} in {self.run.env}, seed {self.run.seed}: {self.words}"


def unique(runs: Sequence[Planned]) -> list[Planned]:
    """Runs that several arms or figures share, once."""
    return list({run.digest: run for run in runs}.values())


def unfinished(runs: Sequence[Planned], root: Path) -> list[Planned]:
    """What is left to do."""
    return [run for run in unique(runs) if not (root / run.digest / "done").is_file()]


def execute(
    runs: Sequence[Planned],
    root: Path,
    scale: Scale,
    place: Place | None = None,
    told: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> list[Failed]:
    """Train what is not finished, in processes; smoke runs one after the other in this one.

    Returns what failed.
    """
    left = unfinished(runs, root)
    if scale == "smoke" and (place is None or not place.preempts):
        return [failed for run in left if (failed := _here(run, root)) is not None]
    tasks = {run.digest: Task(run.config, run.seed, root / run.digest) for run in left}
    for group, where in _groups(list(tasks.values()), place):
        for task in group:
            task.options = threads_for(task.config, where)
        run_all(group, where, report=told)
    found = [(run, tasks[run.digest]) for run in left]
    return [
        Failed(
            run, task.message or f"`dna resume {typed(task.folder)}` goes on", max(task.code, 1)
        )
        for run, task in found
        if task.state != "done"
    ]


def _here(run: Planned, root: Path) -> Failed | None:
    """Train in this process."""
    how = How(tensorboard=False, compile="off", threads=1)
    try:
        train(run.config, run.seed, root / run.digest, how=how)
    except Preempted:
        raise
    except DnaError as error:
        return Failed(run, str(error), error.exit_code)
    return None


def _groups(tasks: list[Task], place: Place | None) -> list[tuple[list[Task], Place]]:
    """Where runs go unless somebody said: large ones use every core, so one at a time."""
    if place is not None:
        return [(tasks, place)] if tasks else []
    small = [task for task in tasks if not uses_all_cores(task.config)]
    large = [task for task in tasks if uses_all_cores(task.config)]
    groups: list[tuple[list[Task], Place]] = [
        (small, Local(os.cpu_count() or 1)),
        (large, Local(1)),
    ]
    return [(group, where) for group, where in groups if group]


def check_worlds(runs: Sequence[Planned]) -> None:
    """Refuse before the first run what cannot be made here: a missing library, for example."""
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
