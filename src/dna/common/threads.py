"""Threads: some that can be abandoned if a function never returns, and some that share work.

All are daemons, unlike those of `concurrent.futures`, for which Python waits before it exits.
"""

import contextvars
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")
#: Seconds to wait, after an interrupt, for what other threads have begun.
PATIENCE = 10.0


class Caller(Protocol):
    """Calls a function, perhaps in another thread or with a time limit."""

    def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call the function and return what it returns."""


def call_directly(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in this thread."""
    return function(*arguments)


@dataclass(frozen=True)
class Outcome:
    """What a function returned or raised."""

    value: Any
    error: BaseException | None

    def get(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class DaemonThread:
    """A thread that runs the functions it is given, in order, in this thread's context."""

    def __init__(self, name: str) -> None:
        self._functions: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        run = contextvars.copy_context().run  # with NumPy's error handling, for example
        self._thread = threading.Thread(target=run, args=(self._serve,), name=name, daemon=True)
        self._thread.start()

    def start(self, function: Callable[[], Any]) -> None:
        """Run a function after those that were given before."""
        self._functions.put(function)

    def wait(self, seconds: float | None = None) -> Outcome | None:
        """Wait for the next outcome; None if there is none after so many seconds."""
        try:
            return self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return None

    def end(self) -> None:
        """Let the thread end once it has run all functions; do not wait for it."""
        self._functions.put(None)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _serve(self) -> None:
        while (function := self._functions.get()) is not None:
            try:
                outcome = Outcome(function(), None)
            except BaseException as error:
                outcome = Outcome(None, error)
            del function  # what it refers to may be wanted elsewhere
            self._outcomes.put(outcome)
            del outcome


def cores() -> int:
    """Number of processors this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Threads that work through lists of items together with the thread that asks.

    Which thread takes which item is left to chance, so results are independent of the number
    of threads if those of single items are. Functions that run in them must not depend on
    settings of a thread, such as whether torch records gradients.
    """

    def __init__(self, threads: int = 1, begin: Callable[[], object] | None = None) -> None:
        """`threads` includes the one that asks; the others first call `begin`."""
        self.threads = threads
        self._work = _Work()
        self._process = os.getpid()
        for number in range(1, threads):
            run = contextvars.copy_context().run
            work = (_serve, self._work, begin)
            name = f"worker {number}"
            threading.Thread(target=run, args=work, name=name, daemon=True).start()
        # The threads refer to the work only, so that they end when this object is dropped.
        self._finalizer = weakref.finalize(self, self._work.close)

    def map(self, function: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
        """Apply a function to every item; raise the error of the first item that failed."""
        job = _Job(function, list(items))
        # A forked copy of the process does not have the threads, and perhaps a locked lock.
        if self.threads == 1 or len(job.items) == 1 or os.getpid() != self._process:
            return [function(item) for item in job.items]
        self._work.add(job)
        try:
            self._work.help_until(job)
        except BaseException:
            self._work.cancel(job)
            raise
        finally:
            self._work.remove(job)
        return [outcome.get() for outcome in job.outcomes if outcome is not None]

    def close(self) -> None:
        """End the threads once they have finished what they are doing; do not wait for them."""
        self._finalizer()

    def __deepcopy__(self, memo: object) -> "Workers":
        """Return the same threads: copies of what uses them, such as networks, share them."""
        return self

    def __reduce__(self) -> tuple[type["Workers"], tuple[()]]:
        """Leave out the threads: what is stored works on one."""
        return Workers, ()


class _Job(Generic[Item, T]):
    """A function to apply to items, and the outcomes so far."""

    def __init__(self, function: Callable[[Item], T], items: list[Item]) -> None:
        self.function = function
        self.items = items
        self.outcomes: list[Outcome | None] = [None] * len(items)
        self.taken = 0
        self.left = len(items)

    def run(self, index: int) -> None:
        """Apply the function to one item."""
        try:
            self.outcomes[index] = Outcome(self.function(self.items[index]), None)
        except BaseException as error:
            self.outcomes[index] = Outcome(None, error)
            if not isinstance(error, Exception):  # an interrupt: no one waits for the rest
                self.skip()

    def skip(self) -> None:
        """Leave out the items that nobody has begun."""
        self.left -= len(self.items) - self.taken
        self.taken = len(self.items)


class _Work:
    """The jobs that some thread waits for, oldest first."""

    def __init__(self) -> None:
        self.jobs: list[_Job[Any, Any]] = []
        self.changed = threading.Condition()
        self.closed = False

    def add(self, job: _Job[Any, Any]) -> None:
        """Offer a job to the threads that have nothing to do."""
        with self.changed:
            self.jobs.append(job)
            self.changed.notify(len(job.items) - 1)

    def remove(self, job: _Job[Any, Any]) -> None:
        """Take back a job."""
        with self.changed:
            self.jobs.remove(job)

    def cancel(self, job: _Job[Any, Any]) -> None:
        """Leave out what nobody has begun, and wait briefly for the rest.

        A thread that is still in an operator of torch's when Python ends aborts the process.
        """
        end = time.monotonic() + PATIENCE
        with self.changed:
            job.skip()
            while job.left > 0 and (rest := end - time.monotonic()) > 0:
                self.changed.wait(rest)

    def close(self) -> None:
        """Let the threads end."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def help_until(self, own: _Job[Any, Any] | None) -> None:
        """Take items until this job is finished, or for None until there will be no more.

        Who waits for a job takes items of newer jobs too, but not of older ones: such an item
        may be a whole phase, and the job would have to wait for it.
        """
        while True:
            with self.changed:
                while not (found := self._next(own)):
                    if self.closed if own is None else own.left == 0:
                        return
                    self.changed.wait()
                index = found.taken
                found.taken += 1
            try:
                found.run(index)
            finally:
                with self.changed:
                    found.left -= 1
                    if found.left == 0:
                        self.changed.notify_all()
            del found  # what it refers to may be wanted elsewhere

    def _next(self, own: _Job[Any, Any] | None) -> _Job[Any, Any] | None:
        first = 0 if own is None else self.jobs.index(own)
        for job in self.jobs[first:]:
            if job.taken < len(job.items):
                return job
        return None


def _serve(work: _Work, begin: Callable[[], object] | None) -> None:
    if begin is not None:
        begin()
    work.help_until(None)


#: No threads but the one that asks.
ONE_THREAD = Workers()
