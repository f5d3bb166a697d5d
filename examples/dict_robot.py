"""A robot with a camera and joints: Dict observations, and an action that moves and grips.

The camera shows a target as a bright spot; the joints give the position of the hand. The action
is also a Dict: a direction (real numbers) and whether to grip (a choice). By default, images go
through a convolutional encoder, and its features are concatenated with the joints.

    python examples/dict_robot.py
    python examples/dict_robot.py --interactions 100000
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import dna

SIZE = 12


class Robot(gymnasium.Env[Any, Any]):
    """Move the hand to the target and grip there: reward 1 for a hit, −0.2 for a miss."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (SIZE, SIZE, 1), np.uint8),
            "joints": spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    action_space = spaces.Dict(
        {"move": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)}
    )

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.hand, self.target = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        self.time = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        before = self.distance()
        self.hand = np.clip(self.hand + 0.3 * action["move"], -1, 1).astype(np.float32)
        self.time += 1
        reward, held = before - self.distance(), False
        if action["grip"] == 1:
            held = self.distance() < 0.3
            reward += 1.0 if held else -0.2
        return self.seen(), float(reward), held, self.time >= 25, {}

    def distance(self) -> float:
        return float(np.linalg.norm(self.hand - self.target))

    def seen(self) -> dict[str, Any]:
        camera = np.zeros((SIZE, SIZE, 1), np.uint8)
        row, column = ((self.target + 1) / 2 * (SIZE - 1)).round().astype(int)
        camera[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = 255
        return {"camera": camera, "joints": self.hand.copy()}


def main(interactions: int = 30_000, episodes: int = 50) -> tuple[float, float]:
    """Return the mean scores before and after learning."""
    # Images are expensive, so use fewer epochs and a narrow encoder.
    fewer = {f"{phase}.sgd.epochs": 2 for phase in ("policy", "value", "distil")}
    agent = dna.DNA(Robot, seed=1, warm_up__high=25, network__width=64, **fewer)
    before = agent.evaluate(episodes)
    agent.learn(interactions)
    after = agent.evaluate(episodes)
    print("score before:", before, "| after:", after)
    env = Robot()
    obs, _ = env.reset(seed=0)
    action, _ = agent.predict(obs, deterministic=True)
    print("toward", env.target - env.hand, "it moves", action["move"], "grip", action["grip"])
    return before.mean, after.mean


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interactions", type=int, default=30_000)
    parser.add_argument("--episodes", type=int, default=50)
    main(**vars(parser.parse_args()))
