"""The data between environment and loss: a rollout [N, A, …] and its flat rows [B, …].

`collect` fills a `Rollout`, `estimate` turns it into `Experience`: observations, which may be
frames stored once, and a `Batch` of columns with one row per interaction. `freeze` adds
columns, `minibatches` cuts it into batches that hold their observations too:

    obs        [B, …]   as the environment gave it: uint8, bool or float32
    action     [B, W]   int64 choices or float32 real numbers
    log_prob   [B, W]   log π(a|s) at the time of acting, per column of the action
    advantage  [B]      Â
    v_targ     [B]      V_targ
    weight     [B]      1, or 0 for a row that only carried a reset
    portion    [B]      on several ranks: the row's part of its whole mini-batch's weight
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dna.distributed.shard import ALONE, Share
from dna.networks.frames import Frames, JoinedRollouts, moved

Batch = dict[str, Tensor]
#: Rows of observations: `obs[index]` and `len(obs)` are all that is asked of them.
Observations = Tensor | Frames | JoinedRollouts


@dataclass(frozen=True)
class Rollout:  # axes [N, A, …]: horizon, agents
    """What N steps of A environments gave."""

    obs: Tensor | Frames  # [(N + 1)·A, …] row after row; the last A only bootstrap
    action: Tensor  # [N, A, W]
    log_prob: Tensor  # [N, A, W]
    reward: Tensor  # [N, A] normalized
    terminated: Tensor  # [N, A] bool: no future
    done: Tensor  # [N, A] bool: the episode's boundary
    weight: Tensor  # [N, A] 1, or 0 where the row only carried a reset
    final_obs: Tensor  # [K, …] true last observations of the K truncated steps
    final_index: Tensor  # [K, 2] their (t, a)
    value: Tensor | None = None  # [N, A] V_π while acting, where one network has it
    share: Share = ALONE  # on several ranks: which agents A are of all


@dataclass(frozen=True)
class Experience:
    """What a phase learns from."""

    obs: Observations
    columns: Batch
    share: Share = ALONE  # on several ranks: which rows of the run these are

    @classmethod
    def of(cls, batch: Batch) -> "Experience":
        """From a dictionary that holds observations among its columns."""
        return cls(batch["obs"], {k: v for k, v in batch.items() if k != "obs"})

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["weight"])

    def rows(self, index: Tensor) -> Batch:
        """Some rows as a mini-batch, observations included; `index` is on the host."""
        on_device = moved(index, self["weight"].device)
        mb = {name: column[on_device] for name, column in self.columns.items()}
        whole = isinstance(self.obs, Tensor)
        return mb | {"obs": self.obs[on_device if whole else index]}

    def with_columns(self, columns: Batch) -> "Experience":
        """The same observations with more columns beside, or other ones."""
        return replace(self, columns=self.columns | columns)

    def over_all(self, function: Callable[..., Tensor], *names: str) -> Tensor:
        """`function` of whole columns, those of all ranks; this rank's rows of the result."""
        return self.share.part(function(*(self.share.whole(self[name]) for name in names)))

    def to(self, device: torch.device) -> "Experience":
        """On a device, observations as the bytes they are; a replay's stay on the host."""
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
    """One epoch: every row once, in a fresh order, `size` rows at a time.

    For a step that walks several, so many mini-batches come one behind the other in one batch.
    On several ranks rows and order are those of the run; each rank gets its own of them.
    """
    world = experience.share.world
    order = torch.from_numpy(rng.permutation(len(experience) * world.size))
    parts = list(torch.split(order, size))
    if world.size > 1:
        yield from _own_parts(experience, parts)
        return
    if not isinstance(experience.obs, Tensor):
        # Which rows meet is what counts; in order they are found faster in memory.
        parts = [part.sort().values for part in parts]
    for start in range(0, len(parts), together):
        yield experience.rows(torch.cat(parts[start : start + together]))


def _own_parts(experience: Experience, parts: list[Tensor]) -> Iterator[Batch]:
    """This rank's rows of each mini-batch, and how much they weigh in it."""
    share = experience.share
    weights = share.whole(experience["weight"].cpu())
    for part in parts:
        own = share.rows(part).sort().values
        total = weights[part].sum().clamp(min=1.0)
        mb = experience.rows(own if len(own) else torch.zeros(1, dtype=torch.int64))
        if not len(own):  # it must not stay away from the sum of the gradients
            mb["weight"] = torch.zeros_like(mb["weight"])
        yield mb | {"portion": mb["weight"] / total.to(mb["weight"].device)}


@torch.no_grad()
def in_chunks(
    function: Callable[[Tensor], Tensor], obs: Observations, rows: int = 1024
) -> Tensor:
    """`function` over all rows without gradient, a bounded number of rows at a time."""
    starts = range(0, len(obs), rows)
    return torch.cat([function(obs[start : start + rows]) for start in starts])


def flat(x: Tensor) -> Tensor:
    """[N, A, …] → [N·A, …]."""
    return x.flatten(0, 1)
