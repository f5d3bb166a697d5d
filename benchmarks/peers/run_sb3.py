"""Stable-Baselines3's PPO on the same work, set up as its documentation sets it up."""

from typing import Any

import gymnasium as gym
import torch
from common import Encoder, factory
from protocol import case, serve
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecFrameStack


class SmallCNN(BaseFeaturesExtractor):
    """The encoder of our MinAtar presets."""

    def __init__(self, space: gym.spaces.Box) -> None:
        super().__init__(space, 128)
        self.net = Encoder(space.shape)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Features."""
        return self.net(obs)


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
        env = make_vec_env(factory(asked), n_envs=agents)
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
