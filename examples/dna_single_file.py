"""DNA in one file: PPO with a dual network architecture (Aitchison & Sweetser 2022).

    python examples/dna_single_file.py                # CartPole-v1, 100,000 interactions
    python examples/dna_single_file.py --env-id Acrobot-v1 --seed 1

The whole algorithm for Gymnasium environments with vector observations and discrete actions,
to be read from top to bottom. Nothing of this package is imported. Sections and equations are
those of the paper. tests/paper/test_single_file.py checks that `estimate` and the three phases
compute what the package's engine computes.
"""

import argparse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn

Array = np.ndarray
Batch = dict[str, Tensor]  # columns with one row per interaction


@dataclass
class Hyperparameters:
    """Settings for CartPole; comments give the paper's for Atari where these differ."""

    env_id: str = "CartPole-v1"
    seed: int = 0
    interactions: int = 100_000  # steps of all agents; the paper: 50 million
    agents: int = 8  # A, environments that run in parallel; the paper: 128
    horizon: int = 128  # N, steps of each agent per rollout
    gamma: float = 0.98  # γ, discount; the paper: 0.999
    lambda_pi: float = 0.8  # λ_π of the advantages, for low variance (section 4.2)
    lambda_v: float = 0.95  # λ_V of the value targets, for low bias (section 4.2)
    epsilon: float = 0.2  # ε, clipping of the policy ratio
    entropy_bonus: float = 0.0  # c_eb; the paper: 0.01
    beta: float = 1.0  # β, weight of the policy constraint in distillation
    epochs_pi: int = 10  # E_π; the paper: 2
    epochs_v: int = 10  # E_V; the paper: 1
    epochs_d: int = 5  # E_D; the paper: 2
    minibatch_pi: int = 128  # the paper: 2048, as the policy gradient is noisy (section 3)
    minibatch_v: int = 128  # the paper: 512
    minibatch_d: int = 128  # the paper: 512
    learning_rate: float = 1e-3  # annealed to zero; the paper: 2.5e-4, constant
    adam_eps: float = 1e-5
    max_gradient_norm: float = 5.0
    width: int = 64  # of two dense layers; the paper: the convolutional NatureCNN
    observation_clip: float = 10.0  # the paper: 3 (appendix A)
    reward_clip: float = 5.0  # (appendix A)


# ── The two networks (section 4.1) ────────────────────────────────────────────────────────


def dense(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer with orthogonal initialization."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def encoder(inputs: int, width: int) -> nn.Sequential:
    """Two layers of features. Each network has an encoder of its own: nothing is shared."""
    first = dense(inputs, width, 2**0.5)
    second = dense(width, width, 2**0.5)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh())


class PolicyNetwork(nn.Module):
    """s → log π(·|s) and V_π(s)."""

    def __init__(self, inputs: int, actions: int, width: int) -> None:
        super().__init__()
        self.encoder = encoder(inputs, width)
        self.policy_head = dense(width, actions, 0.01)  # nearly uniform at first
        self.value_head = dense(width, 1, 1.0)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(obs)
        return self.policy_head(features).log_softmax(-1), self.value_head(features).squeeze(-1)


class ValueNetwork(nn.Module):
    """s → V_V(s), the value estimate V in all equations of returns and advantages."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.encoder = encoder(inputs, width)
        self.value_head = dense(width, 1, 1.0)

    def forward(self, obs: Tensor) -> Tensor:
        return self.value_head(self.encoder(obs)).squeeze(-1)


class RunningMoments:
    """Mean and standard deviation of everything seen, merged batch by batch (Chan et al.)."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape)
        self.m2 = np.zeros(shape)  # sum of squared deviations

    def update(self, batch: Array) -> None:
        mean, n = batch.mean(axis=0), len(batch)
        delta = mean - self.mean
        self.m2 = self.m2 + np.square(batch - mean).sum(axis=0)
        self.m2 = self.m2 + np.square(delta) * (self.count * n / (self.count + n))
        self.mean = self.mean + delta * (n / (self.count + n))
        self.count += n

    @property
    def std(self) -> Array:
        return np.sqrt(self.m2 / self.count)


class Agent:
    """Both networks, one Adam for each phase (section 4.4), and the observation statistics."""

    def __init__(self, inputs: int, actions: int, hp: Hyperparameters) -> None:
        self.hp = hp
        self.rng = np.random.default_rng(hp.seed)  # for the order of mini-batches
        self.moments = RunningMoments((inputs,))  # shared by both networks (appendix A)
        self.policy = PolicyNetwork(inputs, actions, hp.width)
        self.value = ValueNetwork(inputs, hp.width)
        self.policy_adam = torch.optim.Adam(self.policy.parameters(), eps=hp.adam_eps)
        self.value_adam = torch.optim.Adam(self.value.parameters(), eps=hp.adam_eps)
        self.distil_adam = torch.optim.Adam(self.policy.parameters(), eps=hp.adam_eps)

    def set_learning_rate(self, learning_rate: float) -> None:
        for adam in (self.policy_adam, self.value_adam, self.distil_adam):
            adam.param_groups[0]["lr"] = learning_rate

    def normalized(self, obs: Array) -> Tensor:
        """s' = clip((s − s_μ) / s_σ, −clip, clip) (appendix A)."""
        scaled = (obs - self.moments.mean) / (self.moments.std + 1e-5)
        clipped = scaled.clip(-self.hp.observation_clip, self.hp.observation_clip)
        return torch.from_numpy(clipped.astype(np.float32))


# ── Experience (algorithm 1, lines 6-7) ───────────────────────────────────────────────────


class Collector:
    """The environments, their reward normalization, and the scores of their episodes."""

    def __init__(self, hp: Hyperparameters) -> None:
        self.hp = hp
        make = [lambda: gymnasium.make(hp.env_id)] * hp.agents
        self.envs = SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP)
        self.obs, _ = self.envs.reset(seed=hp.seed)
        self.returns = np.zeros(hp.agents)  # R, the discounted return of each episode so far
        self.return_moments = RunningMoments()
        self.score = np.zeros(hp.agents)  # raw rewards of each episode so far
        self.scores: deque[float] = deque(maxlen=100)  # of the last 100 episodes

    @torch.no_grad()
    def collect(self, agent: Agent) -> dict[str, Array]:
        """Run π in A environments for N steps. Columns are [N, A, …]."""
        rows = []
        for _ in range(self.hp.horizon):
            agent.moments.update(self.obs)
            log_pi, _ = agent.policy(agent.normalized(self.obs))
            action = torch.multinomial(log_pi.exp(), 1)
            obs, reward, terminated, truncated, info = self.envs.step(action[:, 0].numpy())
            done = terminated | truncated
            next_obs = obs.copy()
            for a in np.flatnonzero(done):  # `obs` is already that of the next episode
                next_obs[a] = info["final_obs"][a]
            row = {
                "obs": self.obs,
                "next_obs": next_obs,
                "action": action[:, 0].numpy(),
                "log_prob": log_pi.gather(1, action)[:, 0].numpy(),
                "reward": self.normalized_reward(reward, done),
                "terminated": terminated,  # the episode has no future
                "done": done,  # terminated, or truncated by a time limit
            }
            rows.append(row)
            self.score += reward
            self.scores.extend(self.score[done])
            self.score[done] = 0.0
            self.obs = obs
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def normalized_reward(self, reward: Array, done: Array) -> Array:
        """r' = clip(r / √Var[R], −clip, clip): returns of unit variance (appendix A)."""
        self.returns = reward + self.hp.gamma * self.returns
        self.return_moments.update(self.returns)
        self.returns[done] = 0.0
        scaled = reward / (self.return_moments.std + 1e-8)
        return scaled.clip(-self.hp.reward_clip, self.hp.reward_clip).astype(np.float32)


# ── Decoupled returns (section 4.2; algorithm 1, lines 8-10) ──────────────────────────────


def td_lambda(
    reward: Tensor, next_v: Tensor, terminated: Tensor, done: Tensor, gamma: float, lam: float
) -> Tensor:
    """TD^(γ,λ) of equation (2), backwards: G_t = r_t + γ [(1−λ) V(s_t+1) + λ G_t+1].

    Where an episode is terminated, V(s_t+1) is zero. Where it is truncated, it would have gone
    on, and V(s_t+1) is the value of its true last observation. Neither looks into the next
    episode: there, and at the end of the rollout, V(s_t+1) stands for G_t+1.
    """
    future = torch.where(terminated, 0.0, next_v)
    returns = torch.empty_like(reward)
    following = future[-1]
    for t in reversed(range(len(reward))):
        following = torch.where(done[t], future[t], following)
        following = reward[t] + gamma * ((1 - lam) * future[t] + lam * following)
        returns[t] = following
    return returns


@torch.no_grad()
def estimate(agent: Agent, rollout: dict[str, Array]) -> Batch:
    """V_targ (equation 6), and Â = V_adv − V (equations 7 and 8), as N·A rows."""
    hp = agent.hp
    obs = agent.normalized(rollout["obs"])
    next_v = agent.value(agent.normalized(rollout["next_obs"]))
    reward = torch.from_numpy(rollout["reward"])
    terminated = torch.from_numpy(rollout["terminated"])
    done = torch.from_numpy(rollout["done"])
    v_targ = td_lambda(reward, next_v, terminated, done, hp.gamma, hp.lambda_v)
    v_adv = td_lambda(reward, next_v, terminated, done, hp.gamma, hp.lambda_pi)
    batch = {
        "obs": obs,
        "action": torch.from_numpy(rollout["action"]),
        "log_prob": torch.from_numpy(rollout["log_prob"]),
        "v_targ": v_targ,
        "advantage": v_adv - agent.value(obs),
    }
    return {name: column.flatten(0, 1) for name, column in batch.items()}


# ── Three phases (sections 4.3 and 4.4; algorithm 1, lines 11-19) ─────────────────────────


def optimize(
    agent: Agent,
    adam: torch.optim.Adam,
    loss: Callable[[Batch], Tensor],
    batch: Batch,
    epochs: int,
    minibatch: int,
) -> None:
    """Minimize a loss over every row once per epoch, in random mini-batches."""
    for _ in range(epochs):
        order = torch.from_numpy(agent.rng.permutation(len(batch["obs"])))
        for rows in torch.split(order, minibatch):
            adam.zero_grad()
            loss({name: column[rows] for name, column in batch.items()}).backward()
            weights = adam.param_groups[0]["params"]
            nn.utils.clip_grad_norm_(weights, agent.hp.max_gradient_norm)
            adam.step()


def policy_phase(agent: Agent, batch: Batch) -> None:
    """Maximize L^CLIP (equation 11) with respect to θ_π."""
    hp = agent.hp

    def loss(mb: Batch) -> Tensor:
        log_pi, _ = agent.policy(mb["obs"])
        log_prob = log_pi.gather(1, mb["action"][:, None])[:, 0]
        ratio = (log_prob - mb["log_prob"]).exp()  # ρ_t = π(a_t|s_t) / π_old(a_t|s_t)
        clipped = ratio.clamp(1 - hp.epsilon, 1 + hp.epsilon)
        surrogate = torch.min(ratio * mb["advantage"], clipped * mb["advantage"])
        entropy = -(log_pi.exp() * log_pi).sum(-1)  # S[π(s_t)], in nats
        return -(surrogate + hp.entropy_bonus * entropy).mean()

    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    batch = batch | {"advantage": advantage}
    optimize(agent, agent.policy_adam, loss, batch, hp.epochs_pi, hp.minibatch_pi)


def value_phase(agent: Agent, batch: Batch) -> None:
    """Minimize L^VF (equation 12) with respect to θ_V."""

    def loss(mb: Batch) -> Tensor:
        return (agent.value(mb["obs"]) - mb["v_targ"]).square().mean()

    optimize(agent, agent.value_adam, loss, batch, agent.hp.epochs_v, agent.hp.minibatch_v)


def distil_phase(agent: Agent, batch: Batch) -> None:
    """Minimize L^D (equation 10) with respect to θ_π: V_π learns V_V while π stays at π_old."""

    def loss(mb: Batch) -> Tensor:
        log_pi, v_pi = agent.policy(mb["obs"])
        kl = (mb["log_pi_old"].exp() * (mb["log_pi_old"] - log_pi)).sum(-1)  # KL(π_old, π)
        return (v_pi - mb["v_v"]).square().mean() + agent.hp.beta * kl.mean()

    with torch.no_grad():  # both are fixed while the phase lasts
        log_pi_old, _ = agent.policy(batch["obs"])
        batch = batch | {"log_pi_old": log_pi_old, "v_v": agent.value(batch["obs"])}
    optimize(agent, agent.distil_adam, loss, batch, agent.hp.epochs_d, agent.hp.minibatch_d)


# ── Training (algorithm 1) ────────────────────────────────────────────────────────────────


def train(hp: Hyperparameters) -> list[tuple[int, float]]:
    """Train an agent; return (interactions, mean score of the last 100 episodes) over time."""
    torch.set_num_threads(1)  # networks this small are not worth more
    torch.manual_seed(hp.seed)
    collector = Collector(hp)
    actions = collector.envs.single_action_space
    assert isinstance(actions, gymnasium.spaces.Discrete), "for discrete actions only"
    agent = Agent(collector.obs.shape[1], int(actions.n), hp)
    curve = []
    for start in range(0, hp.interactions, hp.agents * hp.horizon):
        agent.set_learning_rate(hp.learning_rate * (1 - start / hp.interactions))
        batch = estimate(agent, collector.collect(agent))
        policy_phase(agent, batch)
        value_phase(agent, batch)
        distil_phase(agent, batch)
        curve.append((start + len(batch["obs"]), float(np.mean(collector.scores))))
        if len(curve) % 5 == 0:
            print(f"{curve[-1][0]:>9,} interactions   score {curve[-1][1]:6.1f}", flush=True)
    collector.envs.close()
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train DNA on a Gymnasium environment.")
    parser.add_argument("--env-id", default=Hyperparameters.env_id)
    parser.add_argument("--interactions", type=int, default=Hyperparameters.interactions)
    parser.add_argument("--seed", type=int, default=Hyperparameters.seed)
    train(Hyperparameters(**vars(parser.parse_args())))
