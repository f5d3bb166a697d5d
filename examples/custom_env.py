"""A custom environment, used from Python and from the command line with the same result.

    python examples/custom_env.py
    cd examples && dna train custom_env:make --allow-import

The task is a thermostat: keep a room at 20 °C while it is colder outside, with little heating.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import dna


class Thermostat(gymnasium.Env[Any, int]):
    """Heating off, half or full; the reward is −|T − 20| / 10 minus the cost of heating."""

    observation_space = spaces.Box(-30, 50, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 60) -> None:
        self.length = length

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)  # seeds np_random: use no other generator
        self.outside = self.np_random.uniform(-10, 15)
        self.room = self.np_random.uniform(10, 25)
        self.time = 0
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.room += 0.1 * (self.outside - self.room) + 1.75 * action
        self.time += 1
        reward = -abs(self.room - 20) / 10 - 0.02 * action
        # A time limit is a truncation: the state after it still has a value.
        return self.seen(), reward, False, self.time >= self.length, {}

    def seen(self) -> Any:
        return np.array([self.room, self.outside], np.float32)


def make(length: int = 60) -> Thermostat:
    """Create the environment for `dna train custom_env:make --allow-import`."""
    return Thermostat(length)


def from_the_command_line(interactions: int, seed: int) -> float:
    """Return the score of the same run, trained by `dna train`."""
    with TemporaryDirectory() as folder:
        words = f"train custom_env:make --allow-import --seed {seed} --json --quiet"
        command = [sys.executable, "-m", "dna", *words.split()]
        command += ["--interactions", str(interactions), "--out", f"{folder}/run"]
        here = Path(__file__).parent  # where the module is
        done = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["score"])


def main(interactions: int = 60_000, compare: bool = True) -> float:
    """Learn, evaluate, and compare with the command line."""
    agent = dna.DNA(make, seed=5)
    agent.learn(interactions)
    print("while learning:", agent.score, "| evaluated:", agent.evaluate(50))
    if compare:
        score = from_the_command_line(interactions, seed=5)
        print("`dna train` says:", score, "- the same" if score == agent.score else "- another")
        assert score == agent.score
    return float(agent.score or 0.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interactions", type=int, default=60_000)
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True)
    main(**vars(parser.parse_args()))
