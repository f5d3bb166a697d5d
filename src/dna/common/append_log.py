"""Append-only files: whole records at the end, truncated to a known length after a crash."""

import hashlib
import os
import stat
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dna.common import syscalls
from dna.common.errors import StorageFailure
from dna.common.storage import blocks, make_folder, storage_errors, write_blocks

#: Consecutive failed writes after which the run gives up.
PATIENCE = 3
#: Bytes that are read at a time: a log may be larger than the memory.
BLOCK = 2**20


class AppendLog:
    """A file that is only ever appended to.

    Data that cannot be written is kept and written with the next record, so nothing is lost if
    the disk is full for a minute. The hash of the file is updated with each record, so that a
    checkpoint need not read the file again.
    """

    def __init__(self, path: Path, keep: int = 0, *, lines: bool = True) -> None:
        """Open the file and truncate it to `keep` bytes, its length at the checkpoint.

        With `lines`, a file that is shorter than that is cut back to its last whole line.
        """
        self.path = path
        self.lines = lines
        self.pending = bytearray()
        self.refused = 0
        self.changed = False  # by another process, while this one writes
        make_folder(path.parent)
        with storage_errors(path):
            _detach(path, keep)
            self._fd = syscalls.append_to(path)
            size = os.fstat(self._fd).st_size
            self.missing = max(keep - size, 0)  # bytes that were removed since the checkpoint
            self.length = min(keep, size)
            if size > self.length:
                syscalls.truncate(self._fd, self.length)
            if self.missing:
                self._drop_partial_line()
            self._hash = self._hash_of_file()
            self._hash_is_current = True

    @property
    def sha256(self) -> str:
        """The hash of the first `length` bytes, all that was written."""
        if not self._hash_is_current:
            with storage_errors(self.path):
                self._hash = self._hash_of_file()
            self._hash_is_current = True
        return self._hash.hexdigest()

    def _hash_of_file(self) -> "hashlib._Hash":
        found = hashlib.sha256()
        for block in self._blocks():
            found.update(block)
        return found

    def _blocks(self) -> Iterator[bytes]:
        """Read the first `length` bytes, a block at a time."""
        start = 0
        while start < self.length:
            block = syscalls.read_at(self._fd, min(BLOCK, self.length - start), start)
            if not block:  # cut by another process just now
                return
            yield block
            start += len(block)

    def _drop_partial_line(self) -> None:
        """Remove an incomplete last line from a text file that was cut short."""
        if not self.lines:
            return
        end = self.length
        while end > 0:
            start = max(end - BLOCK, 0)
            found = syscalls.read_at(self._fd, end - start, start).rfind(b"\n")
            end = start + found + 1
            if found >= 0:
                break
        syscalls.truncate(self._fd, end)
        self.length = end

    def _detect_changes(self) -> None:
        """Notice that another process cut or extended the file; lost bytes stay lost."""
        size = os.fstat(self._fd).st_size
        if size != self.length:
            self.changed = True
            self._hash_is_current = False
            self.length = size
            self._drop_partial_line()

    def write(self, line: str) -> None:
        """Append one line with the next flush."""
        self.add(line.encode() + b"\n")

    def add(self, data: bytes) -> None:
        """Append bytes with the next flush."""
        self.pending += data

    def flush(self) -> None:
        """Write pending data so that readers see it; after a failure, retry next time."""
        try:
            self._write()
            self.refused = 0
        except StorageFailure as error:
            self.refused += 1
            if self.refused >= PATIENCE:
                raise
            warnings.warn(f"{error}; trying again", RuntimeWarning, stacklevel=2)

    def sync(self) -> int:
        """Write and fsync everything; return the length in bytes."""
        self._write()
        self._put_back()
        with storage_errors(self.path):
            self._detect_changes()
            syscalls.fsync(self._fd)
        return self.length

    def _put_back(self) -> None:
        """Restore the file under its path if it was deleted or replaced meanwhile.

        The open descriptor still refers to the whole file, which no other process can see.
        """
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._fd), os.lstat(self.path)):
                return
        with storage_errors(self.path):
            write_blocks(self.path, self._blocks())
            syscalls.close(self._fd)
            self._fd = syscalls.append_to(self.path)
        text = f"{self.path}: was deleted or replaced while it was written; put back"
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Write pending data and close the file."""
        if self._fd < 0:
            return
        try:
            self._write()
            self._put_back()
        finally:
            fd = self._fd
            self._fd = -1
            with storage_errors(self.path):
                syscalls.close(fd)

    def _write(self) -> None:
        with storage_errors(self.path):
            self._detect_changes()
            while self.pending:
                done = syscalls.write(self._fd, self.pending)
                self.length += done
                self._hash.update(self.pending[:done])
                del self.pending[:done]


def damage(name: str, log: AppendLog, sha256: str | None) -> list[str]:
    """Return a line if a log that was just opened does not match its checkpoint.

    `sha256` is None for a checkpoint of an older version, which did not record the hash.
    """
    if log.missing:
        return [f"{name} was cut short"]
    if sha256 is not None and sha256 != log.sha256:
        return [f"{name} was changed after the checkpoint"]
    return []


def _detach(path: Path, keep: int) -> None:
    """Replace a file that has other names (hard links, as in a backup) by its own copy.

    Only the first `keep` bytes are copied: the rest would be truncated.
    """
    with suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            write_blocks(path, blocks(path, keep))


def changed(logs: Mapping[str, AppendLog]) -> list[str]:
    """Return a line for each log that another process changed since the last call."""
    found = [name for name, log in logs.items() if log.changed]
    for name in found:
        logs[name].changed = False
    return [f"{name} was cut or written to by somebody else" for name in found]
