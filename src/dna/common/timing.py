"""Where the wall-clock time of a run goes. Never part of what a run computes."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Clock:
    """Seconds per named part since the last `take`; a part inside another leaves that one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.outer: list[str] = []

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time spent inside to this part."""
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
            around = self.outer[-1]
            self.seconds[around] = self.seconds.get(around, 0.0) - spent

    def each(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """The items, with the time that making them takes on this part."""
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
        """The split so far; the next one starts from zero."""
        seconds, self.seconds = self.seconds, {}
        return seconds
