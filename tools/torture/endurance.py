"""Thousands of iterations without leaks of memory, descriptors or threads; cheap saving."""

import os
import threading
import time
from pathlib import Path

import dna.runs.train
from dna.runs import checkpoint
from dna.runs.metrics import Row
from dna.runs.setup import How
from helpers import tiny
from torture.ground import SEED, Outcome, Toy, timed

#: Accepted growth of the memory between the first tenth of a run and its end.
MEGABYTES = 8.0


class Gauge:
    """A sink that samples memory, descriptors and threads of the process."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int, int]] = []

    def start(self) -> None:
        """Do nothing."""

    def write(self, row: Row) -> None:
        """Record resident megabytes, descriptors and threads."""
        if row.iteration % 20 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            files = len(os.listdir("/proc/self/fd"))
            self.seen.append((memory, files, threading.active_count()))

    def close(self) -> None:
        """Do nothing."""


def endurance(root: Path, iterations: int) -> Outcome:
    """Train one long run of DNA on the toy environment in this process."""
    with timed(f"{iterations:,} iterations without a leak") as outcome:
        config = tiny("dna", None, interactions=64 * iterations)
        gauge, save, spent = Gauge(), checkpoint.save, [0.0, 0]

        def clocked(*args: object) -> Path:
            start = time.perf_counter()
            path = save(*args)  # type: ignore[arg-type]
            spent[0] += time.perf_counter() - start
            spent[1] += 1
            return path

        checkpoint.save = clocked  # type: ignore[assignment]
        start = time.perf_counter()
        try:
            how = How(threads=1)
            dna.runs.train.train(config, SEED, root / "run", how=how, sinks=[gauge], source=Toy)
        finally:
            checkpoint.save = save
        share = spent[0] / (time.perf_counter() - start)
        first, last = gauge.seen[len(gauge.seen) // 10], gauge.seen[-1]
        grown = last[0] - first[0]
        outcome.count(grown < MEGABYTES, f"memory grew by {grown:.1f} MB")
        outcome.count(first[1] == last[1], f"descriptors: {first[1]} then {last[1]}")
        outcome.count(first[2] == last[2], f"threads: {first[2]} then {last[2]}")
        outcome.count(share < 0.01, f"saving took {share:.2%} of the time")
        outcome.notes.insert(
            0, f"memory {grown:+.1f} MB, {spent[1]} saves in {share:.2%} of time"
        )
    return outcome
