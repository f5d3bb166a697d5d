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


def test_clocks_that_ran_at_the_same_time_share_it(watch):
    clock, one, other = Clock(), Clock(), Clock()
    with one("policy"):
        watch.wait(6)
        with one("optimizer"):
            watch.wait(2)
    with other("value"):
        watch.wait(4)
    clock.add_concurrent([one, other], 6)  # while one clock ran, so did the other
    assert clock.take() == {"policy": 3, "optimizer": 1, "value": 2}
    assert one.take() == other.take() == {}


def test_an_error_inside_is_counted_and_passed_on(watch):
    clock = Clock()
    with pytest.raises(ValueError, match="x"), clock("part"):
        raise ValueError("x")
    assert clock.take() == {"part": 0}
    assert clock.outer == []
