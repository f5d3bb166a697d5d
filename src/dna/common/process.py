"""Processes: signals that ask a run to stop, and runs in a child process.

Standard library only: the workers of a cluster import this before every run, and the command
line before torch is loaded.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

#: Spin rounds of idle OpenMP threads: tens of microseconds. Default: 300,000, or endless.
WAITING = {"GOMP_SPINCOUNT": "5000"}


def wait_briefly() -> None:
    """Limit how long idle OpenMP threads spin; must be called before torch is loaded."""
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)


# ── signals ──────────────────────────────────────────────────────────────────────────────────


class Stop:
    """The signal that asked the run to stop, if any."""

    asked: str | None = None


_active: list[Stop] = []


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Let signals set a flag, which the run reads between iterations.

    These are SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2, where the system has them; a second
    Ctrl-C stops at once. Inside another `stop_signals` the outer flag is used: the command line
    starts listening before torch is loaded.
    """
    if _active:
        yield _active[-1]
        return
    stop = Stop()

    def handle(number: int, _: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = signal.Signals(number).name

    names = ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"]
    # Under nohup, SIGHUP is ignored; the run must not listen to it either.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        names.append("SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    try:
        old = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not the main thread, which alone may set handlers
        yield stop
        return
    _active.append(stop)
    try:
        yield stop
    finally:
        _active.pop()
        for number, handler in old.items():
            signal.signal(number, handler)


def signal_number(name: str | None) -> int:
    """Return a signal's number; 0 for none."""
    return int(signal.Signals[name]) if name else 0


def signal_name(number: int) -> str | None:
    """Return a signal's name; None for 0."""
    return signal.Signals(number).name if number else None


# ── child processes ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ExitStatus:
    """How a run's process ended: exit code (−n: killed by signal n) and last line of stderr."""

    code: int
    message: str = ""

    def describe(self) -> str:
        """Describe the exit code, for a process that printed nothing."""
        names = {int(one): one.name for one in signal.Signals}
        if -self.code in names:
            return f"killed by {names[-self.code]}"
        return f"ended with {self.code}"


class Child:
    """A process that runs `dna resume FOLDER`; on Linux it saves and ends if its parent dies.

    Asked to stop, the run saves and exits with 75. On Windows, which has no SIGTERM, it ends
    at once, and continues from its last checkpoint when it is started again.
    """

    def __init__(
        self, folder: str, options: Sequence[str] = (), cwd: str | None = None
    ) -> None:
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in `poll`
        self.ended: ExitStatus | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dna", "resume", folder, "--quiet", *options],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.stderr,
            start_new_session=True,  # Ctrl-C goes to the parent, which passes it on
            preexec_fn=ending_with_parent(),
        )

    def poll(self) -> ExitStatus | None:
        """Return how the process ended; None while it runs."""
        if self.ended is None and self.process.poll() is not None:
            self.stderr.seek(0)
            lines = self.stderr.read().decode(errors="replace").strip().splitlines()
            self.stderr.close()
            last = lines[-1].removeprefix("dna: ") if lines else ""
            self.ended = ExitStatus(self.process.returncode, last)
        return self.ended

    def stop(self) -> None:
        """Ask the run to save and end, which takes the rest of an iteration."""
        self.process.send_signal(signal.SIGTERM)


def ending_with_parent() -> Callable[[], None] | None:
    """Return what makes a forked child end with its parent; None where that is impossible."""
    if sys.platform != "linux":
        return None
    import ctypes  # 3 ms of start-up; here, because the forked child must not import

    return partial(_end_with_parent, os.getpid(), ctypes.CDLL(None))


def _end_with_parent(parent: int, libc: Any) -> None:
    """Run in the child: request SIGTERM for when the parent dies, however it dies."""
    libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGTERM)
