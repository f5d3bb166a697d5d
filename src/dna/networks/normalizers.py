"""Normalization of observations and rewards (appendix A).

Running statistics are kept in float64 and merged by the method of Chan et al., so that long
runs and several ranks lose no precision. `ObservationNormalizer` is shared by both networks
and is part of a saved policy; `RewardNormalizer` is used in training only. `Preprocess` and
`Unpack` are the modules that apply the observation statistics in front of an encoder.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dna.distributed.world import SOLO, World
from dna.envs.image_ops import sums
from dna.envs.specs import ObservationSpec, divisors, elements, spans
from dna.networks.frames import moved

Array = npt.NDArray[np.float64]
#: Images normalized at a time: 16 stacks of 84 × 84 × 4 floats are 1.8 MB.
CACHED = 16


class RunningMoments:
    """Count, mean and sum of squared deviations of all samples, elementwise."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0.0
        self.mean: Array = np.zeros(shape)
        self.m2: Array = np.zeros(shape)

    def update(self, batch: npt.NDArray[np.generic], world: World = SOLO) -> None:
        """Add a batch of samples (first axis) of every rank."""
        if world.size > 1:
            self._update_together(batch, world)
        elif len(batch) == 1:  # a single agent: common, and the calls would dominate
            self._add(1.0, batch[0].astype(np.float64, copy=False), None)
        elif batch.dtype == np.uint8 and len(batch):
            total, squares = sums(batch)  # sums of integers are exact
            mean = total / len(batch)
            self._add(float(len(batch)), mean, squares - total * mean)
        elif len(batch):
            samples = batch.astype(np.float64)
            mean = samples.mean(axis=0)
            self._add(float(len(batch)), mean, np.square(samples - mean).sum(axis=0))

    def _update_together(self, batch: npt.NDArray[np.generic], world: World) -> None:
        """Add the samples of all ranks in rank order, so that every rank gets the same bits."""
        exact = batch.dtype == np.uint8  # sums of integers: the same bits as on one rank
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
        """Add all samples of `other`."""
        if other.count:
            self._add(other.count, other.mean, other.m2)

    def _add(self, count: float, mean: Array, m2: Array | None) -> None:
        """Add samples with these moments; `m2` is None for a single sample, where it is 0."""
        total = self.count + count
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)
        known = self.m2 if m2 is None else self.m2 + m2
        self.m2 = known + np.square(delta) * (self.count * count / total)
        self.count = total

    @property
    def variance(self) -> Array:
        """Population variance; one before the first sample, so that scaling has no effect."""
        return np.ones_like(self.m2) if self.count == 0 else self.m2 / self.count

    def state(self) -> dict[str, Array]:
        """Return the arrays of a checkpoint."""
        return {"count": np.asarray(self.count), "mean": self.mean, "m2": self.m2}

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore what `state` returned."""
        self.count = float(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)


class ObservationNormalizer:
    """s_μ and s_σ over all states seen; `Preprocess` applies them and clips."""

    #: Keeps a constant element finite; the value of the authors' code.
    epsilon = 1e-5

    def __init__(self, shape: tuple[int, ...], divisor: float | Array | None = None) -> None:
        """`divisor`: 255 for pixels; an array where entries of several kinds are mixed."""
        self.moments = RunningMoments(shape)
        self.divisor = divisor

    def update(self, observations: npt.NDArray[np.generic], world: World = SOLO) -> None:
        """Add a batch of raw observations of every rank."""
        self.moments.update(observations, world)

    def shift_and_scale(self) -> tuple[Array, Array]:
        """Return (s_μ, 1 / (s_σ + 10⁻⁵)) of observations whose pixels are scaled to [0, 1]."""
        mean, deviation = self.moments.mean, np.sqrt(self.moments.variance)
        if self.divisor is not None:
            mean, deviation = mean / self.divisor, deviation / self.divisor
        return mean, 1.0 / (deviation + self.epsilon)


class RewardNormalizer:
    """r' = clip(r / √Var[R], −clip, clip), R each agent's running discounted return."""

    def __init__(
        self,
        agents: int,
        gamma: float,
        clip: float,
        episode_end: Literal["reset", "carry_last"] = "reset",
        world: World = SOLO,
    ) -> None:
        self.moments = RunningMoments()
        self.world = world
        self.gamma = gamma  # the agent's γ: a second, different γ here is a classic silent bug
        self.clip = clip
        self.episode_end = episode_end
        self.running = np.zeros(agents)

    def state(self) -> dict[str, Array]:
        """Return the checkpoint's arrays: the moments and every agent's running return."""
        return {**self.moments.state(), "running": self.running}

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore what `state` returned."""
        self.moments.load(state)
        self.running = np.array(state["running"], dtype=np.float64)

    def __call__(
        self,
        reward: npt.NDArray[np.float32],
        done: npt.NDArray[np.bool_],
        valid: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """Update the statistics with one step of all agents, then scale the step's rewards."""
        if self.episode_end == "carry_last":
            # As in the authors' code: a terminal step restarts R at its own reward.
            step = reward + self.gamma * self.running * ~done
            self.running = np.where(valid, step, self.running)
            self.moments.update(self.running[valid], self.world)
        else:
            self.running = np.where(valid, reward + self.gamma * self.running, self.running)
            self.moments.update(self.running[valid], self.world)
            self.running[done & valid] = 0.0
        scale = 1.0 / np.sqrt(self.moments.variance + 1e-8)
        # Not `clip`, whose call takes longer than what it does for a few numbers.
        clipped = np.minimum(np.maximum(reward * scale, -self.clip), self.clip)
        return clipped.astype(np.float32)


# ── preprocessing: the statistics applied ─────────────────────────────────────────────────


class Preprocess(nn.Module):
    """Raw observations → encoder input: normalized floats, images as [B, C, H, W]."""

    shift: Tensor
    scale: Tensor

    def __init__(self, spec: ObservationSpec, clip: float | None, gain: float) -> None:
        super().__init__()
        self.spec = spec
        self.clip = clip
        self.gain = gain
        shape = spec.shape if clip is not None else ()
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def legal(self, obs: Tensor) -> Tensor | None:
        """Return None, every choice: only packed observations contain an action mask."""
        return None

    def forward(self, obs: Tensor) -> Tensor:
        """s' = gain · clip((s − s_μ) / s_σ, −clip, clip), with bytes first scaled to [0, 1]."""
        obs = moved(obs, self.shift.device)
        if self.spec.dtype == "uint8" and self.spec.kind == "image":
            x = self._pixels(obs)
        else:
            x = obs.float()
            if self.spec.dtype == "uint8":
                x = x / 255
            if self.clip is not None:
                x = ((x - self.shift) * self.scale).clamp(-self.clip, self.clip) * self.gain
        # This view of [B, H, W, C] is the channels_last layout that convolutions prefer.
        return x.permute(0, 3, 1, 2) if self.spec.kind == "image" else x

    def _pixels(self, obs: Tensor) -> Tensor:
        """Normalize uint8 images in place, few enough at a time to stay in the cache.

        The result has shape [B, H, W, C], whatever the memory order of the input.
        """
        x = torch.empty(obs.shape, device=obs.device)
        shift = self.shift * 255
        scale = self.scale / 255
        for part, out in zip(torch.split(obs, CACHED), torch.split(x, CACHED), strict=True):
            if self.clip is None:
                torch.div(part, 255, out=out)
            else:
                torch.sub(part, shift, out=out).mul_(scale).clamp_(-self.clip, self.clip)
                if self.gain != 1.0:
                    out.mul_(self.gain)
        return x


class Unpack(nn.Module):
    """Packed rows of a Dict space → the normalized elements of all entries, [B, E]."""

    shift: Tensor
    scale: Tensor
    divisor: Tensor

    def __init__(self, spec: ObservationSpec, clip: float | None, gain: float) -> None:
        super().__init__()
        self.spec = spec
        self.clip = clip
        self.gain = gain
        shape = (elements(spec),) if clip is not None else ()
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))
        divisor = torch.from_numpy(divisors(spec)).float()
        self.register_buffer("divisor", divisor, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """s' = gain · clip((s − s_μ) / s_σ, −clip, clip), with bytes first scaled to [0, 1]."""
        obs = moved(obs, self.shift.device)
        parts = []
        for part, span in spans(self.spec).items():
            if part.kind == "mask":
                continue
            piece = obs[:, span]
            floats = part.dtype == "float32"
            parts.append(piece.contiguous().view(torch.float32) if floats else piece.float())
        x = torch.cat(parts, dim=1) / self.divisor
        if self.clip is None:
            return x
        return ((x - self.shift) * self.scale).clamp(-self.clip, self.clip) * self.gain

    def legal(self, obs: Tensor) -> Tensor | None:
        """Return the mask of legal choices [B, C]; None if the space has no mask."""
        for part, span in spans(self.spec).items():
            if part.kind == "mask":
                return moved(obs[:, span], self.shift.device) != 0
        return None


def preprocessing(
    spec: ObservationSpec, clip: float | None, gain: float
) -> Preprocess | Unpack:
    """Build the preprocessing for observations of this kind."""
    if spec.kind == "packed":
        return Unpack(spec, clip, gain)
    return Preprocess(spec, clip, gain)


def normalizer_for(spec: ObservationSpec) -> ObservationNormalizer:
    """Build the statistics for observations of this kind."""
    if spec.kind == "packed":
        return ObservationNormalizer((elements(spec),), divisors(spec))
    return ObservationNormalizer(spec.shape, 255.0 if spec.dtype == "uint8" else None)
