"""Running statistics and the two normalizers of appendix A.

Statistics are kept in float64 and are mergeable (Chan et al.), so that many ranks or a long
run lose nothing. `ObservationNormalizer` is shared by both networks and is part of the saved
policy; `RewardNormalizer` belongs to training alone.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from dna.distributed.world import SOLO, World
from dna.envs.image_ops import sums

Array = npt.NDArray[np.float64]


class RunningMoments:
    """Count, mean and sum of squared deviations of everything seen, element by element."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean: Array = np.zeros(shape)
        self.m2: Array = np.zeros(shape)

    def update(self, batch: npt.NDArray[np.generic], world: World = SOLO) -> None:
        """Add a batch of samples, those of all ranks; the first axis counts them."""
        if world.size > 1:
            self._update_together(batch, world)
        elif len(batch) == 1:  # one agent steps: the common case where speed is of calls
            self._add(1.0, batch[0].astype(np.float64), 0.0)
        elif batch.dtype == np.uint8 and len(batch):
            total, squares = sums(batch)  # whole numbers, so they are exact
            mean = total / len(batch)
            self._add(float(len(batch)), mean, squares - total * mean)
        elif len(batch):
            samples = batch.astype(np.float64)
            mean = samples.mean(axis=0)
            self._add(float(len(batch)), mean, np.square(samples - mean).sum(axis=0))

    def _update_together(self, batch: npt.NDArray[np.generic], world: World) -> None:
        """Every rank adds every rank's samples, in the order of ranks: the same bits on all."""
        exact = batch.dtype == np.uint8  # sums of whole numbers: also the bits of one rank
        if exact:
            one, two = sums(batch) if len(batch) else (self.mean * 0, self.m2 * 0)
        else:
            own = RunningMoments(self.mean.shape)
            own.update(batch)
            one, two = own.mean, own.m2
        size = self.mean.size
        mine = np.concatenate([[float(len(batch))], np.ravel(one), np.ravel(two)])
        parts = world.gather(mine)
        if exact:
            parts = [np.sum(parts, axis=0)]
        seen = RunningMoments(self.mean.shape)
        for part in parts:
            if count := float(part[0]):
                one, two = (x.reshape(self.mean.shape) for x in np.split(part[1:], [size]))
                mean = one / count if exact else one
                seen._add(count, mean, two - one * mean if exact else two)
        self.merge(seen)

    def merge(self, other: "RunningMoments") -> None:
        """Add everything `other` has seen."""
        if other.count:
            self._add(other.count, other.mean, other.m2)

    def _add(self, count: float, mean: Array, m2: Array | float) -> None:
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.m2 = self.m2 + m2 + np.square(delta) * (self.count * count / total)
        self.count = total

    @property
    def variance(self) -> Array:
        """Population variance; one before anything was seen, so that scaling does nothing."""
        return np.ones_like(self.m2) if self.count == 0 else self.m2 / self.count

    def state(self) -> dict[str, Array]:
        """What a checkpoint holds."""
        return {"count": np.asarray(self.count), "mean": self.mean, "m2": self.m2}

    def load(self, state: Mapping[str, Array]) -> None:
        """The inverse of `state`."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)


class ObservationNormalizer:
    """s_μ and s_σ over all states seen; `networks.Preprocess` applies and clips them."""

    #: Keeps a constant element finite; the authors' value.
    epsilon = 1e-5

    def __init__(self, shape: tuple[int, ...], divisor: float | Array = 1.0) -> None:
        self.moments = RunningMoments(shape)
        self.divisor = divisor  # 255 for pixels; one for each element where these are mixed

    def update(self, observations: npt.NDArray[np.generic], world: World = SOLO) -> None:
        """Add a batch of states, as the environment gave them."""
        self.moments.update(observations, world)

    def shift_and_scale(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """(s_μ, 1 / (s_σ + 10⁻⁵)) of states as they reach the networks, pixels in [0, 1]."""
        deviation = np.sqrt(self.moments.variance) / self.divisor
        mean = self.moments.mean / self.divisor
        return mean.astype(np.float32), (1.0 / (deviation + self.epsilon)).astype(np.float32)


class RewardNormalizer:
    """r' = clip(r / √Var[R], −clip, clip), R the running discounted return of each agent."""

    def __init__(
        self,
        agents: int,
        gamma: float,
        clip: float,
        episode_end: Literal["reset", "carry_last"] = "reset",
        world: World = SOLO,
    ) -> None:
        self.moments, self.world = RunningMoments(), world
        self.gamma = gamma  # bound to the agent's γ: a second γ here is a classic silent bug
        self.clip = clip
        self.episode_end = episode_end
        self.running = np.zeros(agents)

    def state(self) -> dict[str, Array]:
        """What a checkpoint holds: the moments, and every agent's return so far."""
        return {**self.moments.state(), "running": self.running}

    def load(self, state: Mapping[str, Array]) -> None:
        """The inverse of `state`."""
        self.moments.load(state)
        self.running = np.array(state["running"], dtype=np.float64)

    def __call__(
        self,
        reward: npt.NDArray[np.float32],
        done: npt.NDArray[np.bool_],
        valid: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """Update the statistics with one step of all agents, then scale its rewards."""
        if self.episode_end == "carry_last":
            # The authors' code: the terminal step restarts R at its own reward and keeps it.
            step = reward + self.gamma * self.running * ~done
            self.running = np.where(valid, step, self.running)
            self.moments.update(self.running[valid], self.world)
        else:
            self.running = np.where(valid, reward + self.gamma * self.running, self.running)
            self.moments.update(self.running[valid], self.world)
            self.running[done & valid] = 0.0
        scale = 1.0 / np.sqrt(self.moments.variance + 1e-8)
        return np.clip(reward * scale, -self.clip, self.clip).astype(np.float32)
