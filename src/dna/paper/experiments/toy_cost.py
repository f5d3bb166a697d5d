"""What figure 1 would cost here: models × seeds × σ₁, and hours by a quick measurement.

The toy problem trains no agent, so a bill of runs would call it free.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dna.paper.toy import DEEP, SHALLOW, Cell, Scale, ToySettings, cells_of, settings_of, train

#: Seeds and steps of a measurement; from so many seeds on, time grows with their number.
FEW, STEPS = 10, 6


@dataclass(frozen=True)
class ToyCost:
    """The bill."""

    deep: int  # values of σ₁ of joint and dual
    shallow: int  # of their shallow forms
    seeds: int
    cells: int
    finished: int
    hours: float  # of what is left

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @property
    def words(self) -> str:
        """`joint, dual × 7 σ₁ and … × 2 σ₁, 10 seeds each: 18 cells, none finished`"""
        deep = f"{', '.join(DEEP)} × {self.deep} σ₁"
        shallow = f"{', '.join(SHALLOW)} × {self.shallow} σ₁"
        models = self.cells * self.seeds
        return (
            f"toy problem: {deep} and {shallow}, {self.seeds} seeds each: {models:,} models in "
            f"{self.cells} cells, {self.finished} of them finished"
        )


def toy_cost(
    scale: Scale,
    folder: Path,
    told: Callable[[str], None] = lambda text: None,
    measure: Callable[[Cell, ToySettings], float] | None = None,
    seeds: int | None = None,
) -> ToyCost:
    """Of what is left in this folder; `measure` gives seconds of one cell of each model.

    `seeds`: another number of them than the size has.
    """
    settings, measure = settings_of(scale, seeds), measure or seconds
    cells = cells_of(settings)
    left = [cell for cell in cells if not (folder / f"{cell.name}.json").is_file()]
    known: dict[str, float] = {}
    for cell in left:
        if cell.model not in known:
            told(f"measuring the toy problem, {cell.model}")
            known[cell.model] = measure(cell, settings)
    total = sum(known[cell.model] for cell in left)
    return ToyCost(
        deep=len(settings.sigmas),
        shallow=len(settings.shallow_sigmas),
        seeds=settings.seeds,
        cells=len(cells),
        finished=len(cells) - len(left),
        hours=total / 3600,
    )


def seconds(cell: Cell, settings: ToySettings) -> float:
    """A cell's time by a few steps of a few seeds."""
    few = min(FEW, settings.seeds)
    steps = settings.shallow_steps if cell.model in SHALLOW else settings.steps
    spent = []
    # The first warms up; the difference of the others leaves out what comes before the steps.
    for count in (1, 1, 1 + STEPS):
        short = replace(settings, steps=count, shallow_steps=count)
        start = time.perf_counter()
        train(cell, short, range(few))
        spent.append(time.perf_counter() - start)
    each = max(spent[2] - spent[1], 0.1 * spent[2]) / STEPS
    return each * steps * settings.seeds / few
