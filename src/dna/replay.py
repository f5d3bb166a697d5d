"""The last N_π rollouts, for PPG's auxiliary phase. DNA keeps none (section 4.4)."""

import torch

from dna.batch import Batch

#: What the auxiliary phase reads; the rest of a rollout is forgotten at once.
COLUMNS = ("obs", "v_targ", "weight")


class Replay:
    """A list of batches that is emptied once it has been learned from."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """Remember a rollout; the oldest beyond N_π goes."""
        if self.length:
            kept = {name: batch[name] for name in COLUMNS}
            self.batches = [*self.batches, kept][-self.length :]

    def batch(self, rollouts: int) -> Batch:
        """The rows of the last so many rollouts."""
        last = self.batches[-rollouts:]
        return {name: torch.cat([batch[name] for batch in last]) for name in COLUMNS}

    def clear(self) -> None:
        """Forget everything."""
        self.batches = []
