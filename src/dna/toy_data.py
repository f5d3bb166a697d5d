"""The toy problem of section 3.1: two noisy functions, and the networks that learn them.

A joint network learns both functions; a dual one is two networks that share nothing, so that
only chance can move its second task when the noise of the first grows. Axes are [S, T, B]:
seeds, the two tasks, samples. All seeds of a model are trained at once: its weights have a
leading axis of seeds and networks, the loss is a sum over it and Adam works element by
element, so that no seed sees another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dna.errors import NonFinite
from dna.randomness import generator

Model = Literal["joint", "dual", "shallow-joint", "shallow-dual"]
Scale = Literal["smoke", "small", "paper"]
DEEP: tuple[Model, Model] = ("joint", "dual")
SHALLOW: tuple[Model, Model] = ("shallow-joint", "shallow-dual")
#: Weight and bias of each layer, [S·networks, in, out] and [S·networks, 1, out].
Layers = list[tuple[Tensor, Tensor]]
#: F₁ = sin(5x) + N(0, σ₁²) and F₂ = cos(5x) + N(0, σ₂²) over [−π, π].
FREQUENCY, SIGMA_2 = 5.0, 1.0


def log_spaced(low: int, high: int, each: int) -> tuple[float, ...]:
    """10^low … 10^high with so many points to a decade, each of four digits."""
    points = (high - low) * each + 1
    return tuple(float(f"{10 ** (low + k / each):.4g}") for k in range(points))


@dataclass(frozen=True)
class ToySettings:
    """One size of the experiment, and what the paper leaves open about its training.

    The paper gives the widths, σ₂, the range of σ₁ and 100 seeds. Ours are: Adam with torch's
    defaults (β .9 and .999, ε 10⁻⁸) at a constant rate, torch's first weights, the sum of both
    tasks' squared errors as the loss, fresh samples at every step, x as it is, and the error
    at the end of training on an even grid over the domain. They were chosen at the smallest
    σ₁ alone, as settings with which both models learn, and not changed after.
    """

    seeds: int
    sigmas: tuple[float, ...]  # σ₁ of the deep models
    shallow_sigmas: tuple[float, ...]  # σ₁ of the models with one hidden layer
    width: int = 1024
    shallow_width: int = 1024  # the paper does not say
    batch: int = 32
    steps: int = 1500
    learning_rate: float = 3e-4
    shallow_steps: int = 6000  # fewer layers learn these frequencies later
    shallow_learning_rate: float = 3e-3
    grid: int = 1001  # points of the error


#: Seconds, minutes, hours.
SCALES: dict[Scale, ToySettings] = {
    "smoke": ToySettings(
        2, (0.1, 100.0), (0.1, 100.0), width=32, shallow_width=32, steps=60, shallow_steps=60
    ),
    "small": ToySettings(10, log_spaced(-1, 2, 2), (0.1, 100.0)),
    "paper": ToySettings(100, log_spaced(-1, 2, 10), log_spaced(-1, 2, 2)),
}


def settings_of(scale: Scale, seeds: int | None = None) -> ToySettings:
    """A size of the experiment; with fewer (or more) seeds where a number is given."""
    whole = SCALES[scale]
    return whole if seeds is None else replace(whole, seeds=seeds)


@dataclass(frozen=True)
class Cell:
    """One model at one σ₁; its name keys its random numbers, so that no two cells share any."""

    model: Model
    sigma: float

    @property
    def name(self) -> str:
        """As in file names."""
        return f"{self.model}-{self.sigma:.4g}"


def cells_of(settings: ToySettings) -> list[Cell]:
    """What a sweep is made of: both ends of σ₁ first, because the claims are about them."""
    ends, between = settings.sigmas[:: max(1, len(settings.sigmas) - 1)], settings.sigmas[1:-1]
    cells = [Cell(model, sigma) for sigma in ends for model in DEEP]
    cells += [Cell(model, sigma) for sigma in settings.shallow_sigmas for model in SHALLOW]
    return cells + [Cell(model, sigma) for sigma in between for model in DEEP]


@dataclass(frozen=True)
class Outcome:
    """A cell's errors, one of each task for every seed."""

    cell: Cell
    l_t1: tuple[float, ...]
    l_t2: tuple[float, ...]


@dataclass(frozen=True)
class ToyResult:
    """All cells of a sweep."""

    settings: ToySettings
    outcomes: tuple[Outcome, ...]

    def of(self, model: Model) -> list[Outcome]:
        """A model's cells, σ₁ rising."""
        found = [outcome for outcome in self.outcomes if outcome.cell.model == model]
        return sorted(found, key=lambda outcome: outcome.cell.sigma)


def clean(x: Tensor) -> Tensor:
    """(sin 5x, cos 5x): [S, B] → [S, 2, B]"""
    return torch.stack([torch.sin(FREQUENCY * x), torch.cos(FREQUENCY * x)], dim=1)


def samples(cell: Cell, seeds: Sequence[int], batch: int, step: int) -> tuple[Tensor, Tensor]:
    """x ~ U(−π, π) [S, B], and F₁(x), F₂(x) [S, 2, B], noise included."""
    x = np.empty((len(seeds), batch), np.float32)
    noise = np.empty((len(seeds), 2, batch), np.float32)
    for row, seed in enumerate(seeds):
        rng = generator(seed, f"toy/{cell.name}/samples", step)
        x[row] = rng.uniform(-math.pi, math.pi, batch)
        noise[row] = rng.standard_normal((2, batch))
    noise *= np.array([[cell.sigma], [SIGMA_2]], np.float32)
    inputs = torch.from_numpy(x)
    return inputs, clean(inputs) + torch.from_numpy(noise)


def shape(model: Model, settings: ToySettings) -> tuple[int, tuple[int, ...]]:
    """How many networks a model is, and the units of each one's layers.

    With a width w, both deep models have 2w² + 8w + 2 parameters: 2,105,346 at the paper's
    1024. Both shallow ones have 6w + 2.
    """
    deep, shallow = settings.width, settings.shallow_width
    shapes: dict[Model, tuple[int, tuple[int, ...]]] = {
        "joint": (1, (1, deep, 2 * deep, 2)),
        "dual": (2, (1, deep, deep, 1)),
        "shallow-joint": (1, (1, 3 * shallow // 2, 2)),
        "shallow-dual": (2, (1, shallow, 1)),
    }
    return shapes[model]


def parameters(model: Model, settings: ToySettings) -> int:
    """networks · Σ_layers (in + 1) · out"""
    networks, units = shape(model, settings)
    return networks * sum((units[k] + 1) * units[k + 1] for k in range(len(units) - 1))


def first_weights(cell: Cell, settings: ToySettings, seeds: Sequence[int]) -> Layers:
    """Weights and biases ~ U(−1/√in, 1/√in), as torch's linear layers begin."""
    networks, units = shape(cell.model, settings)
    layers = []
    for k in range(len(units) - 1):
        size, bound = (networks, units[k] + 1, units[k + 1]), 1 / math.sqrt(units[k])
        draws = [
            generator(seed, f"toy/{cell.name}/weights", k).random(size, np.float32)
            for seed in seeds
        ]
        both = torch.from_numpy(bound * (2 * np.concatenate(draws) - 1))
        weight, bias = both[:, :-1].contiguous(), both[:, -1:].contiguous()
        layers.append((weight.requires_grad_(), bias.requires_grad_()))
    return layers


def predict(layers: Layers, x: Tensor) -> Tensor:
    """Every seed's model at its own x: [S, B] → [S, 2, B]; ReLU between linear layers."""
    seeds, batch = x.shape
    networks = len(layers[0][0]) // seeds
    hidden = x.repeat_interleave(networks, dim=0).unsqueeze(-1)
    for k, (weight, bias) in enumerate(layers):
        hidden = torch.baddbmm(bias, torch.relu(hidden) if k else hidden, weight)
    outputs = hidden.view(seeds, networks, batch, -1)
    return outputs.transpose(2, 3).reshape(seeds, 2, batch)


def errors(layers: Layers, seeds: int, points: int) -> Tensor:
    """L_T1 and L_T2 of every seed, [S, 2]: mean of (prediction − noise-free value)²."""
    x = torch.linspace(-math.pi, math.pi, points).expand(seeds, points)
    with torch.no_grad():
        return (predict(layers, x) - clean(x)).square().mean(dim=-1)


def train(cell: Cell, settings: ToySettings, seeds: Sequence[int]) -> Tensor:
    """Train a model once for each seed, all at once; its errors at the end, [S, 2].

    min_θ Σ_seeds Σ_tasks mean_B (prediction − F(x))²
    """
    shallow = cell.model.startswith("shallow")
    steps = settings.shallow_steps if shallow else settings.steps
    rate = settings.shallow_learning_rate if shallow else settings.learning_rate
    layers = first_weights(cell, settings, seeds)
    optimizer = torch.optim.Adam([p for layer in layers for p in layer], lr=rate, fused=True)
    for step in range(steps):
        x, y = samples(cell, seeds, settings.batch, step)
        loss = (predict(layers, x) - y).square().mean(dim=-1).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    found = errors(layers, len(seeds), settings.grid)
    if not bool(torch.isfinite(found).all()):
        raise NonFinite(f"toy problem, {cell.name}: the error is not a finite number")
    return found
