"""A run in a process of its own: `dna resume FOLDER`, which never outlives who started it.

Nothing but the standard library: workers of a cluster import this before every run.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

#: Rounds of spinning, some tens of microseconds; the default is 300,000 or endless.
WAITING = {"GOMP_SPINCOUNT": "5000"}


def wait_briefly() -> None:
    """Set the variables that OpenMP reads when torch loads it."""
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)


@dataclass(frozen=True)
class Ended:
    """How a run's process ended: its exit code (−n: by signal n), and its last words."""

    code: int
    words: str = ""

    def plainly(self) -> str:
        """For a process that said nothing."""
        names = {int(one): one.name for one in signal.Signals}
        died = f"killed by {names[-self.code]}" if -self.code in names else ""
        return died or f"ended with {self.code}"


class Child:
    """The process. Asked to stop, the run saves and ends with 75."""

    def __init__(self, folder: str, words: Sequence[str] = (), cwd: str | None = None) -> None:
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in `poll`
        self.ended: Ended | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dna", "resume", folder, "--quiet", *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            start_new_session=True,  # Ctrl-C is for the parent, which passes it on
            preexec_fn=partial(_end_with_parent, os.getpid()),
        )

    def poll(self) -> Ended | None:
        """How it ended, once it has."""
        if self.ended is None and self.process.poll() is not None:
            self.said.seek(0)
            lines = self.said.read().decode(errors="replace").strip().splitlines()
            self.said.close()
            words = lines[-1].removeprefix("dna: ") if lines else ""
            self.ended = Ended(self.process.returncode, words)
        return self.ended

    def stop(self) -> None:
        """Ask it to save and end; it takes the rest of an iteration."""
        self.process.send_signal(signal.SIGTERM)


def _end_with_parent(parent: int) -> None:
    """In the child: be asked to save and end when the parent dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it died before the line above
            os.kill(os.getpid(), signal.SIGTERM)
