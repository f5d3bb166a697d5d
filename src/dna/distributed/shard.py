"""The shard of a run that one rank holds: its agents, and their rows of a batch.

Rank k of K has agents k·A/K to (k+1)·A/K. Rows are numbered t·A + a over all ranks and
t·A/K + a within one; consecutive rollouts continue the numbering.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dna.distributed.launch import check_divides
from dna.distributed.world import SOLO, World


@dataclass(frozen=True)
class Share:
    """One rank's share of a run; every rank has the same number of agents."""

    world: World = SOLO
    agents: int = 0  # of all ranks

    def __post_init__(self) -> None:
        check_divides(self.agents, self.world.size)

    @property
    def each(self) -> int:
        """Number of agents of one rank."""
        return self.agents // self.world.size

    @property
    def first(self) -> int:
        """Index of this rank's first agent among all."""
        return self.world.rank * self.each

    @property
    def own(self) -> slice:
        """Indices of this rank's agents among all."""
        return slice(self.first, self.first + self.each)

    def rows(self, index: Tensor) -> Tensor:
        """Select this rank's rows from rows of the run, and number them within the rank."""
        if self.world.size == 1:
            return index
        t, a = index // self.agents, index % self.agents
        here = torch.div(a, self.each, rounding_mode="floor") == self.world.rank
        return t[here] * self.each + a[here] - self.first

    def whole(self, column: Tensor) -> Tensor:
        """Gather a column of this rank's rows into the column of the run, on every rank."""
        if self.world.size == 1:
            return column
        parts = self.world.gather(column.detach().cpu().numpy())
        rest = column.shape[1:]
        blocks = np.stack([part.reshape(-1, self.each, *rest) for part in parts], axis=1)
        return torch.from_numpy(blocks.reshape(-1, *rest)).to(column.device)

    def part(self, column: Tensor) -> Tensor:
        """Return this rank's rows of a column of the run: the inverse of `whole`."""
        if self.world.size == 1:
            return column
        blocks = column.reshape(-1, self.agents, *column.shape[1:])
        return blocks[:, self.own].reshape(-1, *column.shape[1:])


#: The share of a run on one rank: everything.
ALONE = Share()
