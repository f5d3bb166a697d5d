"""Comparing arms over games and seeds: means, interquartile means, bootstrap intervals.

Seeds are drawn with replacement within each game (stratified; Agarwal et al. 2021), so that
no game is lost from a resampled benchmark.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dna.randomness import generator

Array = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float]]  # game → scores of its seeds
DRAWS = 2000


def mean(x: Array) -> float:
    """Over games and seeds, [games, seeds]."""
    return float(np.mean(x))


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
    statistic: Callable[[Array], float], scores: Scores, level: float = 0.95
) -> tuple[float, float] | None:
    """Percentile interval by stratified bootstrap; None where every game has one seed."""
    if not scores or max(len(found) for found in scores.values()) < 2:
        return None
    rng = generator(0, "bootstrap")
    draws = [statistic(_redrawn(scores, rng)) for _ in range(DRAWS)]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def difference(
    statistic: Callable[[Array], float], ours: Scores, theirs: Scores, level: float = 0.95
) -> tuple[float, tuple[float, float] | None]:
    """(relative difference of a statistic in percent, its interval), both sides redrawn."""
    a, b = statistic(_stacked(ours)), statistic(_stacked(theirs))
    found = 100 * (a - b) / abs(b) if b else float("nan")
    if max((len(seeds) for seeds in (*ours.values(), *theirs.values())), default=0) < 2:
        return found, None
    rng = generator(0, "bootstrap")
    draws = []
    for _ in range(DRAWS):
        left, right = statistic(_redrawn(ours, rng)), statistic(_redrawn(theirs, rng))
        draws.append(100 * (left - right) / abs(right) if right else float("nan"))
    low, high = np.nanquantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return found, (float(low), float(high))


def _stacked(scores: Scores) -> Array:
    """[games, seeds]; a game with fewer seeds repeats them, so that each weighs the same."""
    most = max(len(found) for found in scores.values())
    return np.array([np.resize(np.asarray(found, float), most) for found in scores.values()])


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
