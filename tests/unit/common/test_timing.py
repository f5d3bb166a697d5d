"""Time is counted once, for the innermost part that spends it."""

import pytest

from dna.common import timing
from dna.common.timing import Clock


class Watch:
    """Seconds that pass only when a test lets them."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def watch(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(timing, "time", watch)
    return watch


def test_a_part_inside_another_leaves_that_one(watch):
    clock = Clock()
    with clock("outer"):
        watch.wait(2)
        with clock("inner"):
            watch.wait(5)
        watch.wait(1)
    assert clock.take() == {"inner": 5, "outer": 3}
    assert clock.take() == {}


def test_items_are_timed_while_they_are_made_not_while_they_are_used(watch):
    def slow():
        for number in range(3):
            watch.wait(2)
            yield number

    clock, seen = Clock(), []
    with clock("outer"):
        for number in clock.each("made", slow()):
            seen.append(number)
            watch.wait(3)
    assert seen == [0, 1, 2]
    assert clock.take() == {"made": 6, "outer": 9}


def test_an_error_inside_is_counted_and_passed_on(watch):
    clock = Clock()
    with pytest.raises(ValueError, match="x"), clock("part"):
        raise ValueError("x")
    assert clock.take() == {"part": 0}
    assert clock.outer == []
