"""An environment that never returns must not stop the world.

A thread looks once a second whether a call into the environments has been going on for too
long. Seconds are counted one by one: a process that was suspended as a whole (Ctrl-Z, a
machine that slept) has missed only one of them when it goes on. For a call that also holds
Python's lock, so that no thread runs, a small process outside counts in the same way.
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
from typing import Any

from dna.common.console import say
from dna.common.errors import EnvironmentFailure, StorageFailure
from dna.common.storage import write

#: Seconds after which a call that also holds Python's lock is ended from outside.
GRACE = 30
#: What the process outside does: seconds while the other is stopped do not count.
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
    """`with watch:` around every call into the environments."""

    calls = 0  # begun so far; an odd … even pair would not tell two calls apart
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
    """End this process with exit code 5 when a call lasts longer than that; None: never.

    `report` is called before, to tell the other ranks of the run.
    """
    if seconds is None:
        yield
        return
    over = threading.Event()
    with _outside(seconds + GRACE) as heard:
        words = (watch, over, seconds, heard, lambda: _end(name, seconds, folder, report))
        thread = threading.Thread(target=_look, args=words, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _look(
    watch: Watch,
    over: threading.Event,
    seconds: float,
    heard: Callable[[], None],
    end: Callable[[], None],
) -> None:
    call, stuck = 0, 0
    while not over.wait(1.0):
        heard()
        stuck = stuck + 1 if watch.inside and watch.calls == call else 0
        call = watch.calls
        if stuck >= seconds:
            end()


@contextmanager
def _outside(limit: float) -> Iterator[Callable[[], None]]:
    """A process that ends this one when it has not been told for so long that all is well.

    It shows the stacks first. Without Linux's /proc nobody could tell whether this process
    only sleeps: then there is none.
    """
    if not Path("/proc/self/stat").exists():
        yield lambda: None
        return
    with suppress(AttributeError, OSError, ValueError, RuntimeError):  # no real stderr
        faulthandler.register(signal.SIGXCPU, sys.__stderr__, all_threads=True)  # type: ignore[arg-type]
    words = [sys.executable, "-I", "-S", "-c", COUNTING, str(os.getpid()), str(limit)]
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(words, stdin=subprocess.PIPE, **options) as process:
        assert process.stdin is not None
        line = process.stdin.fileno()
        try:
            yield lambda: _tell(line)
        finally:
            with suppress(OSError):
                process.stdin.close()  # it ends with its line


def _tell(line: int) -> None:
    with suppress(OSError):
        os.write(line, b".")


def _end(
    name: str, seconds: float, folder: Path, report: Callable[[EnvironmentFailure], None]
) -> None:
    where = ""
    if (folder / "config.json").is_file():  # there is a run that it belongs to
        with suppress(StorageFailure):
            write(folder / "hang.txt", _stacks().encode())
            where = f"; where: {folder / 'hang.txt'}"
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display hides it
    text = f"{name}: no answer for {seconds:g} seconds{where}; `dna resume` goes on"
    report(EnvironmentFailure(text))
    say(f"{cursor}dna: {text}")
    os._exit(EnvironmentFailure.exit_code)  # the thread that hangs cannot be asked


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)
