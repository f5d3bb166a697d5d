"""How the cost of an interaction grows with agents, horizon, width and epochs.

Each is varied by itself around the MinAtar preset of DNA; sizes take turns, several times
over. Writes JSON and a plot.

    python benchmarks/growth.py --out benchmarks/results/growth.json
"""

import argparse
import io
import statistics
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from dna.bench import Case, cases
from dna.bench.serve import Bench
from dna.storage import write, write_json
from dna.tweak import tweak

SIZES: dict[str, tuple[int, ...]] = {
    "agents": (16, 64, 256),
    "horizon": (16, 64, 256),
    "network.width": (64, 128, 256, 512),
    "value.sgd.epochs": (1, 2, 4, 8),
}
ROUNDS = 5


def benches(key: str, folder: Path) -> dict[int, Bench]:
    """One for each size, all alive at once."""
    base = next(case for case in cases("minatar") if case.name == "DNA")
    made = {}
    for size in SIZES[key]:
        config = tweak(base.config, **{key: size})
        iterations = max(1, 16_384 // config.batch)
        case = Case(f"{key}={size}", config, iterations)
        made[size] = Bench(case, folder / f"{key}-{size}", "off")
    return made


def measure(key: str) -> dict[str, Any]:
    """Microseconds per interaction, by size."""
    with tempfile.TemporaryDirectory() as folder:
        running = benches(key, Path(folder))
        turns: dict[int, list[dict[str, Any]]] = {size: [] for size in running}
        for round_ in range(ROUNDS + 1):
            for size, bench in running.items():
                turn = bench.turn()
                if round_:
                    turns[size].append(turn)
        for bench in running.values():
            bench.run.collector.env.close()
    return {
        str(size): {
            "microseconds": statistics.median(
                turn["seconds"] / turn["interactions"] * 1e6 for turn in found
            ),
        }
        for size, found in turns.items()
    }


def draw(found: dict[str, Any]) -> bytes:
    figure, axes = plt.subplots(1, len(found), figsize=(3.2 * len(found), 2.8), sharey=True)
    for axis, (key, sizes) in zip(axes, found.items(), strict=True):
        x = [int(size) for size in sizes]
        axis.plot(x, [one["microseconds"] for one in sizes.values()], marker="o")
        axis.set_xscale("log", base=2)
        axis.set_xticks(x, [str(size) for size in x])
        axis.set_xlabel(key)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("µs per interaction")
    axes[0].set_ylim(bottom=0)
    figure.tight_layout()
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=120)
    return target.getvalue()


def main() -> None:
    """Measure, write, draw."""
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
    main()
