"""Simulated power loss: everything that was not synced to disk is gone.

This is the worst case that POSIX allows: bytes without a later fsync of their file, and names
without a later fsync of their folder, are lost.
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Unsynced:
    """Track what a power loss would discard; informed of every operation afterwards."""

    def __init__(self) -> None:
        self.safe: dict[str, int] = {}  # file → bytes that are on disk
        self.undo: list[tuple[str, Callable[[], None]]] = []  # by folder, in order

    def note(self, name: str, words: tuple[Any, ...], existed: bool) -> None:
        """Record an operation."""
        if name in ("create", "append_to"):
            path = str(words[0])
            self.safe.setdefault(path, os.path.getsize(path) if existed else 0)
            if not existed:
                self._name(path, lambda: Path(path).unlink(missing_ok=True))
        elif name == "mkdir" and not existed:
            path = str(words[0])
            self._name(path, lambda: shutil.rmtree(path, ignore_errors=True))
        elif name == "rename":
            self._rename(str(words[0]), str(words[1]))
        elif name == "fsync":
            self._sync(os.readlink(f"/proc/self/fd/{words[0]}"))

    def _name(self, path: str, back: Callable[[], None]) -> None:
        self.undo.append((os.path.dirname(path), back))

    def _rename(self, old: str, new: str) -> None:
        moved = {
            p: p.replace(old, new, 1)
            for p in self.safe
            if p == old or p[: len(old) + 1] == f"{old}/"
        }
        for before, after in moved.items():
            self.safe[after] = self.safe.pop(before)

        def back() -> None:
            if os.path.exists(new) and not os.path.exists(old):
                os.rename(new, old)

        self._name(new, back)

    def _sync(self, path: str) -> None:
        if os.path.isdir(path):
            self.undo = [(folder, back) for folder, back in self.undo if folder != path]
        else:
            self.safe[path] = os.path.getsize(path)

    def lose(self) -> None:
        """Discard everything that was not synced."""
        for path, size in self.safe.items():
            with contextlib.suppress(FileNotFoundError):
                if os.path.getsize(path) > size:
                    os.truncate(path, size)
        for _, back in reversed(self.undo):
            back()
