"""The engine: walks any phase over any batch (lines 11-19 of algorithm 1 are calls of it).

freeze → for each epoch → for each mini-batch → step (loss → backward → clip → Adam) → meter.
`dna.algorithm.compiled_step` has a step that does the same in machine code made for it.
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
from dna.networks.flat_weights import FlatWeights
from dna.networks.networks import Networks

#: Looks at a phase's frozen data before its first step; returns what to log of it.
Probe = Callable[[AnyPhase, Experience, float], dict[str, float]]


class PhaseStep(Protocol):
    """Moves a phase's weights by one mini-batch, or by several one after the other."""

    probe: Probe | None
    minibatches: int  # that it takes at once
    optimizer: torch.optim.Adam
    clock: Clock
    world: World  # the ranks that have the rest of each mini-batch

    def __call__(self, data: Batch, progress: float) -> Metrics:
        """Learn from these rows; the mean of the steps' metrics."""


def run_phase(
    phase: AnyPhase,
    networks: Networks,
    step: PhaseStep,
    data: Experience,
    rng: np.random.Generator,
    progress: float,
) -> dict[str, float]:
    """Optimize one phase's objective over its data; returns its metrics, averaged."""
    learning_rate = resolve(phase.sgd.learning_rate, progress)
    if not phase.sgd.epochs:
        return {f"{phase.name}/learning_rate": learning_rate}
    for group in step.optimizer.param_groups:
        group["lr"] = learning_rate
    with step.clock("frozen columns"):
        data = data.with_columns(freeze(phase, networks, data))
    seen = step.probe(phase, data, progress) if step.probe else {}
    meter, before = Meter(), rng.bit_generator.state
    for batch in step.clock.each("gather", _walk(phase, step, data, rng)):
        meter.add(step(batch, progress))
    meter.add_up(step.world)
    try:
        means = meter.means(phase.name)
    except NonFinite as error:
        rng.bit_generator.state = before  # walk there again
        guilty = islice(_walk(phase, step, data, rng), meter.first_bad(), None)
        raise NonFinite(str(error), next(guilty)) from None
    return means | {f"{phase.name}/learning_rate": learning_rate} | seen


def _walk(
    phase: AnyPhase, step: PhaseStep, data: Experience, rng: np.random.Generator
) -> Iterator[Batch]:
    """Every mini-batch of every epoch."""
    for _ in range(phase.sgd.epochs):
        yield from minibatches(data, phase.sgd.minibatch, rng, step.minibatches)


def due(phase: AnyPhase, iteration: int) -> bool:
    """Whether the phase runs on this iteration (counted from 0)."""
    if phase.kind == "distil" and phase.first == "skip" and iteration == 0:
        return False
    return (iteration + 1) % phase.every == 0


class EagerStep:
    """A step by torch's own operators."""

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
        self.phase, self.networks, self.clock = phase, networks, clock or Clock()
        self.probe: Probe | None = None
        self.rows = phase.sgd.minibatch
        self.micro = micro if micro and is_mean_over_rows(phase) else self.rows
        self.vector = weights.vector(phase.trains)
        self.optimizer = torch.optim.Adam([self.vector], eps=phase.sgd.adam_eps, fused=True)

    def __call__(self, data: Batch, progress: float) -> Metrics:
        """One mini-batch: gradient, clip, Adam."""
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
        # Metrics are parts of a mean that `Meter` adds up; the norm is the same on all ranks.
        return metrics | {
            "gradient_norm": norm if self.world.size == 1 else norm / self.world.size
        }

    def _accumulate(self, mb: Batch, progress: float) -> Metrics:
        """The mini-batch's gradient, in pieces small enough for the caches.

        A loss is a mean over weighted rows, so each piece counts by its share of the weight:
        that of the whole mini-batch, of which other ranks may have the rest.
        """
        if self.rows <= self.micro and self.world.size == 1:
            objective, metrics = loss(self.phase, self.networks, mb, progress)
            objective.backward()  # type: ignore[no-untyped-call]
            return metrics
        total, sums = mb["weight"].sum().clamp(min=1.0), dict[str, Tensor]()
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
    """Scale the gradient in place to at most this norm; returns the norm before."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    if limit is not None:
        gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


class Meter:
    """Means of metrics over mini-batches."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.seen: list[Metrics] = []  # to find the mini-batch with which it went wrong

    def add(self, metrics: Metrics) -> None:
        """Add one mini-batch; tensors stay where they are."""
        metrics = {name: value.detach() for name, value in metrics.items()}
        self.seen.append(metrics)
        for name, value in metrics.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def add_up(self, world: World) -> None:
        """Each rank has the parts of its own rows: the whole is their sum."""
        if world.size > 1 and self.sums:
            whole = torch.stack([total.double() for total in self.sums.values()])
            world.sum_(whole)
            self.sums = dict(zip(self.sums, whole.unbind(), strict=True))

    def means(self, phase: str) -> dict[str, float]:
        """`<phase>/<metric>`; one float() per phase, not per mini-batch: each is a sync."""
        means = {n: float(total) / len(self.seen) for n, total in self.sums.items()}
        if not all(math.isfinite(value) for value in means.values()):
            at = self.first_bad()
            bad = [pair for pair in self.seen[at].items() if not pair[1].isfinite()]
            name, value = bad[0] if bad else next(iter(self.sums.items()))
            text = f"{phase}/{name} became {float(value)} in mini-batch {at + 1}"
            raise NonFinite(f"{text} of {len(self.seen)}; try a smaller learning rate")
        return {f"{phase}/{name}": value for name, value in means.items()}

    def first_bad(self) -> int:
        """The first mini-batch with a metric that is not finite; the last one if none is."""
        for index, metrics in enumerate(self.seen):
            if not all(bool(value.isfinite()) for value in metrics.values()):
                return index
        return len(self.seen) - 1
