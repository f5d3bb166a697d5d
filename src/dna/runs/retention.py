"""Decide when a run saves a checkpoint, and which checkpoints are deleted.

The newest three, the one with the best score and the first of every tenth of the run are kept.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common.errors import StorageFailure
from dna.common.storage import PARTIAL, REPLACED, read_json, recover, remove, set_aside
from dna.distributed.world import SOLO, World
from dna.runs import checkpoint

#: Number of newest checkpoints to keep.
NEWEST = 3
#: Failed saves in a row after which the run gives up.
TRIES = 3
#: Seconds between attempts when the run cannot wait for its next iteration.
PAUSES = (0.1, 1.0)


@dataclass(frozen=True)
class Mark:
    """What decides whether a checkpoint is kept."""

    interactions: int
    score: float | None
    replay: int  # rollouts in it: gigabytes


def kept(marks: Mapping[str, Mark], total: int) -> set[str]:
    """Return the names of the checkpoints to keep in a run of `total` interactions."""
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


class Saver:
    """Saves a run when a checkpoint is due, and deletes those that need not be kept.

    All ranks save, and fail, together; rank 0 deletes.
    """

    def __init__(
        self, folder: Path, total: int, every: int | None, world: World = SOLO
    ) -> None:
        """`every`: interactions between checkpoints; None: a tenth of `total`."""
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.total = total
        self.every = every or max(total // 10, 1)
        self.deletes = world.rank == 0
        self.next = 0
        self.failures = 0

    def begin(self, saved: checkpoint.Saved | None) -> None:
        """Remove what a crash left, and set aside checkpoints that cannot be used."""
        self.next = self.every + (saved.interactions if saved else 0)
        if not self.deletes:
            return
        remove_leftovers(self.folder)
        remove_leftovers(self.checkpoints)
        if saved is None or not saved.rejected:
            return
        for reason in saved.rejected:
            warnings.warn(f"not used: {reason}", RuntimeWarning, stacklevel=2)
        for name in checkpoint.names(self.folder):
            if int(name) > saved.interactions:
                set_aside(self.checkpoints / name)
        warnings.warn(f"resuming from {saved.path}", RuntimeWarning, stacklevel=2)

    def due(self, interactions: int) -> bool:
        """Whether it is time to save; never at the end, where the run saves anyway."""
        return self.next <= interactions < self.total

    def save(self, write: Callable[[], Path], interactions: int) -> None:
        """Save; after a failure, warn and try again after the next iteration."""
        try:
            write()
        except StorageFailure as error:
            self.failures += 1
            if self.failures >= TRIES:
                raise
            warnings.warn(f"not saved, trying again: {error}", RuntimeWarning, stacklevel=2)
            return
        self.failures = 0
        self.next = interactions + self.every
        self.delete_old()

    def save_now(self, write: Callable[[], Path]) -> None:
        """Save before the process ends; after a failure, try again at once."""
        for pause in PAUSES:
            try:
                write()
                break
            except StorageFailure as error:
                warnings.warn(f"not saved, trying again: {error}", RuntimeWarning, stacklevel=2)
                time.sleep(pause)
        else:
            write()
        self.delete_old()

    def delete_old(self) -> None:
        """Delete the checkpoints that need not be kept; failing to do so is only a warning."""
        if not self.deletes:
            return
        marks: dict[str, Mark] = {}
        for name in checkpoint.names(self.folder):
            try:
                state = read_json(self.checkpoints / name / "state.json")
                marks[name] = _mark(name, state)
            except StorageFailure as error:
                warnings.warn(f"{name} is kept: {error}", RuntimeWarning, stacklevel=2)
        try:
            for name in marks.keys() - kept(marks, self.total):
                remove(self.checkpoints / name)
        except StorageFailure as error:
            text = f"old checkpoints were not deleted: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _mark(name: str, state: Any) -> Mark:
    """Read a checkpoint's mark from its `state.json`."""
    if not isinstance(state, dict) or not {"score", "replay"} <= state.keys():
        raise StorageFailure("its state.json has no score and replay")
    score = state["score"]
    replay = state["replay"]
    if not isinstance(score, float | int | None) or not isinstance(replay, int):
        raise StorageFailure(f"score {score!r:.40}, replay {replay!r:.40}")
    return Mark(int(name), score, replay)


def remove_leftovers(folder: Path) -> None:
    """Delete what a crash left in a folder: half-written, or already replaced."""
    recover(folder)
    for path in (*folder.glob(f"{PARTIAL}*"), *folder.glob(f"{REPLACED}*")):
        remove(path)
