"""Words for the user, who may not hear them: that must never end a run.

A pipe that was closed, a terminal that is gone or a full disk behind a log take stderr away,
and each line that is written to it would be an error in the middle of an iteration.
"""

import io
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def say(text: str, end: str = "\n") -> None:
    """Print to stderr, if there is one."""
    with suppress(OSError, ValueError):  # ValueError: it was closed
        if sys.stderr is not None:  # to print to None is to print to stdout
            print(text, end=end, file=sys.stderr, flush=True)


def typed(path: Path | str) -> str:
    """A path as it must be typed behind a command, for hints that can be pasted."""
    return shlex.quote(str(path))


class Steady:
    """A stream that falls silent, for good, once it cannot be written to."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.lost = stream, False

    def write(self, text: str) -> int:
        """Write, or do as if."""
        if not self.lost:
            try:
                self._stream.write(text)
            except OSError:
                self.lost = True
        return len(text)

    def flush(self) -> None:
        """Flush, or do as if."""
        if not self.lost:
            try:
                self._stream.flush()
            except OSError:
                self.lost = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def steady() -> Iterator[None]:
    """Whatever is written to stderr, by whomever in this process, cannot fail."""
    before = sys.stderr
    stream = Steady(before or io.StringIO())
    stream.lost = before is None  # closed before we came
    sys.stderr = stream
    try:
        yield
    finally:
        stream.flush()
        sys.stderr = before
        if stream.lost and before is not None:
            let_go(before)


def let_go(stream: Any) -> None:
    """What still waits to be written goes nowhere.

    Python flushes its streams at the very end, and makes 120 of the exit code if it cannot.
    """
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
