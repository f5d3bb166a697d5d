"""The noise scale of a saved run by phase, and what it implies for mini-batch sizes.

The newest checkpoint collects new rollouts in memory; every phase is measured on each of them
at the saved weights, and nothing in the run's folder changes.

Rows are treated as independent, here and in the paper. Rows of a rollout follow one another:
where their gradients are correlated in time, |𝒢|² is overestimated and σ underestimated
(`docs/noise.md` has numbers).
"""

import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dna.algorithm.noise_probe import measure
from dna.algorithm.noise_scale import Estimate, NoiseReading, Sizes, pooled
from dna.algorithm.phases import freeze
from dna.algorithm.returns import estimate
from dna.common.errors import BadInput, DnaError
from dna.common.randomness import generator
from dna.config import AnyPhase, Config
from dna.config.overrides import digest
from dna.networks.batch import Experience
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.setup import How, build_environments, tune
from dna.runs.train import Run

#: A mini-batch within this factor of B_simple's interval is left alone.
NEAR = 4.0


@dataclass(frozen=True)
class PhaseNoise:
    """Noise and mini-batch of one phase, and advice."""

    phase: str
    sigma: float | None
    b_simple: float | None
    low: float  # 95 % interval of B_simple
    high: float | None  # None: not bounded
    g2: float
    s: float
    sigma_authors: float | None
    sigma_paired: float | None
    minibatch: int
    advice: str

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def noise_of(
    path: Path,
    rollouts: int,
    sizes: Sizes,
    how: How | None = None,
    told: Callable[[int], None] = lambda done: None,
) -> list[PhaseNoise]:
    """Measure every phase of a run's newest checkpoint over a number of rollouts."""
    with opened(path, how) as run:
        found = _measure(run, rollouts, sizes, told)
        config = run.config
    return [
        phase_noise(phase, pooled(found[phase.name]), config.batch, sizes.b_small)
        for phase in config.phases
    ]


@contextmanager
def opened(path: Path, how: How | None = None) -> Iterator[Run]:
    """Open a run at its newest checkpoint; its folder is read but not written."""
    how = how or How(compile="off")
    config, seed = RunFolder.of(path).read()
    saved = checkpoint.latest(path, digest(config, seed))
    if saved is None:
        raise BadInput(
            f"{path}: has no checkpoint yet; train longer, or wait for the first one"
        )
    env = build_environments(config, seed, saved.resumes + 1, how, None)
    tune(how, config, env)
    try:
        with tempfile.TemporaryDirectory() as elsewhere:
            run = Run(config, seed, RunFolder(Path(elsewhere)), env, how)
            checkpoint.restore(saved, run.parts())
            run.iteration = saved.iteration
            yield run
    finally:
        env.close()


def _measure(
    run: Run, rollouts: int, sizes: Sizes, told: Callable[[int], None]
) -> dict[str, list[Estimate]]:
    found: dict[str, list[Estimate]] = {phase.name: [] for phase in run.config.phases}
    run.learner.replay.clear()
    for number in range(rollouts):
        rollout = run.collector.collect(run.iteration + number, run.clock)
        experience, _ = estimate(rollout, run.networks, run.config.returns)
        run.learner.replay.add(experience)
        for phase in run.config.phases:
            data = experience
            if phase.reads == "replay":
                if number < rollouts - 1:
                    continue  # once, over all that was collected
                data = run.learner.replay.experience(len(run.learner.replay.rollouts))
            found[phase.name].append(one_estimate(run, phase, data, sizes, number))
        told(number + 1)
    return found


def one_estimate(
    run: Run, phase: AnyPhase, data: Experience, sizes: Sizes, number: int
) -> Estimate:
    """Measure a phase's noise on this data at the current weights."""
    networks = run.networks
    data = data.to(networks.device)
    data = data.with_columns(freeze(phase, networks, data))
    progress = run.collector.scores.interactions / run.config.interactions
    rng = generator(run.seed, f"noise_report/{phase.name}", number)
    return measure(phase, networks, data, progress, sizes, rng)


def phase_noise(phase: AnyPhase, reading: NoiseReading, batch: int, b_small: int) -> PhaseNoise:
    """Combine a phase's noise with the advice that follows from it."""
    low, high = reading.interval
    return PhaseNoise(
        phase=phase.name,
        sigma=reading.sigma,
        b_simple=reading.b_simple,
        low=low,
        high=high,
        g2=reading.g2,
        s=reading.s,
        sigma_authors=reading.authors_sigma,
        sigma_paired=reading.paired.sigma,
        minibatch=phase.sgd.minibatch,
        advice=advice(phase, reading, batch, b_small),
    )


def advice(phase: AnyPhase, reading: NoiseReading, batch: int, b_small: int = 32) -> str:
    """Advise on a phase's mini-batch from the interval of B_simple.

    Never below `b_small`, the size of the mini-batches that were measured.
    """
    if reading.s <= 0:
        return "𝒮 ≤ 0: noise too small to tell, nothing is advised; measure more rollouts"
    rows = batch * (phase.every if phase.reads == "replay" else 1)
    now = phase.sgd.minibatch
    key = f"{phase.name}.sgd.minibatch"
    low, high = reading.interval
    below = now < low / NEAR
    if high is None:
        more = _divisor_above(rows, low)
        return _unbounded(reading, below, f", try {key}={more} or more" if more > now else "")
    wanted = max(reading.b_simple or low, 2.0)
    best = nearest_divisor(rows, wanted)
    if below:
        text = "below the interval, noisy steps"
        text += f": try {key}={best}" if best > now else ""
        if low > rows:
            text += f"; even all {rows:,} rows are fewer than B_simple: {_remedy(phase)}"
        return text
    if now > max(high, 2.0) * NEAR:
        return _smaller(key, now, max(best, _divisor_above(rows, b_small)), b_small)
    place = "within the interval" if low <= now <= high else f"within {NEAR:g} × of it"
    return f"{now} is about right: {place}"


def _remedy(phase: AnyPhase) -> str:
    """A lower λ_π reduces noise, a lower λ_V increases it (section 6.2); others have no λ."""
    return "more agents" + (", or less λ_π" if phase.kind in ("policy", "joint") else "")


def _smaller(key: str, now: int, best: int, b_small: int) -> str:
    """Advice for a mini-batch above the interval, if a smaller one can be advised."""
    text = "above the interval, smaller mini-batches would cost little"
    if best >= now:
        return f"{text}; none below {b_small} rows is advised, nothing smaller was measured"
    return f"{text}: try {key}={best}, {now / best:g} times the steps at the same learning rate"


def _unbounded(reading: NoiseReading, below: bool, change: str) -> str:
    """Advice where |𝒢|² may be zero: B_simple has a lower bound at most."""
    why = "|𝒢|² ≤ 0" if reading.g2 <= 0 else "|𝒢|² may be zero"
    if below:
        return (
            f"{why}, yet B_simple is at least {reading.interval[0]:,.0f}: noisy steps{change}"
        )
    return f"{why}: noise drowns the gradient and nothing is advised; measure more rollouts"


def _divisor_above(rows: int, wanted: float) -> int:
    """Smallest mini-batch that divides the rows and is at least the wanted size."""
    return next((n for n in range(2, rows + 1) if rows % n == 0 and n >= wanted), rows)


def nearest_divisor(rows: int, wanted: float) -> int:
    """Mini-batch that divides the rows and is nearest to the wanted size, as a ratio."""
    small = [n for n in range(1, math.isqrt(rows) + 1) if rows % n == 0]
    divisors = [n for n in {*small, *(rows // n for n in small)} if n >= 2]
    return min(divisors, key=lambda n: (abs(math.log(n / wanted)), n))


def check_sizes(config: Config, sizes: Sizes) -> None:
    """Refuse sizes that no rollout of this run could provide, before anything is built."""
    try:
        sizes.check(config.batch)
    except DnaError as error:
        raise BadInput(f"{error} (a rollout has {config.batch} rows)") from None
