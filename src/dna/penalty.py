"""The repeated-action penalty of appendix A."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


class RepeatedAction:
    """Subtracts `amount` from the reward of each step while an action is repeated too long.

    The rewards are the normalized ones, and the penalty stands outside their clip. As in the
    authors' code, counters outlive episodes and the action before the first is 0.
    """

    def __init__(self, agents: int, width: int, amount: float, after: int) -> None:
        self.amount, self.after = amount, after
        self.last: npt.NDArray[Any] = np.zeros((agents, width))
        self.repeats = np.zeros(agents, dtype=np.int64)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """What a checkpoint holds."""
        return {"last": self.last, "repeats": self.repeats}

    def load(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """The inverse of `state`."""
        self.last, self.repeats = state["last"].copy(), state["repeats"].copy()

    def __call__(
        self,
        reward: npt.NDArray[np.float32],
        action: npt.NDArray[Any],
        valid: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.float32]:
        """The rewards [A] of these actions [A, W], less the penalty where it is due."""
        same = (action == self.last).all(axis=1)
        self.repeats = np.where(valid, np.where(same, self.repeats + 1, 0), self.repeats)
        self.last = np.where(valid[:, None], action, self.last)
        due = valid & (self.repeats > self.after)
        return (reward - self.amount * due).astype(np.float32)
