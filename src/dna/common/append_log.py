"""Files that grow: whole records at the end, cut back to an earlier length after a crash."""

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dna.common import syscalls
from dna.common.errors import StorageFailure
from dna.common.storage import make_folder, reported, write

#: How often in a row the disk may refuse before the run gives up.
PATIENCE = 3


class AppendLog:
    """A file that is only ever appended to.

    What the disk refuses is kept and tried again with the next record: a disk that is full
    for a minute costs nothing.
    """

    def __init__(self, path: Path, keep: int = 0, *, lines: bool = True) -> None:
        """`keep`: bytes that stay; the rest was written after the checkpoint."""
        self.path, self.pending, self.refused = path, bytearray(), 0
        self.lines, self.changed = lines, False  # changed: by somebody else, while we write
        make_folder(path.parent)
        with reported(path):
            self._fd = syscalls.append_to(path)
            there = os.fstat(self._fd).st_size
            self.missing = max(keep - there, 0)  # bytes that somebody took away
            self.length = min(keep, there)
            if there > self.length:
                syscalls.truncate(self._fd, self.length)
            if self.missing:
                self._whole_lines()

    def _whole_lines(self) -> None:
        """Of a text that somebody cut: leave out half a line at its end."""
        if self.lines:
            end = os.pread(self._fd, self.length, 0).rfind(b"\n") + 1
            syscalls.truncate(self._fd, end)
            self.length = end

    def _look(self) -> None:
        """Somebody may have cut the file, or written to it; what is gone stays gone."""
        there = os.fstat(self._fd).st_size
        if there != self.length:
            self.changed, self.length = True, there
            self._whole_lines()

    def write(self, line: str) -> None:
        """Append one line, once the log is flushed."""
        self.add(line.encode() + b"\n")

    def add(self, data: bytes) -> None:
        """Append bytes, once the log is flushed."""
        self.pending += data

    def flush(self) -> None:
        """Let readers see what was written, or try again next time."""
        try:
            self._write()
            self.refused = 0
        except StorageFailure as error:
            self.refused += 1
            if self.refused >= PATIENCE:
                raise
            warnings.warn(f"{error}; trying again", RuntimeWarning, stacklevel=2)

    def sync(self) -> int:
        """Bring everything to disk, now; returns the length in bytes."""
        self._write()
        self._put_back()
        with reported(self.path):
            self._look()
            syscalls.fsync(self._fd)
        return self.length

    def _put_back(self) -> None:
        """A file that somebody deleted or replaced is ours alone, and whole: show it again."""
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._fd), os.lstat(self.path)):
                return
        with reported(self.path):
            data = os.pread(self._fd, self.length, 0)
            write(self.path, data)
            syscalls.close(self._fd)
            self._fd = syscalls.append_to(self.path)
        text = f"{self.path}: was deleted or replaced while it was written; put back"
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Write what is pending, and close."""
        if self._fd < 0:
            return
        try:
            self._write()
            self._put_back()
        finally:
            fd, self._fd = self._fd, -1
            with reported(self.path):
                syscalls.close(fd)

    def _write(self) -> None:
        with reported(self.path):
            self._look()
            while self.pending:
                done = syscalls.write(self._fd, self.pending)
                self.length += done
                del self.pending[:done]


def changed(logs: Mapping[str, AppendLog]) -> list[str]:
    """One line for each that somebody changed since this was last asked."""
    found = [name for name, log in logs.items() if log.changed]
    for name in found:
        logs[name].changed = False
    return [f"{name} was cut or written to by somebody else" for name in found]
