"""Episode scores: undiscounted raw returns, for every kind of environment.

The paper's score is the mean over the last 100 finished episodes of all agents. Where the loss
of a life ends an episode (easy Atari), the score is still that of the whole game.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dna.distributed.shard import Share
from dna.envs import Array, Step

#: Number of last finished episodes over which the paper's score is a mean.
WINDOW = 100


@dataclass(frozen=True)
class Episode:
    """A finished episode; `interactions` is the count over all agents when it ended."""

    interactions: int
    agent: int
    score: float
    length: int


@dataclass
class Scores:
    """Raw returns and lengths of all agents' episodes."""

    agents: int
    returns: Array = field(init=False)
    lengths: Array = field(init=False)
    window: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    interactions: int = 0
    episodes: int = 0
    fresh: list[Episode] = field(default_factory=list)  # finished since the last `take`

    def __post_init__(self) -> None:
        self.returns = np.zeros(self.agents)
        self.lengths = np.zeros(self.agents, dtype=np.int64)

    def add(self, step: Step, count: bool = True) -> None:
        """Add a step of all agents; warm-up steps (`count=False`) do not count."""
        self.returns += step.reward * step.valid
        if step.unseen is not None:
            self.returns += step.unseen
        self.lengths += step.valid
        if count:
            self._count(int(np.count_nonzero(step.valid)))
        for agent in (step.ended & step.valid).nonzero()[0]:
            if count:
                score = float(self.returns[agent])
                self._finish(int(agent), score, int(self.lengths[agent]))
            self.returns[agent] = 0.0
            self.lengths[agent] = 0

    def _count(self, interactions: int) -> None:
        self.interactions += interactions

    def _finish(self, agent: int, score: float, length: int) -> None:
        self.episodes += 1
        self.window.append((score, length))
        self.fresh.append(Episode(self.interactions, agent, score, length))

    def state(self) -> dict[str, Array]:
        """Return the arrays of a checkpoint; finished episodes are in the log already."""
        return {
            "returns": self.returns,
            "lengths": self.lengths,
            "window": np.array(self.window, dtype=np.float64).reshape(-1, 2),
            "counts": np.array([self.interactions, self.episodes]),
        }

    def load(self, state: Mapping[str, Array]) -> None:
        """Restore what `state` returned."""
        self.returns = state["returns"].copy()
        self.lengths = state["lengths"].copy()
        self.window.clear()
        self.window.extend((float(score), int(length)) for score, length in state["window"])
        self.interactions, self.episodes = map(int, state["counts"])

    def take(self) -> list[Episode]:
        """Return the episodes that finished since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    @property
    def score(self) -> float | None:
        """Mean score of the last 100 episodes; None before the first has finished."""
        return float(np.mean([score for score, _ in self.window])) if self.window else None

    @property
    def length(self) -> float | None:
        """Mean length of the last 100 episodes."""
        return float(np.mean([length for _, length in self.window])) if self.window else None

    def settle(self) -> None:
        """End a rollout. On one rank there is nothing left to count."""


class RankScores(Scores):
    """Scores over several ranks, each of which plays its own agents.

    During a rollout each rank records what happened at which step. Afterwards the records are
    gathered, and every rank counts them in the order in which a single rank would have.
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
        """Gather and count the rollout of all ranks."""
        world = self.share.world
        reached = self.interactions + np.cumsum(sum(world.gather(np.array(self.steps))))
        ended = np.array(self.ended, np.float64).reshape(-1, 4)
        parts = [np.frombuffer(part) for part in world.gather_bytes(ended.tobytes())]
        for t, agent, score, length in sorted(np.concatenate(parts).reshape(-1, 4).tolist()):
            self.interactions = int(reached[int(t)])
            super()._finish(int(agent), score, int(length))
        self.interactions = int(reached[-1])
        self.steps = []
        self.ended = []
