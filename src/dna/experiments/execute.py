"""Bringing an experiment's runs to their end: what is finished is skipped, the rest resumes."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from dna.errors import BadInput
from dna.experiments.plan import Planned, Scale
from dna.pool import Task, check, run_all
from dna.setup import How
from dna.train import train


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
    jobs: int | None = None,
    told: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> None:
    """Train what is not finished, in processes; smoke runs one after the other in this one."""
    left = unfinished(runs, root)
    if not left:
        return
    if scale == "smoke":
        how = How(tensorboard=False, compile="off", threads=1)
        for run in left:
            train(run.config, run.seed, root / run.digest, how=how)
        return
    tasks = [Task(run.config, run.seed, root / run.digest) for run in left]
    images = [task for task in tasks if _wide(task)]
    others = [task for task in tasks if not _wide(task)]
    # Networks for images use every core by themselves: one at a time.
    for group, default in ((others, os.cpu_count() or 1), (images, 1)):
        if group:
            run_all(group, jobs or default, ["--threads", "1"] if default > 1 else [], told)
            check(group)


def _wide(task: Task) -> bool:
    return task.config.env.atari is not None or task.config.env.procgen is not None


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
