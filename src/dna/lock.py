"""One writer per run: a lock on its folder that the kernel drops with the process."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dna import disk
from dna.errors import FolderBusy
from dna.storage import make_folder, reported

#: Seconds: `check_unlocked` of another process holds the lock for an instant.
PAUSES = (0.01, 0.03, 0.1)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's folder for life; the kernel lets go even after kill -9."""
    make_folder(folder)
    path = folder / "run.lock"
    with reported(path):
        fd = disk.append_to(path)
    with os.fdopen(fd, "a+") as file:
        for pause in (*PAUSES, None):
            try:
                _take(file, folder)
                break
            except FolderBusy:
                if pause is None:
                    raise
                time.sleep(pause)  # somebody may only be looking
        with reported(path):
            disk.truncate(fd, 0)
            disk.write(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        yield


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
        holder = file.read().strip() or "another process"
        raise FolderBusy(f"{folder}: in use by {holder}") from None
