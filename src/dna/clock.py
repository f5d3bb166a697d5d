"""Where the wall-clock time of a run goes. Never part of what a run computes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds per named part since the last `take`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Add the time spent inside to this part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """The split so far; the next one starts from zero."""
        seconds, self.seconds = self.seconds, {}
        return seconds
