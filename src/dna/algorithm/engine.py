"""The engine: runs any phase on any data (lines 11-17 of algorithm 1 are three calls of it).

freeze → for each epoch → for each mini-batch → step (loss → backward → clip → Adam) → means.
`EagerStep` is the plain optimizer step; `dna.algorithm.compiled_step` has a compiled one. Both
compute the same bits on any number of threads: a mini-batch is cut into pieces of fixed size,
and the gradients of the pieces are added in a fixed order.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dna.algorithm.phases import Metrics, can_be_cut, freeze, is_recordable, loss
from dna.algorithm.traced import Traced
from dna.common.errors import NonFinite
from dna.common.timing import Clock
from dna.config import AnyPhase, resolve
from dna.distributed.world import SOLO, World
from dna.networks.batch import Batch, Experience, Minibatch, minibatches
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

    @property
    def beside(self) -> bool:
        """Whether it pays to run another phase at the same time."""

    def __call__(self, rows: Minibatch, progress: float) -> Metrics:
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
    probed = {}
    if step.probe:
        with step.clock("noise"):
            probed = step.probe(phase, data, progress)
    epochs = Epochs(data, phase.sgd.epochs, phase.sgd.minibatch, rng, step.minibatches)
    meter = Meter(phase.name, step.world)
    for rows in epochs:
        meter.add(step(rows, progress))
    means = meter.means(epochs)
    return means | {f"{phase.name}/learning_rate": learning_rate} | probed


def due(phase: AnyPhase, iteration: int) -> bool:
    """Return whether the phase runs in this iteration (counted from 0)."""
    # Phases registered by users need not define `skips_first`.
    if iteration == 0 and getattr(phase, "skips_first", False):
        return False
    return (iteration + 1) % phase.every == 0


def independent(one: AnyPhase, other: AnyPhase) -> bool:
    """Return whether neither phase trains a network that the other trains or evaluates."""
    return not (_trained(one) & _used(other) or _trained(other) & _used(one))


def _trained(phase: AnyPhase) -> set[str]:
    return {"policy", "value"} if phase.trains == "both" else {phase.trains}


def _used(phase: AnyPhase) -> set[str]:
    # Without a `needs` of its own, a phase of the user's may evaluate both networks, even if it
    # is derived from one that evaluates only one.
    needs = phase.needs if "needs" in vars(type(phase)) else "both"
    return _trained(phase) | ({"policy", "value"} if needs == "both" else {needs})


def concurrent(phases: Iterable[AnyPhase]) -> list[list[AnyPhase]]:
    """Split a list of phases into successive groups that may run at the same time."""
    groups: list[list[AnyPhase]] = []
    for phase in phases:
        if groups and all(independent(phase, other) for other in groups[-1]):
            groups[-1].append(phase)
        else:
            groups.append([phase])
    return groups


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

    def __iter__(self) -> Iterator[Minibatch]:
        self.rng.bit_generator.state = self.start
        for _ in range(self.epochs):
            yield from minibatches(self.data, self.size, self.rng, self.together)

    def batch(self, index: int) -> Batch:
        """Gather what the step was given in call `index`."""
        return next(islice(self, index, None)).gather()


class EagerStep:
    """An optimizer step with torch's ordinary operators."""

    minibatches = 1

    def __init__(
        self,
        phase: AnyPhase,
        networks: Networks,
        weights: FlatWeights,
        piece: int | None = None,
        clock: Clock | None = None,
        world: World = SOLO,
    ) -> None:
        """`piece`: rows of a piece of a mini-batch; None processes mini-batches whole."""
        self.world = world
        self.phase = phase
        self.networks = networks
        self.clock = clock or Clock()
        self.probe: Probe | None = None
        self.rows = phase.sgd.minibatch
        self.piece = piece if piece and can_be_cut(phase) else self.rows
        self.whole = self.rows <= self.piece and world.size == 1
        self.weights = weights
        self.vector = weights.vector(phase.trains)
        self.parameters = weights.parameters(phase.trains)
        count = 1 if networks.workers.threads == 1 else math.ceil(self.rows / self.piece)
        # Of the pieces that are computed at the same time; their order is that of the sum.
        self.gradients = self.vector.new_empty((0 if self.whole else count, len(self.vector)))
        self.optimizer = torch.optim.Adam([self.vector], eps=phase.sgd.adam_eps, fused=True)
        self.objective = _Objective(phase, networks)
        fixed = is_recordable(phase) and not networks.policy.custom
        recorded = piece is not None and fixed and self.vector.device.type == "cpu"
        self.recorded = Traced(self.objective, self.piece if recorded else 0)

    @property
    def beside(self) -> bool:
        """Whether it pays to run another phase at the same time.

        Mini-batches that are not cut are mostly calls from Python, which only one thread at a
        time can make.
        """
        return self.piece < self.rows

    def __call__(self, rows: Minibatch, progress: float) -> Metrics:
        """Compute the gradient of one mini-batch, clip it, and take a step of Adam."""
        gradient = self.vector.grad
        assert gradient is not None
        metrics: Metrics
        self.objective.progress = progress
        if self.whole:
            gradient.zero_()
            mb = rows.gather()
            objective, metrics = self.recorded(len(mb["weight"]), mb)
            objective.backward()
        else:
            metrics = self._add_pieces(gradient, rows)
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

    def _add_pieces(self, gradient: Tensor, rows: Minibatch) -> Metrics:
        """Compute the gradient as a sum over pieces, which the threads of the run share."""
        gradient.zero_()
        sums: Metrics = {}
        work = partial(self._piece, rows.weight())
        pieces = rows.pieces(self.piece)
        for start in range(0, len(pieces), len(self.gradients)):
            places = list(zip(pieces[start:], self.gradients, strict=False))
            found = self.networks.workers.map(work, places)
            for part, metrics in zip(self.gradients, found, strict=False):
                gradient.add_(part)
                for name, value in metrics.items():
                    sums[name] = sums[name] + value if name in sums else value
        return sums

    def _piece(self, total: Tensor, place: tuple[Minibatch, Tensor]) -> Metrics:
        """Compute one piece's part of the gradient, in its place, and of the metrics."""
        piece, gradient = place[0].gather(), place[1]
        objective, metrics = self.recorded(len(piece["weight"]), piece, total)
        # Not `backward`: the pieces must not add to one `.grad` in the order of their threads.
        found = torch.autograd.grad(
            objective, list(self.parameters.values()), materialize_grads=True
        )
        self.weights.write(dict(zip(self.parameters, found, strict=True)), gradient)
        return dict(metrics)


class _Objective(nn.Module):
    """A phase's loss as a module, so that it can be recorded."""

    def __init__(self, phase: AnyPhase, networks: Networks) -> None:
        super().__init__()
        self.phase = phase
        self.networks = networks
        self.progress = 0.0

    def forward(self, mb: Batch, total: Tensor | None = None) -> tuple[Tensor, Metrics]:
        """Compute the loss of a mini-batch, or the share of it that a piece of one has.

        A loss is a mean over weighted rows, so each piece counts by its share of `total`, the
        weight of the whole mini-batch, part of which may be on other ranks.
        """
        objective, metrics = loss(self.phase, self.networks, mb, self.progress)
        if total is None:
            return objective, metrics
        if "portion" in mb:
            share = mb["portion"].sum()
        else:
            share = mb["weight"].sum().clamp(min=1.0) / total
        return objective * share, {k: value.detach() * share for k, value in metrics.items()}


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
