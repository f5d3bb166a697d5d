"""The last N_π rollouts, for PPG's auxiliary phase. DNA needs no replay (section 4.4)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dna.common.tensor_files import under
from dna.distributed.shard import ALONE, Share
from dna.networks.batch import Experience
from dna.networks.frames import Frames, JoinedRollouts

#: Columns that the auxiliary phase reads besides observations; others are not kept.
COLUMNS = ("v_targ", "weight")


class Replay:
    """The last rollouts, up to `length`, cleared after the auxiliary phase."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rollouts: list[Experience] = []

    def add(self, experience: Experience) -> None:
        """Add a rollout and drop the oldest beyond N_π."""
        if self.length:
            columns = {name: experience[name] for name in COLUMNS}
            kept = Experience(experience.obs, columns, experience.share)
            self.rollouts = [*self.rollouts, kept][-self.length :]

    def experience(self, rollouts: int) -> Experience:
        """Return the rows of the last so many rollouts; observations are not copied."""
        last = self.rollouts[-rollouts:]
        columns = {name: torch.cat([part[name] for part in last]) for name in COLUMNS}
        parts = tuple(part.obs for part in last if not isinstance(part.obs, JoinedRollouts))
        return Experience(JoinedRollouts(parts), columns, last[0].share)

    def clear(self) -> None:
        """Drop all rollouts."""
        self.rollouts = []

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint."""
        return {
            f"{index}/{name}": tensor
            for index, rollout in enumerate(self.rollouts)
            for name, tensor in _tensors(rollout).items()
        }

    def load(self, rollouts: Mapping[int, dict[str, Tensor]], share: Share = ALONE) -> None:
        """Restore the rollouts whose tensors `state` returned, by index."""
        self.rollouts = [_rollout(tensors, share) for tensors in rollouts.values()]


def _tensors(rollout: Experience) -> dict[str, Tensor]:
    obs = {"obs": rollout.obs} if isinstance(rollout.obs, Tensor) else {}
    if isinstance(rollout.obs, Frames):
        obs = {f"frames/{k}": v for k, v in rollout.obs.state().items()}
    return obs | rollout.columns


def _rollout(tensors: dict[str, Tensor], share: Share) -> Experience:
    frames = under(tensors, "frames")
    columns = {name: tensors[name] for name in COLUMNS}
    return Experience(Frames.load(frames) if frames else tensors["obs"], columns, share)
