"""What an experiment would cost on this machine: `dna reproduce NAME --plan`.

Interactions, hours and disk space of the runs that are left. Hours come from a quick
measurement: one short run of every kind is timed. Where tasks of a family differ in the cost of
a step, each is played briefly as well: Ant's physics takes six times as long as Reacher's.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dna.common.storage import read_json, write_json
from dna.config import Config
from dna.config.overrides import at, tweak
from dna.config.presets import family
from dna.paper import toy
from dna.paper.plan import Experiment, PlannedRun, Scale
from dna.paper.reproduce import unfinished, unique
from dna.runs.folder import RunFolder
from dna.runs.setup import How, build_environments, tune
from dna.runs.sweeps.pool import jobs_for, uses_all_cores
from dna.runs.train import Run

#: Interactions of a measurement; fewer with images, whose rows cost a thousand times as much.
ROWS = 1024
IMAGES = 512
#: Iterations timed after the first; the fastest counts, as others may have been disturbed. No
#: more are run once they have taken this many seconds in total.
REPEATS = 3
MOMENT = 2.0
#: A first iteration that takes longer than this is itself the measurement.
PATIENCE = 5.0
#: Steps are measured as runs take them; runs find the compiled code in torch's cache.
COMPILE: Literal["auto", "off"] = "auto"
#: File of measured speeds beside the runs, and the seconds for which they are valid.
SPEEDS = "speeds.json"
FRESH = 24 * 3600
#: Families whose tasks are played one by one.
VARIED = ("mujoco",)
#: Checkpoints that a run keeps, and bytes of one beyond three float32 per weight.
CHECKPOINTS = 14
CHECKPOINT_BYTES = 4_000_000
#: Seeds and steps of a measurement of the toy problem, whose time grows with the seeds.
TOY_SEEDS = 10
TOY_STEPS = 6


# --- Speed of a run -----------------------------------------------------------------------


@dataclass(frozen=True)
class Speed:
    """Seconds per interaction: to play it, and for each later pass over its row."""

    playing: float
    walking: float

    def seconds(self, config: Config) -> float:
        """Seconds of a whole run."""
        walks = passes(config) + noise_passes(config)
        return config.interactions * (self.playing + walks * self.walking)


def passes(config: Config) -> float:
    """Passes over a rollout's rows, with which the cost of an iteration grows."""
    epochs = sum(
        at(config, f"{phase.name}.sgd.epochs") * (2 if phase.trains == "both" else 1)
        for phase in config.phases
    )
    return float(epochs) + 2.0  # acting, and V of all states


def noise_passes(config: Config) -> float:
    """Passes added by measuring the noise: a large and many small batches of every phase."""
    noise = config.noise
    if noise is None:
        return 0.0
    rows = (noise.b_big or config.batch) + noise.samples * noise.b_small
    return len(config.phases) * rows / config.batch / noise.every


def kind_of(run: PlannedRun) -> str:
    """Key of runs whose rows cost the same: family, algorithm, agents, rollout and network."""
    config = run.config
    shape = [config.agents, config.horizon, config.network.model_dump(mode="json")]
    return f"{family(run.env)} {config.algorithm} {json.dumps(shape, sort_keys=True)}"


def remembered(
    root: Path, report: Callable[[str], None] = lambda text: None
) -> Callable[[PlannedRun], Speed]:
    """Return a function that measures the speed of each kind of run once a day."""
    path = root / SPEEDS
    known = read_json(path) if path.is_file() else {}

    def recall(key: str, text: str, measure: Callable[[], Mapping[str, Any]]) -> Any:
        seen = known.get(key, {})
        if "playing" not in seen or time.time() - seen["when"] > FRESH:
            report(f"measuring {text}")
            known[key] = dict(measure()) | {"when": time.time()}
            write_json(path, known)
        return known[key]

    def speed(run: PlannedRun) -> Speed:
        text = f"the speed of {run.config.algorithm} on {run.env}"
        kind = recall(kind_of(run), text, lambda: vars(measured(run)) | {"env": run.env})
        playing = kind["playing"]
        if family(run.env) in VARIED and kind["env"] != run.env:
            own = recall(f"playing {run.env}", run.env, lambda: {"playing": played(run)})
            playing = own["playing"]
        return Speed(playing, kind["walking"])

    return speed


def measured(run: PlannedRun) -> Speed:
    """Measure the speed of a run over short iterations, without measuring noise.

    The first one is a warm-up and compiles, unless it is slow enough to be the measurement.
    """
    config = _short(run.config)
    how = _how(config)
    env = build_environments(config, 0, 0, how, None)
    tune(how, config, env)
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = Run(config, 0, RunFolder(Path(folder)), env, how)
            playing, rest = _timed(work)
            if playing + rest < PATIENCE or work.learner.compiled():
                playing, rest = _fastest(work)
            return Speed(playing / config.batch, rest / config.batch / passes(config))
    finally:
        env.close()


def played(run: PlannedRun) -> float:
    """Measure the seconds per interaction with uniform actions."""
    config = run.config
    rng = np.random.default_rng(0)
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
    """The same as when the run is executed."""
    threads = None if uses_all_cores(config) else 1
    return How(tensorboard=False, compile=COMPILE, threads=threads)


def _short(config: Config) -> Config:
    """Shorten the rollouts; what is learned from them does not matter."""
    images = config.env.atari is not None or config.env.procgen is not None
    horizon = max(1, min(config.horizon, (IMAGES if images else ROWS) // config.agents))
    changes: dict[str, object] = {"horizon": horizon, "warm_up": None, "noise": None}
    batch = horizon * config.agents
    for phase in config.phases:
        largest = min(batch, phase.sgd.minibatch)
        fitting = [n for n in range(1, largest + 1) if batch % n == 0]
        changes[f"{phase.name}.sgd.minibatch"] = max(fitting)
        if phase.reads == "replay":
            changes[f"{phase.name}.every"] = 1
    return tweak(config, **changes)


def _fastest(work: Run) -> tuple[float, float]:
    """Time the fastest of a few iterations."""
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


# --- Cost of an experiment ----------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Cost of the remaining runs of an experiment."""

    runs: int
    finished: int
    interactions: int  # of what is left
    hours: float  # one run after the other
    wall_hours: float  # small runs in parallel, as they are executed
    gigabytes: float
    shared: dict[str, int]  # experiment → runs that it has in common with this one


def cost(
    runs: Sequence[PlannedRun],
    root: Path,
    others: Sequence[tuple[Experiment, Sequence[PlannedRun]]],
    measure: Callable[[PlannedRun], Speed],
    jobs: int | None = None,
) -> Cost:
    """Add up the cost of these runs; `measure` gives the speed of one of them."""
    whole = unique(runs)
    left = unfinished(runs, root)
    names = {run.digest for run in whole}
    shared = {
        other.name: count
        for other, theirs in others
        if (count := len(names & {run.digest for run in theirs}))
    }
    spent = [measure(run).seconds(run.config) for run in left]
    parallel = [min(jobs or jobs_for(run.config), os.cpu_count() or 1) for run in left]
    return Cost(
        runs=len(whole),
        finished=len(whole) - len(left),
        interactions=sum(run.config.interactions for run in left),
        hours=sum(spent) / 3600,
        wall_hours=sum(s / count for s, count in zip(spent, parallel, strict=True)) / 3600,
        gigabytes=sum(map(_bytes, left)) / 1e9,
        shared=shared,
    )


def _bytes(run: PlannedRun) -> float:
    """Bytes of a run's checkpoints: weights and two moments each, and the environments."""
    images = run.config.env.atari is not None
    weights = 3.5e6 if images or run.config.env.procgen is not None else 3e5
    snapshot = 100_000 * run.config.agents if images else 0
    return CHECKPOINTS * (12 * weights + CHECKPOINT_BYTES + snapshot)


def cost_text(found: Cost) -> str:
    """`25 runs, 0 of them finished; 25.0 million interactions left, about …`."""
    hours = f"about {duration(found.hours)} one after the other"
    if found.wall_hours < found.hours:
        hours += f" ({duration(found.wall_hours)} in parallel)"
    return (
        f"{found.runs} runs, {found.finished} of them finished; "
        f"{found.interactions / 1e6:,.1f} million interactions left, {hours}, "
        f"up to {found.gigabytes:.1f} GB of checkpoints"
    )


def plan_rows(runs: Sequence[PlannedRun]) -> list[tuple[str, str, str, str, str]]:
    """(study, arm, environments, seeds, interactions each) of a plan."""
    rows = []
    for study, arm in dict.fromkeys((run.study, run.arm) for run in runs):
        own = [run for run in runs if (run.study, run.arm) == (study, arm)]
        envs = {run.env for run in own}
        seeds = {run.seed for run in own}
        length = f"{own[0].config.interactions:,}"
        rows.append((study, arm, str(len(envs)), str(len(seeds)), length))
    return rows


def duration(hours: float) -> str:
    """Format as seconds, minutes, hours or days."""
    if hours < 1 / 30:
        return f"{3600 * hours:.0f} seconds"
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:,.1f} hours" if hours < 48 else f"{hours / 24:,.0f} days"


# --- Cost of the toy problem --------------------------------------------------------------


@dataclass(frozen=True)
class ToyCost:
    """Cost of figure 1, which trains no agent and so has no runs."""

    deep: int  # values of σ₁ of joint and dual
    shallow: int  # of their shallow forms
    seeds: int
    cells: int
    finished: int
    hours: float  # of what is left

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @property
    def words(self) -> str:
        """`toy problem: joint, dual × 7 σ₁ and …, 10 seeds each: 180 models in 18 cells, …`."""
        models = self.cells * self.seeds
        left = "" if self.finished == self.cells else f"; about {duration(self.hours)} left"
        return (
            f"toy problem: {', '.join(toy.DEEP)} × {self.deep} σ₁ and "
            f"{', '.join(toy.SHALLOW)} × {self.shallow} σ₁, {self.seeds} seeds each: "
            f"{models:,} models in {self.cells} cells, {self.finished} of them finished{left}"
        )


def toy_cost(
    scale: Scale,
    folder: Path,
    report: Callable[[str], None] = lambda text: None,
    measure: Callable[[toy.Cell, toy.ToySettings], float] | None = None,
    seeds: int | None = None,
) -> ToyCost:
    """Cost of the cells left in a folder; `measure` times one cell of each model."""
    settings = toy.settings_of(scale, seeds)
    measure = measure or toy_seconds
    cells = toy.cells_of(settings)
    left = [cell for cell in cells if not (folder / f"{cell.name}.json").is_file()]
    known: dict[str, float] = {}
    for cell in left:
        if cell.model not in known:
            report(f"measuring the toy problem, {cell.model}")
            known[cell.model] = measure(cell, settings)
    total = sum(known[cell.model] for cell in left)
    return ToyCost(
        deep=len(settings.sigmas),
        shallow=len(settings.shallow_sigmas),
        seeds=settings.seeds,
        cells=len(cells),
        finished=len(cells) - len(left),
        hours=total / 3600,
    )


def toy_seconds(cell: toy.Cell, settings: toy.ToySettings) -> float:
    """Estimate a cell's time from a few steps of a few seeds."""
    few = min(TOY_SEEDS, settings.seeds)
    steps = settings.shallow_steps if cell.model in toy.SHALLOW else settings.steps
    spent = []
    # The first is a warm-up; the difference between the others excludes the setup time.
    for count in (1, 1, 1 + TOY_STEPS):
        short = replace(settings, steps=count, shallow_steps=count)
        start = time.perf_counter()
        toy.train(cell, short, range(few))
        spent.append(time.perf_counter() - start)
    each = max(spent[2] - spent[1], 0.1 * spent[2]) / TOY_STEPS
    return each * steps * settings.seeds / few
