"""The data between environment and loss: a rollout [N, A, …] and its flat rows [B, …].

`Collector.collect` fills a `Rollout`; `returns.estimate` turns it into an `Experience`:
observations, possibly as frames stored once, and columns with one row per interaction.
`phases.freeze` adds columns; `minibatches` yields batches that include their observations:

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


def minibatches(
    experience: Experience, size: int, rng: np.random.Generator, together: int = 1
) -> Iterator[Batch]:
    """Yield the mini-batches of one epoch: every row once, in random order.

    `together` mini-batches are concatenated into one batch, for steps that take several at a
    time. On several ranks the order is that of all rows; each rank gets its own rows of it.
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
        yield experience.rows(torch.cat(parts[start : start + together]))


def _own_parts(experience: Experience, parts: list[Tensor]) -> Iterator[Batch]:
    """Yield this rank's rows of each mini-batch, with their share of its weight."""
    share = experience.share
    weights = share.whole(experience["weight"].cpu())
    for part in parts:
        own = share.rows(part).sort().values
        total = weights[part].sum().clamp(min=1.0)
        mb = experience.rows(own if len(own) else torch.zeros(1, dtype=torch.int64))
        if not len(own):  # the rank must still take part in the all-reduce
            mb["weight"] = torch.zeros_like(mb["weight"])
        yield mb | {"portion": mb["weight"] / total.to(mb["weight"].device)}


@torch.no_grad()
def in_chunks(
    function: Callable[[Tensor], Tensor], obs: Observations, rows: int = 1024
) -> Tensor:
    """Apply `function` to all observations, without gradient, `rows` at a time."""
    starts = range(0, len(obs), rows)
    return torch.cat([function(obs[start : start + rows]) for start in starts])


def flat(x: Tensor) -> Tensor:
    """[N, A, …] → [N·A, …]."""
    return x.flatten(0, 1)
