"""Comparing arms over games and seeds: numbers, and 95 % intervals by drawing again.

Means over seeds are drawn within each game (stratified), so that no game is lost from a
benchmark. A `Sampled` number carries its draws along, so that whatever is computed of several
of them has an interval as well.

Three seeds do not know their own spread: percentiles of seeds drawn with replacement hold the
truth in 80 to 88 of 100 cases. So a mean is drawn from the normal distribution with its
standard error, and all draws are stretched by t_ν / z: Student's t with Welch's degrees of
freedom ν, put together over games and arms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.randomness import generator
from dna.paper.toy import student

Array = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float]]  # game → scores of its seeds
#: So many that the ends of an interval do not depend on which were drawn.
DRAWS = 20_000
#: Of whole sets of scores, for tables: one by one, hence fewer.
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Sampled:
    """A number, and what it comes to when what it rests on is drawn again."""

    value: float
    draws: Array | None = None  # [DRAWS]; None: there was nothing to draw from
    over: str = "seeds"  # what was drawn, or why nothing could be
    freedom: float = inf  # Student's ν; infinite: percentiles of the draws as they are
    #: The draws with what they rest on this many times as far from its mean.
    stretched: Callable[[float], Array] | None = None
    least: float = -inf  # what it cannot be less than

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """The 95 % interval; an end may be infinite."""
        return self.between(LEVEL)

    def between(self, level: float) -> tuple[float, float] | None:
        """The interval of another level."""
        if self.draws is None:
            return None
        return percentiles(self.stretch(stretch_of(self.freedom, level)), level, self.least)

    def stretch(self, factor: float) -> Array:
        """The draws, as far from the mean as few seeds leave it uncertain."""
        assert self.draws is not None
        if factor == 1.0:
            return self.draws
        if self.stretched is not None:
            return self.stretched(factor)
        if not isfinite(self.value):
            return self.draws
        return self.value + factor * (self.draws - self.value)


def stretch_of(freedom: float, level: float = LEVEL) -> float:
    """t_ν / z."""
    if freedom == inf:
        return 1.0
    return student(freedom, level) / NormalDist().inv_cdf((1 + level) / 2)


def percentiles(
    draws: Array, level: float = LEVEL, least: float = -inf
) -> tuple[float, float] | None:
    """The middle 95 %; None where no draw is a number.

    A draw that is not a number, such as ∞ / ∞, may be anything: it counts at both ends. Left
    out, it would make the interval narrower, the less is known.
    """
    lost = np.isnan(draws)
    if lost.all():
        return None
    # Draws themselves, never between two of them: one may be infinite.
    low = np.quantile(np.where(lost, least, draws), (1 - level) / 2, method="lower")
    high = np.quantile(np.where(lost, inf, draws), (1 + level) / 2, method="higher")
    return max(least, float(low)), float(high)


def combined(function: Callable[..., Any], *parts: Sampled, least: float = -inf) -> Sampled:
    """What a function, of numbers or arrays element by element, makes of sampled numbers."""
    value = float(function(*(part.value for part in parts)))
    still = [part for part in parts if part.draws is None]
    if still:
        return replace(still[0], value=value)
    over = " and ".join(dict.fromkeys(part.over for part in parts))

    def stretched(factor: float) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):  # an end may be infinite
            return np.asarray(function(*(part.stretch(factor) for part in parts)), float)

    # Games are drawn the same for all arms: a second arm adds nothing to what is known.
    together = over == "games"
    freedom = min(p.freedom for p in parts) if together else _freedom(function, parts)
    return Sampled(value, stretched(1.0), over, freedom, stretched, least)


def quotient(ours: Sampled, theirs: Sampled) -> Sampled:
    """Of two numbers that are not negative: ∞ / ∞ may be anything from zero on."""
    return combined(np.divide, ours, theirs, least=0.0)


def _freedom(function: Callable[..., Any], parts: Sequence[Sampled]) -> float:
    """Welch and Satterthwaite: ν = (Σ vᵢ)² / Σ (vᵢ² / νᵢ), vᵢ what part i adds to the variance.

    By the function's change when one part moves by its standard error, the others at rest.
    """
    least = min(part.freedom for part in parts)
    if least == inf or len(parts) == 1:
        return least
    added = []
    for i, part in enumerate(parts):
        assert part.draws is not None
        values = [one.value for one in parts]
        with np.errstate(divide="ignore", invalid="ignore"):  # a draw may be infinite
            error = np.std(part.draws)
            ends = [
                float(function(*values[:i], part.value + side * error, *values[i + 1 :]))
                for side in (-1, 1)
            ]
        added.append(((ends[1] - ends[0]) / 2) ** 2)
    total = sum(added)
    if not isfinite(total) or total <= 0:
        return least
    return total**2 / sum(v**2 / part.freedom for v, part in zip(added, parts, strict=True))


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
    """A statistic of the mean of rows [n, …], the mean drawn anew; along the last axes only."""
    # A mean of equal numbers may differ from them in its last digit, and seem to be higher.
    mean = np.where(np.ptp(rows, axis=0) == 0, rows[0], rows.mean(axis=0))
    value, count = float(statistic(mean)), len(rows)
    if count < 2:
        return Sampled(value, None, f"one {over.removesuffix('s')}")
    # Weights that are normal give the mean's own standard error in every column of the rows.
    half = generator(0, f"bootstrap/{stream}").normal(size=(DRAWS // 2, count))
    weights = np.concatenate([half, -half])
    away = np.tensordot(weights, rows - mean, axes=1) / sqrt(count * (count - 1))

    def stretched(factor: float) -> Array:
        return np.asarray(statistic(mean + factor * away), float)

    return Sampled(value, stretched(1.0), over, count - 1, stretched)


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


def interval(statistic: Callable[[Array], float], scores: Scores) -> tuple[float, float] | None:
    """Of a statistic of all scores, seeds drawn within games; None where a game has one seed.

    Deviations are √(n / (n − 1)) as large, which drawing from n values takes away, and
    stretched as everywhere here.
    """
    if not scores or min(len(found) for found in scores.values()) < 2:
        return None
    rng, counts = generator(0, "bootstrap"), [len(found) for found in scores.values()]
    value = statistic(_redrawn(scores, None))
    draws = np.array([statistic(_redrawn(scores, rng)) for _ in range(RESAMPLES)])
    spread = [np.var(found, ddof=1) / len(found) for found in scores.values()]
    known = sum(v**2 / (n - 1) for v, n in zip(spread, counts, strict=True))
    freedom = sum(spread) ** 2 / known if known > 0 else inf
    factor = stretch_of(float(freedom)) * sqrt(min(counts) / (min(counts) - 1))
    return percentiles(value + factor * (draws - value))


def _redrawn(scores: Scores, rng: np.random.Generator | None) -> Array:
    """All scores, the seeds of every game drawn with replacement; as they are without rng."""
    rows = [np.asarray(found, float) for found in scores.values()]
    if rng is not None:
        rows = [row[rng.integers(0, len(row), len(row))] for row in rows]
    return np.concatenate(rows)


def rank_correlation(x: Sequence[float], y: Any) -> Any:
    """Spearman's ρ: how nearly y […, n] grows with x [n]; zero where either is constant."""
    a, b = (_ranks(np.asarray(values, float)) for values in (x, y))
    a, b = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (a, b))
    size = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return np.divide((a * b).sum(axis=-1), size, where=size > 0, out=np.zeros_like(size))


def _ranks(values: Array) -> Array:
    """Ranks along the last axis, the mean of them where values are equal."""
    mine, other = values[..., :, None], values[..., None, :]
    ranks: Array = (other < mine).sum(axis=-1) + ((other == mine).sum(axis=-1) - 1) / 2
    return ranks
