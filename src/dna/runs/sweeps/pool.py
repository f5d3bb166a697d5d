"""Many runs at once, each in a process of its own, as many at a time as there is room for.

A run is described by its folder, so a process only needs to know which folder to resume.
Finished runs stay finished, and unfinished ones are continued by the same call. A process that
is killed is started again, and resumes from the newest checkpoint of its run. Runs are started
on this machine (`Local`) or on a cluster (`dna.runs.sweeps.ray_cluster`).
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from dna.common.console import typed
from dna.common.errors import (
    BadInput,
    DnaError,
    EnvironmentFailure,
    FolderBusy,
    Preempted,
    StorageFailure,
)
from dna.common.json_lines import last_row
from dna.common.lock import check_unlocked
from dna.common.process import Child, ExitStatus, stop_signals
from dna.config import Config
from dna.runs.folder import RunFolder

#: Seconds between two polls of the processes.
PAUSE = 0.2
#: Deaths of a run's process, without progress in between, after which the run counts as failed.
DEATHS = 5
#: Seconds to wait for a folder that another process holds, counted from its last progress: the
#: process of a killed driver may still have to finish an iteration and save.
PATIENCE = 60.0
#: Why a run failed whose process ended with code 0, but without a result.
NO_RESULT = "ended without a result; does its environment call os._exit?"

TaskState = Literal["waiting", "running", "done", "stopped", "failed", "pruned"]


# ── tasks, and the places where they run ──────────────────────────────────────────────────


class Handle(Protocol):
    """A run that was started somewhere."""

    def poll(self) -> ExitStatus | None:
        """Return how the process ended; None while it runs."""

    def stop(self) -> None:
        """Ask it to save and end."""


class Place(Protocol):
    """Where runs are started: this machine, or a cluster."""

    @property
    def preempts(self) -> bool:
        """Whether others may stop a run, for example by taking a machine away."""

    @property
    def threads(self) -> int | None:
        """Torch threads of a run with a large network; None: every core."""

    def room(self) -> int:
        """Number of runs at a time."""

    def start(self, folder: Path, options: Sequence[str]) -> Handle:
        """Resume the run in a folder; `options` are those of `dna resume`."""


@dataclass(frozen=True)
class Local:
    """Processes on this machine."""

    jobs: int
    preempts: bool = False
    threads: int | None = None

    def room(self) -> int:
        """Number of runs at a time."""
        return self.jobs

    def start(self, folder: Path, options: Sequence[str]) -> Handle:
        """Start a process."""
        return Child(str(folder), options)


@dataclass(eq=False)
class Task:
    """One run of a pool, and its progress."""

    config: Config
    seed: int
    folder: Path
    state: TaskState = "waiting"
    label: str = ""
    options: tuple[str, ...] = ()  # of `dna resume`, for this run alone
    interactions: int = 0
    score: float | None = None
    begun: bool = False  # its folder was created by this pool
    code: int = 0
    message: str = ""  # why it failed
    deaths: int = 0  # of its process, since it last made progress
    reached: int = 0  # interactions at its last death
    unwanted: bool = False  # stopped by the pool, for good
    busy_since: float | None = None  # another process has held its folder since
    handle: Handle | None = field(default=None, repr=False)

    def result(self) -> dict[str, Any] | None:
        """Return the result of the run once it has finished."""
        return RunFolder(self.folder).result()


def update_progress(task: Task) -> None:
    """Read the progress of a run from the last line of its metrics."""
    path = task.folder / "metrics.jsonl"
    try:
        row = last_row(path)
    except StorageFailure:
        return  # not begun: try again at the next poll
    if row is not None:
        task.interactions = row["interactions"]
        task.score = row.get("score")


def uses_all_cores(config: Config) -> bool:
    """Whether a single run uses every core: networks for images do."""
    return config.env.atari is not None or config.env.procgen is not None


def jobs_for(config: Config) -> int:
    """Return the number of runs to train side by side on this machine."""
    return 1 if uses_all_cores(config) else os.cpu_count() or 1


def threads_for(config: Config, place: Place) -> tuple[str, ...]:
    """Return the `--threads` option of a run: one thread, or the place's for large networks."""
    threads = place.threads if uses_all_cores(config) else 1
    return () if threads is None else ("--threads", str(threads))


# ── the pool ──────────────────────────────────────────────────────────────────────────────


class Pool:
    """Tasks and the place where they run; tasks may be added while it works."""

    def __init__(
        self, place: Place, options: Sequence[str] = (), patience: float = PATIENCE
    ) -> None:
        """`options`: of `dna resume`, for every run."""
        self.place = place
        self.options = list(options)
        self.patience = patience
        self.tasks: list[Task] = []

    def add(self, task: Task) -> None:
        """Add a task, finished or not; nothing is written before its turn comes."""
        folder = RunFolder(task.folder)
        folder.check_free()
        if folder.finished(task.config, task.seed) is not None:
            task.state = "done"
            update_progress(task)
        self.tasks.append(task)

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return any(task.state in ("waiting", "running") for task in self.tasks)

    def advance(self) -> None:
        """Poll the running tasks, and start as many waiting ones as there is room for."""
        for task in self._running():
            update_progress(task)
            if task.handle is not None and (ended := task.handle.poll()) is not None:
                self._close(task, ended)
        waiting = [task for task in self.tasks if task.state == "waiting"]
        room = self.place.room() - len(self._running()) if waiting else 0
        for task in waiting:
            if room <= 0:
                break
            room -= self._start(task)

    def drop(self, task: Task) -> None:
        """Prune a task that is not wanted any more; a running one saves and ends first."""
        task.unwanted = True
        if task.state == "running" and task.handle is not None:
            task.handle.stop()
        elif task.state == "waiting":
            task.state = "pruned"

    def stop(self) -> None:
        """Ask all running tasks to save and end, and wait for them."""
        running = self._running()
        for task in running:
            assert task.handle is not None
            task.handle.stop()
        while running:
            for task in running:
                assert task.handle is not None
                if (ended := task.handle.poll()) is not None:
                    self._close(task, ended, last=True)
            running = self._running()
            time.sleep(PAUSE / 4)

    def _running(self) -> list[Task]:
        return [task for task in self.tasks if task.state == "running"]

    def _start(self, task: Task) -> bool:
        folder = RunFolder(task.folder)
        try:
            check_unlocked(task.folder)
        except FolderBusy as error:
            self._wait(task, str(error))
            return False
        if not folder.exists:
            folder.begin(task.config, task.seed)
            task.begun = True
        task.handle = self.place.start(task.folder, [*self.options, *task.options])
        task.state = "running"
        return True

    def _wait(self, task: Task, message: str) -> None:
        """Wait for another process that trains in the folder, while it makes progress."""
        before = task.interactions
        now = time.monotonic()
        update_progress(task)
        if task.busy_since is None or task.interactions != before:
            task.busy_since = now
        task.state = "waiting"
        if now - task.busy_since >= self.patience:
            task.state = "failed"
            task.code = FolderBusy.exit_code
            task.message = message

    def _close(self, task: Task, ended: ExitStatus, *, last: bool = False) -> None:
        """Set the state of a task whose process has ended; `last`: start nothing again."""
        task.handle = None
        died = ended.code < 0
        if ended.code == 0 and not RunFolder(task.folder).done:
            died = True
            ended = ExitStatus(EnvironmentFailure.exit_code, NO_RESULT)
        task.code = ended.code
        update_progress(task)
        if ended.code == 0:
            task.state = "done"
        elif task.unwanted:
            task.state = "pruned"
        elif last:
            task.state = "stopped"
        elif ended.code == FolderBusy.exit_code:
            self._wait(task, ended.message)
        elif self._retry(task, died=died, preempted=ended.code == Preempted.exit_code):
            task.state = "waiting"
        else:
            task.state = "stopped" if ended.code == Preempted.exit_code else "failed"
            task.message = ended.message or ended.describe()
            if ended.code == BadInput.exit_code and task.begun and not task.interactions:
                # A refused run leaves no trace; other failures leave evidence.
                RunFolder(task.folder).clear()

    def _retry(self, task: Task, *, died: bool, preempted: bool) -> bool:
        """Whether to start a task again: it died or was preempted, and not too often."""
        if not died and not (preempted and self.place.preempts):
            return False
        task.deaths = 1 if task.interactions > task.reached else task.deaths + 1
        task.reached = task.interactions
        return task.deaths < DEATHS


def run_all(
    tasks: Sequence[Task],
    place: Place,
    options: Sequence[str] = (),
    report: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> None:
    """Run every task to its end; `options` are those of `dna resume`, for all of them."""
    pool = Pool(place, options)
    for task in tasks:
        pool.add(task)
    drive(pool, report)


def drive(
    pool: Pool,
    report: Callable[[Sequence[Task]], None] = lambda tasks: None,
    steer: Callable[[], bool] = lambda: False,
) -> None:
    """Run a pool until nothing is left to do.

    `steer` may add and drop tasks, and returns whether more will come.
    """
    with stop_signals() as stop:
        try:
            while steer() or pool.busy:
                if stop.asked:
                    break
                pool.advance()
                report(pool.tasks)
                time.sleep(PAUSE)
        finally:
            pool.stop()
            report(pool.tasks)
    if stop.asked:
        raise Preempted(f"stopped by {stop.asked}; the same command with --resume continues")


def check(tasks: Sequence[Task]) -> None:
    """Raise one error for all tasks that failed or were stopped, with the first exit code."""
    for state in ("failed", "stopped"):
        of_these = [task for task in tasks if task.state == state]
        if of_these:
            first = of_these[0]
            where = f"{first.label} seed {first.seed}".strip()
            message = first.message or f"`dna resume {typed(first.folder)}` continues it"
            error = DnaError(
                f"{len(of_these)} of {len(tasks)} runs {state}; {where}: {message}"
            )
            error.exit_code = first.code if first.code > 0 else 1
            raise error
