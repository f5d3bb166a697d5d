"""Small configurations and rollouts that many tests share."""

import os
import signal
from pathlib import Path
from typing import Any

import torch

from dna.algorithm.rollout import Collector
from dna.common.randomness import integer
from dna.config import (
    SGD,
    Auxiliary,
    Config,
    Distil,
    Joint,
    Policy,
    Returns,
    Value,
)
from dna.config.overrides import tweak
from dna.envs import Making, VectorEnv, make
from dna.networks.networks import Networks

SMALL = SGD(epochs=2, minibatch=16, learning_rate=1e-3)
TINY = Config(
    phases=(Joint(sgd=SMALL),),
    returns=Returns(gamma=0.9, lambda_pi=0.8, lambda_v=0.95),
    horizon=16,
    agents=4,
    interactions=192,
    warm_up=None,
)
PHASES = {
    "ppo": (Joint(sgd=SMALL),),
    "dna": (Policy(sgd=SMALL), Value(sgd=SMALL), Distil(sgd=SMALL)),
    "ppg": (Policy(sgd=SMALL), Value(sgd=SMALL), Auxiliary(sgd=SMALL, every=2)),
}


def tiny(algorithm: str = "dna", env_id: str | None = "CartPole-v1", **changes: Any) -> Config:
    """A run of three iterations."""
    config = TINY.model_copy(update={"phases": PHASES[algorithm]})
    return tweak(config, **{"env.id": env_id} | changes)


def shaped(horizon: int, agents: int, **changes: Any) -> Config:
    """For collecting only: any horizon and agents, whatever the mini-batches say."""
    config = tiny(env_id=None, **changes)
    return config.model_copy(update={"horizon": horizon, "agents": agents})


def environment(
    config: Config, source: Any = None, seed: int = 0, threads: int = 1
) -> VectorEnv:
    """The environments of a configuration."""
    seeds = tuple(integer(seed, "env", agent, 0) for agent in range(config.agents))
    return make(config.env, Making(config.agents, seeds, threads), source)


def collector(config: Config, source: Any = None, seed: int = 0) -> Collector:
    """Environments, networks and the collector between them."""
    env = environment(config, source, seed)
    torch.manual_seed(0)
    networks = Networks(config, env.observation, env.action)
    return Collector(env, networks, config, seed)


def bytes_of(folder: Path, *names: str) -> dict[str, bytes]:
    """The content of some of a run's files."""
    return {name: (folder / name).read_bytes() for name in names}


class Stopper:
    """Asks the run to stop when some iterations are over."""

    def __init__(self, *iterations: int) -> None:
        self.iterations = iterations

    def start(self) -> None:
        pass

    def write(self, row: Any) -> None:
        if row.iteration in self.iterations:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        pass
