"""When to save, what to do when that fails, and which checkpoints to keep.

Kept are the newest three, the best score, and the first of every tenth of the run.
"""

import functools
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common.errors import StorageFailure
from dna.common.storage import PARTIAL, REPLACED, read, read_json, recover, remove, set_aside
from dna.config import Config
from dna.distributed.collectives import texts, together
from dna.distributed.world import SOLO, World
from dna.runs import checkpoint
from dna.runs.folder import RunFolder

#: Newest checkpoints to keep, and how often saving may fail before the run gives up.
NEWEST, TRIES = 3, 3
#: Seconds between tries when the run cannot wait for its next iteration.
PAUSES = (0.1, 1.0)


@dataclass(frozen=True)
class Mark:
    """What decides whether a checkpoint is kept."""

    interactions: int
    score: float | None
    replay: int  # rollouts in it: gigabytes


def kept(marks: Mapping[str, Mark], total: int) -> set[str]:
    """Names of the checkpoints to keep, of a run of `total` interactions."""
    ordered = sorted(marks, key=lambda name: marks[name].interactions)
    keep = set(ordered[-NEWEST:])
    light = [name for name in ordered if not marks[name].replay]
    scored = [(marks[name].score, name) for name in light if marks[name].score is not None]
    if scored:
        keep.add(max(scored, key=lambda pair: (pair[0], marks[pair[1]].interactions))[1])
    tenths: dict[int, str] = {}
    for name in light:
        tenths.setdefault(marks[name].interactions * 10 // total, name)
    return keep | set(tenths.values())


def _mark(name: str, state: Any) -> Mark:
    """What a checkpoint says of itself; KeyError or TypeError if that is nonsense."""
    score, replay = state["score"], state["replay"]
    if not isinstance(score, float | int | None) or not isinstance(replay, int):
        raise TypeError(f"score {score!r:.40}, replay {replay!r:.40}")
    return Mark(int(name), score, replay)


class Keeper:
    """Saves a run when it is due, and forgets what need not be kept.

    Of several ranks all save, and fail, together; the first tidies up.
    """

    def __init__(
        self, folder: Path, total: int, every: int | None, world: World = SOLO
    ) -> None:
        self.folder, self.total, self.tidy = folder / "checkpoints", total, world.rank == 0
        self.every = every or max(total // 10, 1)
        self.next = self.failures = 0
        #: Makes sure that the run still holds its folder (`dna.common.lock`).
        self.hold: Callable[[], None] = lambda: None

    def begin(self, saved: checkpoint.Saved | None) -> None:
        """Clear away what a crash left; put aside what cannot be used, and say so."""
        self.next = self.every + (saved.interactions if saved else 0)
        if not self.tidy:
            return
        sweep(self.folder.parent)
        sweep(self.folder)
        for reason in saved.rejected if saved else ():
            warnings.warn(f"not used: {reason}", RuntimeWarning, stacklevel=2)
        if saved and saved.rejected:
            for name in checkpoint.names(self.folder.parent):
                if int(name) > saved.interactions:
                    set_aside(self.folder / name)
            warnings.warn(f"going on from {saved.path}", RuntimeWarning, stacklevel=2)

    def due(self, interactions: int) -> bool:
        """Whether it is time; never at the end, when the run saves anyway."""
        return self.next <= interactions < self.total

    def save(self, write: Callable[[], Path], interactions: int) -> None:
        """Save; a failure is said and tried again after the next iteration."""
        try:
            write()
        except StorageFailure as error:
            self.failures += 1
            if self.failures >= TRIES:
                raise
            warnings.warn(f"not saved, trying again: {error}", RuntimeWarning, stacklevel=2)
            return
        self.failures, self.next = 0, interactions + self.every
        self.forget()

    def save_now(self, write: Callable[[], Path]) -> None:
        """Save before the process ends: try again at once."""
        for pause in PAUSES:
            try:
                write()
                break
            except StorageFailure as error:
                warnings.warn(f"not saved, trying again: {error}", RuntimeWarning, stacklevel=2)
                time.sleep(pause)
        else:
            write()
        self.forget()

    def forget(self) -> None:
        """Delete the checkpoints that need not be kept; one that stays does no harm."""
        if not self.tidy:
            return
        marks: dict[str, Mark] = {}
        for name in checkpoint.names(self.folder.parent):
            try:
                marks[name] = _mark(name, read_json(self.folder / name / "state.json"))
            except (StorageFailure, KeyError, TypeError) as error:
                warnings.warn(f"{name} stays: {error}", RuntimeWarning, stacklevel=2)
        try:
            for name in marks.keys() - kept(marks, self.total):
                remove(self.folder / name)
        except StorageFailure as error:
            warnings.warn(f"old checkpoints stay: {error}", RuntimeWarning, stacklevel=2)


def sweep(folder: Path) -> None:
    """Delete what a crash left in a folder: half-written, or replaced by now."""
    recover(folder)
    for path in (*folder.glob(f"{PARTIAL}*"), *folder.glob(f"{REPLACED}*")):
        remove(path)


def restored(
    saved: checkpoint.Saved, parts: checkpoint.Parts, digest: str
) -> tuple[checkpoint.Saved, list[str]]:
    """Go on from this checkpoint, or the newest before it that fits; why it is not exact.

    One that verifies may still not fit, when it was made by hand or by another version.
    """
    folder, world = saved.path.parent.parent, parts.collector.world
    while True:
        try:
            found = together(world, functools.partial(checkpoint.restore, saved, parts))
            return saved, texts(world, found)
        except StorageFailure as error:
            older = checkpoint.latest(folder, digest, (*saved.rejected, str(error)), world)
            assert older is not None  # it raises when all are rejected
            saved = older


def check_nothing_lost(folder: Path, config: Config, every: int | None) -> None:
    """Of a run without a checkpoint: should it have had one?

    A run that was ended before its first checkpoint has nothing to lose. One whose metrics go
    beyond that, that has a policy already or has put damaged ones aside, is not thrown away
    without being told. When its first was due it remembers itself; `every` is for older ones.
    """
    asked = RunFolder(folder).machine().get("asked")
    if isinstance(asked, dict) and "checkpoint_every" in asked:
        every = asked["checkpoint_every"]
    damaged = next((folder / "checkpoints").glob("damaged-*"), None)
    reached = last_interactions(folder / "metrics.jsonl")
    first = every if isinstance(every, int) else max(config.interactions // 10, 1)
    due = first + config.batch * (config.replay_length + 1)  # PPG waits for an empty replay
    if damaged is not None or due <= reached or RunFolder(folder).policy.exists():
        raise StorageFailure(
            f"{folder}: its metrics reach {reached:,} interactions, but it has no checkpoint "
            "that could be used; put its checkpoints back, or start over with --restart"
        )


def check_may_start_over(folder: Path, config: Config, every: int | None) -> None:
    """The same before it is begun again, which is said."""
    check_nothing_lost(folder, config, every)
    if last_interactions(folder / "metrics.jsonl"):
        text = f"{folder}: no checkpoint yet, starting over"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def last_interactions(path: Path) -> int:
    """How far a metrics file goes; 0 if there is none to read."""
    if not path.is_file():
        return 0
    for line in reversed(read(path).splitlines()):
        try:
            return int(json.loads(line)["interactions"])
        except (ValueError, KeyError, TypeError):
            continue  # half a line
    return 0
