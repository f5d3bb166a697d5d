"""Frame-stacked observations with each frame stored once.

Consecutive observations share K − 1 of their K frames. A rollout therefore stores each frame
once, and for each state how far back its stack may reach; stacks are assembled when a
mini-batch is gathered. The time bar depends on the state, not on the frame, and is drawn on
the oldest frame of an assembled stack.
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

    Can be indexed like a tensor [rows, H, W, K].
    """

    frames: Tensor  # [K − 1 + T, A, H, W] uint8, each frame once
    age: Tensor  # [T, A] int64, number of earlier frames in the episode, at most K − 1
    elapsed: Tensor  # [T, A] int64, for the time bar
    limit: int | None  # time at which the time bar is full; None: no bar
    rows: int  # T·A, or fewer to leave out the last states

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Assemble stacks [B, H, W, K], oldest frame first."""
        if isinstance(index, slice):
            index = torch.arange(self.rows)[index]
        depth = len(self.frames) - len(self.age) + 1
        planes = self.frames.new_empty((depth, len(index), *self.frames.shape[2:]))
        self.fill(planes, index)
        return _interleaved(planes)

    def to(self, device: torch.device) -> "Frames":
        """Move the frames to a device, as bytes; the indices stay on the CPU."""
        frames = moved(self.frames, device)
        return Frames(frames, self.age, self.elapsed, self.limit, self.rows)

    def fill(self, planes: Tensor, index: Tensor) -> None:
        """Gather the frames of these rows into [K, B, H, W] and draw the time bar."""
        agents = self.age.shape[1]
        depth = len(planes)
        t, a = index // agents, index % agents
        # Before the episode's first frame, that frame is repeated.
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
        # Drawn on the CPU in the few rows of pixels that it fills, then copied.
        strip = np.zeros((len(oldest), BAR, oldest.shape[2]), dtype=np.uint8)
        draw_time(strip, elapsed, limit)
        oldest[:, -BAR:] = moved(torch.from_numpy(strip), oldest.device)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint."""
        numbers = torch.tensor([self.rows, -1 if self.limit is None else self.limit])
        return {
            "frames": self.frames,
            "age": self.age,
            "elapsed": self.elapsed,
            "numbers": numbers,
        }

    @classmethod
    def load(cls, state: Mapping[str, Tensor]) -> "Frames":
        """Restore what `state` returned."""
        rows, limit = (int(n) for n in state["numbers"])
        bar = None if limit < 0 else limit
        return cls(state["frames"], state["age"], state["elapsed"], bar, rows)

    def head(self, rows: int) -> "Frames":
        """Return the first rows, sharing the storage."""
        return Frames(self.frames, self.age, self.elapsed, self.limit, rows)


@dataclass(frozen=True)
class JoinedRollouts:
    """The concatenated rows of several rollouts, without a copy."""

    parts: tuple[Tensor | Frames, ...]  # all of the same length

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Gather rows from the rollouts that hold them."""
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
    """Gather rows of several parts into one block of memory.

    Temporary blocks of varying sizes would fragment the heap by gigabytes.
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
    """Move to a device; to a GPU from pinned memory, so that the copy is asynchronous."""
    if device.type == "cuda" and x.device.type == "cpu":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


class ObservationWriter:
    """Collects the observations of a rollout in one array."""

    def __init__(self, states: int, first: Array) -> None:
        self.obs = np.empty((states, *first.shape), dtype=first.dtype)
        self.obs[0] = first

    def add(self, t: int, obs: Array, new: Array, elapsed: Array) -> None:
        """Add state t of every agent."""
        self.obs[t] = obs

    def finish(self) -> Tensor:
        """Return all states as rows, time-major."""
        return torch.from_numpy(self.obs).flatten(0, 1)


class FrameWriter:
    """Fills a `Frames` from the stacks that environments return."""

    def __init__(self, states: int, first: Array, elapsed: Array, stack: Stack) -> None:
        agents, height, width, self.depth = first.shape
        self.limit = stack.limit
        self.frames = np.empty((self.depth - 1 + states, agents, height, width), first.dtype)
        # The older frames of the first state. Its oldest one includes the time bar, on which
        # the same bar is drawn again; no other state reaches back as far.
        for k in range(self.depth - 1):
            self.frames[k] = first[..., k]
        self.age = np.empty((states, agents), np.int64)
        self.elapsed = np.empty((states, agents), np.int64)
        self._set(0, first, np.full(agents, self.depth - 1), elapsed)

    def add(self, t: int, obs: Array, new: Array, elapsed: Array) -> None:
        """Add state t of every agent; `new` marks the first states of episodes."""
        age = np.minimum(self.age[t - 1] + 1, self.depth - 1)
        self._set(t, obs, np.where(new, 0, age), elapsed)

    def _set(self, t: int, obs: Array, age: Array, elapsed: Array) -> None:
        self.frames[t + self.depth - 1] = obs[..., -1]
        self.age[t] = age
        self.elapsed[t] = elapsed

    def finish(self) -> Frames:
        """Return all states."""
        frames = torch.from_numpy(self.frames)
        age = torch.from_numpy(self.age)
        elapsed = torch.from_numpy(self.elapsed)
        return Frames(frames, age, elapsed, self.limit, age.numel())
