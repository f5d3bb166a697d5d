"""The gradient noise scale of any torch loss (section 3.2, algorithm 2, McCandlish et al.).

B_simple = tr(Σ) / |G|² is the mini-batch size at which noise and gradient have equal norm:
much smaller mini-batches waste steps, much larger ones waste data. σ = √B_simple is the ratio
of a single sample's noise to the gradient. This module is independent of reinforcement
learning: it needs a loss, parameters and rows of data, and changes no weights. Rows are assumed
to be independent; correlated rows bias |𝒢|² upwards and σ downwards (docs/noise.md).
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dna.common.errors import BadInput
from dna.common.threads import ONE_THREAD, Workers

#: Normal quantile of a two-sided 95 % interval.
Z = 1.959964
#: Gradients of parts of a large mini-batch that are in memory at a time.
AT_A_TIME = 8
#: Least |𝒢|² that the authors' code divides by.
FLOOR = 1e-4


# ── estimates of |𝒢|², 𝒮 and B_simple ─────────────────────────────────────────────────────


@dataclass(frozen=True)
class Spread:
    """Variances of |𝒢|² and 𝒮, and their covariance."""

    g2: float
    s: float
    both: float

    def times(self, factor: float) -> "Spread":
        """Scale all three, for example by 1/n for a mean of n independent estimates."""
        return Spread(factor * self.g2, factor * self.s, factor * self.both)


@dataclass(frozen=True)
class NoiseRatio:
    """|𝒢|² and 𝒮 by one estimator, and B_simple = 𝒮 / |𝒢|², equation (3)."""

    g2: float
    s: float
    spread: Spread

    @property
    def b_simple(self) -> float | None:
        """𝒮 / |𝒢|²; None if an estimate is not positive and the ratio is undefined."""
        return self.s / self.g2 if self.g2 > 0 and self.s > 0 else None

    @property
    def sigma(self) -> float | None:
        """√B_simple."""
        return _root(self.b_simple)

    @property
    def interval(self) -> tuple[float, float | None]:
        """Fieller's 95 % interval of B_simple; its upper end is None if |𝒢| may be zero."""
        a = self.g2**2 - Z**2 * self.spread.g2
        if self.g2 <= 0 or a <= 0:
            s_low = max(0.0, self.s - Z * math.sqrt(self.spread.s))
            g2_high = self.g2 + Z * math.sqrt(self.spread.g2)
            return (s_low / g2_high if g2_high > 0 else 0.0), None
        b = self.s * self.g2 - Z**2 * self.spread.both
        c = self.s**2 - Z**2 * self.spread.s
        half = math.sqrt(max(0.0, b**2 - a * c))
        return max(0.0, (b - half) / a), max(0.0, (b + half) / a)


@dataclass(frozen=True)
class NoiseReading:
    """The noise scale of one measurement or of several, by three estimators."""

    ours: NoiseRatio  # algorithm 2
    paired: NoiseRatio  # from |G_small − G_big|²
    authors: float  # B_simple as in the authors' code

    @property
    def g2(self) -> float:
        """|𝒢|² of algorithm 2."""
        return self.ours.g2

    @property
    def s(self) -> float:
        """𝒮 of algorithm 2."""
        return self.ours.s

    @property
    def b_simple(self) -> float | None:
        """B_simple of algorithm 2; None where it is undefined."""
        return self.ours.b_simple

    @property
    def sigma(self) -> float | None:
        """σ of algorithm 2."""
        return self.ours.sigma

    @property
    def authors_sigma(self) -> float | None:
        """σ as in the authors' code."""
        return _root(self.authors)

    @property
    def interval(self) -> tuple[float, float | None]:
        """95 % interval of B_simple; by the paired estimator if algorithm 2 gives 𝒮 ≤ 0."""
        return self.ours.interval if self.s > 0 else self.paired.interval


def authors_ratio(g2: float, s: float) -> float:
    """𝒮 / max(|𝒢|², 10⁻⁴); the floor hides gradients indistinguishable from zero."""
    return s / max(g2, FLOOR)


def _root(x: float | None) -> float | None:
    return math.sqrt(x) if x is not None and x >= 0 else None


# ── gradients over rows of data ───────────────────────────────────────────────────────────


class Rows(Protocol):
    """Data that can be indexed by row numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor, /) -> Any: ...


Data = Tensor | Sequence[Tensor] | Mapping[str, Tensor] | Rows


@dataclass(frozen=True)
class Sizes:
    """Sizes of the mini-batches of a measurement."""

    b_small: int = 32
    b_big: int | None = None  # None: all rows
    samples: int = 16  # number of small mini-batches
    chunk: int | None = None  # rows of the large one per pass, if the loss is a plain mean

    def check(self, rows: int) -> int:
        """Return B_big, or refuse sizes that do not fit the number of rows."""
        big = rows if self.b_big is None else self.b_big
        if not 1 <= self.b_small < big <= rows:
            raise BadInput(
                f"noise: b_small = {self.b_small} < b_big = {big} ≤ {rows} rows does not hold; "
                "choose other sizes or more data"
            )
        if self.samples < 2:
            raise BadInput(f"noise: samples = {self.samples}, must be at least 2")
        return big


def sample(rng: np.random.Generator, rows: int, size: int) -> Tensor:
    """Draw row numbers without replacement; all rows are taken in order, without drawing."""
    if size == rows:
        return torch.arange(rows)
    return torch.from_numpy(rng.choice(rows, size, replace=False))


def gradient(
    loss_fn: Callable[[Any], Tensor],
    params: list[Tensor],
    rows: Rows,
    index: Tensor,
    chunk: int | None = None,
    workers: Workers = ONE_THREAD,
) -> Tensor:
    """Compute ∇L over these rows as one float64 vector on the CPU, leaving `.grad` alone."""

    def of_part(part: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = loss_fn(rows[part])
            # A head that the loss does not depend on has no gradient.
            gradients = torch.autograd.grad(loss, params, allow_unused=True)
        pieces = [
            torch.zeros(p.numel()) if g is None else g.detach().reshape(-1).cpu()
            for p, g in zip(params, gradients, strict=True)
        ]
        return torch.cat(pieces).double() * (len(part) / len(index))

    total = torch.zeros(sum(p.numel() for p in params), dtype=torch.float64)
    parts = torch.split(index, chunk or len(index))
    for start in range(0, len(parts), AT_A_TIME):
        for one in workers.map(of_part, parts[start : start + AT_A_TIME]):
            total += one
    return total


class _Columns:
    """A sequence or dictionary of tensors as `Rows`."""

    def __init__(self, data: Any) -> None:
        self.data = data
        columns = data.values() if isinstance(data, Mapping) else data
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise BadInput(f"noise: columns have {sorted(lengths)} rows; all need the same")
        self.length = lengths.pop()

    def __len__(self) -> int:
        return int(self.length)

    def __getitem__(self, index: Tensor) -> Any:
        if isinstance(self.data, Mapping):
            return {name: column[index] for name, column in self.data.items()}
        return tuple(column[index] for column in self.data)


def rows_of(data: Data) -> Rows:
    """Wrap the data so that rows can be taken of it."""
    if isinstance(data, Mapping | list | tuple):
        return _Columns(data)
    return data  # type: ignore[return-value]


# ── algorithm 2 ───────────────────────────────────────────────────────────────────────────


def unbiased(big: float, small: float, b_big: int, b_small: int) -> tuple[float, float]:
    """|𝒢|² = (B_big |G_big|² − B_small |G_small|²) / (B_big − B_small), equation (4), and
    𝒮 = (|G_small|² − |G_big|²) / (1/B_small − 1/B_big), equation (5)."""
    g2 = (b_big * big - b_small * small) / (b_big - b_small)
    return g2, (small - big) / (1 / b_small - 1 / b_big)


@dataclass(frozen=True)
class Estimate:
    """One measurement: squared norms of the gradients of a large and of small mini-batches."""

    b_small: int
    b_big: int
    big: float  # |G_big|²
    small: tuple[float, ...]  # |G_small|², one for each small mini-batch
    along: tuple[float, ...]  # G_small · G_big, for the variance of |G_big|²
    rows: int | None = None  # number of rows drawn from; None: B_big is all of them

    @property
    def g2(self) -> float:
        """Unbiased estimate of |G|²; noise can make it negative."""
        return self._unbiased()[0]

    @property
    def s(self) -> float:
        """Unbiased estimate of tr(Σ)."""
        return self._unbiased()[1]

    def _unbiased(self) -> tuple[float, float]:
        return unbiased(self.big, statistics.fmean(self.small), self.b_big, self.b_small)

    @property
    def authors(self) -> tuple[float, float]:
        """(|𝒢|², 𝒮) as in the authors' code: from the squared mean norm, which is too low."""
        norm = statistics.fmean(math.sqrt(x) for x in self.small)
        return unbiased(self.big, norm**2, self.b_big, self.b_small)

    @property
    def ours(self) -> NoiseRatio:
        """The estimator of algorithm 2: from differences of squared norms."""
        return NoiseRatio(self.g2, self.s, self.spread)

    @property
    def paired(self) -> NoiseRatio:
        """𝒮 = mean |G_small − G_big|² / (1/B_small − 1/B_big) and |𝒢|² = |G_big|² − 𝒮 / B_big.

        Both are unbiased. 𝒮 is never negative and has less variance than that of algorithm 2,
        because the length of G does not enter. If B_big is not all rows, the divisor becomes
        1/B_small + 1/B_big − 2/rows.
        """
        big = self.b_big
        rows = self.rows or self.b_big
        scale = 1 / self.b_small + 1 / big - 2 / rows
        pairs = zip(self.small, self.along, strict=True)
        apart = [max(0.0, self.big + one - 2 * along) / scale for one, along in pairs]
        s = statistics.fmean(apart)
        error = statistics.variance(apart) / len(apart)
        spread = Spread(self._variance_of_big() + error / big**2, error, -error / big)
        return NoiseRatio(self.big - s / big, s, spread)

    @property
    def spread(self) -> Spread:
        """Variances of |𝒢|² and 𝒮 of algorithm 2.

        Small mini-batches are drawn from the same rows as the large one, so that the sampling
        error of the rows themselves cancels in 𝒮.
        """
        b = self.b_small
        big = self.b_big
        error = statistics.variance(self.small) / len(self.small)
        ratio = b / (big - b)
        c = 1 / b - 1 / big
        g2 = self._variance_of_big() + ratio**2 * error
        return Spread(g2, error / c**2, -ratio * error / c)

    def _variance_of_big(self) -> float:
        """Var|G_b|² = 4 GᵀΣG / b + 2 tr(Σ²) / b² at b = B_big, for nearly normal gradients."""
        b = self.b_small
        big = self.b_big
        along = b * statistics.variance(self.along)  # GᵀΣG
        squares = b**2 / 2 * (statistics.variance(self.small) - 4 * along / b)  # tr(Σ²)
        return 4 * along / big + 2 * max(0.0, squares) / big**2

    def reading(self) -> NoiseReading:
        """Return the noise scale of this measurement alone."""
        return NoiseReading(self.ours, self.paired, authors_ratio(*self.authors))


def pooled(estimates: Sequence[Estimate]) -> NoiseReading:
    """Pool measurements of one quantity: |𝒢|² and 𝒮 are averaged, never their ratio."""
    g2, s = zip(*(one.authors for one in estimates), strict=True)
    return NoiseReading(
        _mean([one.ours for one in estimates]),
        _mean([one.paired for one in estimates]),
        authors_ratio(statistics.fmean(g2), statistics.fmean(s)),
    )


def _mean(ratios: Sequence[NoiseRatio]) -> NoiseRatio:
    spreads = [one.spread for one in ratios]
    spread = Spread(
        statistics.fmean(one.g2 for one in spreads),
        statistics.fmean(one.s for one in spreads),
        statistics.fmean(one.both for one in spreads),
    )
    g2 = statistics.fmean(one.g2 for one in ratios)
    s = statistics.fmean(one.s for one in ratios)
    return NoiseRatio(g2, s, spread.times(1 / len(ratios)))


class NoiseScale:
    """Algorithm 2 over time: an exponential moving average of |𝒢|², and the latest 𝒮.

    The paired estimator is smoothed in the same way. The authors' code smooths both |𝒢|² and 𝒮;
    that ratio is kept as well.
    """

    FIELDS = ("g2", "variance", "paired_g2", "paired_variance", "authors_g2", "authors_s")

    def __init__(self, alpha: float = 0.9) -> None:
        self.alpha = alpha
        self.averages: dict[str, float] = {}  # empty before the first estimate

    def update(self, new: Estimate) -> NoiseReading:
        """|𝒢|² ← α |𝒢|²_old + (1 − α) |𝒢|²_new; the first estimate is taken as it is."""
        ours = self._smoothed(new.ours, "g2", "variance")
        paired = self._smoothed(new.paired, "paired_g2", "paired_variance")
        g2, s = new.authors
        authors = authors_ratio(self._average("authors_g2", g2), self._average("authors_s", s))
        return NoiseReading(ours, paired, authors)

    def _smoothed(self, new: NoiseRatio, name: str, variance: str) -> NoiseRatio:
        """Smooth |𝒢|² of an estimator, and adapt its variance and covariance with 𝒮."""
        share = 1 - self.alpha if name in self.averages else 1.0
        g2 = self._average(name, new.g2)
        g2_variance = self._average(variance, new.spread.g2, power=2)
        spread = Spread(g2_variance, new.spread.s, share * new.spread.both)
        return NoiseRatio(g2, new.s, spread)

    def _average(self, name: str, new: float, power: int = 1) -> float:
        """Update a moving average; a variance is averaged with squared weights."""
        old = self.averages.get(name)
        if old is None:
            average = new
        else:
            average = self.alpha**power * old + (1 - self.alpha) ** power * new
        self.averages[name] = average
        return average

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of a checkpoint."""
        return {name: np.asarray(value) for name, value in self.averages.items()}

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restore what `state` returned."""
        self.averages = {name: float(state[name]) for name in self.FIELDS if name in state}

    @staticmethod
    def measure(
        loss_fn: Callable[[Any], Tensor],
        params: Iterable[Tensor],
        data: Data,
        sizes: Sizes | None = None,
        seed: int | np.random.Generator = 0,
        workers: Workers = ONE_THREAD,
    ) -> Estimate:
        """Measure the noise of a loss, a mean over rows, at the current parameters.

        `data` is a tensor, a sequence or dictionary of tensors with one row per sample, or an
        object with a length that takes an index; `loss_fn` gets rows of it in the same form.
        `workers` compute gradients at the same time, which does not change the result.
        """
        rows = rows_of(data)
        weights = [p for p in params if p.requires_grad]
        sizes = sizes or Sizes()
        rng = np.random.default_rng(seed)
        b_big = sizes.check(len(rows))
        drawn = sample(rng, len(rows), b_big)
        big = gradient(loss_fn, weights, rows, drawn, sizes.chunk, workers)

        def of_sample(drawn: Tensor) -> tuple[float, float]:
            one = gradient(loss_fn, weights, rows, drawn)
            return float(one @ one), float(one @ big)

        batches = [sample(rng, len(rows), sizes.b_small) for _ in range(sizes.samples)]
        small, along = zip(*workers.map(of_sample, batches), strict=True)
        return Estimate(
            b_small=sizes.b_small,
            b_big=b_big,
            big=float(big @ big),
            small=small,
            along=along,
            rows=len(rows),
        )
