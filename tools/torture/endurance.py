"""Thousands of iterations: memory, descriptors and threads stay; saving costs nothing (G17)."""

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

#: Growth that a run may show from its first tenth to its end.
MEGABYTES = 8.0


class Gauge:
    """Looks at the process between iterations."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int, int]] = []

    def start(self) -> None:
        """Nothing."""

    def write(self, row: Row) -> None:
        """Resident megabytes, descriptors, threads."""
        if row.iteration % 20 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            memory = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            files = len(os.listdir("/proc/self/fd"))
            self.seen.append((memory, files, threading.active_count()))

    def close(self) -> None:
        """Nothing."""


def endurance(root: Path, iterations: int) -> Outcome:
    """One long run of DNA on the toy, everything on, in this process."""
    with timed(f"{iterations:,} iterations without a leak") as outcome:
        config = tiny("dna", None, interactions=64 * iterations)
        gauge, save, spent = Gauge(), checkpoint.save, [0.0, 0]

        def clocked(*words: object) -> Path:
            start = time.perf_counter()
            path = save(*words)  # type: ignore[arg-type]
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
