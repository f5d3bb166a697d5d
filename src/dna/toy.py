"""Figure 1 of the paper: the sweep over σ₁, its table, and ratios of errors.

A cell is one model at one σ₁, all seeds. Each finished cell is a JSON file in the folder, and
is not trained again: an interrupted sweep goes on where it stopped.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dna.errors import BadInput, StorageFailure
from dna.storage import read_json, write_json
from dna.toy_data import (
    DEEP,
    SHALLOW,
    Cell,
    Outcome,
    Scale,
    ToyResult,
    ToySettings,
    cells_of,
    settings_of,
    train,
)

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
