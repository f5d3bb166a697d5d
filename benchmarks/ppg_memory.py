"""Measure the peak memory of PPG on Atari at the paper's size: 128 × 128, 32 rollouts.

The run collects 32 rollouts and performs one auxiliary phase with a single epoch. The other
phases are left out (0 epochs), because they need no more memory than the auxiliary phase.

    python benchmarks/ppg_memory.py --out /some/folder
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from dna.config.overrides import tweak
from dna.config.presets import for_environment
from dna.runs.setup import How
from dna.runs.train import train


def main() -> None:
    """Run PPG and print the peak resident memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--out", type=Path, help="run folder [default: a temporary one]")
    args = parser.parse_args()
    config = for_environment(f"ALE/{args.game}-v5", "ppg")
    batch = config.agents * config.horizon * 32
    changes = {"interactions": batch, "policy.sgd.epochs": 0, "value.sgd.epochs": 0}
    config = tweak(config, **changes, **{"aux.sgd.epochs": 1, "warm_up.high": 10})
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or Path(temporary) / "run"
        result = train(config, 0, folder, how=How(restart=True, tensorboard=False))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{result['interactions']:,} interactions in {time.perf_counter() - start:,.0f} s")
    print(f"peak resident memory: {peak / 1e9:.2f} GB, largest worker {workers / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
