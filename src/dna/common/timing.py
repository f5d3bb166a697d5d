"""Wall-clock time of the parts of a run. Never part of what a run computes."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Clock:
    """Seconds per named part since the last `take`, without those of parts nested in it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.outer: list[str] = []

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time spent in the block to this part."""
        start = time.perf_counter()
        self.outer.append(part)
        try:
            yield
        finally:
            self.outer.pop()
            self._add(part, time.perf_counter() - start)

    def _add(self, part: str, spent: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + spent
        if self.outer:
            enclosing = self.outer[-1]
            self.seconds[enclosing] = self.seconds.get(enclosing, 0.0) - spent

    def each(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and add the time that producing them takes to this part."""
        rest = iter(items)
        while True:
            start = time.perf_counter()
            try:
                item = next(rest)
            except StopIteration:
                return
            self._add(part, time.perf_counter() - start)
            yield item

    def take(self) -> dict[str, float]:
        """Return the seconds so far and start again from zero."""
        seconds = self.seconds
        self.seconds = {}
        return seconds
