"""The last N_π rollouts, for PPG's auxiliary phase. DNA keeps none (section 4.4)."""

import torch

from dna.batch import Experience
from dna.frames import Joined

#: What the auxiliary phase reads beside observations; the rest is forgotten at once.
COLUMNS = ("v_targ", "weight")


class Replay:
    """A list of rollouts that is emptied once it has been learned from."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rollouts: list[Experience] = []

    def add(self, experience: Experience) -> None:
        """Remember a rollout; the oldest beyond N_π goes."""
        if self.length:
            kept = Experience(experience.obs, {name: experience[name] for name in COLUMNS})
            self.rollouts = [*self.rollouts, kept][-self.length :]

    def experience(self, rollouts: int) -> Experience:
        """The rows of the last so many rollouts; observations are not copied."""
        last = self.rollouts[-rollouts:]
        columns = {name: torch.cat([part[name] for part in last]) for name in COLUMNS}
        parts = tuple(part.obs for part in last if not isinstance(part.obs, Joined))
        return Experience(Joined(parts), columns)

    def clear(self) -> None:
        """Forget everything."""
        self.rollouts = []
