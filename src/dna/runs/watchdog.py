"""Limit the time that a call into the environments may take.

In a process of its own, as `dna train` starts it (`on_hang="exit"`), a thread checks once a
second whether a call has taken too long, and ends the process. It counts the seconds one by
one, so that a process that was suspended (Ctrl-Z, a sleeping machine) has missed only one of
them when it continues. For a call that also holds the interpreter lock, so that no thread can
run, a small separate process counts in the same way.

In a user's own process (`on_hang="raise"`) the environments are called in a thread of their
own, which is abandoned when a call takes too long: the caller gets an `EnvironmentTimeout`.
"""

import _thread
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dna.common.console import say
from dna.common.errors import (
    BadInput,
    EnvironmentFailure,
    EnvironmentTimeout,
    StorageFailure,
    exit_code,
)
from dna.common.messages import printable, text_of
from dna.common.storage import write
from dna.common.threads import DaemonThread, Outcome
from dna.envs import VectorEnv
from dna.envs.protocol import CloseInterrupted, close
from dna.runs.setup import How

T = TypeVar("T")

#: Prefix of the names of the threads in which environments are called.
THREAD = "environments"
#: Longest time limit, which `--env-timeout` has too.
MOST_SECONDS = 1_000_000
#: Additional seconds for a call that holds the interpreter lock, which is ended from outside.
GRACE = 30
#: Additional seconds for a `close()` that was interrupted; then the process ends.
GRACE_CLOSING = 3
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


class Calls:
    """Calls into the environments of a run, without a time limit."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of the environments."""
        return function(*arguments)

    def close(self, env: VectorEnv) -> None:
        """Close the environments; nothing is called after that."""
        close(env, self.name)


@contextmanager
def environment_calls(name: str, how: How, folder: Path) -> Iterator[Calls]:
    """Yield what calls the environments of a run, with the time limit of `how`."""
    seconds = how.env_timeout
    if seconds is None:
        yield Calls(name)
        return
    number = isinstance(seconds, float | int) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= MOST_SECONDS:
        raise BadInput(
            f"env_timeout: given {seconds!r:.40}, must be a number of seconds > 0 and at most "
            f"{MOST_SECONDS:,}"
        )
    if how.on_hang == "exit":
        watched = WatchedCalls(name, seconds)
        with watching(watched, folder, how.world.report):
            yield watched
        return
    timed = TimedCalls(name, seconds, folder)
    try:
        yield timed
    finally:
        timed.thread.end()


def _wait(thread: DaemonThread, seconds: float) -> Outcome | None:
    """Wait at most this long for an outcome, counting seconds one by one like the watchdog."""
    left = seconds
    while left > 0:
        outcome = thread.wait(min(left, 1.0))
        if outcome is not None:
            return outcome
        left -= 1.0
    return None


def _not_closed(name: str, seconds: float) -> str:
    return f"{name}: close() has not returned for {seconds:g} seconds; not waiting"


# ── in a user's process: raise ────────────────────────────────────────────────────────────


class TimedCalls(Calls):
    """Calls in a thread of their own, which is abandoned if one takes too long.

    The thread does nothing but call the environments. If an abandoned call ever returns, the
    thread closes the environments and ends.
    """

    def __init__(self, name: str, seconds: float, folder: Path) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.folder = folder
        self.thread = DaemonThread(f"{THREAD} of {name}")
        self.busy = False  # still true after a wait that was given up or interrupted

    def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, or raise `EnvironmentTimeout`."""
        assert not self.busy, "an earlier call has not returned"
        self.busy = True
        self.thread.start(partial(function, *arguments))
        outcome = _wait(self.thread, self.seconds)
        if outcome is None:
            raise self._timeout()
        self.busy = False
        value: T = outcome.get()
        return value

    def close(self, env: VectorEnv) -> None:
        """Close the environments in their thread, which is abandoned if that takes too long.

        The run is over, with a result or an error of its own, which a hang must not replace. A
        thread that was abandoned before closes them once it can.
        """
        self.thread.start(partial(close, env, self.name))
        if self.busy:
            return
        with suppress(KeyboardInterrupt):  # the user does not want to wait for it
            if _wait(self.thread, self.seconds) is None:
                text = _not_closed(self.name, self.seconds)
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _timeout(self) -> EnvironmentTimeout:
        error = EnvironmentTimeout(_no_answer(self.name, self.seconds, self.folder))
        error.add_note(_stacks(THREAD))
        return error


# ── in a process of its own: exit ─────────────────────────────────────────────────────────


class WatchedCalls(Calls):
    """Calls that the watchdog times, all in the thread of the run."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.calls = 0  # begun so far, to tell one long call from many short ones
        self.inside = False
        self.closing: _Closing | None = None

    def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of the environments."""
        self.calls += 1
        self.inside = True
        try:
            return function(*arguments)
        finally:
            self.inside = False

    def close(self, env: VectorEnv) -> None:
        """Close the environments in the thread that stepped them, as some require.

        The run is over, with a result or an error of its own, which a hang must not replace.
        """
        closing = _Closing(self.name, self.seconds, sys.exception())
        with suppress(CloseInterrupted), closing.interruptible():
            self.closing = closing
            self(close, env, self.name)
        if closing.interrupted:
            warnings.warn(_not_closed(self.name, self.seconds), RuntimeWarning, stacklevel=2)


class _Closing:
    """Closing the environments, which may hang: how to interrupt it, and how the run ended."""

    #: Windows has only the signal of Ctrl-C.
    SIGNAL = getattr(signal, "SIGALRM", signal.SIGINT)

    def __init__(self, name: str, seconds: float, error: BaseException | None) -> None:
        self.name = name
        self.seconds = seconds
        self.error = error
        self.interrupted = False
        self.handled = False  # whether the signal can be sent: unhandled, it ends the process
        self.sending = threading.Lock()
        self.thread = threading.get_ident()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let `interrupt` raise in here, if this is the main thread, which handles signals."""
        try:
            old = signal.signal(self.SIGNAL, self._raise)
        except ValueError:
            yield
            return
        self.handled = True
        with suppress(CloseInterrupted):
            try:
                yield
            finally:
                self.handled = False  # from here on the handler does nothing
        self.handled = False  # in case it was raised just before
        with self.sending:  # wait for a signal that is being sent
            pass
        if not self.interrupted:  # otherwise the signal may still be on its way
            signal.signal(self.SIGNAL, old)

    def _raise(self, *_: object) -> None:
        if self.handled:
            raise CloseInterrupted

    def interrupt(self) -> None:
        """Interrupt closing, from another thread."""
        with self.sending:
            self.interrupted = True
            if not self.handled:
                return
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self.thread, self.SIGNAL)
            else:
                _thread.interrupt_main()

    def abandon(self) -> None:
        """End the process as the run would have: closing cannot be interrupted."""
        code = 0 if self.error is None else exit_code(self.error)
        say(f"dna: {_not_closed(self.name, self.seconds)}")
        if self.error is not None:
            say(f"dna: {printable(text_of(self.error))}")
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


@contextmanager
def watching(
    watch: WatchedCalls,
    folder: Path,
    report: Callable[[EnvironmentFailure], None] = lambda _: None,
) -> Iterator[None]:
    """End this process with exit code 5 if a call takes too long.

    `report` is called first, to inform the other ranks of the run.
    """
    seconds = watch.seconds
    over = threading.Event()
    with _outside(seconds + GRACE) as alive:

        def end() -> None:
            _end(watch.name, seconds, folder, report)

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
    watch: WatchedCalls,
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
        if stuck < seconds:
            continue
        closing = watch.closing
        if closing is None:
            end()
        elif not closing.interrupted:
            closing.interrupt()
        elif stuck >= seconds + GRACE_CLOSING:
            closing.abandon()


@contextmanager
def _outside(limit: float) -> Iterator[Callable[[], None]]:
    """Start a process that ends this one after `limit` seconds without a sign of life.

    It has the stacks printed first. It is not started without Linux's /proc, because it could
    not tell whether this process is only suspended.
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
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live display hides it
    text = f"{_no_answer(name, seconds, folder)}; `dna resume` continues the run"
    report(EnvironmentFailure(text))
    say(f"{cursor}dna: {printable(text)}")
    os._exit(EnvironmentFailure.exit_code)  # the hanging thread cannot be interrupted


def _no_answer(name: str, seconds: float, folder: Path) -> str:
    """Write the stacks of all threads to the run's folder; return a message that names them."""
    text = f"{name}: no answer for {seconds:g} seconds"
    if (folder / "config.json").is_file():  # a run was begun here
        with suppress(StorageFailure):
            write(folder / "hang.txt", _stacks().encode())
            text += f"; where: {folder / 'hang.txt'}"
    return text


def _stacks(prefix: str = "") -> str:
    """Return the stacks of the threads whose names begin with `prefix`."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        thread = str(names.get(ident, ident))
        if thread.startswith(prefix):
            stack = "".join(traceback.format_stack(frame))
            parts.append(f"Thread {thread}:\n{stack}")
    return "\n".join(parts)
