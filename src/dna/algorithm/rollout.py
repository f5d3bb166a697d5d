"""Collecting experience: lines 6-7 of algorithm 1, and the warm-up of appendix A.

Nothing is evaluated per step but the policy; values are computed for the whole rollout at
once afterwards (`estimate`). Scores are raw rewards summed from an episode's true start to
its true end, whatever was done to the rewards that are learned from.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.algorithm.episodes import RankScores, Scores
from dna.common.errors import NonFinite
from dna.common.randomness import generator
from dna.common.timing import Clock
from dna.config import Config
from dna.distributed.collectives import sum_over_ranks
from dna.distributed.shard import ALONE, Share
from dna.envs import Array, State, Step, VectorEnv
from dna.networks.actors import make_actor
from dna.networks.batch import Rollout
from dna.networks.frames import Frames, FrameWriter, ObservationWriter
from dna.networks.networks import Networks
from dna.networks.normalizers import RewardNormalizer


class RepeatedAction:
    """Subtracts `amount` from the reward of each step while an action is repeated too long.

    The rewards are the normalized ones, and the penalty stands outside their clip. As in the
    authors' code, counters outlive episodes and the action before the first is 0.
    """

    def __init__(self, agents: int, width: int, amount: float, after: int) -> None:
        self.amount, self.after = amount, after
        self.last: npt.NDArray[Any] = np.zeros((agents, width))
        self.repeats = np.zeros(agents, dtype=np.int64)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """What a checkpoint holds."""
        return {"last": self.last, "repeats": self.repeats}

    def load(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """The inverse of `state`."""
        self.last, self.repeats = state["last"].copy(), state["repeats"].copy()

    def __call__(
        self,
        reward: npt.NDArray[np.float32],
        action: npt.NDArray[Any],
        valid: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """The rewards [A] of these actions [A, W], less the penalty where it is due."""
        same = (action == self.last).all(axis=1)
        self.repeats = np.where(valid, np.where(same, self.repeats + 1, 0), self.repeats)
        self.last = np.where(valid[:, None], action, self.last)
        due = valid & (self.repeats > self.after)
        return (reward - self.amount * due).astype(np.float32)


class Collector:
    """The environments of a run and everything that goes on between them and the learner."""

    def __init__(
        self,
        env: VectorEnv,
        networks: Networks,
        config: Config,
        seed: int,
        watch: AbstractContextManager[object] | None = None,
        share: Share = ALONE,
    ) -> None:
        # Entered around every call into the environments, which may hang.
        self.watch = watch or nullcontext()
        self.share = share if share.world.size > 1 else Share(agents=env.agents)
        self.world = share.world
        self.env, self.networks, self.config, self.seed = env, networks, config, seed
        self.values = config.returns.values == "acting"
        self.actor = make_actor(networks, env.agents, values=self.values)
        norm = config.normalize_reward
        self.reward_normalizer: RewardNormalizer | None = None
        if norm is not None:
            self.reward_normalizer = RewardNormalizer(
                env.agents, config.returns.gamma, norm.clip, norm.episode_end, self.world
            )
        self.penalty: RepeatedAction | None = None
        if config.repeat_penalty is not None:
            amount, after = config.repeat_penalty.amount, config.repeat_penalty.after
            self.penalty = RepeatedAction(env.agents, env.action.width, amount, after)
        self.scores = RankScores(share) if self.world.size > 1 else Scores(env.agents)
        self.restart()

    def restart(self) -> None:
        """Begin new episodes everywhere."""
        with self.watch:
            self.obs: Array = self.env.reset()
        self.elapsed = np.zeros(self.env.agents, np.int64)  # the time that `obs` shows
        self.resetting = np.zeros(self.env.agents, np.bool_)  # rows that only reset next

    def warm_up(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Play t ~ U(low, high) untrained steps in each environment; returns the steps taken.

        They start the statistics and pull the environments apart in time. Environments that
        cannot be held still all play the longest t.
        """
        settings = self.config.warm_up
        if settings is None:
            return 0
        rng, own = generator(self.seed, "warm_up"), self.share.own
        steps = rng.integers(settings.low, settings.high + 1, size=self.share.agents)
        taken = 0
        for t in range(int(steps.max())):
            if should_stop():
                break
            active = steps[own] > t if self.env.can_hold else None
            moving = ~self.resetting if active is None else active
            self.networks.observe(self.obs[moving], self.world)
            if settings.actions == "uniform":
                action = self.env.uniform(rng, self.share.agents, own)
            else:
                noise = self.networks.distribution.draw(rng, (self.share.agents,))
                _, action, _ = self.actor(self.obs, noise[own])
            with self.watch:
                step = self.env.step(action, active)
            self._learn_rewards(step, action)
            self.scores.add(step, count=False)
            taken += int(step.valid.sum())
            self._advance(step, active)
        return sum_over_ranks(self.world, taken)

    def collect(self, iteration: int, clock: Clock) -> Rollout:
        """Run π in every environment for N steps."""
        horizon, agents = self.config.horizon, self.env.agents
        rng = generator(self.seed, "act", iteration)
        # Drawn for all ranks: each takes what one rank would have given these agents.
        noise = self.networks.distribution.draw(rng, (horizon, self.share.agents))
        noise = noise[:, self.share.own]
        stack = self.networks.obs.stack
        states = (
            ObservationWriter(horizon + 1, self.obs)
            if stack is None
            else FrameWriter(horizon + 1, self.obs, self.elapsed, stack)
        )
        rows = _Rows(horizon, agents, self.networks)
        for t in range(horizon):
            with clock("inference"):
                seen = self.obs[~self.resetting] if self.resetting.any() else self.obs
                self.networks.observe(seen, self.world)
                pi, action, value = self.actor(self.obs, noise[t])
                if not np.isfinite(pi).all():  # an environment would choke on such actions
                    raise NonFinite("π's output is not finite", {"obs": self.obs, "pi": pi})
            with clock("env"), self.watch:
                step = self.env.step(action)
            self.scores.add(step)
            rows.add(t, pi, action, step, self._learn_rewards(step, action))
            if value is not None:
                rows.value[t] = value
            if self.config.env.time_limit == "terminal":
                rows.terminated[t] |= rows.done[t]
            self._advance(step)
            states.add(t + 1, self.obs, step.done, self.elapsed)
        self.scores.settle()
        return rows.rollout(states.finish(), self.values, self.share)

    def _advance(self, step: Step, active: npt.NDArray[np.bool_] | None = None) -> None:
        """Move to the next observation; environments held still keep theirs."""
        if active is not None:
            step.obs[~active] = self.obs[~active]
        self.obs = step.obs
        if step.elapsed is not None:
            self.elapsed = step.elapsed
        # NEXT_STEP: the observation after an end belongs to a row that only resets.
        self.resetting = step.done.copy()
        self.resetting[list(step.final_obs)] = False

    def state(self) -> State:
        """What a checkpoint holds of acting; the environments' own state is not in it."""
        parts: dict[str, State] = {"scores": self.scores.state()}
        parts["now"] = {"obs": self.obs, "elapsed": self.elapsed, "resetting": self.resetting}
        if self.reward_normalizer is not None:
            parts["reward"] = self.reward_normalizer.state()
        if self.penalty is not None:
            parts["penalty"] = self.penalty.state()
        return {f"{part}/{k}": v for part, state in parts.items() for k, v in state.items()}

    def load(self, state: Mapping[str, Array], *, same_episodes: bool) -> None:
        """The inverse of `state`; in new episodes all that was counted in the old is void."""
        parts: dict[str, State] = {}
        for name, array in state.items():
            part, _, key = name.partition("/")
            parts.setdefault(part, {})[key] = array
        fresh = {} if same_episodes else self.state()
        for name in ("scores/returns", "scores/lengths", "reward/running"):
            part, _, key = name.partition("/")
            if name in fresh:
                parts[part][key] = fresh[name]
        self.scores.load(parts["scores"])
        if self.reward_normalizer is not None:
            self.reward_normalizer.load(parts["reward"])
        if self.penalty is not None and same_episodes:
            self.penalty.load(parts["penalty"])
        if same_episodes:
            now = parts["now"]
            self.obs, self.elapsed = now["obs"].copy(), now["elapsed"].copy()
            self.resetting = now["resetting"].copy()

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
        spec, self.distribution = networks.action, networks.distribution
        size, kind = (horizon, agents), np.int64 if not spec.numbers else np.float32
        self.pi = np.empty((*size, self.distribution.parameters), np.float32)
        self.action = np.empty((*size, spec.width), kind)
        self.reward = np.empty(size, np.float32)
        self.terminated = np.empty(size, np.bool_)
        self.done = np.empty(size, np.bool_)
        self.weight = np.empty(size, np.float32)
        self.value = np.empty(size, np.float32)
        self.finals: dict[tuple[int, int], Array] = {}

    def add(
        self, t: int, pi: Array, action: Array, step: Step, reward: npt.NDArray[np.float32]
    ) -> None:
        self.pi[t], self.action[t], self.reward[t] = pi, action, reward
        self.terminated[t], self.done[t] = step.terminated, step.done
        self.weight[t] = step.valid
        for agent, last in step.final_obs.items():
            if not step.terminated[agent]:
                self.finals[t, agent] = last

    def rollout(self, obs: Tensor | Frames, values: bool, share: Share) -> Rollout:
        finals = [torch.from_numpy(last) for last in self.finals.values()]
        pi, action = torch.from_numpy(self.pi), torch.from_numpy(self.action)
        return Rollout(
            obs=obs,
            action=action,
            # Of all steps at once: nothing is computed while acting that can be done later.
            log_prob=self.distribution.log_prob(pi, action),
            reward=torch.from_numpy(self.reward),
            terminated=torch.from_numpy(self.terminated),
            done=torch.from_numpy(self.done),
            weight=torch.from_numpy(self.weight),
            final_obs=torch.stack(finals) if finals else obs[:0],
            final_index=torch.tensor(list(self.finals), dtype=torch.int64).reshape(-1, 2),
            value=torch.from_numpy(self.value) if values else None,
            share=share,
        )
