"""The repeated-action penalty of appendix A: −0.25 beyond 100 repetitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dna.algorithm.rollout import RepeatedAction

ALL = np.ones(1, dtype=np.bool_)


def fines(actions, amount=0.25, after=100, valid=None):
    """What is subtracted at each step of one agent."""
    penalty = RepeatedAction(1, 1, amount, after)
    zero = np.zeros(1, np.float32)
    rows = [ALL] * len(actions) if valid is None else [np.array([v]) for v in valid]
    return [
        -float(penalty(zero, np.array([[a]]), v)[0]) for a, v in zip(actions, rows, strict=True)
    ]


def test_the_102nd_equal_action_is_the_first_that_costs():
    got = fines([3] * 150)
    assert got[:101] == [0.0] * 101
    assert got[101:] == [0.25] * 49


def test_the_action_before_the_first_is_zero():
    assert fines([0] * 102)[99:] == [0.0, 0.25, 0.25]


def test_another_action_makes_it_free_again():
    got = fines([1] * 105 + [2] + [1] * 50)
    assert got[104] == 0.25
    assert not any(got[105:])


def test_it_stands_outside_the_clip_and_counts_agents_apart():
    penalty = RepeatedAction(2, 1, 0.25, 1)
    reward = np.array([5.0, -5.0], np.float32)
    both = np.ones(2, dtype=np.bool_)
    for t in range(4):
        got = penalty(reward, np.array([[1], [t]]), both)
    assert got.tolist() == [4.75, -5.0]


def test_rows_that_only_reset_neither_count_nor_pay():
    got = fines([1, 1, 1, 9, 1], after=1, valid=[True, True, True, False, True])
    assert got == [0.0, 0.0, 0.25, 0.0, 0.25]


def test_an_action_of_several_choices_is_repeated_only_as_a_whole():
    penalty = RepeatedAction(1, 2, 1.0, 1)
    rows = [[1, 1], [1, 1], [1, 1], [1, 2]]
    got = [float(penalty(np.zeros(1, np.float32), np.array([row]), ALL)[0]) for row in rows]
    assert got == [0.0, 0.0, -1.0, 0.0]


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 5))
def test_it_equals_counting_by_hand(actions, after):
    expected, before, count = [], 0, 0
    for action in actions:
        count = count + 1 if action == before else 0
        before = action
        expected.append(0.5 if count > after else 0.0)
    assert fines(actions, 0.5, after) == pytest.approx(expected)
