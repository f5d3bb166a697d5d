"""The system calls behind `dna.common.storage`, one function each.

They are in a separate module so that tests can make each of them fail, stop short or crash.
Windows lacks some of the calls and flags; what stands in for them is here as well.
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
    return _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def append_to(path: Path) -> int:
    """Open a file for appending; a symbolic or hard link is an error."""
    fd = _plain(_open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND))
    if os.fstat(fd).st_nlink > 1:
        os.close(fd)
        raise OSError(errno.EMLINK, "is a hard link to another file; delete it")
    return fd


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
    """Rename a file or folder atomically; a file replaces one of that name."""
    old.replace(new)


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
    fd = open_to_read(path)
    with os.fdopen(fd, "rb") as file:
        if os.fstat(fd).st_size > limit:
            raise OverflowError(path)
        return file.read()


def read_at(fd: int, length: int, start: int) -> bytes:
    """Read at most this many bytes of an open file, from this position on."""
    if hasattr(os, "pread"):
        return os.pread(fd, length, start)
    os.lseek(fd, start, os.SEEK_SET)  # no harm: writes go to the end of the file
    return os.read(fd, length)


def _open(path: Path, flags: int) -> int:
    """Open a file that is not a link, without waiting for the other end of a pipe."""
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # O_BINARY: line ends stay as given
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o666)


def open_to_read(path: Path) -> int:
    """Open a file for reading; a link is an error."""
    return _plain(_open(path, os.O_RDONLY))


def _plain(fd: int) -> int:
    """Return the descriptor of a regular file or folder; a pipe or device could block."""
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a plain file")
