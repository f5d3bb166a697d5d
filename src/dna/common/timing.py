"""Wall-clock time of the parts of a run. Never part of what a run computes."""

import time
from collections.abc import Iterable


class Clock:
    """Seconds per named part since the last `take`, without those of parts nested in it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.outer: list[str] = []

    def __call__(self, part: str) -> "_Timed":
        """Add the time spent in a `with` block to this part."""
        return _Timed(self, part)

    def _add(self, part: str, spent: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + spent
        if self.outer:
            enclosing = self.outer[-1]
            self.seconds[enclosing] = self.seconds.get(enclosing, 0.0) - spent

    def add_concurrent(self, clocks: Iterable["Clock"], spent: float) -> None:
        """Divide `spent` seconds among the parts that other clocks measured in them at once."""
        parts = [pair for clock in clocks for pair in clock.take().items()]
        total = sum(seconds for _, seconds in parts) or 1.0
        for part, seconds in parts:
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds * spent / total

    def take(self) -> dict[str, float]:
        """Return the seconds so far and start again from zero."""
        seconds = self.seconds
        self.seconds = {}
        return seconds


class _Timed:
    """One timed block. A class, because a generator would cost more than small blocks do."""

    __slots__ = ("clock", "part", "start")

    def __init__(self, clock: Clock, part: str) -> None:
        self.clock = clock
        self.part = part

    def __enter__(self) -> None:
        self.start = time.perf_counter()
        self.clock.outer.append(self.part)

    def __exit__(self, *error: object) -> None:
        self.clock.outer.pop()
        self.clock._add(self.part, time.perf_counter() - self.start)
