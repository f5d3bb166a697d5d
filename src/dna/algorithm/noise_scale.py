"""The gradient noise scale of any torch loss (section 3.2, algorithm 2, McCandlish et al.).

B_simple = tr(Σ) / |G|² is the mini-batch size at which noise and gradient are of one length:
far smaller mini-batches waste steps, far larger ones waste data. σ = √B_simple is the length
of the noise of a single sample over that of the gradient. Nothing here knows of agents: a
loss, parameters and rows of data are enough, and no weight moves. Rows count as independent;
correlated ones make |𝒢|² read high and σ low (docs/noise.md).
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

#: Two-sided 95 %.
Z = 1.959964
#: The authors' code divides by no less.
FLOOR = 1e-4


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
class NoiseRatio:
    """|𝒢|² and 𝒮 in one form, and B_simple = 𝒮 / |𝒢|²."""

    g2: float
    s: float
    spread: Spread

    @property
    def b_simple(self) -> float | None:
        """None where noise drowns the gradient, |𝒢|² ≤ 0, or is too small to tell, 𝒮 ≤ 0."""
        return self.s / self.g2 if self.g2 > 0 and self.s > 0 else None

    @property
    def sigma(self) -> float | None:
        """√B_simple."""
        return _root(self.b_simple)

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


@dataclass(frozen=True)
class NoiseReading:
    """What measurements come to, smoothed or not: algorithm 2, and two other forms."""

    ours: NoiseRatio  # algorithm 2
    paired: NoiseRatio  # from |G_small − G_big|²
    authors: float  # B_simple in the authors' way

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
        """B_simple of algorithm 2; None where it cannot be told."""
        return self.ours.b_simple

    @property
    def sigma(self) -> float | None:
        """σ of algorithm 2."""
        return self.ours.sigma

    @property
    def authors_sigma(self) -> float | None:
        """σ in the authors' way."""
        return _root(self.authors)

    @property
    def interval(self) -> tuple[float, float | None]:
        """95 % of B_simple; of the paired form, which is never negative, where 𝒮 ≤ 0."""
        return self.ours.interval if self.s > 0 else self.paired.interval


def authors_ratio(g2: float, s: float) -> float:
    """𝒮 / max(|𝒢|², 10⁻⁴): the floor hides a gradient that cannot be told from zero."""
    return s / max(g2, FLOOR)


def _root(x: float | None) -> float | None:
    return math.sqrt(x) if x is not None and x >= 0 else None


class Rows(Protocol):
    """Data of which any rows can be taken."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor, /) -> Any: ...


Data = Tensor | Sequence[Tensor] | Mapping[str, Tensor] | Rows


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    b_small: int = 32
    b_big: int | None = None  # None: all rows
    samples: int = 16  # small mini-batches
    chunk: int | None = None  # rows of the large one at a time, where the loss is a plain mean

    def check(self, rows: int) -> int:
        """B_big, if there are enough rows for it."""
        big = rows if self.b_big is None else self.b_big
        if not 1 <= self.b_small < big <= rows:
            text = f"b_small = {self.b_small} < b_big = {big} ≤ {rows} rows does not hold"
            raise BadInput(f"noise: {text}; choose other sizes or more data")
        if self.samples < 2:
            raise BadInput(f"noise: samples = {self.samples}, must be at least 2")
        return big


def sample(rng: np.random.Generator, rows: int, size: int) -> Tensor:
    """Rows drawn without replacement; all of them need no dice."""
    if size == rows:
        return torch.arange(rows)
    return torch.from_numpy(rng.choice(rows, size, replace=False))


def gradient(
    loss_fn: Callable[[Any], Tensor],
    params: list[Tensor],
    rows: Rows,
    index: Tensor,
    chunk: int | None = None,
) -> Tensor:
    """∇L over these rows as one vector in float64, on the host; no `.grad` is touched."""
    total = torch.zeros(sum(p.numel() for p in params), dtype=torch.float64)
    for part in torch.split(index, chunk or len(index)):
        with torch.enable_grad():
            loss = loss_fn(rows[part])
            # A head that this loss does not reach has no gradient.
            found = torch.autograd.grad(loss, params, allow_unused=True)
        pieces = [
            torch.zeros(p.numel()) if g is None else g.detach().reshape(-1).cpu()
            for p, g in zip(params, found, strict=True)
        ]
        total += torch.cat(pieces).double() * (len(part) / len(index))
    return total


class _Columns:
    """A sequence or dictionary of tensors, row by row."""

    def __init__(self, data: Any) -> None:
        self.data = data
        columns = data.values() if isinstance(data, Mapping) else data
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise BadInput(f"noise: columns of {sorted(lengths)} rows; all need the same")
        self.length = lengths.pop()

    def __len__(self) -> int:
        return int(self.length)

    def __getitem__(self, index: Tensor) -> Any:
        if isinstance(self.data, Mapping):
            return {name: column[index] for name, column in self.data.items()}
        return tuple(column[index] for column in self.data)


def rows_of(data: Data) -> Rows:
    """Whatever form the data has, something of which rows can be taken."""
    if isinstance(data, Mapping | list | tuple):
        return _Columns(data)
    return data  # type: ignore[return-value]


def unbiased(big: float, small: float, b_big: int, b_small: int) -> tuple[float, float]:
    """|𝒢|² = (B_big |G_big|² − B_small |G_small|²) / (B_big − B_small)
    𝒮 = (|G_small|² − |G_big|²) / (1/B_small − 1/B_big)"""
    g2 = (b_big * big - b_small * small) / (b_big - b_small)
    return g2, (small - big) / (1 / b_small - 1 / b_big)


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
    def ours(self) -> NoiseRatio:
        """Algorithm 2: from differences of squared norms."""
        return NoiseRatio(self.g2, self.s, self.spread)

    @property
    def paired(self) -> NoiseRatio:
        """𝒮 = mean |G_small − G_big|² / (1/B_small − 1/B_big) and |𝒢|² = |G_big|² − 𝒮 / B_big.

        Neither has a bias. 𝒮 is never negative, and scatters less than algorithm 2's: the
        length of G does not enter. Where B_big is not all rows, the two mini-batches are
        1/B_small + 1/B_big − 2/rows apart.
        """
        big, rows = self.b_big, self.rows or self.b_big
        scale = 1 / self.b_small + 1 / big - 2 / rows
        pairs = zip(self.small, self.along, strict=True)
        apart = [max(0.0, self.big + one - 2 * along) / scale for one, along in pairs]
        s, drawn = statistics.fmean(apart), statistics.variance(apart) / len(apart)
        spread = Spread(self._of_big() + drawn / big**2, drawn, -drawn / big)
        return NoiseRatio(self.big - s / big, s, spread)

    @property
    def spread(self) -> Spread:
        """How far |𝒢|² and 𝒮 of algorithm 2 scatter.

        Small mini-batches are drawn from the same data as the large one, so that what is
        peculiar to the data cancels in 𝒮.
        """
        b, big = self.b_small, self.b_big
        drawn = statistics.variance(self.small) / len(self.small)
        share, c = b / (big - b), 1 / b - 1 / big
        return Spread(self._of_big() + share**2 * drawn, drawn / c**2, -share * drawn / c)

    def _of_big(self) -> float:
        """Var|G_b|² = 4 GᵀΣG / b + 2 tr(Σ²) / b² at B_big, for gradients nearly normal."""
        b, big = self.b_small, self.b_big
        along = b * statistics.variance(self.along)  # GᵀΣG
        squares = b**2 / 2 * (statistics.variance(self.small) - 4 * along / b)  # tr(Σ²)
        return 4 * along / big + 2 * max(0.0, squares) / big**2

    def reading(self) -> NoiseReading:
        """What this measurement alone says."""
        return NoiseReading(self.ours, self.paired, authors_ratio(*self.authors))


def pooled(estimates: Sequence[Estimate]) -> NoiseReading:
    """Several measurements of one thing as one: |𝒢|² and 𝒮 are averaged, never their ratio."""
    theirs = zip(*(one.authors for one in estimates), strict=True)
    return NoiseReading(
        _mean([one.ours for one in estimates]),
        _mean([one.paired for one in estimates]),
        authors_ratio(*map(statistics.fmean, theirs)),
    )


def _mean(ratios: Sequence[NoiseRatio]) -> NoiseRatio:
    spreads = [one.spread for one in ratios]
    spread = Spread(
        statistics.fmean(one.g2 for one in spreads),
        statistics.fmean(one.s for one in spreads),
        statistics.fmean(one.both for one in spreads),
    )
    g2, s = statistics.fmean(one.g2 for one in ratios), statistics.fmean(r.s for r in ratios)
    return NoiseRatio(g2, s, spread.times(1 / len(ratios)))


class NoiseScale:
    """Algorithm 2 from one call to the next: |𝒢|² is smoothed, 𝒮 is not.

    The paired form is smoothed alike. The authors' code smooths both; that ratio is kept too.
    """

    FIELDS = ("g2", "variance", "paired_g2", "paired_variance", "authors_g2", "authors_s")

    def __init__(self, alpha: float = 0.9) -> None:
        self.alpha = alpha
        self.averages: dict[str, float] = {}  # empty before the first estimate

    def update(self, new: Estimate) -> NoiseReading:
        """|𝒢|² ← α |𝒢|²_old + (1 − α) |𝒢|²_new; the first estimate stands for itself."""
        ours = self._smoothed(new.ours, "g2", "variance")
        paired = self._smoothed(new.paired, "paired_g2", "paired_variance")
        theirs = zip(("authors_g2", "authors_s"), new.authors, strict=True)
        return NoiseReading(ours, paired, authors_ratio(*(self._mix(*one) for one in theirs)))

    def _smoothed(self, new: NoiseRatio, name: str, variance: str) -> NoiseRatio:
        """A form with its |𝒢|² smoothed, and how far that still goes with 𝒮."""
        share = 1 - self.alpha if name in self.averages else 1.0
        g2, of_g2 = self._mix(name, new.g2), self._mix(variance, new.spread.g2, power=2)
        return NoiseRatio(g2, new.s, Spread(of_g2, new.spread.s, share * new.spread.both))

    def _mix(self, name: str, new: float, power: int = 1) -> float:
        old, alpha = self.averages.get(name), self.alpha
        now = new if old is None else alpha**power * old + (1 - alpha) ** power * new
        self.averages[name] = now
        return now

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
