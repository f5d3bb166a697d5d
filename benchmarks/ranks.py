"""Compare the interactions per second of one run on one and on two ranks.

The two take turns. Every turn is a complete command, `dna train` with or without torchrun, with
the same global batch. The rate is that of its iterations, without start-up and the first one.

    python benchmarks/ranks.py --out benchmarks/results/ranks.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dna.common.storage import write_json

ROUNDS = 3
#: Case → arguments of `dna train`. The second is the paper's network and 32 of its 128 agents.
CASES = {
    "CartPole, DNA": ["CartPole-v1", "--interactions", "20480"],
    "Breakout, DNA": [
        "ALE/Breakout-v5",
        "agents=32",
        "--interactions",
        "20480",
        "policy.sgd.minibatch=1024",
        "warm_up.high=50",
    ],
}


def rate(words: list[str], ranks: int, threads: int) -> float:
    """Return the interactions per second of the iterations after the first."""
    start = [sys.executable, "-m"]
    if ranks > 1:
        start += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        how = ["--threads", str(threads), "--compile", "off", "--quiet", "--out", str(run)]
        command = [*start, "dna", "train", *words, *how]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = (run / "timings.jsonl").read_text().splitlines()[1:]
        return float(statistics.harmonic_mean([json.loads(x)["rate"] for x in lines]))


def measure(words: list[str], rounds: int) -> dict[str, Any]:
    """Return the rates of both, which take turns, and their ratio in each round."""
    cores = os.cpu_count() or 1
    found: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(rounds):
        for ranks, rates in found.items():
            rates.append(rate(words, int(ranks), max(cores // int(ranks), 1)))
    ratios = [two / one for one, two in zip(found["1"], found["2"], strict=True)]
    return {"interactions per second": found, "ratio": ratios, "cores": cores}


def main() -> None:
    """Measure all cases, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/ranks.json"))
    words = parser.parse_args()
    results = {}
    for name in words.cases:
        results[name] = measure(CASES[name], words.rounds)
        print(name, json.dumps(results[name]))
        write_json(words.out, results)


if __name__ == "__main__":
    main()
