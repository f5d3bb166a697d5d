"""Comparing arms: against SciPy where it has the same, against known cases elsewhere."""

import numpy as np
import pytest
from scipy import stats

from dna.experiments.compare import (
    Sampled,
    combined,
    interval,
    iqm,
    percent,
    rank_correlation,
    same,
    sampled_rows,
    standard_error,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [4, 5, 8, 15, 100])
def test_the_interquartile_mean_is_a_trimmed_mean(size):
    x = RNG.normal(size=size)
    assert iqm(x) == pytest.approx(stats.trim_mean(x, 0.25))
    assert iqm(x.reshape(-1, 1)) == iqm(x)


def test_rank_correlation_is_spearmans():
    for _ in range(20):
        x, y = RNG.normal(size=12), RNG.integers(0, 5, size=12)
        expected = stats.spearmanr(x, y).statistic
        assert rank_correlation(x, y) == pytest.approx(expected)
    assert rank_correlation([1, 2, 3], [2, 2, 2]) == 0.0


def test_standard_errors():
    x = [1.0, 2.0, 4.0]
    assert standard_error(x) == pytest.approx(stats.sem(x))
    assert standard_error([1.0]) is None


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        scores = {game: list(rng.normal(10.0, 1.0, 10)) for game in "abcde"}
        low, high = interval(np.mean, scores)
        held += low < 10.0 < high
    assert 85 <= held <= 100


def test_one_seed_has_no_interval():
    assert interval(np.mean, {"a": [1.0], "b": [2.0]}) is None
    one = sampled_rows(np.array([2.0]), same, "x")
    assert (one.value, one.span, one.over) == (2.0, None, "one of seeds")
    # What is computed of it has none either, and says the same.
    both = combined(percent, one, sampled_rows(np.array([1.0, 3.0]), same, "y"))
    assert (both.value, both.span, both.over) == (0.0, None, "one of seeds")


def test_the_interval_of_a_mean_is_scipys():
    x = RNG.normal(5.0, 2.0, size=25)
    found = sampled_rows(x, same, "x")
    expected = stats.bootstrap(
        (x,), np.mean, n_resamples=20_000, method="percentile", rng=RNG
    ).confidence_interval
    assert found.value == pytest.approx(x.mean())
    assert found.span == pytest.approx(tuple(expected), abs=0.08)


def test_the_interval_of_a_relative_difference_is_scipys():
    x, y = RNG.normal(20.0, 2.0, size=12), RNG.normal(10.0, 2.0, size=8)
    found = combined(percent, sampled_rows(x, same, "x"), sampled_rows(y, same, "y"))
    expected = stats.bootstrap(
        (x, y),
        lambda a, b, axis: 100 * (a.mean(axis) / b.mean(axis) - 1),
        n_resamples=20_000,
        method="percentile",
        rng=RNG,
    ).confidence_interval
    assert found.value == pytest.approx(100 * (x.mean() / y.mean() - 1))
    assert found.span == pytest.approx(tuple(expected), rel=0.05)


def test_curves_are_drawn_whole():
    """A statistic of the mean curve; the draws are those of its rows."""
    curves = RNG.normal(size=(6, 30)).cumsum(axis=1)
    found = sampled_rows(curves, lambda c: c.max(axis=-1), "z")
    assert found.value == pytest.approx(curves.mean(axis=0).max())
    assert found.draws.min() >= curves.min(axis=0).max()
    assert found.draws.max() <= curves.max()


def test_intervals_may_be_open():
    draws = np.r_[np.ones(900), np.full(100, np.inf)]
    assert Sampled(1.0, draws).span == (1.0, np.inf)
    assert Sampled(1.0, np.r_[draws, np.nan]).span == (1.0, np.inf)
    assert Sampled(1.0, np.full(3, np.nan)).span is None
    assert np.isnan(percent(1.0, 0.0))
    zeros = Sampled(1.0, np.r_[np.zeros(500), np.ones(500)])
    assert combined(np.divide, Sampled(1.0, np.ones(1000)), zeros).span == (1.0, np.inf)
