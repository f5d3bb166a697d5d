"""How fast runs are here, by a quick measurement: what `--plan` reckons its hours from.

One short run of every kind is timed. Where tasks of a family differ in what a step of theirs
costs, each is played for a moment as well: Ant's physics takes six times Reacher's.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dna.common.storage import read_json, write_json
from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets import family
from dna.paper.experiments.plan import Planned
from dna.paper.experiments.sizes import noise_passes, passes
from dna.runs.folder import RunFolder
from dna.runs.setup import How, build_environments, tune
from dna.runs.sweeps.pool import uses_all_cores
from dna.runs.train import Run

#: Interactions of a quick measurement, fewer of images, whose rows cost a thousand times more.
ROWS, IMAGES = 1024, 512
#: Iterations after the first, of which the fastest counts: the others were disturbed. Long
#: ones, in seconds together, are not repeated.
REPEATS, MOMENT = 3, 2.0
#: A first iteration that takes longer is the measurement: a second one would tell no more.
PATIENCE = 5.0
#: Steps are measured as runs take them. Compiling is not wasted: runs find it in torch's cache.
COMPILE: Literal["auto", "off"] = "auto"
#: Where measured speeds are kept, beside the runs; forgotten after a day.
SPEEDS, FRESH = "speeds.json", 24 * 3600
#: Families whose tasks are played one by one.
VARIED = ("mujoco",)


@dataclass(frozen=True)
class Speed:
    """Seconds of an interaction: of playing it, and of each later walk over its row."""

    playing: float
    walking: float

    def seconds(self, config: Config) -> float:
        """Of a whole run."""
        walks = passes(config) + noise_passes(config)
        return config.interactions * (self.playing + walks * self.walking)


def kind_of(run: Planned) -> str:
    """Runs whose rows cost the same: family, algorithm, agents, rollout and network."""
    config = run.config
    shape = [config.agents, config.horizon, config.network.model_dump(mode="json")]
    return f"{family(run.env)} {config.algorithm} {json.dumps(shape, sort_keys=True)}"


def remembered(
    root: Path, told: Callable[[str], None] = lambda text: None
) -> Callable[[Planned], Speed]:
    """A run's speed, measured once a day for every kind of run; `told` before each."""
    path = root / SPEEDS
    known = read_json(path) if path.is_file() else {}

    def recall(key: str, text: str, measure: Callable[[], Mapping[str, Any]]) -> Any:
        seen = known.get(key, {})
        if "playing" not in seen or time.time() - seen["when"] > FRESH:
            told(f"measuring {text}")
            known[key] = dict(measure()) | {"when": time.time()}
            write_json(path, known)
        return known[key]

    def speed(run: Planned) -> Speed:
        text = f"the speed of {run.config.algorithm} on {run.env}"
        kind = recall(kind_of(run), text, lambda: vars(measured(run)) | {"env": run.env})
        playing = kind["playing"]
        if family(run.env) in VARIED and kind["env"] != run.env:
            own = recall(f"playing {run.env}", run.env, lambda: {"playing": played(run)})
            playing = own["playing"]
        return Speed(playing, kind["walking"])

    return speed


def measured(run: Planned) -> Speed:
    """Of short iterations without measuring noise.

    A first one warms up and compiles, unless it is long for another reason.
    """
    config = _short(run.config)
    how = _how(config)
    env = build_environments(config, 0, 0, how, None)
    tune(how, env)
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = Run(config, 0, RunFolder(Path(folder)), env, how)
            playing, rest = _timed(work)
            if playing + rest < PATIENCE or work.learner.compiled():
                playing, rest = _fastest(work)
            return Speed(playing / config.batch, rest / config.batch / passes(config))
    finally:
        env.close()


def played(run: Planned) -> float:
    """Seconds of an interaction with uniform actions."""
    config, rng = run.config, np.random.default_rng(0)
    env = build_environments(config, 0, 0, _how(config), None)
    steps = max(1, ROWS // config.agents)
    try:
        env.reset()
        start = time.perf_counter()
        for _ in range(steps):
            env.step(env.uniform(rng))
        return (time.perf_counter() - start) / (steps * config.agents)
    finally:
        env.close()


def _how(config: Config) -> How:
    """As `execute` starts it."""
    return How(
        tensorboard=False, compile=COMPILE, threads=None if uses_all_cores(config) else 1
    )


def _short(config: Config) -> Config:
    """The same on rollouts of a moment; what is learned from it does not matter."""
    images = config.env.atari is not None or config.env.procgen is not None
    horizon = max(1, min(config.horizon, (IMAGES if images else ROWS) // config.agents))
    changes: dict[str, object] = {"horizon": horizon, "warm_up": None, "noise": None}
    batch = horizon * config.agents
    for phase in config.phases:
        changes[f"{phase.name}.sgd.minibatch"] = _fitting(batch, phase.sgd.minibatch)
        if phase.reads == "replay":
            changes[f"{phase.name}.every"] = 1
    return tweak(config, **changes)


def _fastest(work: Run) -> tuple[float, float]:
    """Of a few iterations."""
    seen = [_timed(work)]
    while len(seen) < REPEATS and sum(map(sum, seen)) < MOMENT:
        seen.append(_timed(work))
    return min(seen, key=sum)


def _timed(work: Run) -> tuple[float, float]:
    """Seconds of an iteration: in the environments, and in all the rest."""
    work.clock.take()
    start = time.perf_counter()
    work.iterate()
    spent = time.perf_counter() - start
    work.iteration += 1
    playing = work.clock.take().get("env", 0.0)
    return playing, spent - playing


def _fitting(batch: int, wanted: int) -> int:
    return max(n for n in range(1, min(batch, wanted) + 1) if batch % n == 0)
