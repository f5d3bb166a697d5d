"""What a run records while it trains: metrics, episodes and timings.

`metrics.jsonl` and `episodes.csv` hold only what the run computed, so that they are
byte-identical for the same (config, seed); wall-clock times go to `timings.jsonl`. TensorBoard
and other trackers are in `dna.runs.trackers`.
"""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dna.algorithm.episodes import Episode, Scores
from dna.common.append_log import AppendLog, changed, damage
from dna.common.storage import blocks
from dna.config import Config


@dataclass(frozen=True)
class Row:
    """The record of one iteration."""

    iteration: int
    interactions: int
    total: int  # interactions of the whole run
    episodes: int
    score: float | None
    length: float | None
    metrics: dict[str, float]  # `<phase>/<metric>`
    seconds: dict[str, float]  # wall-clock split of this iteration
    elapsed: float  # seconds since this process began the run
    rate: float  # interactions per second of this iteration
    finished: tuple[Episode, ...]


class RowMaker:
    """Makes the rows of a run, and measures its speed."""

    def __init__(self, total: int, interactions: int) -> None:
        self.total = total
        self.interactions = interactions
        self.first = interactions
        self.start = self.last = time.perf_counter()
        self.spent = 0.0  # seconds, without compiling

    def row(
        self,
        iteration: int,
        scores: Scores,
        metrics: dict[str, float],
        seconds: dict[str, float],
    ) -> Row:
        """Make the row of the iteration that has just ended; compiling is not timed."""
        now = time.perf_counter()
        done = scores.interactions - self.interactions
        spent = now - self.last - seconds.get("compile", 0.0)
        self.last = now
        self.interactions = scores.interactions
        self.spent += spent
        return Row(
            iteration=iteration,
            interactions=scores.interactions,
            total=self.total,
            episodes=scores.episodes,
            score=scores.score,
            length=scores.length,
            metrics=metrics,
            seconds=seconds,
            elapsed=now - self.start,
            rate=done / spent if spent > 0 else 0.0,
            finished=tuple(scores.take()),
        )

    @property
    def rate(self) -> float:
        """Interactions per second so far."""
        return (self.interactions - self.first) / self.spent if self.spent > 0 else 0.0


class Sink(Protocol):
    """Receives every iteration of a run."""

    def start(self) -> None:
        """Begin: the run's settings are valid and its environments are built."""

    def write(self, row: Row) -> None:
        """Record one iteration."""

    def close(self) -> None:
        """End: no more iterations."""


class LogSink(Sink, Protocol):
    """A sink with files of its own, which are truncated to a checkpoint on resume."""

    def damaged(self) -> list[str]:
        """One line per file that did not match its checkpoint when it was opened."""

    def changed(self) -> list[str]:
        """One line per file that another process changed since the last call."""

    def sync(self) -> dict[str, int]:
        """Flush everything to disk; returns the lengths for a checkpoint."""

    def hashes(self) -> dict[str, str]:
        """Return the sha256 of each file up to the length that `sync` returned."""


class MetricsFiles:
    """`metrics.jsonl`, `episodes.csv` and `timings.jsonl` of a run's folder."""

    NAMES = ("metrics.jsonl", "episodes.csv", "timings.jsonl")

    def __init__(
        self,
        folder: Path,
        lengths: dict[str, int] | None = None,
        hashes: dict[str, str] | None = None,
    ) -> None:
        """`lengths`: truncate the files to a checkpoint; None: start new ones.

        `hashes`: sha256 of the files up to there, if the checkpoint has them.
        """
        keep = lengths or {}
        expected = hashes or {}
        self.logs = {name: AppendLog(folder / name, keep.get(name, 0)) for name in self.NAMES}
        self.damage = [
            line
            for name, log in self.logs.items()
            for line in damage(name, log, expected.get(name))
        ]
        if not keep:
            self.logs["episodes.csv"].write("interactions,agent,score,length")

    def start(self) -> None:
        """Do nothing: the files are open already."""

    def write(self, row: Row) -> None:
        """Append one iteration to each file."""
        head = {"iteration": row.iteration, "interactions": row.interactions}
        line = head | {"episodes": row.episodes, "score": row.score, "length": row.length}
        self.logs["metrics.jsonl"].write(json.dumps(line | row.metrics))
        for e in row.finished:
            text = f"{e.interactions},{e.agent},{e.score!r},{e.length}"
            self.logs["episodes.csv"].write(text)
        times = {f"time/{part}": round(value, 6) for part, value in row.seconds.items()}
        times |= {"time/elapsed": round(row.elapsed, 3), "rate": round(row.rate, 1)}
        self.logs["timings.jsonl"].write(json.dumps(head | times))
        for log in self.logs.values():
            log.flush()

    def damaged(self) -> list[str]:
        """One line per file that did not match its checkpoint when it was opened."""
        return self.damage

    def changed(self) -> list[str]:
        """One line per file that another process changed since the last call."""
        return changed(self.logs)

    def sync(self) -> dict[str, int]:
        """Flush everything to disk; returns the lengths for a checkpoint."""
        return {name: log.sync() for name, log in self.logs.items()}

    def hashes(self) -> dict[str, str]:
        """Return the sha256 of each file up to the length that `sync` returned."""
        return {name: log.sha256 for name, log in self.logs.items()}

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()


def differing(folder: Path, lengths: dict[str, int], hashes: dict[str, str]) -> list[str]:
    """One line per file of a finished run's `MetricsFiles` that is not what was recorded."""
    lines = []
    for name in MetricsFiles.NAMES:
        path = folder / name
        if name in hashes:
            length = lengths.get(name, 0)
            found = hashlib.sha256()
            for block in blocks(path, length) if path.exists() else ():
                found.update(block)
            longer = path.exists() and path.stat().st_size > length
            if longer or found.hexdigest() != hashes[name]:
                lines.append(f"{name} was changed after the run had finished")
    return lines


class Recorder:
    """The log files and TensorBoard events of a run.

    Empty until it is opened, which only the first rank does.
    """

    def __init__(self, folder: Path, config: Config, seed: int, *, tensorboard: bool) -> None:
        self.folder = folder
        self.config = config
        self.seed = seed
        self.tensorboard = tensorboard
        self.sinks: list[LogSink] = []

    def open(
        self,
        lengths: dict[str, int] | None = None,
        hashes: dict[str, str] | None = None,
        interactions: int = 0,
    ) -> list[str]:
        """Start the logs, or truncate them to a checkpoint's lengths.

        Returns one line for each that is shorter than that, or has another hash.
        """
        self.sinks = [MetricsFiles(self.folder, lengths, hashes)]
        if self.tensorboard:
            from dna.runs.trackers import TensorBoard

            board = TensorBoard(
                self.folder, self.config, self.seed, lengths or {}, interactions, hashes
            )
            self.sinks.append(board)
        return [line for sink in self.sinks for line in sink.damaged()]

    def changed(self) -> list[str]:
        """One line per file that another process changed since the last call."""
        return [line for sink in self.sinks for line in sink.changed()]

    def sync(self) -> dict[str, int]:
        """Flush everything to disk; returns the lengths for a checkpoint."""
        lengths: dict[str, int] = {}
        for sink in self.sinks:
            lengths |= sink.sync()
        return lengths

    def hashes(self) -> dict[str, str]:
        """Return the sha256 of each file up to the length that `sync` returned."""
        hashes: dict[str, str] = {}
        for sink in self.sinks:
            hashes |= sink.hashes()
        return hashes
