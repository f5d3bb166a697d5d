"""Interactions per second and where the time goes, for each algorithm's small presets.

One process after the other, repeated and interleaved, so that noise hits all alike. Prints a
table of medians; run it on a quiet machine. `python benchmarks/throughput.py [--repeats N]`.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from dna.presets import for_environment
from dna.setup import How
from dna.train import train

CASES = [
    (env_id, algorithm)
    for env_id in ("CartPole-v1", "MinAtar/Breakout-v1")
    for algorithm in ("dna", "ppo", "ppg")
]
INTERACTIONS = {"CartPole-v1": 10_240, "MinAtar/Breakout-v1": 131_072}


def measure(env_id: str, algorithm: str) -> tuple[float, dict[str, float]]:
    """(interactions/s, share of time per part) of one short run, its first quarter left out."""
    config = for_environment(env_id, algorithm)
    config = config.model_copy(update={"interactions": INTERACTIONS[env_id]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        train(config, 0, path, how=How(tensorboard=False))
        lines = (path / "timings.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    warm = rows[len(rows) // 4 :]
    parts: dict[str, float] = {}
    for row in warm:
        for key, value in row.items():
            if key.startswith("time/") and key != "time/elapsed":
                parts[key[5:]] = parts.get(key[5:], 0.0) + value
    count = warm[-1]["interactions"] - warm[0]["interactions"]
    seconds = warm[-1]["time/elapsed"] - warm[0]["time/elapsed"]
    total = sum(parts.values())
    return count / seconds, {part: value / total for part, value in parts.items()}


def main() -> None:
    """Measure every case in turn, several times over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    seen: dict[tuple[str, str], list[tuple[float, dict[str, float]]]] = {c: [] for c in CASES}
    for _ in range(repeats):
        for case in CASES:
            seen[case].append(measure(*case))
    print("| environment | algorithm | interactions/s (min-max) | where the time goes |")
    print("|---|---|--:|---|")
    for (env_id, algorithm), results in seen.items():
        rates = sorted(rate for rate, _ in results)
        split = sorted(results[-1][1].items(), key=lambda item: -item[1])
        text = ", ".join(f"{part} {share:.0%}" for part, share in split)
        spread = f"{statistics.median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f})"
        print(f"| {env_id} | {algorithm} | {spread} | {text} |")


if __name__ == "__main__":
    main()
