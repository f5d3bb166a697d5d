"""The data between environment and loss: a rollout [N, A, …] and its flat rows [B, …].

`Collector.collect` fills a `Rollout`; `returns.estimate` turns it into an `Experience`:
observations, possibly as frames stored once, and columns with one row per interaction.
`phases.freeze` adds columns; `minibatches` yields the rows of each `Minibatch`, which are
gathered where they are used, all at once or in pieces, as a batch with its observations:

    obs        [B, …]   as the environment returns it: uint8, bool or float32
    action     [B, W]   int64 choices or float32 real numbers
    log_prob   [B, W]   log π(a|s) at the time of acting, per column of the action
    advantage  [B]      Â
    v_targ     [B]      V_targ
    weight     [B]      1, or 0 for a step that only reset the environment
    portion    [B]      on several ranks: the row's share of the whole mini-batch's weight
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dna.common.threads import ONE_THREAD, Workers
from dna.distributed.shard import ALONE, Share
from dna.networks.frames import Frames, JoinedRollouts, moved

Batch = dict[str, Tensor]
#: Rows of observations, used through `obs[index]` and `len(obs)` only.
Observations = Tensor | Frames | JoinedRollouts


@dataclass(frozen=True)
class Rollout:  # axes [N, A, …]: horizon, agents
    """N steps of A environments."""

    obs: Tensor | Frames  # [(N + 1)·A, …] time-major; the last A only bootstrap
    action: Tensor  # [N, A, W]
    log_prob: Tensor  # [N, A, W]
    reward: Tensor  # [N, A] normalized
    terminated: Tensor  # [N, A] bool: nothing to bootstrap from
    done: Tensor  # [N, A] bool: the episode's boundary
    weight: Tensor  # [N, A] 1, or 0 where the step only reset the environment
    final_obs: Tensor  # [K, …] true last observations of the K truncated steps
    final_index: Tensor  # [K, 2] their (t, a)
    value: Tensor | None = None  # [N, A] V_π computed while acting
    share: Share = ALONE  # on several ranks: which of all agents these are


@dataclass(frozen=True)
class Experience:
    """The rows that a phase learns from."""

    obs: Observations
    columns: Batch
    share: Share = ALONE  # on several ranks: which of all rows these are

    @classmethod
    def of(cls, batch: Batch) -> "Experience":
        """Make an experience from a dictionary whose columns include the observations."""
        return cls(batch["obs"], {k: v for k, v in batch.items() if k != "obs"})

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["weight"])

    def rows(self, index: Tensor) -> Batch:
        """Gather rows as a mini-batch, including observations; `index` is on the CPU."""
        on_device = moved(index, self["weight"].device)
        mb = {name: column[on_device] for name, column in self.columns.items()}
        whole = isinstance(self.obs, Tensor)
        return mb | {"obs": self.obs[on_device if whole else index]}

    def with_columns(self, columns: Batch) -> "Experience":
        """Return the same observations with these columns added or replaced."""
        return replace(self, columns=self.columns | columns)

    def over_all(self, function: Callable[..., Tensor], *names: str) -> Tensor:
        """Apply `function` to columns of all ranks; return this rank's rows of the result."""
        return self.share.part(function(*(self.share.whole(self[name]) for name in names)))

    def to(self, device: torch.device) -> "Experience":
        """Move to a device, observations as raw bytes; a replay buffer's stay on the CPU."""
        obs = self.obs
        if isinstance(obs, Tensor):
            obs = moved(obs, device)
        elif isinstance(obs, Frames):
            obs = obs.to(device)
        columns = {name: moved(c, device) for name, c in self.columns.items()}
        return Experience(obs, columns, self.share)


@dataclass(frozen=True)
class Minibatch:
    """Rows of an experience, gathered when they are asked for."""

    experience: Experience
    index: Tensor  # [B] on the CPU; on several ranks, this rank's rows
    total: Tensor | None = None  # on several ranks: the weight of all ranks' rows

    def gather(self) -> Batch:
        """Return the rows as a batch."""
        if self.total is None:
            return self.experience.rows(self.index)
        empty = not len(self.index)  # the rank must still take part in the all-reduce
        mb = self.experience.rows(torch.zeros(1, dtype=torch.int64) if empty else self.index)
        if empty:
            mb["weight"] = torch.zeros_like(mb["weight"])
        return mb | {"portion": mb["weight"] / self.total.to(mb["weight"].device)}

    def pieces(self, rows: int) -> "list[Minibatch]":
        """Cut into pieces of so many rows; the last may have fewer."""
        parts = torch.split(self.index, rows) if len(self.index) > rows else (self.index,)
        return [Minibatch(self.experience, part, self.total) for part in parts]

    def weight(self) -> Tensor:
        """Return the sum of the rows' weights, at least one."""
        weights = self.experience["weight"]
        return weights[moved(self.index, weights.device)].sum().clamp(min=1.0)


def minibatches(
    experience: Experience, size: int, rng: np.random.Generator, together: int = 1
) -> Iterator[Minibatch]:
    """Yield the mini-batches of one epoch: every row once, in random order.

    `together` mini-batches are concatenated into one, for steps that take several at a time.
    On several ranks the order is that of all rows; each rank gets its own rows of it.
    """
    world = experience.share.world
    order = torch.from_numpy(rng.permutation(len(experience) * world.size))
    parts = list(torch.split(order, size))
    if world.size > 1:
        yield from _own_parts(experience, parts)
        return
    if not isinstance(experience.obs, Tensor):
        # Order within a mini-batch does not matter; sorted rows are faster to gather.
        parts = [part.sort().values for part in parts]
    for start in range(0, len(parts), together):
        yield Minibatch(experience, torch.cat(parts[start : start + together]))


def _own_parts(experience: Experience, parts: list[Tensor]) -> Iterator[Minibatch]:
    """Yield this rank's rows of each mini-batch, with the weight of all its rows."""
    share = experience.share
    weights = share.whole(experience["weight"].cpu())
    for part in parts:
        own = share.rows(part).sort().values
        yield Minibatch(experience, own, weights[part].sum().clamp(min=1.0))


def in_chunks(
    function: Callable[[Tensor], Tensor],
    obs: Observations,
    rows: int = 1024,
    workers: Workers = ONE_THREAD,
) -> Tensor:
    """Apply `function` to all observations, without gradient, `rows` at a time."""

    @torch.no_grad()  # in every thread
    def chunk(start: int) -> Tensor:
        return function(obs[start : start + rows])

    return torch.cat(workers.map(chunk, range(0, len(obs), rows)))


def flat(x: Tensor) -> Tensor:
    """[N, A, …] → [N·A, …]."""
    return x.flatten(0, 1)
