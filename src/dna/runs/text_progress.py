"""Progress of a run in plain text: lines for logs, or one line that is written over.

The command line draws a panel instead (`dna.cli.display`); this is what scripts and notebooks
see, without a library.
"""

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from dna.common.console import say

if TYPE_CHECKING:  # it brings torch
    from dna.runs.metrics import Row, Sink

#: Seconds between plain lines, and between changes of a line that is written over.
QUIET_FOR, REFRESH = 5.0, 0.2
NOISE = "noise/"


def text_progress(show: bool) -> "Sink":
    """One line that changes on a terminal or in a notebook, lines now and then elsewhere."""
    if not show:
        return Silent()
    terminal = sys.stderr is not None and sys.stderr.isatty()
    changing = terminal or "ipykernel" in sys.modules
    return OneLine() if changing else PlainLines()


class Silent:
    """Shows nothing."""

    def start(self) -> None:
        """Nothing."""

    def write(self, row: "Row") -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class RateMeter:
    """Interactions per second over the last half minute, and the time that is left."""

    def __init__(self) -> None:
        self.marks: deque[tuple[float, int]] = deque(maxlen=200)
        self.compiling = 0.0

    def update(self, row: "Row") -> tuple[float, float]:
        """(interactions/s, seconds left); compiling happens once and does not count."""
        self.compiling += row.seconds.get("compile", 0.0)
        now = row.elapsed - self.compiling
        self.marks.append((now, row.interactions))
        while len(self.marks) > 2 and now - self.marks[0][0] > 30:
            self.marks.popleft()
        (t0, i0), (t1, i1) = self.marks[0], self.marks[-1]
        rate = (i1 - i0) / (t1 - t0) if t1 > t0 else row.rate
        return rate, max(row.total - row.interactions, 0) / rate if rate > 0 else 0.0


class PlainLines:
    """One line now and then, for logs."""

    every = QUIET_FOR

    def __init__(self) -> None:
        self.pace = RateMeter()
        self.last = float("-inf")
        self.pending: str | None = None
        self.noise = ""

    def start(self) -> None:
        """Warming up can take a while: say so."""
        say("warming up …")

    def write(self, row: "Row") -> None:
        """A line if the last one was long enough ago."""
        rate, left = self.pace.update(row)
        score = "-" if row.score is None else f"{row.score:.2f}"
        found = {k: v for k, v in row.metrics.items() if k.startswith(NOISE)}
        self.noise = f"  {noise_words(found)}" if found else self.noise
        self.pending = (
            f"{min(row.interactions / row.total, 1):4.0%}  {row.interactions:,} interactions  "
            f"score {score}  {row.episodes:,} episodes  {rate:,.0f}/s  {clock(left)} left"
            f"{self.noise}"
        )
        if time.monotonic() - self.last >= self.every:
            self._flush()

    def _flush(self) -> None:
        if self.pending is not None:
            self._write(self.pending)
            self.pending, self.last = None, time.monotonic()

    def _write(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        """Show the last line."""
        self._flush()


class OneLine(PlainLines):
    """One line, written over."""

    every = REFRESH

    def start(self) -> None:
        """Warming up can take a while: say so."""
        self._write("warming up …")

    def _write(self, text: str) -> None:
        say(f"\r\x1b[K{text}", end="")

    def close(self) -> None:
        """The last line stays."""
        super().close()
        say("")


def noise_words(metrics: dict[str, float]) -> str:
    """`σ policy 221 value 17.5 distil ?`: what cannot be told from zero is a question mark."""
    phases = dict.fromkeys(name.split("/")[1] for name in metrics)
    words = []
    for phase in phases:
        sigma = metrics.get(f"{NOISE}{phase}/sigma")
        words.append(f"{phase} {'?' if sigma is None else f'{sigma:.3g}'}")
    return "σ " + "  ".join(words)


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
