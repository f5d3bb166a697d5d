"""Stopping politely: a signal sets a flag, the run looks at it between iterations."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """Which signal asked the run to stop, if any."""

    asked: str | None = None


_active: list[Stop] = []


def number_of(name: str | None) -> int:
    """A signal's number; 0 for none."""
    return int(signal.Signals[name]) if name else 0


def name_of(number: int) -> str | None:
    """The inverse."""
    return signal.Signals(number).name if number else None


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Signals to end set a flag, SIGUSR1 and 2 too; a second Ctrl-C stops at once.

    Inside another `stop_signals` it is that one's flag: the command line begins to listen
    before torch is loaded.
    """
    if _active:
        yield _active[-1]
        return
    stop = Stop()

    def handle(number: int, _: object) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = signal.Signals(number).name

    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    # nohup has a hang-up ignored: then it is not for the run either.
    numbers = [
        n for n in numbers if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN
    ]
    try:
        old = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not the main thread: signals are not ours to handle
        yield stop
        return
    _active.append(stop)
    try:
        yield stop
    finally:
        _active.pop()
        for number, handler in old.items():
            signal.signal(number, handler)
