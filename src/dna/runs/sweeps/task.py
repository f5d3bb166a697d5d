"""One run of a list: what it is, how it stands, and the places where it can run."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from dna.common.process import Child, Ended
from dna.config import Config
from dna.runs.folder import RunFolder

#: Bytes at the end of a metrics file that surely hold its last line.
TAIL = 16_384

State = Literal["waiting", "running", "done", "stopped", "failed", "pruned"]


class Handle(Protocol):
    """A run that was started somewhere."""

    def poll(self) -> Ended | None:
        """How it ended, once it has."""

    def stop(self) -> None:
        """Ask it to save and end."""


class Place(Protocol):
    """Where runs are started: this machine, or a cluster."""

    @property
    def preempts(self) -> bool:
        """Whether others than us may stop a run: a machine that is taken away."""

    @property
    def threads(self) -> int | None:
        """Torch threads of a run with a large network; None: every core."""

    def room(self) -> int:
        """Runs at a time."""

    def start(self, folder: Path, words: Sequence[str]) -> Handle:
        """Go on with a folder's run; `words` are options of `dna resume`."""


@dataclass(frozen=True)
class Local:
    """Processes of this machine."""

    jobs: int
    preempts: bool = False
    threads: int | None = None

    def room(self) -> int:
        """Runs at a time."""
        return self.jobs

    def start(self, folder: Path, words: Sequence[str]) -> Handle:
        """A process."""
        return Child(str(folder), words)


@dataclass(eq=False)
class Task:
    """One run of the list, and how it stands."""

    config: Config
    seed: int
    folder: Path
    state: State = "waiting"
    label: str = ""
    options: tuple[str, ...] = ()  # of `dna resume`, for this run alone
    interactions: int = 0
    score: float | None = None
    begun: bool = False  # by this call
    code: int = 0
    words: str = ""  # why it failed
    deaths: int = 0  # of its process, since it last made progress
    reached: int = 0  # interactions at its last death
    unwanted: bool = False  # asked to stop by us, for good
    busy_since: float | None = None  # somebody else holds its folder
    handle: Handle | None = field(default=None, repr=False)

    def result(self) -> dict[str, Any] | None:
        """The run's result once it is over."""
        return RunFolder(self.folder).result()


def look(task: Task) -> None:
    """How far the run is, from the last line of its metrics."""
    path = task.folder / "metrics.jsonl"
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - TAIL, 0))
            lines = file.read().splitlines()
        row = json.loads(lines[-1])
    except (OSError, IndexError, ValueError):
        return  # not begun, or a line half written: the next look will do
    task.interactions, task.score = row["interactions"], row["score"]


def wide(config: Config) -> bool:
    """Whether one run uses every core by itself: networks for images do."""
    return config.env.atari is not None or config.env.procgen is not None


def jobs_for(config: Config) -> int:
    """Runs side by side."""
    return 1 if wide(config) else os.cpu_count() or 1


def threads_for(config: Config, place: Place) -> tuple[str, ...]:
    """As an option of `dna resume`: one torch thread, or what the place gives a large run."""
    threads = place.threads if wide(config) else 1
    return () if threads is None else ("--threads", str(threads))
