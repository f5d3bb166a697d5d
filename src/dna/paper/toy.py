"""Figure 1 of the paper: the sweep over σ₁, its table, and ratios of errors.

A cell is one model at one σ₁, all seeds. Each finished cell is a JSON file in the folder, and
is not trained again: an interrupted sweep goes on where it stopped.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dna.common.errors import BadInput, NonFinite, StorageFailure
from dna.common.randomness import generator
from dna.common.storage import read_json, write_json

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


# --- The sweep ----------------------------------------------------------------------------


def run_toy(
    folder: Path,
    scale: Scale,
    told: Callable[[int, int], None] = lambda done, total: None,
    seeds: int | None = None,
) -> ToyResult:
    """Run the experiment in one of its sizes, or what is left of it in this folder.

    `seeds`: another number of them than the size has.
    """
    return sweep(folder, settings_of(scale, seeds), told)


def sweep(
    folder: Path,
    settings: ToySettings,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> ToyResult:
    """Every model at every σ₁; `told(done, total)` after each cell, found or trained."""
    cells = cells_of(settings)
    outcomes = []
    for cell in cells:
        path = folder / f"{cell.name}.json"
        outcomes.append(_read(path, cell, settings) or _run(path, cell, settings))
        told(len(outcomes), len(cells))
    return ToyResult(settings, tuple(outcomes))


def _conditions(settings: ToySettings) -> dict[str, Any]:
    """What a cell's numbers depend on: all settings but the list of cells."""
    listed = asdict(settings)
    return {name: listed[name] for name in listed if name not in ("sigmas", "shallow_sigmas")}


def _run(path: Path, cell: Cell, settings: ToySettings) -> Outcome:
    start = time.monotonic()
    l_t1, l_t2 = train(cell, settings, range(settings.seeds)).T.tolist()
    record = {
        **asdict(cell),
        "settings": _conditions(settings),
        "l_t1": l_t1,
        "l_t2": l_t2,
        "seconds": round(time.monotonic() - start, 2),
    }
    write_json(path, record)
    return Outcome(cell, tuple(l_t1), tuple(l_t2))


def _read(path: Path, cell: Cell, settings: ToySettings) -> Outcome | None:
    """A cell that is finished; None where it is not."""
    if not path.exists():
        return None
    record = read_json(path)
    try:
        same = record["settings"] == _conditions(settings)
        errors = [tuple(map(float, record[task])) for task in ("l_t1", "l_t2")]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageFailure(f"{path}: not a cell of the toy problem") from error
    if not same:
        raise BadInput(f"{path}: has other settings; choose another folder")
    if {len(one) for one in errors} != {settings.seeds}:
        raise StorageFailure(f"{path}: not an error for every seed")
    return Outcome(cell, *errors)


# --- The table ----------------------------------------------------------------------------


def toy_table(result: ToyResult) -> list[dict[str, Any]]:
    """A row for each cell, σ₁ rising: both errors' mean and standard error over seeds."""
    rows = []
    for outcome in (one for model in (*DEEP, *SHALLOW) for one in result.of(model)):
        row: dict[str, Any] = {
            "model": outcome.cell.model,
            "sigma_1": outcome.cell.sigma,
            "seeds": len(outcome.l_t1),
        }
        for task in ("l_t1", "l_t2"):
            row[task], error = mean_and_error(getattr(outcome, task))
            row[f"{task}_se"] = None if math.isnan(error) else error  # JSON has no NaN
        rows.append(row)
    return rows


def mean_and_error(x: Sequence[float]) -> tuple[float, float]:
    """x̄ and s / √n, the standard error; NaN of one number."""
    error = statistics.stdev(x) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return statistics.fmean(x), error


# --- Ratios -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """A ratio of geometric means, and the 95 % interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def student(nu: float, level: float = 0.95) -> float:
    """t with P(|T_ν| < t) = level: T_ν = √ν tan θ, and θ has a density ∝ cos^(ν−1) θ."""
    theta = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(theta) ** (nu - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(nu) * math.tan(float(np.interp(level, mass / mass[-1], theta)))


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """exp(d ± t_ν √(v_a + v_b)) with d the difference of mean logarithms: Welch's interval.

    v = s² / n of the logarithms, ν = (v_a + v_b)² / (v_a² / (n_a − 1) + v_b² / (n_b − 1)).
    """
    logs = [np.log(np.asarray(x, dtype=np.float64)) for x in (a, b)]
    value = float(logs[0].mean() - logs[1].mean())
    if min(len(a), len(b)) < 2:
        return Ratio(math.exp(value), 0.0, math.inf)
    v_a, v_b = (float(x.var(ddof=1)) / len(x) for x in logs)
    spread = v_a + v_b
    half = 0.0
    if spread > 0:
        nu = spread**2 / (v_a**2 / (len(a) - 1) + v_b**2 / (len(b) - 1))
        half = student(nu) * math.sqrt(spread)
    return Ratio(math.exp(value), math.exp(value - half), math.exp(value + half))
