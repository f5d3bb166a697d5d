"""The toy problem of section 3.1: two tasks, one noisy, learned by one network or by two.

Figure 1 sweeps the noise σ₁ of the first task. A cell is one model at one σ₁ with all seeds.
Each finished cell is a JSON file in the folder and is not trained again, so an interrupted
sweep continues where it stopped. The claims about it, C006 to C010, are judged at the end of
the file.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dna.common.errors import BadInput, NonFinite, StorageFailure
from dna.common.intervals import student_quantile
from dna.common.randomness import generator
from dna.common.storage import read_json, write_json
from dna.paper.claims.verdicts import COMPUTED, Interval, Verdict, all_of, judged
from dna.paper.plan import Check, Scale
from dna.paper.results import Results

Model = Literal["joint", "dual", "shallow-joint", "shallow-dual"]
DEEP: tuple[Model, Model] = ("joint", "dual")
SHALLOW: tuple[Model, Model] = ("shallow-joint", "shallow-dual")
#: Weight and bias of each layer, [S·networks, in, out] and [S·networks, 1, out].
Layers = list[tuple[Tensor, Tensor]]
#: F₁ = sin(5x) + N(0, σ₁²) and F₂ = cos(5x) + N(0, σ₂²) over [−π, π].
FREQUENCY = 5.0
SIGMA_2 = 1.0
#: Factors within which two geometric means count as similar, and as flat.
SIMILAR = 1.25
FLAT = 1.1
#: A model has learned a task below this error; predicting 0 everywhere costs ½.
LEARNED = 0.25


def log_spaced(low: int, high: int, each: int) -> tuple[float, ...]:
    """10^low … 10^high with `each` points per decade, rounded to four digits."""
    points = (high - low) * each + 1
    return tuple(float(f"{10 ** (low + k / each):.4g}") for k in range(points))


@dataclass(frozen=True)
class ToySettings:
    """One size of the experiment, and the settings that the paper leaves open.

    The paper gives the widths, σ₂, the range of σ₁ and 100 seeds. Our choices: Adam with
    torch's defaults (β .9 and .999, ε 10⁻⁸) at a constant rate, torch's initial weights, the
    sum of both tasks' squared errors as the loss, fresh samples at every step, x unscaled, and
    the error at the end of training on an even grid over the domain. They were chosen at the
    smallest σ₁ alone, so that both models learn, and not changed afterwards.
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


#: The settings of each scale.
SCALES: dict[Scale, ToySettings] = {
    "smoke": ToySettings(
        2, (0.1, 100.0), (0.1, 100.0), width=32, shallow_width=32, steps=60, shallow_steps=60
    ),
    "small": ToySettings(10, log_spaced(-1, 2, 2), (0.1, 100.0)),
    "paper": ToySettings(100, log_spaced(-1, 2, 10), log_spaced(-1, 2, 2)),
}


def settings_of(scale: Scale, seeds: int | None = None) -> ToySettings:
    """Return the settings of a scale, with another number of seeds if one is given."""
    whole = SCALES[scale]
    return whole if seeds is None else replace(whole, seeds=seeds)


@dataclass(frozen=True)
class Cell:
    """One model at one σ₁; its name keys its random streams, so that no two cells share any."""

    model: Model
    sigma: float

    @property
    def name(self) -> str:
        """Name of the cell in file names and random streams."""
        return f"{self.model}-{self.sigma:.4g}"


def cells_of(settings: ToySettings) -> list[Cell]:
    """List the cells of a sweep: both ends of σ₁ first, because the claims are about them."""
    ends = settings.sigmas[:: max(1, len(settings.sigmas) - 1)]
    between = settings.sigmas[1:-1]
    cells = [Cell(model, sigma) for sigma in ends for model in DEEP]
    cells += [Cell(model, sigma) for sigma in settings.shallow_sigmas for model in SHALLOW]
    return cells + [Cell(model, sigma) for sigma in between for model in DEEP]


@dataclass(frozen=True)
class CellResult:
    """Errors of a cell: for each task, one per seed."""

    cell: Cell
    l_t1: tuple[float, ...]
    l_t2: tuple[float, ...]


@dataclass(frozen=True)
class ToyResult:
    """All cells of a sweep."""

    settings: ToySettings
    outcomes: tuple[CellResult, ...]

    def of(self, model: Model) -> list[CellResult]:
        """Return a model's cells by rising σ₁."""
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
    """Return the number of networks of a model, and the units of their layers.

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
    """Weights and biases ~ U(−1/√in, 1/√in), like torch's linear layers."""
    networks, units = shape(cell.model, settings)
    layers = []
    for k in range(len(units) - 1):
        size = (networks, units[k] + 1, units[k + 1])
        bound = 1 / math.sqrt(units[k])
        draws = [
            generator(seed, f"toy/{cell.name}/weights", k).random(size, np.float32)
            for seed in seeds
        ]
        both = torch.from_numpy(bound * (2 * np.concatenate(draws) - 1))
        weight, bias = both[:, :-1].contiguous(), both[:, -1:].contiguous()
        layers.append((weight.requires_grad_(), bias.requires_grad_()))
    return layers


def predict(layers: Layers, x: Tensor) -> Tensor:
    """Predictions of each seed's model at its own x: [S, B] → [S, 2, B]."""
    seeds, batch = x.shape
    networks = len(layers[0][0]) // seeds
    hidden = x.repeat_interleave(networks, dim=0).unsqueeze(-1)
    for k, (weight, bias) in enumerate(layers):
        hidden = torch.baddbmm(bias, torch.relu(hidden) if k else hidden, weight)
    outputs = hidden.view(seeds, networks, batch, -1)
    return outputs.transpose(2, 3).reshape(seeds, 2, batch)


def errors(layers: Layers, seeds: int, points: int) -> Tensor:
    """L_T1 and L_T2 of each seed, [S, 2]: mean of (prediction − noise-free value)²."""
    x = torch.linspace(-math.pi, math.pi, points).expand(seeds, points)
    with torch.no_grad():
        return (predict(layers, x) - clean(x)).square().mean(dim=-1)


def train(cell: Cell, settings: ToySettings, seeds: Sequence[int]) -> Tensor:
    """Train one model per seed, in parallel; return their errors at the end, [S, 2].

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


# --- Sweep --------------------------------------------------------------------------------


def run_toy(
    folder: Path,
    scale: Scale,
    report: Callable[[int, int], None] = lambda done, total: None,
    seeds: int | None = None,
) -> ToyResult:
    """Run what is left of the experiment in this folder, with `seeds` if given."""
    return sweep(folder, settings_of(scale, seeds), report)


def sweep(
    folder: Path,
    settings: ToySettings,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> ToyResult:
    """Train or read every cell; calls `report(done, total)` after each."""
    cells = cells_of(settings)
    outcomes = []
    for cell in cells:
        path = folder / f"{cell.name}.json"
        outcomes.append(_read(path, cell, settings) or _run(path, cell, settings))
        report(len(outcomes), len(cells))
    return ToyResult(settings, tuple(outcomes))


def _conditions(settings: ToySettings) -> dict[str, Any]:
    """Settings that a cell's numbers depend on: all but the list of cells."""
    listed = asdict(settings)
    return {name: listed[name] for name in listed if name not in ("sigmas", "shallow_sigmas")}


def _run(path: Path, cell: Cell, settings: ToySettings) -> CellResult:
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
    return CellResult(cell, tuple(l_t1), tuple(l_t2))


def _read(path: Path, cell: Cell, settings: ToySettings) -> CellResult | None:
    """Read a finished cell; None if it is not finished."""
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
    return CellResult(cell, *errors)


# --- Table --------------------------------------------------------------------------------


def toy_table(result: ToyResult) -> list[dict[str, Any]]:
    """One row per cell by rising σ₁: mean and standard error over seeds of both errors."""
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
    """x̄ and s / √n, the standard error; NaN for one number."""
    error = statistics.stdev(x) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return statistics.fmean(x), error


# --- Claims -------------------------------------------------------------------------------


def ratio(a: Sequence[float], b: Sequence[float]) -> Interval:
    """exp(d ± t_ν √(v_a + v_b)) with d the difference of mean logarithms: Welch's interval.

    v = s² / n of the logarithms, ν = (v_a + v_b)² / (v_a² / (n_a − 1) + v_b² / (n_b − 1)).
    """
    log_a = np.log(np.asarray(a, dtype=np.float64))
    log_b = np.log(np.asarray(b, dtype=np.float64))
    value = float(log_a.mean() - log_b.mean())
    if min(len(a), len(b)) < 2:
        return Interval(math.exp(value), None, "one seed")
    v_a = float(log_a.var(ddof=1)) / len(a)
    v_b = float(log_b.var(ddof=1)) / len(b)
    spread = v_a + v_b
    half = 0.0
    if spread > 0:
        nu = spread**2 / (v_a**2 / (len(a) - 1) + v_b**2 / (len(b) - 1))
        half = student_quantile(nu) * math.sqrt(spread)
    return Interval(math.exp(value), (math.exp(value - half), math.exp(value + half)))


def toy_verdicts(result: ToyResult) -> dict[str, tuple[str, str, str]]:
    """Judge the claims of section 3.1 on the cells: status, effect, note.

    Errors of task 2 are compared as ratios of geometric means over seeds. C006: joint and dual
    are similar at the smallest σ₁. C007: joint is worse at the largest σ₁ than at the smallest.
    C008: dual is flat, as far as the cells can tell. C010: shallow joint and dual are similar
    at both ends. C009 counts parameters.
    """
    joint = result.of("joint")
    dual = result.of("dual")
    shallow_joint = result.of("shallow-joint")
    shallow_dual = result.of("shallow-dual")
    ends = all_of(
        [_alike(shallow_joint[k:][:1], shallow_dual[k:][:1], SIMILAR) for k in (0, -1)]
    )
    risen = _compared(joint[-1:], joint[:1], 1.0, inf)
    found = {
        "C006": _if_learned(_alike(joint[:1], dual[:1], SIMILAR), joint, dual),
        "C007": _if_learned(risen, joint),
        "C008": _if_learned(_alike(dual[-1:], dual[:1], FLAT), dual),
        "C009": _equal_parameters(),
        "C010": _if_learned(ends, shallow_joint, shallow_dual),
    }
    return {claim: (one.status, one.effect, one.note) for claim, one in found.items()}


def _alike(one: list[CellResult], other: list[CellResult], factor: float) -> Verdict:
    return _compared(one, other, 1 / factor, factor).noted(f"margin: a factor {factor:g}")


def _compared(
    above: list[CellResult], below: list[CellResult], low: float, high: float
) -> Verdict:
    """Judge whether L_T2 of one cell over that of another is in a range."""
    if not above or not below:
        return Verdict("not tested", "–", "not among the cells")
    a, b = above[0], below[0]
    found = ratio(a.l_t2, b.l_t2)
    begin, end = found.span or (0.0, inf)
    effect = (
        f"L_T2 of {_name(a.cell)} / {_name(b.cell)}: {found.value:.3g} [{begin:.3g}, {end:.3g}]"
    )
    return judged(found, effect, low, high).noted(f"{len(a.l_t2)} and {len(b.l_t2)} seeds")


def _name(cell: Cell) -> str:
    return f"{cell.model.replace('-', ' ')} at σ₁ {cell.sigma:g}"


def _if_learned(verdict: Verdict, *models: Sequence[CellResult]) -> Verdict:
    """No verdict where a model has not learned task 2 even at its smallest σ₁."""
    for cells in models:
        if cells and (error := statistics.fmean(cells[0].l_t2)) > LEARNED:
            reason = f"{_name(cells[0].cell)} has not learned task 2 (mean L_T2 {error:.3g})"
            return Verdict("not tested", verdict.effect, reason)
    return verdict


def _equal_parameters() -> Verdict:
    joint, dual = (parameters(model, SCALES["paper"]) for model in DEEP)
    return Verdict(
        "held" if joint == dual else "not held",
        f"joint {joint:,}, dual {dual:,} parameters",
        "counted, so without an interval",
    )


class _SharedStream(Cell):
    """A cell whose random numbers do not depend on σ₁, unlike those of the sweep."""

    @property
    def name(self) -> str:
        return f"{self.model}-same-dice"


@cache
def same_random_numbers() -> tuple[bool, str]:
    """L_T2 of a small dual model at the smallest and the largest σ₁, all else equal.

    No weight is shared and Adam works element by element, so it must be bit-identical.
    """
    settings = SCALES["smoke"]
    ends = (settings.sigmas[0], settings.sigmas[-1])
    low, high = (
        train(_SharedStream("dual", sigma), settings, range(settings.seeds))[:, 1].tolist()
        for sigma in ends
    )
    what = "equal to the bit" if low == high else "not equal"
    sigmas = " and ".join(f"{sigma:g}" for sigma in ends)
    return low == high, f"small dual model, same random numbers at σ₁ {sigmas}: L_T2 {what}"


def measure(results: Results, folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Train the missing cells; return the table of errors and the verdicts on them."""

    def progress(done: int, total: int) -> None:
        report(f"toy problem: {done} of {total} cells")

    found = run_toy(folder / "toy", results.scale, progress, results.limits.seeds)
    return {"table": toy_table(found), "verdicts": toy_verdicts(found)}


def _from_cells(claim: str) -> Check:
    """The verdict that was reached on the cells."""

    def check(results: Results) -> Verdict:
        found = results.extra.get("toy", {}).get("verdicts", {}).get(claim)
        if found is None:
            return Verdict("not tested", "", "the toy problem was not run")
        return Verdict(*found)

    return check


def _flat_dual(results: Results) -> Verdict:
    """C008: computed exactly, and on the cells, which use different random numbers."""
    good, words = same_random_numbers()
    cells = _from_cells("C008")(results)
    if results.scale == "smoke" or not cells.effect:
        return Verdict("held" if good else "not held", words, COMPUTED)
    held = good and cells.status != "not held"
    note = (
        "by construction: no weight is shared; the cells alone, which use different random "
        f"numbers: {cells.status}, {cells.note}"
    )
    return Verdict("held" if held else "not held", f"{words}; {cells.effect}", note)


def _shallow(results: Results) -> Verdict:
    """C010, with our choices where the paper is silent."""
    found = _from_cells("C010")(results)
    ours = SCALES[results.scale]
    if not found.effect:
        return found
    rate = ours.shallow_learning_rate / ours.learning_rate
    steps = ours.shallow_steps / ours.steps
    return found.noted(
        f"our choice, on which the paper is silent: shallow networks train with {rate:g} times "
        f"the learning rate and {steps:g} times the steps of deep ones"
    )


CHECKS: dict[str, Check] = {
    "C006": _from_cells("C006"),
    "C007": _from_cells("C007"),
    "C008": _flat_dual,
    "C009": _from_cells("C009"),
    "C010": _shallow,
}
