"""Playing without learning: scores of a saved policy.

An episode is a function of (policy, seed, its number): its environment begins from a seed of
its own, its actions have noise of their own, and the network sees rows in groups of one
size. So how many episodes are played side by side changes nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import gymnasium
import numpy as np
import torch
from torch import Tensor

from dna.algorithm.episodes import Scores
from dna.common.console import typed
from dna.common.errors import BadInput, EnvironmentFailure
from dna.common.intervals import METHOD, interval, iqm
from dna.common.randomness import generator, integer
from dna.config import EnvConfig
from dna.envs import Array, Making, Source, VectorEnv, make
from dna.envs.guard import close
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy

#: Environments stepped together while evaluating, unless told otherwise.
PARALLEL = 16
#: Steps after which an episode is taken to have no end.
LONGEST = 200_000
#: Rows the network sees at a time, filled up: sums of other sizes differ in their last bits.
ROWS = 8


def _silent(episodes: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Playing:
    """How to play: where environments come from, who is told of finished episodes."""

    allow_import: bool = False
    source: Source = None
    progress: Callable[[int], None] = _silent
    parallel: int = PARALLEL  # changes the speed, not the scores


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes, in order of their numbers."""

    scores: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval of the mean; NaN of a single episode."""
        return interval(self.scores) or (math.nan, math.nan)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}] over {len(self.scores)} episodes"

    def summary(self) -> dict[str, float | int | str | None]:
        """Mean with a 95 % interval, median, interquartile mean and spread."""
        scores = np.array(self.scores)
        low, high = interval(self.scores) or (None, None)
        return {
            "episodes": len(scores),
            "mean": float(scores.mean()),
            "std": float(scores.std()),
            "low": low,
            "high": high,
            "interval": METHOD,
            "median": float(np.median(scores)),
            "iqm": iqm(self.scores),
            "min": float(scores.min()),
            "max": float(scores.max()),
            "length": float(np.mean(self.lengths)),
        }


def policy_of(run: RunFolder) -> SavedPolicy:
    """The run's final policy."""
    if not (run.policy / "manifest.json").is_file():
        hint = f"`dna resume {typed(run.path)}` goes on"
        raise BadInput(f"{run.path}: the run is not finished; {hint}")
    return load_policy(run.policy)


def world_seed(seed: int, episode: int) -> int:
    """What an episode's environment begins from."""
    return integer(seed, "eval/env", episode)


def padded(obs: Array) -> Tensor:
    """Rows filled up to a multiple of `ROWS` with copies of the first."""
    more = -len(obs) % ROWS
    return torch.from_numpy(np.concatenate([obs, obs[:1].repeat(more, axis=0)]))


@dataclass
class Player:
    """Acts in many episodes at once, in each with noise of its own; None is uniform."""

    policy: SavedPolicy | None
    seed: int
    deterministic: bool
    rngs: dict[int, np.random.Generator] = field(default_factory=dict)  # agent → its noise

    def begin(self, agent: int, episode: int) -> None:
        """An agent's next episode."""
        self.rngs[agent] = generator(self.seed, "eval/act", episode)

    def act(self, vector: VectorEnv, obs: Array, agents: list[int]) -> Array:
        """Actions of these agents, in rows of all, [A, W]."""
        if self.policy is None:
            rows = np.concatenate([vector.uniform(self.rngs[i], only=i) for i in agents])
        else:
            groups = torch.split(padded(obs[agents]), ROWS)
            params = torch.cat([self.policy.parameters(group) for group in groups])
            rows = self.choose(self.policy, params[: len(agents)], agents)
        action = np.zeros((vector.agents, rows.shape[1]), rows.dtype)
        action[agents] = rows
        return action

    def choose(self, policy: SavedPolicy, params: Tensor, agents: list[int]) -> Array:
        """Actions [B, W] of π's parameters, one row for each of these agents."""
        if self.deterministic:
            return np.asarray(policy.distribution.mode(params).numpy())
        noise = [policy.distribution.draw(self.rngs[i], (1,)) for i in agents]
        drawn = torch.from_numpy(np.concatenate(noise))
        return np.asarray(policy.distribution.sample(params, drawn).numpy())


def evaluate(
    policy: SavedPolicy | None,
    env: EnvConfig,
    *,
    episodes: int,
    seed: int,
    deterministic: bool = False,
    how: Playing | None = None,
) -> Evaluation:
    """Play whole episodes; None plays uniformly at random.

    Which episodes count is fixed beforehand: taking whichever end first would favor short
    ones. Each environment plays every A-th. A ready vector environment has its own number
    of environments and resets them by itself: there, the scores do depend on that number.
    """
    how = how or Playing()
    agents = min(how.parallel, episodes)
    ready = isinstance(how.source, gymnasium.vector.VectorEnv)
    if isinstance(how.source, gymnasium.vector.VectorEnv):
        agents = how.source.num_envs
    table = _Table(episodes, seed, how.progress)
    player = Player(policy, seed, deterministic)
    first = 0
    while len(table.found) < episodes:  # once, or in turns where nothing can be seeded anew
        seeds = tuple(world_seed(seed, first + agent) for agent in range(agents))
        vector = make(env, Making(agents, seeds, None, how.allow_import), how.source)
        try:
            queues = _queues(first, episodes, agents)
            table.play(vector, player, queues if vector.can_reseed or ready else _one(queues))
        finally:
            close(vector)
        first += agents
        agents = max(1, min(agents, episodes - first))
    return table.result()


def _queues(first: int, episodes: int, agents: int) -> list[list[int]]:
    """The episodes of each agent."""
    return [list(range(first + agent, episodes, agents)) for agent in range(agents)]


def _one(queues: list[list[int]]) -> list[list[int]]:
    return [queue[:1] for queue in queues]


class _Table:
    """Episodes as they come in: number → (score, length)."""

    def __init__(self, episodes: int, seed: int, progress: Callable[[int], None]) -> None:
        self.episodes, self.seed, self.progress = episodes, seed, progress
        self.found: dict[int, tuple[float, int]] = {}

    def play(self, vector: VectorEnv, player: Player, queues: list[list[int]]) -> None:
        """Every agent's queue to its end; who is through waits, where that is possible."""
        played = Scores(vector.agents)
        for agent, queue in enumerate(queues):
            player.begin(agent, queue[0] if queue else self.episodes + agent)
        obs = vector.reset()
        for agent, queue in enumerate(queues):
            self._announce(vector, agent, queue)
        everyone = list(range(vector.agents))
        while waiting := [agent for agent in everyone if queues[agent]]:
            agents = waiting if vector.can_hold else everyone
            active = np.isin(everyone, agents)
            held = None if active.all() else active
            step = vector.step(player.act(vector, obs, agents), held)
            played.add(step)
            for episode in played.take():
                if queue := queues[episode.agent]:
                    self._keep(queue.pop(0), episode.score, episode.length)
                    player.begin(episode.agent, queue[0] if queue else self.episodes)
                    self._announce(vector, episode.agent, queue)
            _check_end(played.lengths[waiting])
            obs = step.obs

    def _announce(self, vector: VectorEnv, agent: int, queue: list[int]) -> None:
        """Which episode comes behind the one that begins."""
        if vector.can_reseed and len(queue) > 1:
            vector.reseed(agent, world_seed(self.seed, queue[1]))

    def _keep(self, number: int, score: float, length: int) -> None:
        self.found[number] = (score, length)
        self.progress(len(self.found))

    def result(self) -> Evaluation:
        """In order of their numbers, whoever ended first."""
        scores, lengths = zip(*(self.found[k] for k in range(self.episodes)), strict=True)
        return Evaluation(scores, lengths)


def _check_end(lengths: Array) -> None:
    if (lengths >= LONGEST).any():
        raise EnvironmentFailure(
            f"an episode is still going after {LONGEST:,} steps; "
            "train with env.max_episode_steps (Atari: env.atari.max_frames) to bound them"
        )
