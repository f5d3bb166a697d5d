"""Stable-Baselines3's PPO on the same work, set up as its documentation sets it up."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from protocol import case, serve
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecFrameStack
from torch import nn


class SmallCNN(BaseFeaturesExtractor):
    """The encoder of our MinAtar presets: one 3×3 convolution of 16 filters, 128 units."""

    def __init__(self, space: gym.spaces.Box) -> None:
        super().__init__(space, 128)
        height, width, channels = space.shape
        self.net = nn.Sequential(
            nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(16 * (height - 2) * (width - 2), 128), nn.ReLU(),
        )  # fmt: skip

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Channels first, as torch likes them."""
        return self.net(obs.permute(0, 3, 1, 2))


class AsFloat(gym.ObservationWrapper):
    """MinAtar shows booleans, which SB3 does not take."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        shape = env.observation_space.shape
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape, np.float32)

    def observation(self, obs: np.ndarray) -> np.ndarray:
        """As numbers."""
        return obs.astype(np.float32)


def environments(asked: dict[str, Any]) -> tuple[VecEnv, str, dict[str, Any]]:
    """The family's environments, policy and network."""
    agents = asked["agents"]
    if asked["family"] == "atari":
        import ale_py

        gym.register_envs(ale_py)
        name = asked["env"].removeprefix("ALE/").removesuffix("-v5") + "NoFrameskip-v4"
        # Forked: 128 fresh interpreters, each with its own torch, would not fit the memory.
        env = make_atari_env(
            name,
            n_envs=agents,
            seed=0,
            vec_env_cls=SubprocVecEnv,
            vec_env_kwargs={"start_method": "fork"},
        )
        return VecFrameStack(env, n_stack=4), "CnnPolicy", {}
    if asked["family"] == "minatar":
        from minatar.gym import register_envs

        register_envs()
        env = make_vec_env(lambda: AsFloat(gym.make(asked["env"])), n_envs=agents)
        kwargs = {"features_extractor_class": SmallCNN, "net_arch": []}
        return env, "MlpPolicy", kwargs
    return make_vec_env(asked["env"], n_envs=agents, seed=0), "MlpPolicy", {}


def main() -> None:
    """Learn one unit at a time."""
    asked = case()
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    env, policy, kwargs = environments(asked)
    model = PPO(
        policy,
        env,
        n_steps=asked["horizon"],
        batch_size=asked["minibatch"],
        n_epochs=asked["epochs"],
        policy_kwargs=kwargs,
        device="cpu",
    )
    unit = asked["iterations"] * asked["agents"] * asked["horizon"]

    def work() -> int:
        model.learn(unit, reset_num_timesteps=False)
        return unit

    serve(work)


if __name__ == "__main__":
    main()
