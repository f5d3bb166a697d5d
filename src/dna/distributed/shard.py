"""Which agents and rows of a run are this rank's.

Rank k of K has agents k·A/K to (k+1)·A/K. Rows are numbered t·A + a over all ranks, t·A/K + a
within one; the rows of several rollouts one behind the other are numbered alike.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dna.distributed.world import SOLO, World


@dataclass(frozen=True)
class Share:
    """A rank's part of a run with so many agents."""

    world: World = SOLO
    agents: int = 0  # of all ranks

    @property
    def each(self) -> int:
        """Agents of one rank."""
        return self.agents // self.world.size

    @property
    def first(self) -> int:
        """The number of this rank's first agent."""
        return self.world.rank * self.each

    @property
    def own(self) -> slice:
        """This rank's agents among all."""
        return slice(self.first, self.first + self.each)

    def rows(self, index: Tensor) -> Tensor:
        """Those of these rows of the run that are here, by their numbers here."""
        if self.world.size == 1:
            return index
        t, a = index // self.agents, index % self.agents
        here = torch.div(a, self.each, rounding_mode="floor") == self.world.rank
        return t[here] * self.each + a[here] - self.first

    def whole(self, column: Tensor) -> Tensor:
        """A column of this rank's rows → the column of all rows of the run, on every rank."""
        if self.world.size == 1:
            return column
        parts = self.world.gather(column.detach().cpu().numpy())
        rest = column.shape[1:]
        blocks = np.stack([part.reshape(-1, self.each, *rest) for part in parts], axis=1)
        return torch.from_numpy(blocks.reshape(-1, *rest)).to(column.device)

    def part(self, column: Tensor) -> Tensor:
        """The inverse: this rank's rows of a column of the run."""
        if self.world.size == 1:
            return column
        blocks = column.reshape(-1, self.agents, *column.shape[1:])
        return blocks[:, self.own].reshape(-1, *column.shape[1:])


#: Everything: a run on one rank.
ALONE = Share()
