"""Threads that run one function at a time, and can be abandoned if one never returns.

They are daemons, unlike those of `concurrent.futures`, for which Python waits before it exits.
"""

import contextvars
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


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
