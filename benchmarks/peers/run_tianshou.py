"""Tianshou's PPO on the same work: its collector, buffer, networks and on-policy trainer.

As in its examples, except for what would be additional work: advantages are computed once per
rollout, and neither observations nor returns are normalized.
"""

from typing import Any

import gymnasium as gym
import torch
from common import Encoder, factory
from protocol import case, serve
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainer, OnPolicyTrainerParams
from tianshou.utils.net.common import ActionReprNetWithVectorOutput, Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import nn
from torch.distributions import Categorical, Distribution, Independent, Normal


class Hidden(ActionReprNetWithVectorOutput[Any]):
    """The shared encoder, as Tianshou expects one."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__(128)
        self.encoder = Encoder(shape)

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        """Features, and the state of a recurrent network, which this is not."""
        return self.encoder(torch.as_tensor(obs)), state


def gaussian(parameters: tuple[torch.Tensor, torch.Tensor]) -> Distribution:
    """Return independent normal distributions."""
    return Independent(Normal(*parameters), 1)


def categorical(logits: torch.Tensor) -> Distribution:
    """Return the distribution of a discrete action."""
    return Categorical(logits=logits)


def networks(asked: dict[str, Any], env: gym.Env) -> tuple[ProbabilisticActorPolicy, nn.Module]:
    """Return policy and critic."""
    shape = env.observation_space.shape
    spaces = {"action_space": env.action_space, "observation_space": env.observation_space}
    if asked["family"] == "minatar":
        hidden = Hidden(shape)
        actor = DiscreteActor(
            preprocess_net=hidden, action_shape=env.action_space.n, softmax_output=False
        )
        policy = ProbabilisticActorPolicy(
            actor=actor,
            dist_fn=categorical,
            action_bound_method=None,
            action_scaling=False,
            **spaces,
        )
        return policy, DiscreteCritic(preprocess_net=hidden)
    layers = {"state_shape": shape, "hidden_sizes": (64, 64), "activation": nn.Tanh}
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(**layers), action_shape=env.action_space.shape, unbounded=True
    )
    policy = ProbabilisticActorPolicy(actor=actor, dist_fn=gaussian, **spaces)
    return policy, ContinuousCritic(preprocess_net=Net(**layers))


def main() -> None:
    """Train one unit, which is an epoch in its terms, at a time."""
    asked = case()
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    make = factory(asked)
    env = DummyVectorEnv([make] * asked["agents"])
    policy, critic = networks(asked, make())
    algorithm = PPO(
        policy=policy,
        critic=critic,
        optim=AdamOptimizerFactory(lr=3e-4),
        max_grad_norm=0.5,
        ent_coef=0.0,
    )
    batch = asked["horizon"] * asked["agents"]
    collector = Collector[CollectStats](algorithm, env, VectorReplayBuffer(batch, len(env)))
    unit = asked["iterations"] * batch
    params = OnPolicyTrainerParams(
        training_collector=collector,
        epoch_num_steps=unit,
        collection_step_num_env_steps=batch,
        batch_size=asked["minibatch"],
        update_step_num_repetitions=asked["epochs"],
        verbose=False,
        show_progress=False,
    )
    trainer = OnPolicyTrainer(algorithm, params)
    trainer.reset()

    def work() -> int:
        trainer.execute_epoch()
        return int(unit)

    serve(work)


if __name__ == "__main__":
    main()
