"""One writer per run: a lock on its folder that the kernel releases when the process ends.

Where there is `flock`, the lock is on `run.lock` itself, which names the process that holds it.
Windows would not let others read a locked file, so there `filelock` locks a second one.
"""

import os
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from dna.common import syscalls
from dna.common.errors import FolderBusy
from dna.common.storage import finish, make_folder, pending, storage_errors

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
except ImportError:  # Windows
    HAS_FLOCK = False
else:
    HAS_FLOCK = True

#: The file that is locked where there is no `flock`; removed when it is unlocked.
SECOND = "run.lock.held"
#: Seconds between attempts: `check_unlocked` of another process holds the lock for an instant.
PAUSES = (0.01, 0.03, 0.1)
#: Descriptors of the locks that this process holds.
_held: set[int] = set()


def _forget_in_child() -> None:
    """Release the locks in a forked child, which may outlive the training process.

    Its descriptors are redirected instead of closed, because their owners close them sooner or
    later; the lock itself stays with the parent.
    """
    if _held:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in _held:
            os.dup2(null, fd, inheritable=False)
        os.close(null)
        _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock of the run's folder; the kernel releases it even after kill -9.

    Yields a function that renews the lock if its file was deleted, or raises `FolderBusy` if
    another process took it meanwhile. A transaction that a crash interrupted
    (`dna.common.storage.exchange`) is completed on entry.
    """
    make_folder(folder)
    with ExitStack() as stack:
        file = stack.enter_context(_holding(folder))
        finish(folder)

        def keep() -> None:
            nonlocal file
            if not _is_at(file, folder):
                file = stack.enter_context(_holding(folder))

        yield keep


@contextmanager
def _holding(folder: Path) -> Iterator[TextIO]:
    """Open and lock the lock file, and write this process into it."""
    path = folder / "run.lock"
    with storage_errors(path):
        fd = syscalls.append_to(path)
    with os.fdopen(fd, "a+") as file, ExitStack() as stack:
        for pause in (*PAUSES, None):
            try:
                stack.enter_context(_locking(file, folder))
                break
            except FolderBusy:
                if pause is None:
                    raise
                time.sleep(pause)  # it may only be `check_unlocked`
        if not _is_at(file, folder):
            raise FolderBusy(f"{folder}: its run.lock was deleted just now; try again")
        with storage_errors(path):
            syscalls.truncate(fd, 0)
            syscalls.write(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        _held.add(fd)
        try:
            yield file
        finally:
            _held.discard(fd)


def settle(folder: Path) -> None:
    """Complete a transaction that a crash interrupted in this folder; write nothing else."""
    if pending(folder):
        with locked(folder):
            pass


def _is_at(file: TextIO, folder: Path) -> bool:
    """Whether the path of the lock still leads to this very file."""
    if not HAS_FLOCK:
        return True  # Windows refuses to delete or replace a file that is open
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(folder / "run.lock"))
    except FileNotFoundError:
        return False


def check_unlocked(folder: Path) -> None:
    """Raise `FolderBusy` if another process trains here: an early check, not a guarantee."""
    path = folder / "run.lock"
    if path.is_file():
        with storage_errors(path), path.open() as file, _locking(file, folder, shared=True):
            pass


@contextmanager
def _locking(file: TextIO, folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Lock the folder of an open `run.lock` without waiting; closing the file ends a flock.

    Shared locks do not exclude each other: two processes may check a folder at once.
    """
    if HAS_FLOCK:
        try:
            flock(file, (LOCK_SH if shared else LOCK_EX) | LOCK_NB)
        except BlockingIOError:
            raise _busy(file, folder) from None
        yield
        return
    with warnings.catch_warnings():  # a soft lock also ends with its process, on one machine
        warnings.filterwarnings("ignore", "only soft file lock is available")
        from filelock import FileLock, Timeout

    try:
        held = FileLock(folder / SECOND, thread_local=False).acquire(timeout=0)
    except Timeout:
        raise _busy(file, folder) from None
    with held:
        yield


def _busy(file: TextIO, folder: Path) -> FolderBusy:
    file.seek(0)
    return FolderBusy(f"{folder}: in use by {_holder(file.read().strip())}")


def _holder(text: str) -> str:
    """Describe the holder of the lock by the content of its file.

    A child may have inherited the lock from a process that is gone.
    """
    match = re.fullmatch(r"pid (\d{1,9}) on (.*)", text)
    if match is None:
        return text or "another process"
    try:
        # On Windows, os.kill(pid, 0) does not test for a process but sends Ctrl-C.
        if HAS_FLOCK and match[2] == socket.gethostname():
            os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return f"a child of {text}, which is gone itself; end that child"
    except OSError:
        pass  # a process of another user
    return text
