"""Progress of a run in plain text: lines for logs, or one line that is overwritten.

For scripts and notebooks, without a library; the command line draws a panel on a terminal
(`dna.cli.progress`).
"""

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from dna.common.console import say

if TYPE_CHECKING:  # metrics imports torch
    from dna.config import Config
    from dna.runs.metrics import Row, Sink

#: Seconds between lines of a log.
QUIET_FOR = 5.0
#: Seconds between updates of a line that is overwritten.
REFRESH = 0.2
#: Prefix of the metrics of the noise scale.
NOISE = "noise/"


def text_progress(show: bool, note: str = "") -> "Sink":
    """Overwrite one line on a terminal or in a notebook; elsewhere write a line now and then.

    `note` is a line to write first.
    """
    if not show:
        return Silent()
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return OneLine(note) if terminal or "ipykernel" in sys.modules else PlainLines(note)


def share_done(interactions: int, budget: int) -> float:
    """Return the share of a run that is done: the last rollout may exceed the budget."""
    return min(interactions / budget, 1.0)


def rounding_note(*configs: "Config") -> str:
    """Say what budgets are rounded up to; empty if all are whole numbers of rollouts."""
    notes = dict.fromkeys(_rounding(config) for config in configs)
    found = [note for note in notes if note]
    others = "; other points are rounded up too" if len(found) > 1 else ""
    return found[0] + others if found else ""


def _rounding(config: "Config") -> str:
    rollouts = -(-config.interactions // config.batch)
    total = rollouts * config.batch
    if total == config.interactions:
        return ""
    what = (
        "one whole rollout" if rollouts == 1 else f"{rollouts:,} rollouts of {config.batch:,}"
    )
    return f"{config.interactions:,} interactions are rounded up to {total:,}, {what}"


class Silent:
    """Shows nothing."""

    def start(self) -> None:
        """Do nothing."""

    def write(self, row: "Row") -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class RateMeter:
    """Measures interactions per second over the last half minute, and the time left."""

    def __init__(self) -> None:
        self.marks: deque[tuple[float, int]] = deque(maxlen=200)
        self.compiling = 0.0

    def update(self, row: "Row") -> tuple[float, float]:
        """Return (interactions/s, seconds left); compiling happens once and is not counted."""
        self.compiling += row.seconds.get("compile", 0.0)
        now = row.elapsed - self.compiling
        self.marks.append((now, row.interactions))
        while len(self.marks) > 2 and now - self.marks[0][0] > 30:
            self.marks.popleft()
        (t0, i0), (t1, i1) = self.marks[0], self.marks[-1]
        rate = (i1 - i0) / (t1 - t0) if t1 > t0 else row.rate
        return rate, max(row.total - row.interactions, 0) / rate if rate > 0 else 0.0


class PlainLines:
    """Writes a line now and then, for logs; `note` is a line to write first."""

    every = QUIET_FOR

    def __init__(self, note: str = "") -> None:
        self.note = note
        self.meter = RateMeter()
        self.last = float("-inf")
        self.pending: str | None = None
        self.noise = ""

    def start(self) -> None:
        """Announce the warm-up, which can take a while."""
        if self.note:
            say(self.note)
        self._write("warming up …")

    def write(self, row: "Row") -> None:
        """Write a line if the last one was long enough ago."""
        rate, left = self.meter.update(row)
        score = "-" if row.score is None else f"{row.score:.2f}"
        found = {k: v for k, v in row.metrics.items() if k.startswith(NOISE)}
        if found:
            self.noise = f"  {noise_words(found)}"
        self.pending = (
            f"{share_done(row.interactions, row.total):4.0%}  "
            f"{row.interactions:,} interactions  "
            f"score {score}  {row.episodes:,} episodes  {rate:,.0f}/s  {clock(left)} left"
            f"{self.noise}"
        )
        if time.monotonic() - self.last >= self.every:
            self._flush()

    def _write(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        """Write the last line, if it was delayed."""
        self._flush()

    def _flush(self) -> None:
        if self.pending is not None:
            self._write(self.pending)
            self.pending = None
            self.last = time.monotonic()


class OneLine(PlainLines):
    """Overwrites one line."""

    every = REFRESH

    def _write(self, text: str) -> None:
        say(f"\r\x1b[K{text}", end="")

    def close(self) -> None:
        """Leave the last line on the screen."""
        super().close()
        say("")


def noise_words(metrics: dict[str, float]) -> str:
    """Format `σ policy 221 value 17.5 distil ?`; `?`: not distinguishable from zero."""
    phases = dict.fromkeys(name.split("/")[1] for name in metrics)
    words = []
    for phase in phases:
        sigma = metrics.get(f"{NOISE}{phase}/sigma")
        words.append(f"{phase} {'?' if sigma is None else f'{sigma:.3g}'}")
    return "σ " + "  ".join(words)


def clock(seconds: float) -> str:
    """Format 1:02:03 or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
