"""Summarize finished runs as a small CSV (thinned curves with digests) and a Markdown table.

`python benchmarks/summarize.py --at 409600 1000000 --csv results/x.csv RUN…` prints the score
of the last 100 episodes after these numbers of interactions, for each environment and
algorithm, as mean and standard error over seeds.
"""

import argparse
import csv
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from dna.config.overrides import digest
from dna.runs.folder import RunFolder

POINTS = 40


def rows(run: RunFolder) -> list[dict[str, Any]]:
    """Read the metrics of a run."""
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def score_at(run: RunFolder, interactions: int) -> float:
    """Return the score of the first iteration that reaches this number of interactions."""
    for row in rows(run):
        if row["interactions"] >= interactions:
            return float(row["score"])
    raise SystemExit(f"{run.path}: fewer than {interactions} interactions")


def write_csv(runs: list[RunFolder], path: Path, points: list[int]) -> None:
    """Keep about forty points of each curve, and those of the table."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["env", "algorithm", "seed", "digest", "interactions", "score"])
        for run in runs:
            config, seed = run.read()
            head = [config.env.id, config.algorithm, seed, digest(config, seed)]
            every = rows(run)
            step = max(1, len(every) // POINTS)
            thinned = {row["iteration"]: row for row in [*every[step - 1 :: step], every[-1]]}
            for at in points:
                row = next(row for row in every if row["interactions"] >= at)
                thinned[row["iteration"]] = row
            for _, row in sorted(thinned.items()):
                if row["score"] is not None:
                    writer.writerow([*head, row["interactions"], round(row["score"], 4)])


def main() -> None:
    """Group the runs, average them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--at", nargs="+", type=int, required=True)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    runs = [RunFolder.of(path) for path in arguments.runs]
    groups: dict[tuple[str, str], list[RunFolder]] = defaultdict(list)
    for run in runs:
        config, _ = run.read()
        groups[str(config.env.id), config.algorithm].append(run)
    head = " | ".join(f"at {at:,}" for at in arguments.at)
    print(f"| environment | algorithm | seeds | {head} |")
    print("|---|---|--:|" + "--:|" * len(arguments.at))
    for (env_id, algorithm), members in groups.items():
        cells = []
        for at in arguments.at:
            scores = [score_at(run, at) for run in members]
            error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
            cells.append(f"{statistics.mean(scores):.2f} ± {error:.2f}")
        print(f"| {env_id} | {algorithm} | {len(members)} | {' | '.join(cells)} |")
    if arguments.csv:
        write_csv(runs, arguments.csv, arguments.at)


if __name__ == "__main__":
    main()
