"""Numbers with 95 % intervals from few seeds: resampled means and functions of them.

Means over seeds are resampled within each game (stratified), so that every draw has all games
of a benchmark. A `Sampled` number carries its draws along, so that any function of several of
them has an interval as well.

With three seeds, percentiles of a bootstrap contain the true value in only 80 to 88 of 100
cases. A mean is therefore drawn from the normal distribution with its standard error, and all
draws are stretched by t_ν / z: Student's t with Welch's degrees of freedom ν, combined over
games and arms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.intervals import student_quantile
from dna.common.randomness import generator

Array = npt.NDArray[np.float64]
Scores = Mapping[str, Sequence[float]]  # game → scores of its seeds
#: Enough for the ends of an interval not to depend on the random numbers.
DRAWS = 20_000
#: Draws of whole sets of scores, for tables; they are computed one by one, hence fewer.
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Sampled:
    """A number, and its values when the data it rests on is resampled."""

    value: float
    draws: Array | None = None  # [DRAWS]; None: there is nothing to resample
    over: str = "seeds"  # what was resampled, or why nothing could be
    freedom: float = inf  # Student's ν; infinite: percentiles of the draws unchanged
    #: The draws with the deviations of the underlying means multiplied by a factor.
    stretched: Callable[[float], Array] | None = None
    least: float = -inf  # lower bound of possible values

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """The 95 % interval; an end may be infinite."""
        return self.between(LEVEL)

    def between(self, level: float) -> tuple[float, float] | None:
        """Return the interval at a given level."""
        if self.draws is None:
            return None
        return percentiles(self.stretch(stretch_of(self.freedom, level)), level, self.least)

    def stretch(self, factor: float) -> Array:
        """Return the draws with their deviations multiplied by a factor."""
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
    return student_quantile(freedom, level) / NormalDist().inv_cdf((1 + level) / 2)


def percentiles(
    draws: Array, level: float = LEVEL, least: float = -inf
) -> tuple[float, float] | None:
    """Return the central interval; None where no draw is a number.

    A draw that is not a number, such as ∞ / ∞, may be anything and counts at both ends. Leaving
    it out would make the interval narrower the less is known.
    """
    lost = np.isnan(draws)
    if lost.all():
        return None
    # No interpolation between two draws: one may be infinite.
    low = np.quantile(np.where(lost, least, draws), (1 - level) / 2, method="lower")
    high = np.quantile(np.where(lost, inf, draws), (1 + level) / 2, method="higher")
    return max(least, float(low)), float(high)


def combined(function: Callable[..., Any], *parts: Sampled, least: float = -inf) -> Sampled:
    """Apply an element-wise function to sampled numbers."""
    value = float(function(*(part.value for part in parts)))
    still = [part for part in parts if part.draws is None]
    if still:
        return replace(still[0], value=value)
    over = " and ".join(
        dict.fromkeys(word for part in parts for word in part.over.split(" and "))
    )

    def stretched(factor: float) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):  # an end may be infinite
            return np.asarray(function(*(part.stretch(factor) for part in parts)), float)

    # The same games are drawn for all arms, so a second arm adds no degrees of freedom.
    together = over == "games"
    freedom = min(p.freedom for p in parts) if together else _freedom(function, parts)
    return Sampled(value, stretched(1.0), over, freedom, stretched, least)


def quotient(ours: Sampled, theirs: Sampled) -> Sampled:
    """Divide two non-negative numbers: ∞ / ∞ may be anything from zero up."""
    return combined(np.divide, ours, theirs, least=0.0)


def _freedom(function: Callable[..., Any], parts: Sequence[Sampled]) -> float:
    """Welch and Satterthwaite: ν = (Σ vᵢ)² / Σ (vᵢ² / νᵢ), vᵢ the variance due to part i.

    vᵢ is found from the function's change when part i alone moves by its standard error.
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
    """100 (ours − theirs) / |theirs|; NaN where theirs is zero."""
    theirs = np.where(np.asarray(theirs) == 0, np.nan, theirs)
    return 100 * (ours - theirs) / np.abs(theirs)


def picks(count: int, stream: str) -> npt.NDArray[np.int64]:
    """Draw row numbers with replacement, [DRAWS, count]; the same for the same stream."""
    return generator(0, f"bootstrap/{stream}").integers(0, count, (DRAWS, count))


def sampled_rows(
    rows: Array, statistic: Callable[[Array], Any], stream: str, over: str = "seeds"
) -> Sampled:
    """Resample a statistic of the mean of rows [n, …]; it acts along the last axes only."""
    # A mean of equal numbers may differ from them in its last digit: a tie must stay a tie.
    mean = np.where(np.ptp(rows, axis=0) == 0, rows[0], rows.mean(axis=0))
    value = float(statistic(mean))
    count = len(rows)
    if count < 2:
        return Sampled(value, None, f"one {over.removesuffix('s')}")
    # Normal weights reproduce the mean's standard error in every column of the rows.
    half = generator(0, f"bootstrap/{stream}").normal(size=(DRAWS // 2, count))
    weights = np.concatenate([half, -half])
    away = np.tensordot(weights, rows - mean, axes=1) / sqrt(count * (count - 1))

    def stretched(factor: float) -> Array:
        return np.asarray(statistic(mean + factor * away), float)

    return Sampled(value, stretched(1.0), over, count - 1, stretched)


def same(values: Array) -> Array:
    """Identity: the statistic of a mean that is used as it is."""
    return values


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of a mean; None for one value."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def interval(statistic: Callable[[Any], float], scores: Scores) -> tuple[float, float] | None:
    """Bootstrap a statistic of all scores within games; None where a game has one seed.

    Deviations are multiplied by √(n / (n − 1)), against the bootstrap's bias, and by t_ν / z.
    """
    if not scores or min(len(found) for found in scores.values()) < 2:
        return None
    rng = generator(0, "bootstrap")
    counts = [len(found) for found in scores.values()]
    value = statistic(_redrawn(scores, None))
    draws = np.array([statistic(_redrawn(scores, rng)) for _ in range(RESAMPLES)])
    spread = [np.var(found, ddof=1) / len(found) for found in scores.values()]
    known = sum(v**2 / (n - 1) for v, n in zip(spread, counts, strict=True))
    freedom = sum(spread) ** 2 / known if known > 0 else inf
    factor = stretch_of(float(freedom)) * sqrt(min(counts) / (min(counts) - 1))
    return percentiles(value + factor * (draws - value))


def _redrawn(scores: Scores, rng: np.random.Generator | None) -> Array:
    """All scores, the seeds of each game drawn with replacement; unchanged without rng."""
    rows = [np.asarray(found, float) for found in scores.values()]
    if rng is not None:
        rows = [row[rng.integers(0, len(row), len(row))] for row in rows]
    return np.concatenate(rows)


def rank_correlation(x: Sequence[float], y: Any) -> Any:
    """Spearman's ρ of x [n] and y […, n]; zero where either is constant."""
    from scipy.stats import rankdata

    a = rankdata(np.asarray(x, float), axis=-1)
    b = rankdata(np.asarray(y, float), axis=-1)
    a = a - a.mean(axis=-1, keepdims=True)
    b = b - b.mean(axis=-1, keepdims=True)
    size = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    return np.divide((a * b).sum(axis=-1), size, where=size > 0, out=np.zeros_like(size))
