"""Frames stored once: a stack of K is assembled when a mini-batch is gathered.

Consecutive observations share K − 1 of their K frames, so a rollout keeps each frame once and
how far back each state may look. The time bar depends on the state, not on the frame, and is
drawn on the oldest frame of an assembled stack.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.envs.atari.time_bar import BAR, draw_time
from dna.envs.image_ops import interleave
from dna.envs.specs import Stack

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Frames:
    """The observations of a rollout: row t·A + a is agent a's state at time t.

    Reads like a tensor [rows, H, W, K]: `frames[index]` gives those rows.
    """

    frames: Tensor  # [K − 1 + T, A, H, W] uint8, each frame once
    age: Tensor  # [T, A] int64, frames since the episode's first, at most K − 1
    elapsed: Tensor  # [T, A] int64, for the time bar
    limit: int | None  # when the time bar is full; None: no bar
    rows: int  # T·A, or fewer to leave out the last states

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Stacks [B, H, W, K], oldest frame first."""
        if isinstance(index, slice):
            index = torch.arange(self.rows)[index]
        depth = len(self.frames) - len(self.age) + 1
        planes = self.frames.new_empty((depth, len(index), *self.frames.shape[2:]))
        self.fill(planes, index)
        return _interleaved(planes)

    def to(self, device: torch.device) -> "Frames":
        """The frames themselves on a device, as bytes; what finds them stays on the host."""
        frames = moved(self.frames, device)
        return Frames(frames, self.age, self.elapsed, self.limit, self.rows)

    def fill(self, planes: Tensor, index: Tensor) -> None:
        """The frames of these rows, [K, B, H, W], with the time on the oldest."""
        agents, depth = self.age.shape[1], len(planes)
        t, a = index // agents, index % agents
        # Never look behind the episode's first frame: it is repeated instead.
        back = torch.minimum(torch.arange(depth - 1, -1, -1)[:, None], self.age[t, a])
        rows = (t + depth - 1 - back) * agents + a
        single = self.frames.flatten(0, 1).flatten(1)
        for plane, row in zip(planes, moved(rows, planes.device), strict=True):
            torch.index_select(single, 0, row, out=plane.flatten(1))
        if self.limit is not None:
            self._draw_time(planes[0], self.elapsed[t, a].numpy(), self.limit)

    @staticmethod
    def _draw_time(oldest: Tensor, elapsed: Array, limit: int) -> None:
        if oldest.device.type == "cpu":
            draw_time(oldest.numpy(), elapsed, limit)
            return
        # Drawn on the host into the few rows it fills, then copied over.
        strip = np.zeros((len(oldest), BAR, oldest.shape[2]), dtype=np.uint8)
        draw_time(strip, elapsed, limit)
        oldest[:, -BAR:] = moved(torch.from_numpy(strip), oldest.device)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        numbers = torch.tensor([self.rows, -1 if self.limit is None else self.limit])
        return {
            "frames": self.frames,
            "age": self.age,
            "elapsed": self.elapsed,
            "numbers": numbers,
        }

    @classmethod
    def load(cls, state: Mapping[str, Tensor]) -> "Frames":
        """The inverse of `state`."""
        rows, limit = (int(n) for n in state["numbers"])
        bar = None if limit < 0 else limit
        return cls(state["frames"], state["age"], state["elapsed"], bar, rows)

    def head(self, rows: int) -> "Frames":
        """The same storage without its last rows."""
        return Frames(self.frames, self.age, self.elapsed, self.limit, rows)


@dataclass(frozen=True)
class JoinedRollouts:
    """The rows of several rollouts, one behind the other, without a copy."""

    parts: tuple[Tensor | Frames, ...]  # all of one length

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Those rows, from whichever rollout they are of."""
        if isinstance(index, slice):
            index = torch.arange(len(self))[index]
        size = len(self.parts[0])
        ordered, order = index.sort()
        ends = torch.searchsorted(ordered, torch.arange(len(self.parts) + 1) * size).tolist()
        taken = [
            (part, slice(start, stop), ordered[start:stop] - number * size)
            for number, (part, start, stop) in enumerate(
                zip(self.parts, ends, ends[1:], strict=False)
            )
            if stop > start
        ]
        rows = _joined(taken, len(index))
        return rows if torch.equal(ordered, index) else rows[order.argsort()]


def _joined(taken: list[tuple[Tensor | Frames, slice, Tensor]], rows: int) -> Tensor:
    """Rows of several parts, one behind the other, gathered into one piece of memory.

    Pieces of ever new sizes would leave holes in it that add up to gigabytes.
    """
    first = taken[0][0]
    if isinstance(first, Tensor):
        out = first.new_empty((rows, *first.shape[1:]))
        for part, place, index in taken:
            assert isinstance(part, Tensor)
            torch.index_select(part, 0, index, out=out[place])
        return out
    depth = len(first.frames) - len(first.age) + 1
    planes = first.frames.new_empty((depth, rows, *first.frames.shape[2:]))
    for part, place, index in taken:
        assert isinstance(part, Frames)
        part.fill(planes[:, place], index)
    return _interleaved(planes)


def _interleaved(planes: Tensor) -> Tensor:
    if planes.device.type != "cpu":
        return planes.permute(1, 2, 3, 0).contiguous()
    return torch.from_numpy(interleave(list(planes.numpy())))


def moved(x: Tensor, device: torch.device) -> Tensor:
    """On the device; from memory that it reads by itself, so that nobody waits."""
    if device.type == "cuda" and x.device.type == "cpu":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


class ObservationWriter:
    """Collects the states of a rollout in one array."""

    def __init__(self, states: int, first: Array) -> None:
        self.obs = np.empty((states, *first.shape), dtype=first.dtype)
        self.obs[0] = first

    def add(self, t: int, obs: Array, new: Array, elapsed: Array) -> None:
        """State t of every agent."""
        self.obs[t] = obs

    def finish(self) -> Tensor:
        """Everything written, row after row."""
        return torch.from_numpy(self.obs).flatten(0, 1)


class FrameWriter:
    """Fills a `Frames` from the stacks that environments hand out."""

    def __init__(self, states: int, first: Array, elapsed: Array, stack: Stack) -> None:
        agents, height, width, self.depth = first.shape
        self.limit = stack.limit
        self.frames = np.empty((self.depth - 1 + states, agents, height, width), first.dtype)
        # The first state's older frames. Its bar is part of its oldest one, where the same bar
        # is drawn again: no other state looks back as far.
        for k in range(self.depth - 1):
            self.frames[k] = first[..., k]
        self.age = np.empty((states, agents), np.int64)
        self.elapsed = np.empty((states, agents), np.int64)
        self._set(0, first, np.full(agents, self.depth - 1), elapsed)

    def add(self, t: int, obs: Array, new: Array, elapsed: Array) -> None:
        """State t of every agent; `new` marks first states of episodes."""
        age = np.minimum(self.age[t - 1] + 1, self.depth - 1)
        self._set(t, obs, np.where(new, 0, age), elapsed)

    def _set(self, t: int, obs: Array, age: Array, elapsed: Array) -> None:
        self.frames[t + self.depth - 1] = obs[..., -1]
        self.age[t], self.elapsed[t] = age, elapsed

    def finish(self) -> Frames:
        """Everything written."""
        frames, age = torch.from_numpy(self.frames), torch.from_numpy(self.age)
        elapsed = torch.from_numpy(self.elapsed)
        return Frames(frames, age, elapsed, self.limit, age.numel())
