"""An environment that never returns must not stop the world.

A thread looks once a second whether a call into the environments has been going on for too
long. Seconds are counted one by one: a process that was suspended as a whole (Ctrl-Z, a
machine that slept) has missed only one of them when it goes on.
"""

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from dna.errors import EnvironmentFailure, StorageFailure
from dna.storage import write

#: Seconds after which a call that also holds Python's lock is ended from outside.
GRACE = 30


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
    words = (watch, over, seconds, lambda: _end(name, seconds, folder, report))
    thread = threading.Thread(target=_look, args=words, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        faulthandler.cancel_dump_traceback_later()


def _look(watch: Watch, over: threading.Event, seconds: float, end: Callable[[], None]) -> None:
    call, stuck = 0, 0
    # Tests and embedded interpreters may have no real stderr for the last resort.
    last_resort = sys.__stderr__ is not None
    while not over.wait(1.0):
        if last_resort:
            with suppress(OSError, ValueError, RuntimeError):
                faulthandler.dump_traceback_later(seconds + GRACE, exit=True)
        stuck = stuck + 1 if watch.inside and watch.calls == call else 0
        call = watch.calls
        if stuck >= seconds:
            end()


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
    print(f"{cursor}dna: {text}", file=sys.stderr, flush=True)
    os._exit(EnvironmentFailure.exit_code)  # the thread that hangs cannot be asked


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)
