"""Comparing arms: against SciPy where it has the same, against known cases elsewhere."""

import numpy as np
import pytest
from scipy import stats

from dna.experiments.compare import (
    difference,
    interval,
    iqm,
    mean,
    rank_correlation,
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
        low, high = interval(mean, scores)
        held += low < 10.0 < high
    assert 85 <= held <= 100


def test_one_seed_has_no_interval():
    assert interval(mean, {"a": [1.0], "b": [2.0]}) is None
    assert difference(mean, {"a": [2.0]}, {"a": [1.0]}) == (100.0, None)


def test_differences_are_relative_and_certain_when_they_are():
    ours = {"a": [2.0, 2.1, 1.9], "b": [4.0, 4.2, 3.8]}
    theirs = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.9]}
    value, span = difference(mean, ours, theirs)
    assert value == pytest.approx(100.0)
    assert 60 < span[0] < 100 < span[1] < 150
    same, span = difference(mean, ours, ours)
    assert same == 0.0
    assert span[0] < 0 < span[1]


def test_a_game_with_fewer_seeds_weighs_as_much():
    ours = {"a": [1.0, 1.0, 1.0], "b": [3.0]}
    assert difference(mean, ours, {"a": [1.0], "b": [1.0]})[0] == pytest.approx(100.0)
