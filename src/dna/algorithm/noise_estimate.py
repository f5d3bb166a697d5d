"""What was found of a phase's noise: |𝒢|² and 𝒮 in each form, their ratio, and how sure it is.

B_simple is said where both are positive. Where noise drowns the gradient it has no upper bound;
where there is too little noise to tell, the interval alone is said.
"""

import math
from dataclasses import dataclass

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
class Ratio:
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
class Reading:
    """What measurements come to, smoothed or not: algorithm 2, and two other forms."""

    ours: Ratio  # algorithm 2
    paired: Ratio  # from |G_small − G_big|²
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
