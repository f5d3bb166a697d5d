"""The noise scale of every phase during training (section 3.2, appendices D and N).

It is measured at the start of a phase, before its first step, with the phase's own loss and
frozen columns. No weight changes, and no random stream of training is used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.algorithm.engine import PhaseStep
from dna.algorithm.noise_scale import Estimate, NoiseReading, NoiseScale, Sizes
from dna.algorithm.phases import is_mean_over_rows, loss
from dna.common.randomness import generator
from dna.config import AnyPhase, Config, Noise
from dna.networks.batch import Batch, Experience
from dna.networks.networks import Networks

#: Rows of the large mini-batch per pass, so that activations of images fit into memory.
CHUNK = 512


def attach(
    config: Config, networks: Networks, seed: int, steps: Mapping[str, PhaseStep]
) -> "NoiseProbe | None":
    """Attach one probe to all steps of a run, if its configuration measures noise."""
    if config.noise is None:
        return None
    probe = NoiseProbe(config, networks, seed)
    for step in steps.values():
        step.probe = probe
    return probe


class NoiseProbe:
    """Measures the noise of phases every few iterations and keeps the moving averages."""

    def __init__(self, config: Config, networks: Networks, seed: int) -> None:
        assert config.noise is not None
        self.settings: Noise = config.noise
        self.networks = networks
        self.seed = seed
        self.scales = {p.name: NoiseScale(self.settings.alpha) for p in config.phases}
        self.measured = dict.fromkeys(self.scales, 0)  # number of measurements by phase
        self.iteration = 0

    def begin(self, iteration: int) -> None:
        """Set the iteration, which decides whether to measure and with which random numbers."""
        self.iteration = iteration

    def due(self, phase: AnyPhase) -> bool:
        """Return whether to measure: in every n-th run of the phase, and in the first few."""
        count = self.iteration // phase.every
        return count % self.settings.every == 0 or count < (self.settings.first or 0)

    def __call__(self, phase: AnyPhase, data: Experience, progress: float) -> dict[str, float]:
        """Return the metrics `noise/<phase>/…` of this iteration; empty if none is due."""
        if not self.due(phase):
            return {}
        s = self.settings
        rows = int((data["weight"] > 0).sum())
        if rows <= s.b_small:
            return {}  # too few rows hold a real step
        big = None if s.b_big is None else min(s.b_big, rows)
        sizes = Sizes(s.b_small, big, s.samples)
        estimate = measure(phase, self.networks, data, progress, sizes, self._rng(phase))
        reading = self.scales[phase.name].update(estimate)
        self.measured[phase.name] += 1
        return named(phase.name, reading)

    def _rng(self, phase: AnyPhase) -> np.random.Generator:
        return generator(self.seed, f"noise/{phase.name}", self.iteration)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a checkpoint."""
        return {
            f"{phase}/{name}": value
            for phase, scale in self.scales.items()
            for name, value in scale.state().items()
        }

    def load(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        for phase, scale in self.scales.items():
            start = f"{phase}/"
            own = {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
            scale.load(own)


def measure(
    phase: AnyPhase,
    networks: Networks,
    data: Experience,
    progress: float,
    sizes: Sizes,
    rng: np.random.Generator,
) -> Estimate:
    """Measure a phase's noise once, on data that includes its frozen columns."""
    chunk = CHUNK if is_mean_over_rows(phase) else None
    sizes = Sizes(sizes.b_small, sizes.b_big, sizes.samples, chunk)

    def objective(mb: Batch) -> Tensor:
        return loss(phase, networks, mb, progress)[0]

    weights = networks.weights(phase.trains)
    return NoiseScale.measure(objective, weights, _Real(data), sizes, rng, networks.workers)


class _Real:
    """The rows of an experience that hold a real step (weight 1), as mini-batches."""

    def __init__(self, data: Experience) -> None:
        self.data = data
        self.rows = torch.nonzero(data["weight"].cpu() > 0).flatten()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Tensor) -> Batch:
        return self.data.rows(self.rows[index].sort().values)


def named(phase: str, reading: NoiseReading) -> dict[str, float]:
    """Return the metrics of a reading, without those that are undefined."""
    low, high = reading.interval
    paired = reading.paired
    metrics = {
        "sigma": reading.sigma,
        "b_simple": reading.b_simple,
        "g2": reading.g2,
        "s": reading.s,
        "b_simple_low": low,
        "b_simple_high": high,
        "sigma_authors": reading.authors_sigma,
        "sigma_paired": paired.sigma,
        "g2_paired": paired.g2,
        "s_paired": paired.s,
    }
    return {f"noise/{phase}/{k}": v for k, v in metrics.items() if v is not None}
