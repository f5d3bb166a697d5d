"""One engine for every phase: freeze, then epochs of mini-batches with the phase's own Adam."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from dna.batch import Experience, minibatches
from dna.config import AnyPhase, Config, resolve
from dna.errors import NonFinite
from dna.networks import Networks
from dna.phases import freeze, loss


def make_optimizers(config: Config, networks: Networks) -> dict[str, torch.optim.Adam]:
    """Each phase has its own Adam, with moments of its own (section 4.4)."""
    return {
        phase.name: torch.optim.Adam(
            networks.weights(phase.trains), eps=phase.sgd.adam_eps, fused=True
        )
        for phase in config.phases
    }


def run_phase(
    phase: AnyPhase,
    networks: Networks,
    optimizer: torch.optim.Adam,
    data: Experience,
    rng: np.random.Generator,
    progress: float,
) -> dict[str, float]:
    """Optimize one phase's objective over its data; returns its metrics, averaged."""
    learning_rate = resolve(phase.sgd.learning_rate, progress)
    if not phase.sgd.epochs:
        return {f"{phase.name}/learning_rate": learning_rate}
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    parameters = networks.weights(phase.trains)
    data = data.with_columns(freeze(phase, networks, data))
    meter = Meter()
    for _ in range(phase.sgd.epochs):
        for mb in minibatches(data, phase.sgd.minibatch, rng):
            objective, metrics = loss(phase, networks, mb, progress)
            optimizer.zero_grad(set_to_none=True)
            objective.backward()  # type: ignore[no-untyped-call]
            norm = clip(parameters, phase.sgd.max_gradient_norm)
            optimizer.step()
            meter.add(metrics | {"gradient_norm": norm})
    # The last mini-batch leaves gradients on weights that another phase may share.
    optimizer.zero_grad(set_to_none=True)
    return meter.means(phase.name) | {f"{phase.name}/learning_rate": learning_rate}


def clip(parameters: list[nn.Parameter], limit: float | None) -> Tensor:
    """Scale the gradient to at most this global norm; returns the norm before."""
    touched = [p for p in parameters if p.grad is not None]
    norm = get_total_norm([p.grad for p in touched if p.grad is not None])
    if limit is not None:
        clip_grads_with_norm_(touched, limit, norm)
    return norm


class Meter:
    """Means of metrics over mini-batches."""

    def __init__(self) -> None:
        self.steps = 0
        self.sums: dict[str, Tensor] = {}

    def add(self, metrics: dict[str, Tensor]) -> None:
        """Add one mini-batch; tensors stay where they are."""
        self.steps += 1
        for name, value in metrics.items():
            value = value.detach()
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def means(self, phase: str) -> dict[str, float]:
        """`<phase>/<metric>`; one float() per phase, not per mini-batch: each is a sync."""
        means = {
            f"{phase}/{name}": float(total) / self.steps for name, total in self.sums.items()
        }
        for name, value in means.items():
            if not math.isfinite(value):
                raise NonFinite(f"{name} became {value}; try a smaller learning rate")
        return means
