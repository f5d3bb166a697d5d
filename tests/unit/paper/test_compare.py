"""Comparing arms: against SciPy where it has the same, against known cases elsewhere."""

import numpy as np
import pytest
from scipy import stats

from dna.common.intervals import iqm
from dna.paper.claims.uncertainty import (
    DRAWS,
    Sampled,
    combined,
    interval,
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


#: Of a game's seeds, game by game.
SPREADS = {
    "equal": lambda games: np.full(games, 10.0),
    "unequal": lambda games: 3.0 ** np.arange(games),
}


def lead(rng, games, seeds, spread):
    """By how much one of two equal arms leads, in percent; its games' spreads are given."""
    arms = []
    for arm in "ab":
        scores = 1e4 + spread[:, None] * rng.normal(size=(games, seeds))
        means = [sampled_rows(row, same, f"{arm}/{i}") for i, row in enumerate(scores)]
        arms.append(combined(lambda *games: sum(games) / len(games), *means))
    return combined(percent, *arms)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("games", [1, 5, 8])
def test_intervals_of_three_seeds_hold_the_truth_as_often_as_they_say(games, spread):
    rng, trials = np.random.default_rng(games), 300
    spans = [lead(rng, games, 3, SPREADS[spread](games)).span for _ in range(trials)]
    assert 0.92 <= np.mean([low <= 0 <= high for low, high in spans]) <= 0.98
    assert np.mean([low > 0 for low, high in spans]) <= 0.04  # false "better"


@pytest.mark.parametrize(("games", "seeds"), [(1, 3), (5, 3), (8, 3), (3, 10)])
def test_intervals_of_interquartile_means_hold_it_too(games, seeds, monkeypatch):
    monkeypatch.setattr("dna.paper.claims.uncertainty.DRAWS", 200)
    rng, trials, held = np.random.default_rng(games), 100, 0
    for _ in range(trials):
        scores = {str(g): list(rng.normal(10.0, 1.0, seeds)) for g in range(games)}
        low, high = interval(iqm, scores)
        held += low < 10.0 < high
    assert held / trials >= 0.90


def test_one_seed_has_no_interval():
    assert interval(np.mean, {"a": [1.0], "b": [2.0]}) is None
    one = sampled_rows(np.array([2.0]), same, "x")
    assert (one.value, one.span, one.over) == (2.0, None, "one seed")
    # What is computed of it has none either, and says the same.
    both = combined(percent, one, sampled_rows(np.array([1.0, 3.0]), same, "y"))
    assert (both.value, both.span, both.over) == (0.0, None, "one seed")


@pytest.mark.parametrize("size", [2, 3, 25])
def test_the_interval_of_a_mean_is_students(size):
    x = RNG.normal(5.0, 2.0, size=size)
    found = sampled_rows(x, same, "x")
    low, high = stats.t.interval(0.95, size - 1, x.mean(), stats.sem(x))
    assert found.value == pytest.approx(x.mean())
    assert found.span == pytest.approx((low, high), abs=0.05 * (high - low))


def test_the_interval_of_a_difference_is_welchs():
    x, y = RNG.normal(20.0, 0.5, size=4), RNG.normal(10.0, 2.0, size=9)
    found = combined(np.subtract, sampled_rows(x, same, "x"), sampled_rows(y, same, "y"))
    expected = stats.ttest_ind(x, y, equal_var=False)
    low, high = expected.confidence_interval()
    assert found.freedom == pytest.approx(expected.df, rel=0.05)
    assert found.span == pytest.approx((low, high), abs=0.05 * (high - low))


def test_few_seeds_do_not_take_a_number_out_of_its_range():
    """A rank correlation of means with two seeds each stays within −1 and 1."""
    rows = [sampled_rows(np.array([v - 3.0, v + 3.0]), same, str(v)) for v in (1.0, 2.0, 3.0)]
    found = combined(lambda *y: np.tanh(np.stack(y)).mean(axis=0), *rows)
    assert found.freedom < 7
    assert -1 <= found.span[0] < found.value < found.span[1] <= 1


def test_curves_are_drawn_whole():
    """A statistic of the mean curve: every point of a draw moves with the others."""
    base = RNG.normal(size=30).cumsum()
    curves = base + np.array([-1.0, 0.0, 2.0, 3.0])[:, None]
    found = sampled_rows(curves, lambda c: c.max(axis=-1) - c.min(axis=-1), "z")
    assert found.span == pytest.approx((np.ptp(base), np.ptp(base)))
    moved = sampled_rows(curves, lambda c: c.max(axis=-1), "z")
    assert moved.span[0] < moved.value < moved.span[1]


def test_intervals_may_be_open():
    draws = np.r_[np.ones(900), np.full(100, np.inf)]
    assert Sampled(1.0, draws).span == (1.0, np.inf)
    assert Sampled(1.0, np.r_[draws, np.nan]).span == (1.0, np.inf)
    assert Sampled(1.0, np.full(3, np.nan)).span is None
    assert np.isnan(percent(1.0, 0.0))
    zeros = Sampled(1.0, np.r_[np.zeros(500), np.ones(500)])
    assert combined(np.divide, Sampled(1.0, np.ones(1000)), zeros).span == (1.0, np.inf)


def test_draws_without_an_end_give_no_warning(recwarn):
    """σ without an upper bound in some draws, with few measurements: as of smoke runs."""
    many = np.r_[np.ones(DRAWS - 1000), np.full(1000, np.inf)]
    open_above = Sampled(1.0, many, freedom=3)
    found = combined(np.divide, open_above, sampled_rows(np.array([1.0, 2.0]), same, "x"))
    assert found.span[1] == np.inf
    assert not recwarn.list


@pytest.mark.parametrize(("lost", "span"), [(20, (12.0, 13.0)), (300, (-np.inf, np.inf))])
def test_a_draw_of_which_nothing_is_known_counts_at_both_ends(lost, span):
    """∞ / ∞: both without an end. Left out, what is not known made the interval narrower."""
    ends = np.r_[np.full(lost, np.inf), np.full(1000 - lost, 1.0)]
    above = Sampled(12.5, ends * np.linspace(12.0, 13.0, 1000).round())
    found = combined(np.divide, above, Sampled(1.0, ends))
    assert np.isnan(found.draws).sum() == lost
    assert found.span == span


def test_zeros_compared_with_leave_no_number_or_no_bound():
    """All of them zero: no interval at all. Some of them zero: no bound on either side."""
    ours, zero = Sampled(2.0, np.full(1000, 2.0)), Sampled(0.0, np.zeros(1000))
    assert np.isnan(combined(percent, ours, zero).value)
    assert combined(percent, ours, zero).span is None
    some = Sampled(1.0, np.r_[np.zeros(100), np.ones(900)])
    assert combined(percent, ours, some).span == (-np.inf, np.inf)
    few = Sampled(1.0, np.r_[np.zeros(10), np.ones(990)])
    assert combined(percent, ours, few).span == (100.0, 100.0)
