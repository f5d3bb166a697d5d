"""Measure optimizer steps and inference by the size of the pieces that threads share.

`python benchmarks/pieces.py [--out FILE]`, on an idle machine: a few minutes. The pieces in
`dna.networks.encoders` were chosen from its table.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dna.algorithm.engine import EagerStep
from dna.common.storage import write_json
from dna.common.threads import Workers, cores
from dna.config import SGD, Config, Network, Policy, Value
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.actors import TorchActor
from dna.networks.batch import Experience, Minibatch
from dna.networks.networks import FlatWeights, Networks
from dna.runs.setup import keep_memory

#: Encoder → observations, mini-batch sizes and numbers of agents of the presets that use it.
CASES = {
    "small": (ObservationSpec("image", (10, 10, 4), "bool"), (256, 512), 64),
    "nature": (ObservationSpec("image", (84, 84, 4), "uint8"), (512, 2048), 128),
    "impala": (ObservationSpec("image", (64, 64, 3), "uint8"), (512, 2048), 256),
}
PIECES = (16, 32, 64, 128, 256, 512, 1024, 2048)
ROUNDS = 9


def networks_for(encoder: str, obs: ObservationSpec, rows: int) -> tuple[Networks, Experience]:
    """Return networks and random rows."""
    sgd = SGD(epochs=1, minibatch=rows)
    config = Config(
        phases=(Policy(sgd=sgd), Value(sgd=sgd)),
        horizon=rows,
        agents=1,
        network=Network.model_validate({"encoder": encoder}),
        normalize_observation=None,
    )
    networks = Networks(config, obs, ActionSpec("categorical", (6,)))
    seen = torch.randint(0, 2, (rows, *obs.shape)).to(getattr(torch, obs.dtype))
    columns = {
        "action": torch.randint(0, 6, (rows, 1)),
        "log_prob": torch.full((rows, 1), -1.8),
        "advantage": torch.randn(rows),
        "v_targ": torch.randn(rows),
        "weight": torch.ones(rows),
    }
    return networks, Experience(seen, columns)


def step_of(
    encoder: str, obs: ObservationSpec, rows: int, piece: int, threads: int
) -> Callable[[], object]:
    """Return a policy step on a mini-batch of so many rows."""
    networks, data = networks_for(encoder, obs, rows)
    networks.workers = Workers(threads, partial(torch.set_num_threads, 1))
    phase = Policy(sgd=SGD(epochs=1, minibatch=rows))
    step = EagerStep(phase, networks, FlatWeights(networks), piece)
    return lambda: step(Minibatch(data, torch.randperm(rows).sort().values), 0.0)


def acting_of(
    encoder: str, obs: ObservationSpec, agents: int, piece: int, threads: int
) -> Callable[[], object]:
    """Return the inference of one step of all agents."""
    networks, data = networks_for(encoder, obs, agents)
    networks.workers = Workers(threads, partial(torch.set_num_threads, 1))
    actor = TorchActor(networks, piece=piece)
    seen = data.obs[:].numpy()
    noise = np.zeros((agents, 6), np.float32)
    return lambda: actor(seen, noise)


def measured(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median milliseconds of each, measured in turns."""
    turns: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS + 1):
        for name, work in works.items():
            count = 0
            start = time.perf_counter()
            while count < 2 or time.perf_counter() - start < 0.15:
                work()
                count += 1
            if number:
                turns[name].append((time.perf_counter() - start) / count * 1e3)
    return {name: statistics.median(times) for name, times in turns.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("encoders", nargs="*", default=list(CASES))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    found: dict[str, dict[str, float]] = {}
    for encoder in args.encoders:
        obs, sizes, agents = CASES[encoder]
        for rows in (*sizes, agents):
            make = acting_of if rows == agents else step_of
            works = {
                f"{piece} rows, {threads} threads": make(encoder, obs, rows, piece, threads)
                for piece in PIECES
                if max(rows // 16, 16) <= piece <= rows
                for threads in (1, cores())
            }
            name = f"{encoder}, {'acting' if rows == agents else 'learning'}, {rows} rows"
            found[name] = measured(works)
            print(json.dumps({name: found[name]}, indent=1), flush=True)
    if args.out is not None:
        write_json(args.out, found)


if __name__ == "__main__":
    main()
