"""Measure how the cost of an interaction depends on cores, agents, horizon, width and epochs.

Each setting is varied separately around the MinAtar preset of DNA. Every size runs in its own
process, and the sizes take turns over several rounds. Writes JSON and a plot.

    python benchmarks/growth.py --out benchmarks/results/growth.json
"""

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from dna.cli.bench import Case, Contestant, cases
from dna.cli.bench.serve import Bench
from dna.common.storage import write, write_json
from dna.common.threads import cores
from dna.config.overrides import tweak

#: The cores that a process may use; not a setting.
CORES = "cores"
SIZES: dict[str, tuple[int, ...]] = {
    CORES: tuple(range(1, cores() + 1)),
    "agents": (16, 64, 256),
    "horizon": (16, 64, 256),
    "network.width": (64, 128, 256, 512),
    "value.sgd.epochs": (1, 2, 4, 8),
}
ROUNDS = 5


def serve(key: str, size: int) -> None:
    """Measure one size in this process, whose peak memory is then its own; a turn per line."""
    base = next(case for case in cases("minatar") if case.name == "DNA")
    if key == CORES:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:size])
    config = base.config if key == CORES else tweak(base.config, **{key: size})
    case = Case(f"{key}={size}", config, max(1, 16_384 // config.batch))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(case, Path(folder), "off")
        for _ in sys.stdin:
            print(json.dumps(bench.turn()), flush=True)
        bench.run.collector.env.close()


def measure(key: str) -> dict[str, Any]:
    """Return the microseconds per interaction and the peak memory of every size."""
    running = {
        size: Contestant(f"{key}={size}", [sys.executable, __file__, key, str(size)], {})
        for size in SIZES[key]
    }
    turns: dict[int, list[dict[str, Any]]] = {size: [] for size in running}
    try:
        for round_ in range(ROUNDS + 1):
            for size, contestant in running.items():
                turn = contestant.ask()
                if round_:  # the first is a warm-up
                    turns[size].append(turn)
    finally:
        for contestant in running.values():
            contestant.close()
    return {str(size): summary(found) for size, found in turns.items()}


def summary(turns: list[dict[str, Any]]) -> dict[str, float]:
    costs = [turn["seconds"] / turn["interactions"] * 1e6 for turn in turns]
    memory = max(turn["memory"] for turn in turns)
    return {
        "microseconds": statistics.median(costs),
        "min": min(costs),
        "max": max(costs),
        "memory": memory,
    }


def draw(found: dict[str, Any]) -> bytes:
    wide = 3.2 * len(found)
    figure, axes = plt.subplots(2, len(found), figsize=(wide, 5), sharey="row", sharex="col")
    for column, (key, sizes) in zip(axes.T, found.items(), strict=True):
        x = [int(size) for size in sizes]
        costs, low, high, memory = zip(*(one.values() for one in sizes.values()), strict=True)
        column[0].plot(x, costs, marker="o")
        column[0].fill_between(x, low, high, alpha=0.2)
        column[1].plot(x, [one / 1e6 for one in memory], marker="o")
        column[1].set_xscale("log", base=2)
        column[1].set_xticks(x, [str(size) for size in x])
        column[1].set_xlabel(key)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("µs per interaction")
    axes[1, 0].set_ylabel("peak memory, MB")
    figure.tight_layout()
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=120)
    return target.getvalue()


def main() -> None:
    """Measure, write JSON, draw the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/growth.json"))
    parser.add_argument("--plot", type=Path, default=Path("docs/img/growth.png"))
    args = parser.parse_args()
    found = {key: measure(key) for key in SIZES}
    for key, sizes in found.items():
        line = ", ".join(f"{size}: {one['microseconds']:.0f} µs" for size, one in sizes.items())
        print(f"{key}: {line}")
    write_json(args.out, found)
    write(args.plot, draw(found))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIZES:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        main()
