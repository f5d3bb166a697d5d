"""What a run writes while it runs: metrics, episodes, timings.

`metrics.jsonl` and `episodes.csv` hold only what the run computed, so that they are equal to
the byte for equal (config, seed); wall-clock goes to `timings.jsonl`.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dna.algorithm.episodes import Episode, Scores
from dna.common.append_log import AppendLog, changed


@dataclass(frozen=True)
class Row:
    """One iteration."""

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


class Pace:
    """Makes rows of iterations, and knows how fast they follow each other."""

    def __init__(self, total: int, interactions: int) -> None:
        self.total, self.interactions, self.first = total, interactions, interactions
        self.start = self.last = time.perf_counter()
        self.spent = 0.0  # seconds, without compiling

    def row(
        self,
        iteration: int,
        scores: Scores,
        metrics: dict[str, float],
        seconds: dict[str, float],
    ) -> Row:
        """The iteration that has just ended; compiling is not counted as its time."""
        now, done = time.perf_counter(), scores.interactions - self.interactions
        spent = now - self.last - seconds.get("compile", 0.0)
        self.last, self.interactions = now, scores.interactions
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
    """Something that is told of every iteration."""

    def start(self) -> None:
        """The run is about to begin: its settings and environments are good."""

    def write(self, row: Row) -> None:
        """One more iteration."""

    def close(self) -> None:
        """No more iterations."""


class Files:
    """`metrics.jsonl`, `episodes.csv` and `timings.jsonl` of a run's folder."""

    NAMES = ("metrics.jsonl", "episodes.csv", "timings.jsonl")

    def __init__(self, folder: Path, lengths: dict[str, int] | None = None) -> None:
        """`lengths`: cut the files back to a checkpoint; None: start them anew."""
        keep = lengths or {}
        self.logs = {name: AppendLog(folder / name, keep.get(name, 0)) for name in self.NAMES}
        if not keep:
            self.logs["episodes.csv"].write("interactions,agent,score,length")

    def start(self) -> None:
        """The files are open already."""

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

    def missing(self) -> list[str]:
        """Files that were shorter than the checkpoint says: somebody cut them."""
        return [f"{name} was cut short" for name, log in self.logs.items() if log.missing]

    def changed(self) -> list[str]:
        """Files that somebody cut or wrote to since this was last asked."""
        return changed(self.logs)

    def sync(self) -> dict[str, int]:
        """Everything on disk; the lengths a checkpoint remembers."""
        return {name: log.sync() for name, log in self.logs.items()}

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()
