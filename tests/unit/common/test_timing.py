"""Time is counted once, for the innermost part that spends it."""

import time

import pytest

from dna.common.timing import Clock


def test_a_part_inside_another_leaves_that_one():
    clock = Clock()
    with clock("outer"):
        time.sleep(0.02)
        with clock("inner"):
            time.sleep(0.05)
    seconds = clock.take()
    assert seconds["inner"] >= 0.05
    assert 0.02 <= seconds["outer"] < seconds["inner"]
    assert clock.take() == {}


def test_items_are_timed_while_they_are_made_not_while_they_are_used():
    def slow():
        for number in range(3):
            time.sleep(0.02)
            yield number

    clock, seen = Clock(), []
    with clock("outer"):
        for number in clock.each("made", slow()):
            seen.append(number)
            time.sleep(0.03)
    seconds = clock.take()
    assert seen == [0, 1, 2]
    assert 0.06 <= seconds["made"] < seconds["outer"]


def test_an_error_inside_is_counted_and_passed_on():
    clock = Clock()
    with pytest.raises(ValueError, match="x"), clock("part"):
        raise ValueError("x")
    assert set(clock.take()) == {"part"}
    assert clock.outer == []
