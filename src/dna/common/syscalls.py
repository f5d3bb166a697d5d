"""The system calls that `dna.common.storage` makes, one function each, and nothing more.

They stand alone so that a test can fail, cut short or crash every single one of them.
"""

import errno
import os
import stat
from pathlib import Path

#: What a test may put something else in the place of.
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
    """A descriptor of a new file; one that exists, or a link, is an error."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def append_to(path: Path) -> int:
    """A descriptor that writes at the end; a link is an error, wherever it leads."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    return _plain(os.open(path, flags, 0o666))


def write(fd: int, data: bytes | bytearray | memoryview) -> int:
    """How much was written: perhaps less than asked for."""
    return os.write(fd, data)


def truncate(fd: int, length: int) -> None:
    """Cut an open file."""
    os.ftruncate(fd, length)


def fsync(fd: int) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    os.fsync(fd)


def close(fd: int) -> None:
    """Let go of a descriptor."""
    os.close(fd)


def rename(old: Path, new: Path) -> None:
    """Give a file or folder another name, in one go."""
    old.rename(new)


def mkdir(path: Path) -> None:
    """One folder, if it is not there."""
    path.mkdir(exist_ok=True)


def unlink(path: Path) -> None:
    """Take a name away."""
    path.unlink()


def rmdir(path: Path) -> None:
    """Take an empty folder away."""
    path.rmdir()


def read(path: Path, limit: int) -> bytes:
    """A whole file, not a link, of at most this many bytes; beyond it, `OverflowError`."""
    fd = _plain(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
    with os.fdopen(fd, "rb") as file:
        if os.fstat(fd).st_size > limit:
            raise OverflowError(path)
        return file.read()


def _plain(fd: int) -> int:
    """The descriptor, if it is of a plain file: a pipe or device could keep us waiting."""
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a plain file")
