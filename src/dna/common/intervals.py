"""Few numbers in a few words: mean with Student's interval, median, interquartile mean.

Scores of episodes are few and far from normal. Student's t is right for the mean of normal
scores however few they are, and wider than the normal approximation; the interquartile mean
(Agarwal et al., 2021) is what is left when the best and worst quarters are set aside.
"""

import math
import statistics
from collections.abc import Sequence

#: What `interval` holds in an evaluation.
METHOD = "Student t, 95 %"
LEVEL = 0.95
#: Degrees of freedom from which a series around the normal quantile is exact to nine digits.
MANY = 500


def iqm(scores: Sequence[float]) -> float:
    """The mean without the ⌊n/4⌋ lowest and the ⌊n/4⌋ highest."""
    cut = len(scores) // 4
    return statistics.fmean(sorted(scores)[cut : len(scores) - cut])


def interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """x̄ ± t_{n−1} s/√n, 95 %; None for a single score, which says nothing of its error."""
    if len(scores) < 2:
        return None
    mean = statistics.fmean(scores)
    # Two passes by hand: `statistics.stdev` counts in fractions, slow for many scores.
    spread = math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
    error = t_quantile(len(scores) - 1) * math.sqrt(spread / len(scores))
    return mean - error, mean + error


def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The t with P(|T| ≤ t) = level, T of Student's distribution."""
    if freedom >= MANY:
        z, v = statistics.NormalDist().inv_cdf((1 + level) / 2), freedom
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / v + second / v**2 + third / v**3
    low, high = 0.0, math.pi / 2  # the angle atan(t/√ν), in which P rises from 0 to 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √ν tan θ), a finite sum for whole ν (Abramowitz and Stegun, 26.7.3-4)."""
    sin, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sin * total) if odd else sin * total
