"""The engine: runs any phase on any data (lines 11-17 of algorithm 1 are three calls of it).

freeze → for each epoch → for each mini-batch → step (loss → backward → clip → Adam) → means.
`EagerStep` is the plain optimizer step; `dna.algorithm.compiled_step` has a compiled one.
"""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dna.algorithm.phases import Metrics, freeze, is_mean_over_rows, loss
from dna.common.errors import NonFinite
from dna.common.timing import Clock
from dna.config import AnyPhase, resolve
from dna.distributed.world import SOLO, World
from dna.networks.batch import Batch, Experience, minibatches
from dna.networks.networks import FlatWeights, Networks

#: Called with a phase's frozen data before its first step; returns metrics to log.
Probe = Callable[[AnyPhase, Experience, float], dict[str, float]]


class PhaseStep(Protocol):
    """One optimizer step of a phase on a mini-batch, or several steps in a row."""

    probe: Probe | None
    minibatches: int  # mini-batches per call, each a step of its own
    optimizer: torch.optim.Adam
    clock: Clock
    world: World  # the ranks that share each mini-batch

    def __call__(self, data: Batch, progress: float) -> Metrics:
        """Learn from these rows and return the mean of the steps' metrics."""


def run_phase(
    phase: AnyPhase,
    networks: Networks,
    step: PhaseStep,
    data: Experience,
    rng: np.random.Generator,
    progress: float,
) -> dict[str, float]:
    """Optimize one phase's objective over its data and return the mean of its metrics."""
    learning_rate = resolve(phase.sgd.learning_rate, progress)
    if not phase.sgd.epochs:
        return {f"{phase.name}/learning_rate": learning_rate}
    for group in step.optimizer.param_groups:
        group["lr"] = learning_rate
    with step.clock("frozen columns"):
        data = data.with_columns(freeze(phase, networks, data))
    probed = step.probe(phase, data, progress) if step.probe else {}
    epochs = Epochs(data, phase.sgd.epochs, phase.sgd.minibatch, rng, step.minibatches)
    meter = Meter(phase.name, step.world)
    for batch in step.clock.each("gather", epochs):
        meter.add(step(batch, progress))
    means = meter.means(epochs)
    return means | {f"{phase.name}/learning_rate": learning_rate} | probed


def due(phase: AnyPhase, iteration: int) -> bool:
    """Return whether the phase runs in this iteration (counted from 0)."""
    # Phases registered by users need not define `skips_first`.
    if iteration == 0 and getattr(phase, "skips_first", False):
        return False
    return (iteration + 1) % phase.every == 0


class Epochs:
    """The mini-batches of all epochs of a phase, in an order that iterating again repeats."""

    def __init__(
        self,
        data: Experience,
        epochs: int,
        size: int,
        rng: np.random.Generator,
        together: int = 1,
    ) -> None:
        self.data = data
        self.epochs = epochs
        self.size = size
        self.rng = rng
        self.together = together  # mini-batches concatenated for one call of a step
        self.start = rng.bit_generator.state

    def __iter__(self) -> Iterator[Batch]:
        self.rng.bit_generator.state = self.start
        for _ in range(self.epochs):
            yield from minibatches(self.data, self.size, self.rng, self.together)

    def batch(self, index: int) -> Batch:
        """Gather again what the step was given in call `index`."""
        return next(islice(self, index, None))


class EagerStep:
    """An optimizer step with torch's ordinary operators."""

    minibatches = 1

    def __init__(
        self,
        phase: AnyPhase,
        networks: Networks,
        weights: FlatWeights,
        micro: int | None = None,
        clock: Clock | None = None,
        world: World = SOLO,
    ) -> None:
        self.world = world
        self.phase = phase
        self.networks = networks
        self.clock = clock or Clock()
        self.probe: Probe | None = None
        self.rows = phase.sgd.minibatch
        self.micro = micro if micro and is_mean_over_rows(phase) else self.rows
        self.vector = weights.vector(phase.trains)
        self.optimizer = torch.optim.Adam([self.vector], eps=phase.sgd.adam_eps, fused=True)

    def __call__(self, data: Batch, progress: float) -> Metrics:
        """Compute the gradient of one mini-batch, clip it, and take a step of Adam."""
        gradient = self.vector.grad
        assert gradient is not None
        gradient.zero_()
        metrics = self._accumulate(data, progress)
        if self.world.size > 1:
            with self.clock("ranks"):
                self.world.sum_(gradient)
        with self.clock("optimizer"):
            norm = clip(gradient, self.phase.sgd.max_gradient_norm)
            self.optimizer.step()
        if self.world.size > 1:
            # `Meter` sums metrics over ranks, but all ranks have the same norm.
            norm = norm / self.world.size
        return metrics | {"gradient_norm": norm}

    def _accumulate(self, mb: Batch, progress: float) -> Metrics:
        """Accumulate the mini-batch's gradient in pieces small enough for the caches.

        A loss is a mean over weighted rows, so each piece counts by its share of the weight
        of the whole mini-batch, part of which may be on other ranks.
        """
        if self.rows <= self.micro and self.world.size == 1:
            objective, metrics = loss(self.phase, self.networks, mb, progress)
            objective.backward()  # type: ignore[no-untyped-call]
            return metrics
        total = mb["weight"].sum().clamp(min=1.0)
        sums: Metrics = {}
        for start in range(0, len(mb["weight"]), self.micro):
            piece = {name: column[start : start + self.micro] for name, column in mb.items()}
            share = piece["weight"].sum().clamp(min=1.0) / total
            if self.world.size > 1:
                share = piece["portion"].sum()
            objective, metrics = loss(self.phase, self.networks, piece, progress)
            (objective * share).backward()  # type: ignore[no-untyped-call]
            for name, value in metrics.items():
                part = value.detach() * share
                sums[name] = sums[name] + part if name in sums else part
        return sums


def clip(gradient: Tensor, limit: float | None) -> Tensor:
    """Scale the gradient in place to at most this norm; return the norm before clipping."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    if limit is not None:
        gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


class Meter:
    """Means of a phase's metrics over its mini-batches."""

    def __init__(self, phase: str, world: World = SOLO) -> None:
        self.phase = phase
        self.world = world
        self.sums: dict[str, Tensor] = {}
        self.history: list[Metrics] = []  # per call of the step, to find a non-finite one

    def add(self, metrics: Metrics) -> None:
        """Add the metrics of one call of the step; tensors stay on their device."""
        metrics = {name: value.detach() for name, value in metrics.items()}
        self.history.append(metrics)
        for name, value in metrics.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def means(self, epochs: Epochs) -> dict[str, float]:
        """Return `<phase>/<metric>`, or raise NonFinite with the mini-batch at fault.

        Converted once per phase, not once per mini-batch: each float() waits for the device.
        """
        self._sum_over_ranks()
        count = len(self.history)
        means = {name: float(total) / count for name, total in self.sums.items()}
        if not all(math.isfinite(mean) for mean in means.values()):
            raise self._non_finite(epochs)
        return {f"{self.phase}/{name}": mean for name, mean in means.items()}

    def _sum_over_ranks(self) -> None:
        """Add up the ranks' sums, each of which covers only the rank's own rows."""
        if self.world.size > 1 and self.sums:
            sums = torch.stack([total.double() for total in self.sums.values()])
            self.world.sum_(sums)
            self.sums = dict(zip(self.sums, sums.unbind(), strict=True))

    def _non_finite(self, epochs: Epochs) -> NonFinite:
        """Build the error that names the first non-finite metric and carries its mini-batch."""
        index = self._first_non_finite()
        bad = [pair for pair in self.history[index].items() if not pair[1].isfinite()]
        name, value = bad[0] if bad else next(iter(self.sums.items()))
        return NonFinite(
            f"{self.phase}/{name} became {float(value)} in mini-batch {index + 1} "
            f"of {len(self.history)}; try a smaller learning rate",
            epochs.batch(index),
        )

    def _first_non_finite(self) -> int:
        """Index of the first call with a non-finite metric, or else of the last call."""
        for index, metrics in enumerate(self.history):
            if not all(bool(value.isfinite()) for value in metrics.values()):
                return index
        return len(self.history) - 1  # only on another rank, or only in the sum
