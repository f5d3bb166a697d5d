"""PPO in the style of single-file scripts, written by us as such scripts usually are.

One network, NCHW, observations stored as floats, values computed at every step of the
rollout, plain Adam, EnvPool for Atari and Procgen. Nothing here is from another project.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from protocol import case, serve
from torch import nn
from torch.distributions import Categorical, Normal


def layer(module: Any, gain: float = 2**0.5) -> Any:
    nn.init.orthogonal_(module.weight, gain)
    nn.init.constant_(module.bias, 0.0)
    return module


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.relu(self.first(torch.relu(x))))


def impala() -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for filters in (16, 32, 32):
        layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
        layers += [Residual(filters), Residual(filters)]
        channels = filters
    return nn.Sequential(
        *layers, nn.ReLU(), nn.Flatten(), layer(nn.Linear(2048, 256)), nn.ReLU()
    )


class Agent(nn.Module):
    def __init__(self, family: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.pixels = family in ("atari", "procgen")
        self.log_std = nn.Parameter(torch.zeros(outputs)) if family == "mujoco" else None
        if family == "atari":
            self.net = nn.Sequential(
                layer(nn.Conv2d(4, 32, 8, 4)), nn.ReLU(),
                layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(),
                layer(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(),
                layer(nn.Linear(3136, 512)), nn.ReLU(),
            )  # fmt: skip
            width = 512
        elif family == "procgen":
            self.net, width = impala(), 256
        else:
            self.net = nn.Sequential(
                layer(nn.Linear(inputs, 64)), nn.Tanh(), layer(nn.Linear(64, 64)), nn.Tanh()
            )
            width = 64
        self.actor = layer(nn.Linear(width, outputs), 0.01)
        self.critic = layer(nn.Linear(width, 1), 1.0)

    def forward(self, obs: torch.Tensor, action: torch.Tensor | None = None) -> Any:
        hidden = self.net(obs / 255.0 if self.pixels else obs)
        out = self.actor(hidden)
        if self.log_std is None:
            pi: Any = Categorical(logits=out)
            action = pi.sample() if action is None else action
            return action, pi.log_prob(action), pi.entropy(), self.critic(hidden).flatten()
        pi = Normal(out, self.log_std.expand_as(out).exp())
        action = pi.sample() if action is None else action
        value = self.critic(hidden).flatten()
        return action, pi.log_prob(action).sum(1), pi.entropy().sum(1), value


def environments(asked: dict[str, Any]) -> tuple[Any, tuple[int, ...], int]:
    """(vector environment, shape of an observation, number of outputs)."""
    if asked["family"] == "mujoco":
        env = gym.make_vec(asked["env"], asked["agents"], vectorization_mode="sync")
        return env, env.single_observation_space.shape, env.single_action_space.shape[0]
    import envpool

    name = asked["env"].split("/")[1]
    options: dict[str, Any] = {}
    if asked["family"] == "procgen":
        name = f"{name.capitalize()}Hard-v0"
    else:
        options = {"repeat_action_probability": 0.25, "full_action_space": True}
        options |= {"use_fire_reset": False}
    env = envpool.make(name, env_type="gymnasium", num_envs=asked["agents"], seed=0, **options)
    return env, env.observation_space.shape, int(env.action_space.n)


class Script:
    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked, self.rng = asked, np.random.default_rng(0)
        self.env, shape, outputs = environments(asked)
        self.agent = Agent(asked["family"], int(np.prod(shape)), outputs)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=2.5e-4, eps=1e-5)
        steps, agents = asked["horizon"], asked["agents"]
        width = (outputs,) if asked["family"] == "mujoco" else ()
        self.obs = torch.zeros((steps, agents, *shape))
        self.actions = torch.zeros((steps, agents, *width))
        self.log_probs, self.rewards = torch.zeros(steps, agents), torch.zeros(steps, agents)
        self.dones, self.values = torch.zeros(steps, agents), torch.zeros(steps, agents)
        self.next_obs = torch.Tensor(np.asarray(self.env.reset()[0]))
        self.next_done = torch.zeros(agents)

    def rollout(self) -> None:
        for t in range(self.asked["horizon"]):
            self.obs[t], self.dones[t] = self.next_obs, self.next_done
            with torch.no_grad():
                action, log_prob, _, value = self.agent(self.next_obs)
            self.actions[t], self.log_probs[t], self.values[t] = action, log_prob, value
            acted = action.numpy()
            if acted.dtype == np.int64:
                acted = acted.astype(np.int32)
            obs, reward, ended, cut, _ = self.env.step(acted)
            self.rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            self.next_obs = torch.Tensor(np.asarray(obs))
            self.next_done = torch.Tensor(np.logical_or(ended, cut))

    def returns(self) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            value = self.agent(self.next_obs)[3]
        advantages, last = torch.zeros_like(self.rewards), torch.zeros(self.asked["agents"])
        done = self.next_done
        for t in reversed(range(self.asked["horizon"])):
            delta = self.rewards[t] + 0.99 * value * (1 - done) - self.values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * (1 - done) * last
            value, done = self.values[t], self.dones[t]
        return advantages, advantages + self.values

    def update(self) -> None:
        advantages, returns = self.returns()
        obs, actions = self.obs.flatten(0, 1), self.actions.flatten(0, 1)
        log_probs, returns = self.log_probs.flatten(), returns.flatten()
        advantages = advantages.flatten()
        for _ in range(self.asked["epochs"]):
            order = self.rng.permutation(len(obs))
            for start in range(0, len(obs), self.asked["minibatch"]):
                rows = order[start : start + self.asked["minibatch"]]
                _, log_prob, entropy, value = self.agent(obs[rows], actions[rows])
                ratio = (log_prob - log_probs[rows]).exp()
                adv = advantages[rows]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = torch.clamp(ratio, 0.8, 1.2)
                policy = torch.max(-adv * ratio, -adv * clipped).mean()
                loss = policy - 0.01 * entropy.mean()
                loss = loss + 0.25 * ((value - returns[rows]) ** 2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
                self.optimizer.step()

    def __call__(self) -> int:
        for _ in range(self.asked["iterations"]):
            self.rollout()
            self.update()
        return int(self.asked["iterations"] * self.rewards.numel())


def main() -> None:
    asked = case()
    if asked["threads"]:
        torch.set_num_threads(asked["threads"])
    serve(Script(asked))


if __name__ == "__main__":
    main()
