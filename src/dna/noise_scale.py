"""The gradient noise scale of any torch loss (section 3.2, algorithm 2, McCandlish et al.).

B_simple = tr(Σ) / |G|² is the mini-batch size at which noise and gradient are of one length:
far smaller mini-batches waste steps, far larger ones waste data. σ = √B_simple is the length
of the noise of a single sample over that of the gradient. Nothing here knows of agents: a
loss, parameters and rows of data are enough, and no weight moves.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dna.gradients import Data, Sizes, gradient, rows_of, sample

#: Two-sided 95 %.
Z = 1.959964
#: The authors' code divides by no less.
FLOOR = 1e-4


def unbiased(big: float, small: float, b_big: int, b_small: int) -> tuple[float, float]:
    """|𝒢|² = (B_big |G_big|² − B_small |G_small|²) / (B_big − B_small)
    𝒮 = (|G_small|² − |G_big|²) / (1/B_small − 1/B_big)"""
    g2 = (b_big * big - b_small * small) / (b_big - b_small)
    return g2, (small - big) / (1 / b_small - 1 / b_big)


@dataclass(frozen=True)
class Spread:
    """Variances of |𝒢|² and 𝒮, and their covariance."""

    g2: float
    s: float
    both: float

    def times(self, factor: float) -> "Spread":
        """Of a mean of independent estimates, for example."""
        return Spread(factor * self.g2, factor * self.s, factor * self.both)


@dataclass(frozen=True)
class Estimate:
    """One measurement: squared norms of the gradients of a large and of small mini-batches."""

    b_small: int
    b_big: int
    big: float  # |G_big|²
    small: tuple[float, ...]  # |G_small|², one for each small mini-batch
    along: tuple[float, ...]  # G_small · G_big, which tells how sure |G_big|² is
    rows: int | None = None  # that both are drawn from; None: B_big is all of them

    @property
    def g2(self) -> float:
        """|𝒢|², without bias; noise can make it negative."""
        return self._unbiased()[0]

    @property
    def s(self) -> float:
        """𝒮, an estimate of tr(Σ) without bias."""
        return self._unbiased()[1]

    def _unbiased(self) -> tuple[float, float]:
        return unbiased(self.big, statistics.fmean(self.small), self.b_big, self.b_small)

    @property
    def authors(self) -> tuple[float, float]:
        """(|𝒢|², 𝒮) as the authors' code has it: the square of the mean norm, which is low."""
        norm = statistics.fmean(math.sqrt(x) for x in self.small)
        return unbiased(self.big, norm**2, self.b_big, self.b_small)

    @property
    def paired(self) -> tuple[float, float]:
        """(|𝒢|², 𝒮) without bias, 𝒮 = mean |G_small − G_big|² / (1/B_small − 1/B_big).

        Never negative, and it scatters less than algorithm 2's: the length of G does not
        enter. Where B_big is not all rows, the two are 1/B_small + 1/B_big − 2/rows apart.
        """
        rows = self.rows or self.b_big
        apart = self.big + statistics.fmean(self.small) - 2 * statistics.fmean(self.along)
        s = max(0.0, apart) / (1 / self.b_small + 1 / self.b_big - 2 / rows)
        return self.big - s / self.b_big, s

    @property
    def spread(self) -> Spread:
        """How far |𝒢|² and 𝒮 scatter, for gradients that are nearly normal.

        Var|G_b|² = 4 GᵀΣG / b + 2 tr(Σ²) / b². Small mini-batches are drawn from the same data
        as the large one, so that what is peculiar to the data cancels in 𝒮.
        """
        b, big = self.b_small, self.b_big
        of_small = statistics.variance(self.small)
        along = b * statistics.variance(self.along)  # GᵀΣG
        squares = max(0.0, b**2 / 2 * (of_small - 4 * along / b))  # tr(Σ²)
        of_big = 4 * along / big + 2 * squares / big**2
        drawn, share, c = of_small / len(self.small), b / (big - b), 1 / b - 1 / big
        return Spread(of_big + share**2 * drawn, drawn / c**2, -share * drawn / c)

    def reading(self) -> "Reading":
        """What this measurement alone says."""
        ratio = authors_ratio(*self.authors)
        return Reading(self.g2, self.s, self.spread, ratio, self.paired)


@dataclass(frozen=True)
class Reading:
    """|𝒢|² and 𝒮, smoothed or not, and what they come to."""

    g2: float
    s: float
    spread: Spread
    authors: float  # B_simple in the authors' way
    paired: tuple[float, float]  # |𝒢|² and 𝒮 in the paired form

    @property
    def b_simple(self) -> float | None:
        """𝒮 / |𝒢|²; None where noise drowns the gradient, |𝒢|² ≤ 0."""
        return self.s / self.g2 if self.g2 > 0 else None

    @property
    def sigma(self) -> float | None:
        """√B_simple."""
        return _root(self.b_simple)

    @property
    def authors_sigma(self) -> float | None:
        """σ in the authors' way."""
        return _root(self.authors)

    @property
    def paired_sigma(self) -> float | None:
        """σ from the paired form."""
        g2, s = self.paired
        return _root(s / g2) if g2 > 0 else None

    @property
    def interval(self) -> tuple[float, float | None]:
        """95 % of B_simple (Fieller); None: no upper bound, the gradient may be zero."""
        error_s, error_g2 = math.sqrt(self.spread.s), math.sqrt(self.spread.g2)
        a = self.g2**2 - Z**2 * self.spread.g2
        if self.g2 <= 0 or a <= 0:
            least, most = max(0.0, self.s - Z * error_s), self.g2 + Z * error_g2
            return (least / most if most > 0 else 0.0), None
        b = self.s * self.g2 - Z**2 * self.spread.both
        c = self.s**2 - Z**2 * self.spread.s
        half = math.sqrt(max(0.0, b**2 - a * c))
        return max(0.0, (b - half) / a), max(0.0, (b + half) / a)


def authors_ratio(g2: float, s: float) -> float:
    """𝒮 / max(|𝒢|², 10⁻⁴): the floor hides a gradient that cannot be told from zero."""
    return s / max(g2, FLOOR)


def pooled(estimates: Sequence[Estimate]) -> Reading:
    """Several measurements of one thing as one: |𝒢|² and 𝒮 are averaged, never their ratio."""
    count, spreads = len(estimates), [one.spread for one in estimates]
    mean = Spread(
        statistics.fmean(one.g2 for one in spreads),
        statistics.fmean(one.s for one in spreads),
        statistics.fmean(one.both for one in spreads),
    )
    return Reading(
        statistics.fmean(one.g2 for one in estimates),
        statistics.fmean(one.s for one in estimates),
        mean.times(1 / count),
        authors_ratio(*_means([one.authors for one in estimates])),
        _means([one.paired for one in estimates]),
    )


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    left, right = zip(*pairs, strict=True)
    return statistics.fmean(left), statistics.fmean(right)


class NoiseScale:
    """Algorithm 2 from one call to the next: |𝒢|² is smoothed, 𝒮 is not.

    The authors' code smooths both; that ratio is kept beside it.
    """

    FIELDS = ("g2", "variance", "authors_g2", "authors_s", "paired_g2")

    def __init__(self, alpha: float = 0.9) -> None:
        self.alpha = alpha
        self.averages: dict[str, float] = {}  # empty before the first estimate

    def update(self, new: Estimate) -> Reading:
        """|𝒢|² ← α |𝒢|²_old + (1 − α) |𝒢|²_new; the first estimate stands for itself."""
        spread, (theirs_g2, theirs_s), (paired_g2, paired_s) = (
            new.spread,
            new.authors,
            new.paired,
        )
        found = {"g2": new.g2, "authors_g2": theirs_g2, "authors_s": theirs_s}
        found |= {"paired_g2": paired_g2}
        old, alpha = self.averages, self.alpha if self.averages else 0.0
        now = {k: alpha * old[k] + (1 - alpha) * v if k in old else v for k, v in found.items()}
        variance = alpha**2 * old.get("variance", 0.0) + (1 - alpha) ** 2 * spread.g2
        self.averages = now | {"variance": variance}
        smoothed = Spread(variance, spread.s, (1 - alpha) * spread.both)
        ratio = authors_ratio(now["authors_g2"], now["authors_s"])
        return Reading(now["g2"], new.s, smoothed, ratio, (now["paired_g2"], paired_s))

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """What a checkpoint holds."""
        return {name: np.asarray(value) for name, value in self.averages.items()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """The inverse of `state`."""
        self.averages = {name: float(state[name]) for name in self.FIELDS if name in state}

    @staticmethod
    def measure(
        loss_fn: Callable[[Any], Tensor],
        params: Iterable[Tensor],
        data: Data,
        sizes: Sizes | None = None,
        seed: int | np.random.Generator = 0,
    ) -> Estimate:
        """Measure a loss, the mean over the rows it is given, at the parameters as they are.

        `data` is a tensor, a sequence or a dictionary of tensors with one row per sample, or
        anything with a length that takes an index; `loss_fn` gets rows of it in that form.
        """
        rows, weights = rows_of(data), [p for p in params if p.requires_grad]
        sizes, rng = sizes or Sizes(), np.random.default_rng(seed)
        b_big = sizes.check(len(rows))
        drawn = sample(rng, len(rows), b_big)
        big = gradient(loss_fn, weights, rows, drawn, sizes.chunk)
        small, along = [], []
        for _ in range(sizes.samples):
            drawn = sample(rng, len(rows), sizes.b_small)
            one = gradient(loss_fn, weights, rows, drawn)
            small.append(float(one @ one))
            along.append(float(one @ big))
        norms = float(big @ big), tuple(small), tuple(along)
        return Estimate(sizes.b_small, b_big, *norms, rows=len(rows))


def _root(x: float | None) -> float | None:
    return math.sqrt(x) if x is not None and x >= 0 else None
