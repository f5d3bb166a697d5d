"""Comparing arms over games and seeds: numbers, and intervals by drawing again.

Seeds are drawn with replacement within each game (stratified; Agarwal et al. 2021), so that
no game is lost from a resampled benchmark. A `Sampled` number carries its draws along, so that
whatever is computed of several of them has an interval as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.randomness import generator

Array = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float]]  # game → scores of its seeds
DRAWS = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Sampled:
    """A number, and what it comes to when what it rests on is drawn again."""

    value: float
    draws: Array | None = None  # [DRAWS]; None: there was nothing to draw from
    over: str = "seeds"  # what was drawn, or why nothing could be

    @property
    def span(self) -> tuple[float, float] | None:
        """The 95 % interval of percentiles; an end may be infinite."""
        if self.draws is None:
            return None
        known = self.draws[~np.isnan(self.draws)]
        if not len(known):
            return None
        # Draws themselves, never between two of them: one may be infinite.
        low = np.quantile(known, (1 - LEVEL) / 2, method="lower")
        high = np.quantile(known, (1 + LEVEL) / 2, method="higher")
        return float(low), float(high)


def combined(function: Callable[..., Any], *parts: Sampled) -> Sampled:
    """What a function, of numbers or arrays element by element, makes of sampled numbers."""
    value = float(function(*(part.value for part in parts)))
    still = [part for part in parts if part.draws is None]
    if still:
        return replace(still[0], value=value)
    over = " and ".join(dict.fromkeys(part.over for part in parts))
    with np.errstate(divide="ignore", invalid="ignore"):  # an end may be infinite
        draws = function(*(part.draws for part in parts))
    return Sampled(value, np.asarray(draws, float), over)


def percent(ours: Any, theirs: Any) -> Any:
    """100 (ours − theirs) / |theirs|; not a number where theirs is zero."""
    theirs = np.where(np.asarray(theirs) == 0, np.nan, theirs)
    return 100 * (ours - theirs) / np.abs(theirs)


def picks(count: int, stream: str) -> npt.NDArray[np.int64]:
    """[DRAWS, count] of row numbers with replacement; the same for the same stream."""
    return generator(0, f"bootstrap/{stream}").integers(0, count, (DRAWS, count))


def sampled_rows(
    rows: Array, statistic: Callable[[Array], Any], stream: str, over: str = "seeds"
) -> Sampled:
    """A statistic of the mean of rows [n, …], rows drawn anew; along the last axes only."""
    value = float(statistic(rows.mean(axis=0)))
    if len(rows) < 2:
        return Sampled(value, None, f"one of {over}")
    means = rows[picks(len(rows), stream)].mean(axis=1)
    return Sampled(value, np.asarray(statistic(means), float), over)


def same(values: Array) -> Array:
    """The statistic of a mean that is taken as it is."""
    return values


def iqm(x: Array) -> float:
    """Interquartile mean: the mean of the middle half of all scores."""
    ordered = np.sort(x, axis=None)
    cut = int(0.25 * len(ordered))
    return float(np.mean(ordered[cut : len(ordered) - cut]))


def standard_error(values: Sequence[float]) -> float | None:
    """Of a mean; None for one value."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def interval(
    statistic: Callable[[Array], float], scores: Scores, level: float = LEVEL
) -> tuple[float, float] | None:
    """Percentile interval by stratified bootstrap; None where every game has one seed."""
    if not scores or max(len(found) for found in scores.values()) < 2:
        return None
    rng = generator(0, "bootstrap")
    draws = [statistic(_redrawn(scores, rng)) for _ in range(DRAWS)]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _redrawn(scores: Scores, rng: np.random.Generator) -> Array:
    most = max(len(found) for found in scores.values())
    rows = []
    for found in scores.values():
        values = np.asarray(found, float)
        rows.append(values[rng.integers(0, len(values), most)])
    return np.array(rows)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's ρ: how nearly one grows with the other."""
    a, b = (_ranks(np.asarray(values, float)) for values in (x, y))
    if np.std(a) == 0 or np.std(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Array) -> Array:
    """Ranks, the mean of them where values are equal."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    first = last - count
    ranks: Array = ((first + last - 1) / 2)[place]
    return ranks
