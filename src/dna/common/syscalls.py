"""The system calls behind `dna.common.storage`, one function each.

They are in a separate module so that tests can make each of them fail, stop short or crash.
"""

import errno
import os
import stat
from pathlib import Path

#: Functions that a fault-injection test may replace.
OPERATIONS = (
    "create",
    "append_to",
    "write",
    "truncate",
    "fsync",
    "close",
    "rename",
    "mkdir",
    "unlink",
    "rmdir",
    "read",
)


def create(path: Path) -> int:
    """Open a new file for writing; an existing file or a link is an error."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def append_to(path: Path) -> int:
    """Open a file for appending; a link is an error."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    return _plain(os.open(path, flags, 0o666))


def write(fd: int, data: bytes | bytearray | memoryview) -> int:
    """Write, and return the number of bytes written: perhaps fewer than given."""
    return os.write(fd, data)


def truncate(fd: int, length: int) -> None:
    """Truncate an open file."""
    os.ftruncate(fd, length)


def fsync(fd: int) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    os.fsync(fd)


def close(fd: int) -> None:
    """Close a descriptor."""
    os.close(fd)


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder atomically."""
    old.rename(new)


def mkdir(path: Path) -> None:
    """Create one folder unless it exists."""
    path.mkdir(exist_ok=True)


def unlink(path: Path) -> None:
    """Delete a file."""
    path.unlink()


def rmdir(path: Path) -> None:
    """Delete an empty folder."""
    path.rmdir()


def read(path: Path, limit: int) -> bytes:
    """Read a whole file that is not a link; `OverflowError` beyond this many bytes."""
    fd = _plain(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    with os.fdopen(fd, "rb") as file:
        if os.fstat(fd).st_size > limit:
            raise OverflowError(path)
        return file.read()


def _plain(fd: int) -> int:
    """Return the descriptor of a regular file or folder; a pipe or device could block."""
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a plain file")
