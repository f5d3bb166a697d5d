"""One writer per run: a lock on its folder that the kernel drops with the process."""

import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from dna.common import syscalls
from dna.common.errors import FolderBusy
from dna.common.storage import make_folder, reported
from dna.common.transaction import finish, pending

#: Seconds: `check_unlocked` of another process holds the lock for an instant.
PAUSES = (0.01, 0.03, 0.1)
#: Descriptors of the locks that this process holds.
_held: set[int] = set()


def _forget_in_child() -> None:
    """A forked child must not hold a run: it may live longer than who trains.

    Its descriptors are pointed elsewhere instead of being closed, which whoever owns them does
    sooner or later; the lock itself stays with the parent.
    """
    nowhere = os.open(os.devnull, os.O_RDWR) if _held else -1
    for fd in _held:
        os.dup2(nowhere, fd, inheritable=False)
    if _held:
        os.close(nowhere)
        _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def locked(folder: Path) -> Iterator[Callable[[], None]]:
    """Hold the run's folder for life; the kernel lets go even after kill -9.

    Gives a function that makes sure of it: a lock file that somebody deleted is taken anew,
    and `FolderBusy` says that somebody else was faster. A change that a crash has interrupted
    (`dna.common.transaction`) is at its end then.
    """
    make_folder(folder)
    with ExitStack() as held:
        file = held.enter_context(_holding(folder))
        finish(folder)

        def keep() -> None:
            nonlocal file
            if not _is_at(file, folder):
                file = held.enter_context(_holding(folder))

        yield keep


@contextmanager
def _holding(folder: Path) -> Iterator[TextIO]:
    with _open(folder) as file:
        _held.add(file.fileno())
        try:
            yield file
        finally:
            _held.discard(file.fileno())


def settle(folder: Path) -> None:
    """Bring to its end what a crash has interrupted here; nothing else is written."""
    if pending(folder):
        with locked(folder):
            pass


def _open(folder: Path) -> TextIO:
    """The lock file, locked, with our name in it."""
    path = folder / "run.lock"
    with reported(path):
        fd = syscalls.append_to(path)
    file = os.fdopen(fd, "a+")
    try:
        for pause in (*PAUSES, None):
            try:
                _take(file, folder)
                break
            except FolderBusy:
                if pause is None:
                    raise
                time.sleep(pause)  # somebody may only be looking
        if not _is_at(file, folder):
            raise FolderBusy(f"{folder}: its run.lock was deleted just now; try again")
        with reported(path):
            syscalls.truncate(fd, 0)
            syscalls.write(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
    except BaseException:
        file.close()
        raise
    return file


def _is_at(file: TextIO, folder: Path) -> bool:
    """Whether others who look for the lock find this very file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(folder / "run.lock"))
    except FileNotFoundError:
        return False


def check_unlocked(folder: Path) -> None:
    """Say early that somebody trains here; only `locked` makes sure that nobody does."""
    path = folder / "run.lock"
    if path.is_file():
        with reported(path), path.open() as file:
            _take(file, folder)


def _take(file: TextIO, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise FolderBusy(f"{folder}: in use by {_holder(file.read().strip())}") from None


def _holder(text: str) -> str:
    """Who has the lock, by what is in its file; a child may have it from one who is gone."""
    match = re.fullmatch(r"pid (\d{1,9}) on (.*)", text)
    if match is None:
        return text or "another process"
    try:
        if match[2] == socket.gethostname():
            os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return f"a child of {text}, which is gone itself; end that child"
    except OSError:
        pass  # somebody else's
    return text
