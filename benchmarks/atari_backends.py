"""Compare the speed of Atari backends: this package, ale-py's AtariVectorEnv and EnvPool.

Every backend plays the same games in 128 environments with random actions. The backends take
short turns over many rounds, so that other load on the machine affects all of them equally;
only the ratios are meaningful. This package returns stacks of four frames with action marks,
the others plain stacks of four. With random actions, episodes of Breakout are short, so its
expensive resets are frequent; those of Pong are long.

    python benchmarks/atari_backends.py --games Breakout,Pong --rounds 15
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dna.common.randomness import integer
from dna.config import EnvConfig
from dna.config.environments import Atari
from dna.envs import Making, make

AGENTS = 128
#: Functions that step a backend and close it.
Stepper = tuple[Callable[[np.random.Generator], Any], Callable[[], Any]]


def ours(game: str, cores: int) -> Stepper:
    """Worker processes of this package, as many as a run would start."""
    seeds = tuple(integer(0, "bench", agent) for agent in range(AGENTS))
    config = EnvConfig(id=f"ALE/{game}-v5", atari=Atari())
    env = make(config, Making(AGENTS, seeds, None))
    env.reset()
    return lambda rng: env.step(env.uniform(rng)), env.close


def vector_env(game: str, cores: int) -> Stepper:
    """AtariVectorEnv of ale-py, with C++ threads."""
    import gymnasium
    from ale_py.vector_env import AtariVectorEnv

    rom = gymnasium.spec(f"ALE/{game}-v5").kwargs["game"]
    env = AtariVectorEnv(
        rom,
        num_envs=AGENTS,
        num_threads=cores,
        stack_num=4,
        use_fire_reset=False,
        reward_clipping=False,
        repeat_action_probability=0.25,
        full_action_space=True,
    )
    env.reset(seed=0)
    return lambda rng: env.step(rng.integers(0, 18, AGENTS)), env.close


def envpool_env(game: str, cores: int) -> Stepper:
    """EnvPool, with C++ threads and an older emulator."""
    import envpool

    env = envpool.make(
        f"{game}-v5",
        env_type="gymnasium",
        num_envs=AGENTS,
        num_threads=cores,
        use_fire_reset=False,
        repeat_action_probability=0.25,
        full_action_space=True,
        seed=0,
    )
    env.reset()
    return lambda rng: env.step(rng.integers(0, 18, AGENTS).astype(np.int32)), env.close


def measure(backend: Stepper, rng: np.random.Generator, steps: int) -> float:
    """Return the steps of single environments per second."""
    step, _ = backend
    start = time.perf_counter()
    for _ in range(steps):
        step(rng)
    return steps * AGENTS / (time.perf_counter() - start)


def compare(game: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the steps per second of every backend in every round."""
    cores = os.cpu_count() or 1
    makers = {"AtariVectorEnv": vector_env, "ours": ours, "EnvPool": envpool_env}
    backends = {name: maker(game, cores) for name, maker in makers.items()}
    rng = np.random.default_rng(0)
    rates: dict[str, list[float]] = {name: [] for name in backends}
    for i in range(rounds + 1):
        for name, backend in backends.items():
            rate = measure(backend, rng, steps)
            if i:  # the first round warms up
                rates[name].append(rate)
    for _, close in backends.values():
        close()
    return rates


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", default="Breakout,Pong,Qbert,Boxing,Phoenix")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=16, help="vector steps per round")
    args = parser.parse_args()
    print(f"{AGENTS} environments, {os.cpu_count()} cores, {args.rounds} rounds of each")
    print("| game | backend | steps/s, median | best | ratio to AtariVectorEnv |")
    print("|---|---|--:|--:|--:|")
    ratios: dict[str, list[float]] = {}
    for game in args.games.split(","):
        rates = compare(game, args.rounds, args.steps)
        for name, found in rates.items():
            pairs = zip(found, rates["AtariVectorEnv"], strict=True)
            ratio = statistics.median(a / b for a, b in pairs)
            ratios.setdefault(name, []).append(ratio)
            middle = statistics.median(found)
            print(f"| {game} | {name} | {middle:,.0f} | {max(found):,.0f} | {ratio:.2f} |")
    for name, found in ratios.items():
        print(f"| mean | {name} | | | {statistics.mean(found):.2f} |")


if __name__ == "__main__":
    main()
