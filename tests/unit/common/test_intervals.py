"""Student's interval against scipy, the interquartile mean against its definition."""

import math

import numpy as np
import pytest
from scipy import stats

from dna.common.intervals import METHOD, interval, iqm, student_quantile
from dna.evaluation.evaluate import Evaluation


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_the_quantile_is_that_of_scipy(level):
    for freedom in [*range(1, 40), 99, 100, 498, 499, 500, 501, 999, 10**6]:
        expected = stats.t.ppf((1 + level) / 2, freedom)
        assert student_quantile(freedom, level) == pytest.approx(expected, rel=1e-9), freedom


@pytest.mark.parametrize("count", [2, 3, 5, 20, 100, 2000])
def test_the_interval_is_that_of_scipy(count):
    scores = np.random.default_rng(count).normal(7, 3, count)
    expected = stats.t.interval(
        0.95, count - 1, loc=scores.mean(), scale=scores.std(ddof=1) / math.sqrt(count)
    )
    assert interval(scores.tolist()) == pytest.approx(expected)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(4000):
        low, high = interval(rng.normal(0, 1, 4).tolist())
        covered += low <= 0 <= high
    assert 0.93 < covered / 4000 < 0.97  # the normal approximation would cover 0.85


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 10, 101])
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end(count):
    scores = np.random.default_rng(count).exponential(5, count).tolist()
    kept = sorted(scores)
    for _ in range(count // 4):
        kept = kept[1:-1]
    assert iqm(scores) == pytest.approx(sum(kept) / len(kept))
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25))


def test_a_summary_says_how_and_a_single_episode_has_no_interval():
    summary = Evaluation((1.0, 2.0, 9.0), (3, 4, 5)).summary()
    assert summary["interval"] == METHOD == "Student t, 95 %"
    assert (summary["median"], summary["iqm"]) == (2.0, 4.0)
    assert summary["low"] < 4.0 < summary["high"]
    alone = Evaluation((1.0,), (3,)).summary()
    assert alone["low"] is alone["high"] is None
