"""Figure 1 of the paper: the sweep over σ₁, its table, and what it says of the claims.

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
    SCALES,
    SHALLOW,
    Cell,
    Outcome,
    Scale,
    ToyResult,
    ToySettings,
    cells_of,
    parameters,
    train,
)

#: Claim → status ("held", "not held" or "not tested"), effect, note.
Verdict = tuple[str, str, str]
#: Geometric means within these factors of each other are similar, and flat.
SIMILAR, FLAT = 1.25, 1.1
#: An interval that holds 1 and reaches beyond this factor decides nothing.
VAGUE = 2.0
#: A model has learned a task below this error; the answer 0 everywhere costs ½.
LEARNED = 0.25


# --- The sweep ----------------------------------------------------------------------------


def run_toy(
    folder: Path, scale: Scale, told: Callable[[int, int], None] = lambda done, total: None
) -> ToyResult:
    """Run the experiment in one of its sizes, or what is left of it in this folder."""
    return sweep(folder, SCALES[scale], told)


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
            row[task], row[f"{task}_se"] = mean_and_error(getattr(outcome, task))
        rows.append(row)
    return rows


def mean_and_error(x: Sequence[float]) -> tuple[float, float]:
    """x̄ and s / √n, the standard error; NaN of one number."""
    error = statistics.stdev(x) / math.sqrt(len(x)) if len(x) > 1 else math.nan
    return statistics.fmean(x), error


# --- The claims ---------------------------------------------------------------------------


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


def similar(found: Ratio, factor: float) -> tuple[str, str]:
    """Whether two means are alike: no difference is found, or none that matters."""
    apart = not found.low <= 1 <= found.high
    if apart and not 1 / factor < found.value < factor:
        return "not held", f"the interval excludes 1 and the ratio is beyond a factor {factor}"
    if 1 / factor <= found.low and found.high <= factor:
        return "held", f"the whole interval is within a factor {factor}"
    if found.low < 1 / VAGUE or found.high > VAGUE:
        return "not tested", f"too few seeds: the interval reaches beyond a factor {VAGUE:g}"
    if apart:
        return "held", f"a difference, but the ratio is within a factor {factor}"
    return "held", f"the interval holds 1, but is wider than a factor {factor}"


def _risen(found: Ratio) -> tuple[str, str]:
    if found.low > 1:
        return "held", "the interval is above 1"
    if found.high > VAGUE:
        return "not tested", f"too few seeds: the interval holds 1 and reaches beyond {VAGUE:g}"
    return "not held", "the interval is not above 1"


def _compared(
    above: list[Outcome], below: list[Outcome], judge: Callable[[Ratio], tuple[str, str]]
) -> Verdict:
    """L_T2 of one cell over that of another: its ratio, named, and what a rule says of it."""
    if not above or not below:
        return "not tested", "–", "not among the cells"
    a, b = above[0], below[0]
    found = ratio(a.l_t2, b.l_t2)
    status, note = judge(found)
    effect = f"L_T2 of {_name(a.cell)} / {_name(b.cell)}: {found}"
    return status, effect, f"{note}; {len(a.l_t2)} and {len(b.l_t2)} seeds"


def _name(cell: Cell) -> str:
    return f"{cell.model.replace('-', ' ')} at σ₁ {cell.sigma:g}"


def _unless_untaught(verdict: Verdict, *first: list[Outcome]) -> Verdict:
    """No verdict where a model has not learned task 2 even at its smallest σ₁."""
    for cells in first:
        if cells and (error := statistics.fmean(cells[0].l_t2)) > LEARNED:
            reason = f"{_name(cells[0].cell)} has not learned task 2 (mean L_T2 {error:.3g})"
            return "not tested", verdict[1], reason
    return verdict


def _both(one: Verdict, other: Verdict) -> Verdict:
    """Held where both are; not held where one is not."""
    order = ("not held", "not tested", "held")
    status = min(one[0], other[0], key=order.index)
    return status, f"{one[1]}; {other[1]}", f"{one[2]}; {other[2]}"


def toy_verdicts(result: ToyResult) -> dict[str, Verdict]:
    """The claims of section 3.1, C006 to C010.

    Errors of task 2 are compared as ratios of geometric means over seeds, with Welch's 95 %
    interval of the difference of logarithms. C006: joint and dual are similar at the smallest
    σ₁. C007: joint is worse at the largest σ₁ than at the smallest. C008: dual is flat.
    C010: shallow joint and dual are similar at both ends. C009 counts parameters.
    """
    joint, dual = result.of("joint"), result.of("dual")
    wide, apart = result.of("shallow-joint"), result.of("shallow-dual")
    counts = [parameters(model, SCALES["paper"]) for model in DEEP]
    near, flat = (lambda r: similar(r, SIMILAR)), (lambda r: similar(r, FLAT))
    ends = [_compared(wide[k:][:1], apart[k:][:1], near) for k in (0, -1)]
    return {
        "C006": _unless_untaught(_compared(joint[:1], dual[:1], near), joint, dual),
        "C007": _unless_untaught(_compared(joint[-1:], joint[:1], _risen), joint),
        "C008": _unless_untaught(_compared(dual[-1:], dual[:1], flat), dual),
        "C009": (
            "held" if counts[0] == counts[1] else "not held",
            f"joint {counts[0]:,}, dual {counts[1]:,} parameters",
            "counted, so without an interval",
        ),
        "C010": _unless_untaught(_both(*ends), wide, apart),
    }
