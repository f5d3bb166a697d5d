"""Collecting experience: lines 6-7 of algorithm 1, and the warm-up of appendix A.

Nothing is evaluated per step but the policy; values are computed for the whole rollout at
once afterwards (`estimate`). Scores are raw rewards summed from an episode's true start to
its true end, whatever was done to the rewards that are learned from.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.batch import Rollout
from dna.clock import Clock
from dna.config import Config
from dna.envs import Array, Step, VectorEnv
from dna.episodes import Scores
from dna.frames import Frames, FrameWriter, ObservationWriter
from dna.networks import Networks
from dna.penalty import RepeatedAction
from dna.randomness import generator
from dna.signals import Stop
from dna.statistics import RewardNormalizer


class Collector:
    """The environments of a run and everything that goes on between them and the learner."""

    def __init__(self, env: VectorEnv, networks: Networks, config: Config, seed: int) -> None:
        self.env, self.networks, self.config, self.seed = env, networks, config, seed
        norm = config.normalize_reward
        self.reward_normalizer: RewardNormalizer | None = None
        if norm is not None:
            self.reward_normalizer = RewardNormalizer(
                env.agents, config.returns.gamma, norm.clip, norm.episode_end
            )
        self.penalty: RepeatedAction | None = None
        if config.repeat_penalty is not None:
            amount, after = config.repeat_penalty.amount, config.repeat_penalty.after
            self.penalty = RepeatedAction(env.agents, env.action.width, amount, after)
        self.scores = Scores(env.agents)
        self.obs = torch.from_numpy(env.reset())
        self.elapsed = torch.zeros(env.agents, dtype=torch.int64)  # the time that `obs` shows
        self.resetting = torch.zeros(env.agents, dtype=torch.bool)  # rows that only reset next

    def warm_up(self, stop: Stop | None = None) -> int:
        """Play t ~ U(low, high) untrained steps in each environment; returns the steps taken.

        They start the statistics and pull the environments apart in time. Environments that
        cannot be held still all play the longest t.
        """
        settings = self.config.warm_up
        if settings is None:
            return 0
        rng = generator(self.seed, "warm_up")
        steps = rng.integers(settings.low, settings.high + 1, size=self.env.agents)
        taken = 0
        for t in range(int(steps.max())):
            if stop is not None and stop.asked:
                break
            active = steps > t if self.env.can_hold else None
            moving = ~self.resetting if active is None else torch.from_numpy(active)
            self.networks.observe(self.obs[moving])
            if settings.actions == "uniform":
                action = self.env.uniform(rng)
            else:
                noise = self.networks.distribution.draw(rng, (self.env.agents,))
                action = self._act(self.obs, torch.from_numpy(noise))[0].numpy()
            step = self.env.step(action, active)
            self._learn_rewards(step, action)
            self.scores.add(step, count=False)
            taken += int(step.valid.sum())
            self._advance(step, active)
        return taken

    def collect(self, iteration: int, clock: Clock) -> Rollout:
        """Run π in every environment for N steps."""
        horizon, agents = self.config.horizon, self.env.agents
        distribution = self.networks.distribution
        noise = torch.from_numpy(
            distribution.draw(generator(self.seed, "act", iteration), (horizon, agents))
        )
        stack = self.networks.obs.stack
        states = (
            ObservationWriter(horizon + 1, self.obs)
            if stack is None
            else FrameWriter(horizon + 1, self.obs, self.elapsed, stack)
        )
        rows = _Rows(horizon, agents, self.networks)
        for t in range(horizon):
            with clock("inference"):
                self.networks.observe(self.obs[~self.resetting])
                action, log_prob = self._act(self.obs, noise[t])
            with clock("env"):
                step = self.env.step(action.numpy())
            self.scores.add(step)
            rows.add(t, action, log_prob, step, self._learn_rewards(step, action.numpy()))
            if self.config.env.time_limit == "terminal":
                rows.terminated[t] |= rows.done[t]
            self._advance(step)
            states.add(t + 1, self.obs, rows.done[t], self.elapsed)
        return rows.rollout(states.finish())

    def _advance(self, step: Step, active: npt.NDArray[np.bool_] | None = None) -> None:
        """Move to the next observation; environments held still keep theirs."""
        if active is not None:
            step.obs[~active] = self.obs.numpy()[~active]
        self.obs = torch.from_numpy(step.obs)
        if step.elapsed is not None:
            self.elapsed = torch.from_numpy(step.elapsed)
        # NEXT_STEP: the observation after an end belongs to a row that only resets.
        replaced = np.zeros_like(step.done)
        replaced[list(step.final_obs)] = True
        self.resetting = torch.from_numpy(step.done & ~replaced)

    @torch.inference_mode()
    def _act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        pi = self.networks.pi(obs).pi.cpu()  # sampled on the host: GPU noise varies by card
        action = self.networks.distribution.sample(pi, noise)
        return action, self.networks.distribution.log_prob(pi, action)

    def _learn_rewards(self, step: Step, action: Array) -> npt.NDArray[np.float32]:
        """What is learned from: normalized rewards, less the penalty for repetitions."""
        reward = step.reward
        if self.reward_normalizer is not None:
            reward = self.reward_normalizer(reward, step.done, step.valid)
        if self.penalty is not None:
            reward = self.penalty(reward, action, step.valid)
        return reward


class _Rows:
    """The growing columns of a rollout."""

    def __init__(self, horizon: int, agents: int, networks: Networks) -> None:
        spec = networks.action
        kind = torch.int64 if spec.kind == "categorical" else torch.float32
        self.action = torch.empty((horizon, agents, spec.width), dtype=kind)
        self.log_prob = torch.empty((horizon, agents, spec.width))
        self.reward = torch.empty((horizon, agents))
        self.terminated = torch.empty((horizon, agents), dtype=torch.bool)
        self.done = torch.empty((horizon, agents), dtype=torch.bool)
        self.weight = torch.empty((horizon, agents))
        self.finals: dict[tuple[int, int], Array] = {}

    def add(
        self,
        t: int,
        action: Tensor,
        log_prob: Tensor,
        step: Step,
        reward: npt.NDArray[np.float32],
    ) -> None:
        self.action[t], self.log_prob[t] = action, log_prob
        self.reward[t] = torch.from_numpy(reward)
        self.terminated[t] = torch.from_numpy(step.terminated)
        self.done[t] = torch.from_numpy(step.done)
        self.weight[t] = torch.from_numpy(step.valid)
        for agent, last in step.final_obs.items():
            if not step.terminated[agent]:
                self.finals[t, agent] = last

    def rollout(self, obs: Tensor | Frames) -> Rollout:
        finals = [torch.from_numpy(last) for last in self.finals.values()]
        return Rollout(
            obs=obs,
            action=self.action,
            log_prob=self.log_prob,
            reward=self.reward,
            terminated=self.terminated,
            done=self.done,
            weight=self.weight,
            final_obs=torch.stack(finals) if finals else obs[:0],
            final_index=torch.tensor(list(self.finals), dtype=torch.int64).reshape(-1, 2),
        )
