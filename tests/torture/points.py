"""A crash, an error or a short write at every single file operation of a run (G2, G5)."""

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dna import disk, keeping
from torture.ground import (
    Child,
    Outcome,
    Work,
    fingerprint,
    finish,
    intact,
    shared_out,
    timed,
)

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
FAULTS = ("crash", "EIO", "ENOSPC", "short write", "full disk")


class Faults:
    """Counts operations, and does something at the n-th; put in place inside a child."""

    def __init__(self, kind: str, at: int, count: Callable[[int], None]) -> None:
        self.kind, self.at, self.seen, self.count = kind, at, 0, count

    def install(self) -> None:
        keeping.PAUSES = (0.0, 0.0)
        for name in disk.OPERATIONS:
            setattr(disk, name, self._around(name, getattr(disk, name)))

    def _around(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            self.seen += 1
            self.count(self.seen)
            if self.seen == self.at or (self.kind == "full disk" and self.seen > self.at):
                words = self._strike(name, words)
            return operation(*words)

        return call

    def _strike(self, name: str, words: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.kind == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind in ERRORS:
            raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]))
        elif self.kind == "short write" and name == "write":
            return (words[0], bytes(words[1])[: max(len(words[1]) // 2, 1)])
        elif self.kind == "full disk" and name in ("create", "write", "mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return words


def operations(work: Work, folder: Path) -> int:
    """How many a run makes from beginning to end."""
    counter = folder.with_suffix(".count")

    def before() -> None:
        Faults("none", 0, lambda seen: counter.write_text(str(seen)) and None).install()

    child = Child(lambda: work.train(folder), folder.with_suffix(".log"), before)
    assert child.wait(120) == 0, child.said()
    child.newest()
    return int(counter.read_text())


def points(root: Path, most: int | None = None) -> Outcome:
    """Every operation of a run, or `most` of them evenly; each with every fault."""
    work = Work("dna", "toy", interactions=384)
    with timed("file operation that crashes or fails") as outcome:
        total = operations(work, root / "whole")
        expected = fingerprint(root / "whole")
        step = 1 if most is None else max(1, total // most)
        # A disk that stays full is the same story from anywhere: fewer points will do.
        cases = [
            (kind, at)
            for kind in FAULTS
            for at in range(1, total + 1, step * (5 if kind == "full disk" else 1))
        ]

        def one(case: tuple[str, int], part: Outcome) -> None:
            kind, at = case
            _one(root / f"{kind}{at}", work, kind, at, expected, part)

        shared_out(outcome, cases, one)
        outcome.notes.insert(0, f"{total} operations in a run")
    return outcome


def _one(
    folder: Path, work: Work, kind: str, at: int, expected: dict[str, str], outcome: Outcome
) -> None:
    def before() -> None:
        Faults(kind, at, lambda seen: None).install()

    child = Child(lambda: work.train(folder), folder.with_suffix(".log"), before)
    code = child.wait(60)
    newest = child.newest()
    fine = code in {"crash": (-9,), "short write": (0,)}.get(kind, (0, 6))
    said = child.said()
    plain = len(said.splitlines()) <= 8 and "Traceback" not in said
    if not intact(work, folder, newest):
        outcome.lost += 1
    trouble = finish(work, folder)
    same = not trouble and fingerprint(folder) == expected
    outcome.count(
        fine and plain and same, f"{kind} at {at}: exit {code}, {trouble or said[-200:]}"
    )
    shutil.rmtree(folder, ignore_errors=True)
