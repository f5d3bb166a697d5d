"""A crash, an error or a short write at every single file operation of a run.

Also at every operation of replacing a save and of extending a run.
"""

import errno
import functools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dna.common import syscalls
from dna.common.errors import DnaError
from dna.config import Config
from dna.config.overrides import digest, tweak
from dna.runs import checkpoint, retention
from dna.runs.extend import copy_run, lengthened
from dna.runs.folder import RunFolder
from helpers import Stopper
from torture.ground import (
    Child,
    Outcome,
    Work,
    fingerprint,
    finish,
    intact,
    reference,
    shared_out,
    timed,
)
from torture.power import Unsynced

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
FAULTS = ("crash", "power", "EIO", "ENOSPC", "short write", "full disk")
#: Iterations after which a run is stopped, before faults are injected into its resumption.
HALF = 3
#: Largest number of lines that a run with a fault may print. A resumed run also names the
#: damaged checkpoint and the one it continues from: two warnings, each with its source line.
LINES = {"whole": 8, "resumed": 12}


class Faults:
    """Count file operations and inject a fault at the n-th; installed in a child process."""

    def __init__(self, kind: str, at: int, count: Callable[[int], None]) -> None:
        self.kind, self.at, self.seen, self.count = kind, at, 0, count
        self.unsynced = Unsynced()

    def install(self) -> None:
        retention.PAUSES = (0.0, 0.0)
        for name in syscalls.OPERATIONS:
            setattr(syscalls, name, self._around(name, getattr(syscalls, name)))

    def _around(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            self.seen += 1
            self.count(self.seen)
            if self.seen == self.at or (self.kind == "full disk" and self.seen > self.at):
                words = self._strike(name, words)
            existed = isinstance(words[0], Path) and words[0].exists()
            result = operation(*words)
            if self.kind == "power":
                self.unsynced.note(name, words, existed)
            return result

        return call

    def _strike(self, name: str, words: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.kind == "power":
            self.unsynced.lose()
        if self.kind in ("crash", "power"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind in ERRORS:
            raise OSError(ERRORS[self.kind], os.strerror(ERRORS[self.kind]))
        elif self.kind == "short write" and name == "write":
            return (words[0], bytes(words[1])[: max(len(words[1]) // 2, 1)])
        elif self.kind == "full disk" and name in ("create", "write", "mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return words


def operations(work: Work, folder: Path) -> int:
    """Return the number of file operations of a run from here to its end."""
    return counted(lambda: work.train(folder), folder)


def counted(work: Callable[[], Any], folder: Path) -> int:
    """Return the number of file operations of an action without faults."""
    counter = folder.with_suffix(".count")

    def before() -> None:
        Faults("none", 0, lambda seen: counter.write_text(str(seen)) and None).install()

    child = Child(work, folder.with_suffix(".log"), before)
    assert child.wait(120) == 0, child.said()
    child.newest()
    return int(counter.read_text())


def half_of(work: Work, folder: Path) -> None:
    """Stop a run and damage its newest checkpoint, so that resuming uses all code paths."""
    child = Child(lambda: work.train(folder, sinks=[Stopper(HALF)]), folder.with_suffix(".log"))
    assert child.wait(120) == 75, child.said()
    child.newest()
    newest = max((folder / "checkpoints").iterdir()) / "rank0.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])


def points(root: Path, most: int | None = None) -> Outcome:
    """Inject every fault at all operations of a new and a resumed run, or `most` of them."""
    # Checks of restored environments make no file operation, and take most of the time.
    work = Work("dna", "toy", interactions=384, verify=False)
    with timed("file operation that crashes, fails or loses what was not synced") as outcome:
        half_of(work, root / "half")
        total = {"whole": operations(work, root / "whole")}
        expected = fingerprint(root / "whole")
        shutil.copytree(root / "half", root / "resumed")
        total["resumed"] = operations(work, root / "resumed")
        everything = sum(total.values())
        step = 1 if most is None else max(1, everything // most)
        # A disk that stays full has the same effect at any operation: fewer points are enough.
        cases = [
            (start, kind, at)
            for start in total
            for kind in FAULTS
            for at in range(1, total[start] + 1, step * (5 if kind == "full disk" else 1))
        ]

        def one(case: tuple[str, str, int], part: Outcome) -> None:
            start, kind, at = case
            folder = root / f"{start}-{kind}{at}"
            if start == "resumed":
                shutil.copytree(root / "half", folder)
            _one(folder, work, (kind, at, LINES[start]), expected, part)

        shared_out(outcome, cases, one)
        outcome.notes.insert(0, f"{everything} operations in a run and a resumed one")
    return outcome


def _one(
    folder: Path,
    work: Work,
    fault: tuple[str, int, int],
    expected: dict[str, str],
    outcome: Outcome,
) -> None:
    kind, at, lines = fault

    def before() -> None:
        Faults(kind, at, lambda seen: None).install()

    child = Child(lambda: work.train(folder), folder.with_suffix(".log"), before)
    code = child.wait(60)
    newest = child.newest()
    fine = code in {"crash": (-9,), "power": (-9,), "short write": (0,)}.get(kind, (0, 6))
    said = child.said()
    plain = len(said.splitlines()) <= lines and "Traceback" not in said
    if not intact(work, folder, newest):
        outcome.lost += 1
    trouble = finish(work, folder)
    same = not trouble and fingerprint(folder) == expected
    outcome.differing += not same
    outcome.count(
        fine and plain and same, f"{kind} at {at}: exit {code}, {trouble or said[-200:]}"
    )
    shutil.rmtree(folder, ignore_errors=True)


# ── replacing a save, extending a run ────────────────────────────────────

#: End of the note on a run with another result.
DIFFERS = "differs"
#: Interactions by which the run is extended.
MORE = 128


class Longer(Work):
    """Return the same run with more interactions."""

    @property
    def config(self) -> Config:
        return tweak(super().config, interactions=self.interactions + MORE)


def saves(root: Path, most: int | None = None) -> Outcome:
    """Inject faults into both; afterwards the folder must be the old or the new one."""
    first = Work("dna", "toy", interactions=192, verify=False)
    second = Work("ppo", "toy", interactions=192, verify=False)
    longer = Longer("dna", "toy", interactions=192, verify=False)
    name = "file operation of a save onto another, or of learning longer, that fails"
    with timed(name) as outcome:
        for work, folder in ((first, "first"), (second, "second")):
            reference(work, root / folder)
        copy_run(RunFolder(root / "first"), root / "kept")
        jobs: dict[str, Callable[[Path], Any]] = {
            "save": lambda to: copy_run(RunFolder(root / "second"), to, overwrite=True),
            "longer": lambda run: lengthened(RunFolder(run), MORE),
        }
        total = {}
        for job, do in jobs.items():
            folder = shutil.copytree(root / "kept", root / job)
            total[job] = counted(functools.partial(do, folder), folder)
        assert not finish(longer, root / "longer")
        prints = {
            first.digest: fingerprint(root / "kept"),
            second.digest: fingerprint(root / "save"),
            longer.digest: fingerprint(root / "longer"),
        }
        everything = sum(total.values())
        step = 1 if most is None else max(1, everything // most)
        cases = [
            (job, kind, at)
            for job in total
            for kind in FAULTS
            for at in range(1, total[job] + 1, step * (5 if kind == "full disk" else 1))
        ]

        def one(case: tuple[str, str, int], part: Outcome) -> None:
            job, kind, at = case
            folder = shutil.copytree(root / "kept", root / f"{job}-{kind}{at}")
            _one_save(folder, functools.partial(jobs[job], folder), (kind, at), part)
            good, note = _old_or_new(folder, longer, prints, f"{job}: {kind} at {at}")
            part.differing += note.endswith(DIFFERS) and not good
            part.count(good, note)
            shutil.rmtree(folder, ignore_errors=True)

        shared_out(outcome, cases, one)
        outcome.notes.insert(0, f"{everything} operations in a save and in learning longer")
    return outcome


def _one_save(
    folder: Path, work: Callable[[], Any], fault: tuple[str, int], outcome: Outcome
) -> None:
    """Inject one fault; note how the child ended if it did not end properly."""
    kind, at = fault
    child = Child(work, folder.with_suffix(".log"), Faults(kind, at, lambda _: None).install)
    code, said = child.wait(60), child.said()
    child.newest()
    fine = code in {"crash": (-9,), "power": (-9,), "short write": (0,)}.get(kind, (0, 6))
    if not fine or len(said.splitlines()) > 4 or "Traceback" in said:
        outcome.count(False, f"{kind} at {at}: exit {code}, {said[-200:]}")


def _old_or_new(
    folder: Path, longer: Work, prints: dict[str, dict[str, str]], what: str
) -> tuple[bool, str]:
    """Return whether the folder equals one of these runs, and continues if unfinished."""
    try:
        config, seed = RunFolder.of(folder).read()
        named = digest(config, seed)
        if checkpoint.latest(folder, named) is None:
            return False, f"{what}: no checkpoint"
    except DnaError as error:
        return False, f"{what}: {error}"
    if named == longer.digest and (trouble := finish(longer, folder)):
        return False, f"{what}: {trouble}"
    return fingerprint(folder) == prints[named], f"{what}: {DIFFERS}"
