"""End a process whose environments hang.

A thread checks once a second whether a call into the environments has taken too long. It
counts the seconds one by one, so that a process that was suspended (Ctrl-Z, a sleeping
machine) has missed only one of them when it continues. For a call that also holds the
interpreter lock, so that no thread can run, a small separate process counts in the same way.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from dna.common.console import say
from dna.common.errors import EnvironmentFailure, StorageFailure
from dna.common.storage import write

#: Additional seconds for a call that holds the interpreter lock, which is ended from outside.
GRACE = 30
#: Program of the process outside: seconds in which the other is suspended do not count.
COUNTING = """
import os, select, signal, sys, time
pid, limit, silent = int(sys.argv[1]), float(sys.argv[2]), 0
while silent < limit:
    if select.select([0], [], [], 1.0)[0]:
        if not os.read(0, 4096):
            sys.exit()
        silent = 0
        continue
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except OSError:
        sys.exit()
    silent += state not in "Tt"
os.kill(pid, signal.SIGXCPU)
time.sleep(1)
os.kill(pid, signal.SIGKILL)
"""


class Watch:
    """Context manager around every call into the environments."""

    calls = 0  # calls begun so far, to tell one long call from many short ones
    inside = False

    def __enter__(self) -> None:
        self.calls += 1
        self.inside = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inside = False


@contextmanager
def watching(
    watch: Watch,
    name: str,
    seconds: float | None,
    folder: Path,
    report: Callable[[EnvironmentFailure], None] = lambda _: None,
) -> Iterator[None]:
    """End this process with exit code 5 if a call takes longer than `seconds`; None: never.

    `report` is called first, to inform the other ranks of the run.
    """
    if seconds is None:
        yield
        return
    over = threading.Event()
    with _outside(seconds + GRACE) as alive:

        def end() -> None:
            _end(name, seconds, folder, report)

        thread = threading.Thread(
            target=_count, args=(watch, over, seconds, alive, end), name="watchdog", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _count(
    watch: Watch,
    over: threading.Event,
    seconds: float,
    alive: Callable[[], None],
    end: Callable[[], None],
) -> None:
    call = 0
    stuck = 0
    while not over.wait(1.0):
        alive()
        stuck = stuck + 1 if watch.inside and watch.calls == call else 0
        call = watch.calls
        if stuck >= seconds:
            end()


@contextmanager
def _outside(limit: float) -> Iterator[Callable[[], None]]:
    """Start a process that ends this one after `limit` seconds without a sign of life.

    It has the stacks printed first. Without Linux's /proc it could not tell whether this
    process is only suspended: then none is started.
    """
    if not Path("/proc/self/stat").exists():
        yield lambda: None
        return
    with suppress(AttributeError, OSError, ValueError, RuntimeError):  # no real stderr
        faulthandler.register(signal.SIGXCPU, sys.__stderr__, all_threads=True)  # type: ignore[arg-type]
    command = [sys.executable, "-I", "-S", "-c", COUNTING, str(os.getpid()), str(limit)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        try:
            yield lambda: _write_byte(pipe)
        finally:
            with suppress(OSError):
                process.stdin.close()  # the process ends with its input


def _write_byte(pipe: int) -> None:
    with suppress(OSError):
        os.write(pipe, b".")


def _end(
    name: str, seconds: float, folder: Path, report: Callable[[EnvironmentFailure], None]
) -> None:
    where = ""
    if (folder / "config.json").is_file():  # a run was begun here
        with suppress(StorageFailure):
            write(folder / "hang.txt", _stacks().encode())
            where = f"; where: {folder / 'hang.txt'}"
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display hides it
    text = f"{name}: no answer for {seconds:g} seconds{where}; `dna resume` continues the run"
    report(EnvironmentFailure(text))
    say(f"{cursor}dna: {text}")
    os._exit(EnvironmentFailure.exit_code)  # the hanging thread cannot be interrupted


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)
