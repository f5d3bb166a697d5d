"""skrl's PPO on the same work: its agent, memory, model mixins and sequential trainer.

As in its examples for Gymnasium, except for what would be additional work: no running
normalization of observations and values, no adaptive learning rate, no logging.
"""

from typing import Any

import torch
from common import Encoder, factory, in_one_process
from gymnasium.vector import AutoresetMode
from protocol import case, serve
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn


def tanh_layers(inputs: int, outputs: int) -> nn.Sequential:
    """SB3's default network."""
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


class Gaussian(GaussianMixin, Model):
    """A policy of its own, for continuous actions."""

    def __init__(self, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = tanh_layers(self.num_observations, self.num_actions)
        self.log_std = nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        """Mean and logarithm of the standard deviation."""
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    """A value network of its own."""

    def __init__(self, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = tanh_layers(self.num_observations, 1)

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        """The value."""
        return self.net(inputs["observations"]), {}


class Shared(CategoricalMixin, DeterministicMixin, Model):
    """Policy and value on one encoder, which is evaluated once for both."""

    def __init__(self, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self, role="policy")
        DeterministicMixin.__init__(self, role="value")
        self.encoder = Encoder(spaces["observation_space"].shape)
        self.policy, self.value = nn.Linear(128, self.num_actions), nn.Linear(128, 1)
        self.hidden: torch.Tensor | None = None

    def act(self, inputs: dict[str, Any], *, role: str = "") -> Any:
        """Policy or value, by its role."""
        mixin = CategoricalMixin if role == "policy" else DeterministicMixin
        return mixin.act(self, inputs, role=role)

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        """Logits, or the value of the observations that the policy has just seen."""
        if role == "policy":
            self.hidden = self.encoder(inputs["observations"])
            return self.policy(self.hidden), {}
        hidden, self.hidden = self.hidden, None
        if hidden is None:
            hidden = self.encoder(inputs["observations"])
        return self.value(hidden), {}


def main() -> None:
    """Train one unit at a time."""
    asked = case()
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    # In Gymnasium's default mode, a step that only resets would count as an interaction.
    mode = AutoresetMode.SAME_STEP
    made = factory(asked)() if asked["agents"] == 1 else in_one_process(asked, mode)
    env = wrap_env(made, verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    spaces["device"] = env.device
    if asked["family"] == "minatar":
        shared = Shared(spaces)
        models = {"policy": shared, "value": shared}
    else:
        models = {"policy": Gaussian(spaces), "value": Value(spaces)}
    config = PPO_CFG(  # learning rate and coefficients as in SB3
        rollouts=asked["horizon"],
        learning_epochs=asked["epochs"],
        mini_batches=asked["horizon"] * asked["agents"] // asked["minibatch"],
        learning_rate=3e-4,
        value_clip=0.0,
        value_loss_scale=0.5,
        time_limit_bootstrap=True,
    )
    config.experiment.write_interval = 0
    config.experiment.checkpoint_interval = 0
    memory = RandomMemory(
        memory_size=asked["horizon"], num_envs=env.num_envs, device=env.device
    )
    agent = PPO(models=models, memory=memory, cfg=config, **spaces)
    steps = asked["iterations"] * asked["horizon"]
    plan = {"timesteps": steps, "headless": True, "disable_progressbar": True}
    trainer = SequentialTrainer(env=env, agents=[agent], cfg=plan)

    def work() -> int:
        trainer.train()
        return int(steps * asked["agents"])

    serve(work)


if __name__ == "__main__":
    main()
