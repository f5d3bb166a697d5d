"""Compare eight seeds in a process each with eight seeds batched in one process.

For each environment, measures the seconds of a single run and of `dna train --seeds 8`, and the
microseconds of a compiled update for one seed and for eight at once (`vmap`).

    python benchmarks/seeds.py --out benchmarks/results/seeds.json
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dna.algorithm.compiled_step import MOST_STEPS, CompiledStep, _options
from dna.common.storage import write_json
from dna.config import Config
from dna.config.presets import for_environment
from dna.envs import Making, make
from dna.networks.batch import Batch
from dna.networks.networks import FlatWeights, Networks

SEEDS, ROUNDS = 8, 5
OPTIONS = _options(torch.device("cpu"))
#: Interactions of whole runs; None times only updates, because compilation would dominate.
CASES = {"HalfCheetah-v5": None, "MinAtar/Breakout-v1": 65_536}


def seconds_of(env_id: str, seeds: int, interactions: int) -> float:
    """Return the wall-clock time of the whole command, including start-up."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "dna", "train", env_id, "--seeds", str(seeds)]
        words += ["--interactions", str(interactions), "--out", folder, "--quiet"]
        start = time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start


def whole_runs(env_id: str, interactions: int) -> dict[str, Any]:
    """Time one seed and eight seeds, which take turns."""
    seconds_of(env_id, 1, interactions)  # fills the compiler's cache
    alone, eight = [], []
    for _ in range(ROUNDS):
        alone.append(seconds_of(env_id, 1, interactions))
        eight.append(seconds_of(env_id, SEEDS, interactions))
    gains = [SEEDS * one / many for one, many in zip(alone, eight, strict=True)]
    return {
        "interactions": interactions,
        "one_seed_seconds": statistics.median(alone),
        "eight_processes_seconds": statistics.median(eight),
        "eight_solo_runs_over_eight_at_once": statistics.median(gains),
        "range": [min(gains), max(gains)],
    }


def update(env_id: str, seeds: int) -> float:
    """Return the microseconds of one compiled update of the value networks of all seeds."""
    config = for_environment(env_id)
    step, data = prepared(config)
    state = step._state()
    scalars = step._scalars(0.0)
    if seeds == 1:
        work = torch.compile(step._steps, fullgraph=True, dynamic=False, options=OPTIONS)
        return microseconds(lambda: work(state, *scalars, data)) / step.minibatches
    states = [torch.stack([part] * seeds) for part in state]
    batch = {name: torch.stack([column] * seeds) for name, column in data.items()}
    many = torch.vmap(step._steps, in_dims=([0, 0, 0, 0], None, None, 0))
    work = torch.compile(many, fullgraph=True, dynamic=False, options=OPTIONS)
    return microseconds(lambda: work(states, *scalars, batch)) / step.minibatches


def prepared(config: Config) -> tuple[CompiledStep, Batch]:
    """Return a compiled step of the value phase and its mini-batch."""
    env = make(config.env, Making(1, (0,)))
    networks = Networks(config, env.observation, env.action)
    phase = next(phase for phase in config.phases if phase.kind == "value")
    walked = MOST_STEPS if env.observation.kind == "vector" else 1  # as in a run
    step = CompiledStep(phase, networks, FlatWeights(networks), walked)
    rows = walked * phase.sgd.minibatch
    obs = torch.from_numpy(env.reset()).expand(rows, *env.observation.shape).clone()
    env.close()
    return step, {"obs": obs, "v_targ": torch.randn(rows), "weight": torch.ones(rows)}


def microseconds(work: Callable[[], Any]) -> float:
    with torch.no_grad():
        for _ in range(20):
            work()
        turns = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(200):
                work()
            turns.append((time.perf_counter() - start) / 200)
    return statistics.median(turns) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    found: dict[str, Any] = {}
    warnings.simplefilter("ignore")  # vmap warns of missing batching rules; part of its cost
    for env_id, interactions in CASES.items():
        found[env_id] = {} if interactions is None else whole_runs(env_id, interactions)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found[env_id][f"update_one_seed_us_{threads}_threads"] = update(env_id, 1)
            found[env_id][f"update_eight_seeds_us_{threads}_threads"] = update(env_id, SEEDS)
    print(json.dumps(found, indent=2))
    if out is not None:
        write_json(out, found)


if __name__ == "__main__":
    main()
