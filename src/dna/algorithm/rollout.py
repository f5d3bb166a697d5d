"""Rollouts: lines 6-7 of algorithm 1, and warm-up and repeat penalty of appendix A.

Only the policy is evaluated at each step; values are computed for the whole rollout afterwards
(`returns.estimate`). Scores are raw rewards summed over whole episodes, whatever normalization
and penalty do to the rewards that are learned from. PPG keeps the rollouts of its last N_π
iterations in a `Replay`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.algorithm.episodes import RankScores, Scores
from dna.common.errors import NonFinite
from dna.common.randomness import generator
from dna.common.tensor_files import under
from dna.common.threads import Caller, call_directly
from dna.common.timing import Clock
from dna.config import Config
from dna.distributed.collectives import sum_over_ranks
from dna.distributed.shard import ALONE, Share
from dna.envs import Array, State, Step, VectorEnv
from dna.envs.protocol import all_finite
from dna.networks.actors import make_actor
from dna.networks.batch import Experience, Rollout
from dna.networks.frames import Frames, FrameWriter, JoinedRollouts, ObservationWriter
from dna.networks.networks import Networks
from dna.networks.normalizers import RewardNormalizer

#: Columns that the auxiliary phase reads besides observations; others are not kept.
COLUMNS = ("v_targ", "weight")


class Replay:
    """The last rollouts, up to `length`, cleared after the auxiliary phase."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rollouts: list[Experience] = []

    def add(self, experience: Experience) -> None:
        """Add a rollout and drop the oldest beyond N_π."""
        if self.length:
            columns = {name: experience[name] for name in COLUMNS}
            kept = Experience(experience.obs, columns, experience.share)
            self.rollouts = [*self.rollouts, kept][-self.length :]

    def experience(self, rollouts: int) -> Experience:
        """Return the rows of the last so many rollouts; observations are not copied."""
        last = self.rollouts[-rollouts:]
        columns = {name: torch.cat([part[name] for part in last]) for name in COLUMNS}
        parts = tuple(part.obs for part in last if not isinstance(part.obs, JoinedRollouts))
        return Experience(JoinedRollouts(parts), columns, last[0].share)

    def clear(self) -> None:
        """Drop all rollouts."""
        self.rollouts = []

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint."""
        return {
            f"{index}/{name}": tensor
            for index, rollout in enumerate(self.rollouts)
            for name, tensor in _tensors(rollout).items()
        }

    def load(self, rollouts: Mapping[int, dict[str, Tensor]], share: Share = ALONE) -> None:
        """Restore the rollouts whose tensors `state` returned, by index."""
        self.rollouts = [_rollout(tensors, share) for tensors in rollouts.values()]


def _tensors(rollout: Experience) -> dict[str, Tensor]:
    obs = {"obs": rollout.obs} if isinstance(rollout.obs, Tensor) else {}
    if isinstance(rollout.obs, Frames):
        obs = {f"frames/{k}": v for k, v in rollout.obs.state().items()}
    return obs | rollout.columns


def _rollout(tensors: dict[str, Tensor], share: Share) -> Experience:
    frames = under(tensors, "frames")
    columns = {name: tensors[name] for name in COLUMNS}
    return Experience(Frames.load(frames) if frames else tensors["obs"], columns, share)


class RepeatedAction:
    """Subtract `amount` from the reward of each step that repeats an action for too long.

    The penalty applies to normalized rewards, after their clip. As in the authors' code,
    counters continue across episodes and the action before the first one is 0.
    """

    def __init__(self, agents: int, width: int, amount: float, after: int) -> None:
        self.amount = amount
        self.after = after
        self.last: npt.NDArray[Any] = np.zeros((agents, width))
        self.repeats = np.zeros(agents, dtype=np.int64)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a checkpoint."""
        return {"last": self.last, "repeats": self.repeats}

    def load(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.last = state["last"].copy()
        self.repeats = state["repeats"].copy()

    def __call__(
        self,
        reward: npt.NDArray[np.float32],
        action: npt.NDArray[Any],
        valid: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """Return the rewards [A] of these actions [A, W] minus the penalties."""
        same = (action == self.last).all(axis=1)
        self.repeats = np.where(valid, np.where(same, self.repeats + 1, 0), self.repeats)
        self.last = np.where(valid[:, None], action, self.last)
        due = valid & (self.repeats > self.after)
        return (reward - self.amount * due).astype(np.float32)


class Collector:
    """Steps the environments of a run with its policy and records rollouts."""

    def __init__(
        self,
        env: VectorEnv,
        networks: Networks,
        config: Config,
        seed: int,
        call: Caller = call_directly,
        share: Share = ALONE,
        piece: int | None = None,
    ) -> None:
        """`call` makes the calls into the environments, which may hang.

        `piece` is the number of states that a thread evaluates at a time; None: all.
        """
        self.call = call
        self.share = share if share.world.size > 1 else Share(agents=env.agents)
        self.world = share.world
        self.env = env
        self.networks = networks
        self.config = config
        self.seed = seed
        self.values = config.returns.values == "acting"
        self.actor = make_actor(networks, env.agents, values=self.values, piece=piece)
        norm = config.normalize_reward
        self.reward_normalizer: RewardNormalizer | None = None
        if norm is not None:
            self.reward_normalizer = RewardNormalizer(
                env.agents, config.returns.gamma, norm.clip, norm.episode_end, self.world
            )
        self.penalty: RepeatedAction | None = None
        if config.repeat_penalty is not None:
            self.penalty = RepeatedAction(
                env.agents,
                env.action.width,
                config.repeat_penalty.amount,
                config.repeat_penalty.after,
            )
        self.scores = RankScores(share) if self.world.size > 1 else Scores(env.agents)
        self.restart()

    def pieces(self) -> dict[str, int]:
        """Rows of the pieces in which the states of all agents are evaluated, if cut."""
        piece = getattr(self.actor, "piece", None)
        return {"acting": piece} if piece is not None and piece < self.env.agents else {}

    def restart(self) -> None:
        """Reset all environments."""
        self.obs: Array = self.call(self.env.reset)
        self.elapsed = np.zeros(self.env.agents, np.int64)  # time in the episode at `obs`
        self.resetting = np.zeros(
            self.env.agents, np.bool_
        )  # agents whose next step only resets

    def warm_up(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Play t ~ U(low, high) steps in each environment and return the number taken.

        They initialize the normalization and desynchronize the environments. Environments that
        cannot be paused individually all play the longest t.
        """
        settings = self.config.warm_up
        if settings is None:
            return 0
        rng = generator(self.seed, "warm_up")
        own = self.share.own
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
            step = self.call(self.env.step, action, active)
            self._learn_rewards(step, action)
            self.scores.add(step, count=False)
            taken += int(step.valid.sum())
            self._advance(step, active)
        return sum_over_ranks(self.world, taken)

    def collect(self, iteration: int, clock: Clock) -> Rollout:
        """Run π in every environment for N steps."""
        horizon = self.config.horizon
        rng = generator(self.seed, "act", iteration)
        # Drawn for the agents of all ranks, so that each gets the noise it has on one rank.
        noise = self.networks.distribution.draw(rng, (horizon, self.share.agents))
        noise = noise[:, self.share.own]
        stack = self.networks.obs.stack
        states = (
            ObservationWriter(horizon + 1, self.obs)
            if stack is None
            else FrameWriter(horizon + 1, self.obs, self.elapsed, stack)
        )
        rows = _Rows(horizon, self.env.agents, self.networks)
        for t in range(horizon):
            with clock("inference"):
                seen = self.obs
                if np.count_nonzero(self.resetting):
                    seen = self.obs[~self.resetting]
                self.networks.observe(seen, self.world)
                pi, action, value = self.actor(self.obs, noise[t])
                if not all_finite(pi):  # before an environment gets such actions
                    raise NonFinite("π's output is not finite", {"obs": self.obs, "pi": pi})
            with clock("env"):
                step = self.call(self.env.step, action)
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
        """Advance to the next observations; paused environments keep theirs."""
        if active is not None:
            step.obs[~active] = self.obs[~active]
        self.obs = step.obs
        if step.elapsed is not None:
            self.elapsed = step.elapsed
        # With NEXT_STEP autoreset, the step after an episode's end only resets.
        self.resetting = step.done.copy()
        if step.final_obs:
            self.resetting[list(step.final_obs)] = False

    def state(self) -> State:
        """Return the arrays of a checkpoint; the environments' own state is saved elsewhere."""
        parts: dict[str, State] = {
            "scores": self.scores.state(),
            "now": {"obs": self.obs, "elapsed": self.elapsed, "resetting": self.resetting},
        }
        if self.reward_normalizer is not None:
            parts["reward"] = self.reward_normalizer.state()
        if self.penalty is not None:
            parts["penalty"] = self.penalty.state()
        return {f"{part}/{k}": v for part, state in parts.items() for k, v in state.items()}

    def load(self, state: Mapping[str, Array], *, same_episodes: bool) -> None:
        """Restore what `state` returned, except what new episodes start afresh."""
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
            self.obs = now["obs"].copy()
            self.elapsed = now["elapsed"].copy()
            self.resetting = now["resetting"].copy()

    def _learn_rewards(self, step: Step, action: Array) -> npt.NDArray[np.float32]:
        """Return the rewards to learn from: normalized, minus the repeat penalty."""
        reward = step.reward
        if self.reward_normalizer is not None:
            reward = self.reward_normalizer(reward, step.done, step.valid)
        if self.penalty is not None:
            reward = self.penalty(reward, action, step.valid)
        return reward


class _Rows:
    """The columns of a rollout while it is being collected."""

    def __init__(self, horizon: int, agents: int, networks: Networks) -> None:
        self.distribution = networks.distribution
        size = (horizon, agents)
        action_type = np.float32 if networks.action.numbers else np.int64
        self.pi = np.empty((*size, self.distribution.parameters), np.float32)
        self.action = np.empty((*size, networks.action.width), action_type)
        self.reward = np.empty(size, np.float32)
        self.terminated = np.empty(size, np.bool_)
        self.done = np.empty(size, np.bool_)
        self.weight = np.empty(size, np.float32)
        self.value = np.empty(size, np.float32)
        self.finals: dict[tuple[int, int], Array] = {}

    def add(
        self, t: int, pi: Array, action: Array, step: Step, reward: npt.NDArray[np.float32]
    ) -> None:
        self.pi[t] = pi
        self.action[t] = action
        self.reward[t] = reward
        self.terminated[t] = step.terminated
        self.done[t] = step.done
        self.weight[t] = step.valid
        for agent, last in step.final_obs.items():
            if not step.terminated[agent]:
                self.finals[t, agent] = last

    def rollout(self, obs: Tensor | Frames, values: bool, share: Share) -> Rollout:
        finals = [torch.from_numpy(last) for last in self.finals.values()]
        pi = torch.from_numpy(self.pi)
        action = torch.from_numpy(self.action)
        return Rollout(
            obs=obs,
            action=action,
            # For all steps at once: acting itself computes only what the next step needs.
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
