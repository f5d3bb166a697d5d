"""TorchRL's PPO on the same work: its collector, replay buffer, advantage and loss modules.

As in its PPO implementations, except for what would be additional work: advantages are computed
once per rollout instead of once per epoch, observations are not normalized, and actions are
drawn from a plain normal distribution.
"""

from typing import Any

import gymnasium as gym
import torch
from common import Encoder, factory, in_one_process
from protocol import case, serve
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import EnvBase, ExplorationType, GymWrapper, TransformedEnv
from torchrl.envs.transforms import DoubleToFloat
from torchrl.modules import (
    MLP,
    ActorValueOperator,
    IndependentNormal,
    ProbabilisticActor,
    ValueOperator,
)
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.advantages import GAE


def environments(asked: dict[str, Any]) -> EnvBase:
    """One environment, or all of them as one vector environment.

    Its example would run each in a process of its own, which costs MinAtar more than it gains.
    """
    disabled = gym.vector.AutoresetMode.DISABLED  # the collector resets what has ended
    made = factory(asked)() if asked["agents"] == 1 else in_one_process(asked, disabled)
    env = GymWrapper(made, categorical_action_encoding=True)
    if env.observation_spec["observation"].dtype == torch.float64:
        return TransformedEnv(env, DoubleToFloat(["observation"]))
    return env


def networks(asked: dict[str, Any], env: EnvBase) -> tuple[Any, Any]:
    """Return actor and critic."""
    shape, actions = env.observation_spec["observation"].shape, env.full_action_spec_unbatched
    sampling: dict[str, Any] = {"spec": actions, "return_log_prob": True}
    sampling["default_interaction_type"] = ExplorationType.RANDOM
    if asked["family"] == "minatar":
        heads = nn.Linear(128, actions["action"].space.n), nn.Linear(128, 1)
        both = ActorValueOperator(
            TensorDictModule(Encoder(tuple(shape[-3:])), ["observation"], ["hidden"]),
            ProbabilisticActor(
                TensorDictModule(heads[0], ["hidden"], ["logits"]),
                in_keys=["logits"],
                distribution_class=torch.distributions.Categorical,
                **sampling,
            ),
            ValueOperator(heads[1], in_keys=["hidden"]),
        )
        return both.get_policy_operator(), both.get_value_operator()
    width = actions["action"].shape[-1]
    layers = {"in_features": shape[-1], "num_cells": [64, 64], "activation_class": nn.Tanh}
    mean = nn.Sequential(
        MLP(out_features=width, **layers), AddStateIndependentNormalScale(width)
    )
    actor = ProbabilisticActor(
        TensorDictModule(mean, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=IndependentNormal,
        **sampling,
    )
    return actor, ValueOperator(MLP(out_features=1, **layers), in_keys=["observation"])


class Learner:
    """Rollouts and updates, as in its example."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        env = environments(asked)
        actor, critic = networks(asked, env)
        self.batch = asked["horizon"] * asked["agents"]
        self.collector = Collector(
            env,
            actor,
            frames_per_batch=self.batch,
            total_frames=-1,
            auto_register_policy_transforms=False,  # only recurrent policies need them
        )
        self.rollouts = iter(self.collector)
        self.buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(self.batch),
            sampler=SamplerWithoutReplacement(),
            batch_size=asked["minibatch"],
        )
        self.advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic, average_gae=False)
        self.loss = ClipPPOLoss(
            actor_network=actor,
            critic_network=critic,
            clip_epsilon=0.2,
            loss_critic_type="l2",
            entropy_coeff=0.0,
            critic_coeff=0.5,
            normalize_advantage=True,
        )
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=3e-4, eps=1e-5)

    def update(self, data: Any) -> None:
        """All epochs on one rollout."""
        with torch.no_grad():
            data = self.advantage(data)
        self.buffer.extend(data.reshape(-1))
        for _ in range(self.asked["epochs"]):
            for minibatch in self.buffer:
                losses = self.loss(minibatch)
                total = (
                    losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                )
                total.backward()
                nn.utils.clip_grad_norm_(self.loss.parameters(), 0.5)
                self.optimizer.step()
                self.optimizer.zero_grad()

    def __call__(self) -> int:
        """Do one unit of work."""
        for _ in range(self.asked["iterations"]):
            self.update(next(self.rollouts))
            self.collector.update_policy_weights_()
        return int(self.asked["iterations"] * self.batch)


def main() -> None:
    """Learn one unit at a time."""
    asked = case()
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    serve(Learner(asked))


if __name__ == "__main__":
    main()
