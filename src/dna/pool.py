"""Many runs on one machine: a process each, as many at a time as there is room for.

A run is described by its folder, so a process is only told where to go on. Whatever was
finished stays finished, and whatever was not is continued by the same call.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from dna.config import Config
from dna.errors import BadInput, DnaError, Preempted
from dna.folder import RunFolder
from dna.signals import stop_signals

#: Bytes at the end of a metrics file that surely hold its last line.
TAIL = 16_384
#: Seconds between looks.
PAUSE = 0.2


@dataclass
class Task:
    """One run of the list, and how it stands."""

    config: Config
    seed: int
    folder: Path
    state: Literal["waiting", "running", "done", "stopped", "failed"] = "waiting"
    interactions: int = 0
    score: float | None = None
    begun: bool = False  # by this call
    code: int = 0
    words: str = ""  # why it failed
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    said: IO[bytes] | None = field(default=None, repr=False)

    def result(self) -> dict[str, Any] | None:
        """The run's result once it is over."""
        return RunFolder(self.folder).result()


def run_all(
    tasks: Sequence[Task],
    jobs: int,
    words: Sequence[str] = (),
    told: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> None:
    """Bring every task to its end; `words` are options of `dna resume` for each of them."""
    for task in tasks:
        _prepare(task)
    with stop_signals() as stop:
        try:
            while any(task.state in ("waiting", "running") for task in tasks):
                if stop.asked:
                    _stop(tasks)
                    break
                _advance(tasks, jobs, words)
                told(tasks)
                time.sleep(PAUSE)
        finally:
            _stop(tasks)
            told(tasks)
    if stop.asked:
        raise Preempted(f"stopped by {stop.asked}; the same command with --resume goes on")


def _prepare(task: Task) -> None:
    """Is it over already? Nothing is written before the run's turn comes."""
    folder = RunFolder(task.folder)
    folder.check_free()
    if folder.finished(task.config, task.seed) is not None:
        task.state = "done"
        _look(task)


def _advance(tasks: Sequence[Task], jobs: int, words: Sequence[str]) -> None:
    running = [task for task in tasks if task.state == "running"]
    for task in running:
        _look(task)
        if task.process is not None and task.process.poll() is not None:
            _close(task)
    room = jobs - sum(task.state == "running" for task in tasks)
    waiting = [task for task in tasks if task.state == "waiting"]
    for task in waiting[: max(room, 0)]:
        _start(task, words)


def _start(task: Task, words: Sequence[str]) -> None:
    folder = RunFolder(task.folder)
    if not folder.exists:
        folder.begin(task.config, task.seed)
        task.begun = True
    task.said = tempfile.TemporaryFile()  # noqa: SIM115  closed in `_close`
    task.process = subprocess.Popen(
        [sys.executable, "-m", "dna", "resume", str(task.folder), "--quiet", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=task.said,
        start_new_session=True,  # Ctrl-C is for the parent, which passes it on
        preexec_fn=_end_with_parent,
    )
    task.state = "running"


def _end_with_parent() -> None:
    """In the child: be asked to save and end when the parent dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _look(task: Task) -> None:
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


def _close(task: Task) -> None:
    assert task.process is not None
    assert task.said is not None
    code = task.code = task.process.wait()
    task.said.seek(0)
    lines = task.said.read().decode(errors="replace").strip().splitlines()
    task.said.close()
    _look(task)
    task.state = "done" if code == 0 else "stopped" if code == Preempted.exit_code else "failed"
    if task.state == "failed":
        task.words = lines[-1].removeprefix("dna: ") if lines else f"ended with {code}"
        if code == BadInput.exit_code and task.begun and not task.interactions:
            # As if it had never been asked for; other failures leave evidence to look at.
            RunFolder(task.folder).clear()


def _stop(tasks: Sequence[Task]) -> None:
    """Ask what still runs to save and end, and wait for it."""
    running = [task for task in tasks if task.state == "running" and task.process]
    for task in running:
        assert task.process is not None
        task.process.send_signal(signal.SIGTERM)
    for task in running:
        _close(task)


def jobs_for(config: Config) -> int:
    """Runs side by side: networks for images use every core by themselves."""
    images = config.env.atari is not None or config.env.procgen is not None
    return 1 if images else os.cpu_count() or 1


def check(tasks: Sequence[Task]) -> None:
    """Nothing, or one line for what failed or was stopped, with that run's exit code."""
    for state in ("failed", "stopped"):
        of_these = [task for task in tasks if task.state == state]
        if of_these:
            first = of_these[0]
            text = f"{len(of_these)} of {len(tasks)} runs {state}; seed {first.seed}: "
            words = first.words or f"`dna resume {first.folder}` goes on"
            error = DnaError(text + words)
            error.exit_code = first.code if first.code > 0 else 1
            raise error
