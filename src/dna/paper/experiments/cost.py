"""What an experiment would cost here: interactions, hours by a quick measurement, disk."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dna.paper.experiments.execute import unique
from dna.paper.experiments.plan import Experiment, Planned
from dna.paper.experiments.speed import Speed
from dna.runs.sweeps.pool import jobs_for

#: Bytes of a checkpoint beyond three float32 per weight; checkpoints that a run keeps.
BESIDE, KEPT = 4_000_000, 14


@dataclass(frozen=True)
class Cost:
    """The bill."""

    runs: int
    finished: int
    interactions: int  # of what is left
    hours: float  # of one run after the other
    wall_hours: float  # of small runs side by side, as they are made
    gigabytes: float
    shared: dict[str, int]  # experiment → runs that it has in common with this one


def cost(
    runs: Sequence[Planned],
    root: Path,
    others: Sequence[tuple[Experiment, Sequence[Planned]]],
    measure: Callable[[Planned], Speed],
    jobs: int | None = None,
) -> Cost:
    """Of these runs; `measure` gives the speed of one of them."""
    whole = unique(runs)
    left = [run for run in whole if not (root / run.digest / "done").is_file()]
    names = {run.digest for run in whole}
    shared = {
        other.name: count
        for other, theirs in others
        if (count := len(names & {run.digest for run in theirs}))
    }
    spent = [measure(run).seconds(run.config) for run in left]
    abreast = [min(jobs or jobs_for(run.config), os.cpu_count() or 1) for run in left]
    return Cost(
        runs=len(whole),
        finished=len(whole) - len(left),
        interactions=sum(run.config.interactions for run in left),
        hours=sum(spent) / 3600,
        wall_hours=sum(s / count for s, count in zip(spent, abreast, strict=True)) / 3600,
        gigabytes=sum(map(_bytes, left)) / 1e9,
        shared=shared,
    )


def _bytes(run: Planned) -> float:
    """Checkpoints of a run: weights and two moments each, and the environments."""
    images = run.config.env.atari is not None
    weights = 3.5e6 if images or run.config.env.procgen is not None else 3e5
    snapshot = 100_000 * run.config.agents if images else 0
    return KEPT * (12 * weights + BESIDE + snapshot)
