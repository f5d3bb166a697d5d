"""Write to stderr without ever failing the run.

A closed pipe, a lost terminal or a full disk behind a log file makes every write to stderr an
error, which must not end a run in the middle of an iteration.
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
    with suppress(OSError, ValueError):  # ValueError: the stream is closed
        if sys.stderr is not None:  # print(file=None) would write to stdout
            print(text, end=end, file=sys.stderr, flush=True)


def typed(path: Path | str) -> str:
    """Quote a path for the shell, for hints that can be pasted."""
    return shlex.quote(str(path))


class SafeStream:
    """A stream that drops its output, for good, once a write has failed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.lost = False

    def write(self, text: str) -> int:
        """Write, unless the stream is lost."""
        if not self.lost:
            try:
                self._stream.write(text)
            except OSError:
                self.lost = True
        return len(text)

    def flush(self) -> None:
        """Flush, unless the stream is lost."""
        if not self.lost:
            try:
                self._stream.flush()
            except OSError:
                self.lost = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def safe_stderr() -> Iterator[None]:
    """Replace stderr with a stream whose writes never fail."""
    before = sys.stderr
    stream = SafeStream(before or io.StringIO())
    stream.lost = before is None  # closed when the process started
    sys.stderr = stream
    try:
        yield
    finally:
        stream.flush()
        sys.stderr = before
        if stream.lost and before is not None:
            redirect_to_null(before)


def redirect_to_null(stream: Any) -> None:
    """Send what is still buffered in a broken stream to the null device.

    Python flushes its streams at exit, and turns the exit code into 120 if that fails.
    """
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)
