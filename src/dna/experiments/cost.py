"""What an experiment would cost here: interactions, hours by a quick measurement, disk."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dna.experiments.execute import unique
from dna.experiments.plan import Experiment, Planned
from dna.experiments.sizes import noise_passes, passes
from dna.folder import RunFolder
from dna.presets import family
from dna.setup import How, build_environments, tune
from dna.steps import compiled_phases
from dna.storage import read_json, write_json
from dna.task import jobs_for, wide
from dna.train import Run
from dna.tweak import tweak

#: Interactions of a quick measurement, fewer of images, whose rows cost a thousand times more.
ROWS, IMAGES = 1024, 512
#: A first iteration that takes longer is the measurement: a second one would tell no more.
PATIENCE = 5.0
#: Steps are measured as runs take them. Compiling is not wasted: runs find it in torch's cache.
COMPILE: Literal["auto", "off"] = "auto"
#: Where measured speeds are kept, beside the runs; forgotten after a day.
SPEEDS, FRESH = "speeds.json", 24 * 3600
#: Bytes of a checkpoint beyond three float32 per weight; checkpoints that a run keeps.
BESIDE, KEPT = 4_000_000, 14


@dataclass(frozen=True)
class Cost:
    """The bill."""

    runs: int
    finished: int
    interactions: int  # of what is left
    hours: float | None  # of one run after the other; None: not measured
    wall_hours: float | None  # of small runs side by side, as they are made
    gigabytes: float
    shared: dict[str, int]  # experiment → runs that it has in common with this one


def cost(
    runs: Sequence[Planned],
    root: Path,
    others: Sequence[tuple[Experiment, Sequence[Planned]]],
    measure: Callable[[Planned], float] | None,
    jobs: int | None = None,
) -> Cost:
    """Of these runs; `measure` gives passes over a row per second of one of them."""
    whole = unique(runs)
    left = [run for run in whole if not (root / run.digest / "done").is_file()]
    names = {run.digest for run in whole}
    shared = {
        other.name: count
        for other, theirs in others
        if (count := len(names & {run.digest for run in theirs}))
    }
    spent = [] if measure is None else seconds(left, measure)
    abreast = [min(jobs or jobs_for(run.config), os.cpu_count() or 1) for run in left]
    wall = sum(s / count for s, count in zip(spent, abreast, strict=False))
    return Cost(
        runs=len(whole),
        finished=len(whole) - len(left),
        interactions=sum(run.config.interactions for run in left),
        hours=None if measure is None else sum(spent) / 3600,
        wall_hours=None if measure is None else wall / 3600,
        gigabytes=sum(map(_bytes, left)) / 1e9,
        shared=shared,
    )


def seconds(runs: Sequence[Planned], measure: Callable[[Planned], float]) -> list[float]:
    """Of each run; `measure` gives passes over a row per second of one run of every kind."""
    known: dict[str, float] = {}
    found = []
    for run in runs:
        kind = kind_of(run)
        if kind not in known:
            known[kind] = measure(run)
        walked = passes(run.config) + noise_passes(run.config)
        found.append(run.config.interactions * walked / known[kind])
    return found


def kind_of(run: Planned) -> str:
    """Runs whose rows cost the same: family, algorithm, agents, rollout and network."""
    config = run.config
    shape = [config.agents, config.horizon, config.network.model_dump(mode="json")]
    return f"{family(run.env)} {config.algorithm} {json.dumps(shape, sort_keys=True)}"


def remembered(
    root: Path, told: Callable[[str], None] = lambda text: None
) -> Callable[[Planned], float]:
    """Passes per second, measured once a day for every kind of run; `told` before each."""
    path = root / SPEEDS

    def speed(run: Planned) -> float:
        known = read_json(path) if path.is_file() else {}
        kind = kind_of(run)
        seen = known.get(kind, {})
        if time.time() - seen.get("when", 0) > FRESH:
            told(f"measuring the speed of {run.config.algorithm} on {run.env}")
            seen = {"passes": rate(run) * passes(run.config), "when": time.time()}
            write_json(path, known | {kind: seen})
        return float(seen["passes"])

    return speed


def rate(run: Planned) -> float:
    """Interactions per second of a short iteration without measuring noise.

    A first one warms up and compiles, unless it is long for another reason.
    """
    config = run.config
    images = config.env.atari is not None or config.env.procgen is not None
    horizon = max(1, min(config.horizon, (IMAGES if images else ROWS) // config.agents))
    changes: dict[str, object] = {"horizon": horizon, "warm_up": None}
    batch = horizon * config.agents
    for phase in config.phases:
        changes[f"{phase.name}.sgd.minibatch"] = _fitting(batch, phase.sgd.minibatch)
        if phase.reads == "replay":
            changes[f"{phase.name}.every"] = 1
    threads = None if wide(config) else 1  # as `execute` starts it
    how = How(tensorboard=False, compile=COMPILE, threads=threads)
    short = tweak(config, **changes, noise=None)
    env = build_environments(short, 0, 0, how, None)
    tune(how, env)
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = Run(short, 0, RunFolder(Path(folder)), env, how)
            spent = _timed(work)
            if spent < PATIENCE or compiled_phases(work.steps):
                work.iteration += 1
                spent = _timed(work)
            return batch / spent
    finally:
        env.close()


def _timed(work: Run) -> float:
    """Seconds of an iteration."""
    start = time.perf_counter()
    work.iterate()
    return time.perf_counter() - start


def _fitting(batch: int, wanted: int) -> int:
    return max(n for n in range(1, min(batch, wanted) + 1) if batch % n == 0)


def _bytes(run: Planned) -> float:
    """Checkpoints of a run: weights and two moments each, and the environments."""
    images = run.config.env.atari is not None
    weights = 3.5e6 if images or run.config.env.procgen is not None else 3e5
    snapshot = 100_000 * run.config.agents if images else 0
    return KEPT * (12 * weights + BESIDE + snapshot)
