"""Contextual bandits with every kind of action space: the best and the chance return are known.

A step shows a random context and pays at most 1 for an action that fits it, so an episode of
`LENGTH` steps pays at most `LENGTH`; a policy that ignores the context is paid by chance.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 8


class Bandit(gymnasium.Env):
    """Shows a context in {0, 1, 2} as a one-hot vector; truncated after `LENGTH` steps."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    #: What a policy that knows nothing is paid for each step.
    chance: float
    #: More than enough to learn it: twice what it took on two seeds.
    interactions = 6144

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._show(), self.info()

    def step(self, action: Any) -> Any:
        reward = self.pay(action)
        self.t += 1
        return self._show(), reward, False, self.t >= LENGTH, self.info()

    def _show(self) -> Any:
        self.context = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.context]

    def info(self) -> dict[str, Any]:
        return {}

    def pay(self, action: Any) -> float:
        raise NotImplementedError


class Choose(Bandit):
    """Discrete: name the context among four."""

    action_space = spaces.Discrete(4)
    chance = 1 / 4

    def pay(self, action: Any) -> float:
        return float(action == self.context)


class Masked(Bandit):
    """Discrete with a mask: name the context; the fourth choice pays as much and is illegal."""

    action_space = spaces.Discrete(4)
    chance = 1 / 3

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, 1, 0], np.int8)}

    def pay(self, action: Any) -> float:
        assert action != 3, "an illegal action was taken"
        return float(action == self.context)


class ChooseMany(Bandit):
    """MultiDiscrete: name the context among three, and the next one among four."""

    action_space = spaces.MultiDiscrete([3, 4])
    chance = (1 / 3 + 1 / 4) / 2

    def pay(self, action: Any) -> float:
        right = (action[0] == self.context, action[1] == (self.context + 1) % 3)
        return float(np.mean(right))


class Switch(Bandit):
    """MultiBinary: switch on all but the context's lamp."""

    action_space = spaces.MultiBinary(3)
    chance = 1 / 2

    def pay(self, action: Any) -> float:
        return float(np.mean(np.asarray(action) == (np.arange(3) != self.context)))


class Aim(Bandit):
    """Box: two numbers near a target that the context sets; paid by the squared distance."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)
    chance = 0.3  # of a mean near zero and a standard deviation of one
    interactions = 12_288

    def pay(self, action: Any) -> float:
        target = np.array([0.5 * (self.context - 1), 0.5 if self.context == 1 else -0.5])
        return float(max(-1.0, 1 - np.mean((action - target) ** 2)))


class ChooseAndAim(Bandit):
    """Dict: name the context, and bring a number near a target that the context sets."""

    action_space = spaces.Dict(
        {"name": spaces.Discrete(4), "aim": spaces.Box(-1, 1, (1,), np.float32)}
    )
    chance = 0.3
    interactions = 12_288

    def pay(self, action: Any) -> float:
        distance = float(action["aim"][0]) - 0.5 * (self.context - 1)
        return (float(action["name"] == self.context) + max(-1.0, 1 - distance**2)) / 2


BANDITS = (Choose, Masked, ChooseMany, Switch, Aim, ChooseAndAim)
