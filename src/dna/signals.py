"""Stopping politely: a signal sets a flag, the run looks at it between iterations."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """Which signal asked the run to stop, if any."""

    asked: str | None = None


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Ctrl-C, SIGTERM, SIGUSR1 and SIGUSR2 set a flag; a second Ctrl-C stops at once."""
    stop = Stop()

    def handle(number: int, _: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = signal.Signals(number).name

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
    try:
        old = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not the main thread: signals are not ours to handle
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
