"""Scores: raw returns of whole episodes, counted by us for every kind of environment.

The paper's score is the mean over the last 100 finished episodes of all agents. Where a lost
life ends an episode (easy Atari), a score is that of the whole game.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dna.distributed.shard import Share
from dna.envs import Array, Step

#: The paper's score: the mean over the last so many finished episodes.
WINDOW = 100


@dataclass(frozen=True)
class Episode:
    """One finished episode; `interactions` counts all agents' steps when it ended."""

    interactions: int
    agent: int
    score: float
    length: int


@dataclass
class Scores:
    """Raw returns and lengths of all agents' episodes, counted by us."""

    agents: int
    returns: Array = field(init=False)
    lengths: Array = field(init=False)
    window: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    interactions: int = 0
    episodes: int = 0
    fresh: list[Episode] = field(default_factory=list)  # finished since last asked

    def __post_init__(self) -> None:
        self.returns = np.zeros(self.agents)
        self.lengths = np.zeros(self.agents, dtype=np.int64)

    def add(self, step: Step, count: bool = True) -> None:
        """Count one step of all agents; warm-up steps are no interactions of the run."""
        self.returns += step.reward * step.valid
        if step.unseen is not None:
            self.returns += step.unseen
        self.lengths += step.valid
        if count:
            self._count(int(step.valid.sum()))
        for agent in np.flatnonzero(step.ended & step.valid):
            score, length = float(self.returns[agent]), int(self.lengths[agent])
            if count:
                self._finish(int(agent), score, length)
            self.returns[agent], self.lengths[agent] = 0.0, 0

    def _count(self, interactions: int) -> None:
        self.interactions += interactions

    def _finish(self, agent: int, score: float, length: int) -> None:
        self.episodes += 1
        self.window.append((score, length))
        self.fresh.append(Episode(self.interactions, agent, score, length))

    def state(self) -> dict[str, Array]:
        """What a checkpoint holds; what is finished was written to the log."""
        return {
            "returns": self.returns,
            "lengths": self.lengths,
            "window": np.array(self.window, dtype=np.float64).reshape(-1, 2),
            "counts": np.array([self.interactions, self.episodes]),
        }

    def load(self, state: Mapping[str, Array]) -> None:
        """The inverse of `state`."""
        self.returns, self.lengths = state["returns"].copy(), state["lengths"].copy()
        self.window.clear()
        self.window.extend((float(score), int(length)) for score, length in state["window"])
        self.interactions, self.episodes = map(int, state["counts"])

    def take(self) -> list[Episode]:
        """Episodes finished since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    @property
    def score(self) -> float | None:
        """Mean score of the last 100 episodes; None before the first ends."""
        return float(np.mean([score for score, _ in self.window])) if self.window else None

    @property
    def length(self) -> float | None:
        """Mean length of the last 100 episodes."""
        return float(np.mean([length for _, length in self.window])) if self.window else None

    def settle(self) -> None:
        """A rollout has ended; on one rank everything was counted at once."""


class RankScores(Scores):
    """Scores of all ranks, of which each plays its own agents.

    While a rollout lasts a rank notes what happened at which step; then all are told, and
    count it in the order in which one rank would have seen it.
    """

    def __init__(self, share: Share) -> None:
        super().__init__(share.each)
        self.share = share
        self.steps: list[int] = []  # interactions of each step
        self.ended: list[tuple[float, ...]] = []  # (step, agent, score, length)

    def _count(self, interactions: int) -> None:
        self.steps.append(interactions)

    def _finish(self, agent: int, score: float, length: int) -> None:
        self.ended.append((len(self.steps) - 1, self.share.first + agent, score, length))

    def settle(self) -> None:
        """Count the rollout of all ranks."""
        world = self.share.world
        reached = self.interactions + np.cumsum(sum(world.gather(np.array(self.steps))))
        ended = np.array(self.ended, np.float64).reshape(-1, 4)
        parts = [np.frombuffer(part) for part in world.gather_bytes(ended.tobytes())]
        for t, agent, score, length in sorted(np.concatenate(parts).reshape(-1, 4).tolist()):
            self.interactions = int(reached[int(t)])
            super()._finish(int(agent), score, int(length))
        self.interactions = int(reached[-1])
        self.steps, self.ended = [], []
