"""Summaries of small samples of scores: mean with Student's interval, and interquartile mean.

Episode scores are few and far from normal. Student's t gives the exact interval for the mean
of normal scores, however few they are, and is wider than the normal approximation; the
interquartile mean (Agarwal et al., 2021) leaves out the best and the worst quarter.
"""

import math
import statistics
from collections.abc import Sequence

#: Name of the method that `interval` uses, as written to evaluations.
METHOD = "Student t, 95 %"
LEVEL = 0.95


def iqm(scores: Sequence[float]) -> float:
    """Interquartile mean: without the ⌊n/4⌋ lowest and the ⌊n/4⌋ highest scores."""
    cut = len(scores) // 4
    return statistics.fmean(sorted(scores)[cut : len(scores) - cut])


def interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean, x̄ ± t_{n−1} s/√n; None for a single score."""
    if len(scores) < 2:
        return None
    mean = statistics.fmean(scores)
    # Two passes by hand: `statistics.stdev` computes in fractions, slow for many scores.
    variance = math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
    error = student_quantile(len(scores) - 1) * math.sqrt(variance / len(scores))
    return mean - error, mean + error


def student_quantile(freedom: float, level: float = LEVEL) -> float:
    """The t with P(|T| ≤ t) = level, for T of Student's distribution with ν = `freedom`."""
    from scipy.special import stdtrit  # not scipy.stats: a tenth of its import time

    return float(stdtrit(freedom, (1 + level) / 2))
