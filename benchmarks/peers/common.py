"""What the peers' scripts share: MinAtar with numbers instead of booleans, and its encoder."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn


class AsFloat(gym.ObservationWrapper):
    """MinAtar shows booleans, which most libraries do not take."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        shape = env.observation_space.shape
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape, np.float32)

    def observation(self, obs: np.ndarray) -> np.ndarray:
        """As numbers."""
        return obs.astype(np.float32)


class Encoder(nn.Module):
    """The encoder of our MinAtar presets: one 3×3 convolution of 16 filters, 128 units."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = shape
        height, width, channels = shape
        self.net = nn.Sequential(
            nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * (height - 2) * (width - 2), 128), nn.ReLU(),
        )  # fmt: skip

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Channels first, as torch likes them; observations may arrive flattened."""
        batch = obs.shape[: obs.ndim - (3 if obs.shape[-3:] == self.shape else 1)]
        hidden = self.net(obs.reshape(-1, *self.shape).permute(0, 3, 1, 2))
        return hidden.reshape(*batch, 128)


def factory(asked: dict[str, Any]) -> Callable[[], gym.Env]:
    """Return a function that makes one environment."""
    if asked["family"] == "minatar":
        from minatar.gym import register_envs

        register_envs()
        return lambda: AsFloat(gym.make(asked["env"]))
    return lambda: gym.make(asked["env"])


def in_one_process(
    asked: dict[str, Any], mode: gym.vector.AutoresetMode
) -> gym.vector.VectorEnv:
    """Return all environments as one vector environment, which steps them one by one."""
    return gym.vector.SyncVectorEnv([factory(asked)] * asked["agents"], autoreset_mode=mode)
