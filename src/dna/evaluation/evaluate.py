"""Evaluate a saved policy: play whole episodes without learning.

An episode is a function of (policy, seed, episode number): its environment and its action
noise are seeded from these, and the network sees rows in groups of one size. So the number of
episodes played in parallel does not change the scores.
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
from dna.envs.protocol import close
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy

#: Default number of environments that are stepped together.
PARALLEL = 16
#: Steps after which an episode is assumed to have no end.
LONGEST = 200_000
#: Rows in each forward pass, padded: other batch sizes would change the last bits.
ROWS = 8


def _silent(episodes: int) -> None:
    """Show no progress."""


@dataclass(frozen=True)
class Playing:
    """How to play: where environments come from, and whom to notify of finished episodes."""

    allow_import: bool = False
    source: Source = None
    progress: Callable[[int], None] = _silent
    parallel: int = PARALLEL  # changes the speed, not the scores


@dataclass(frozen=True)
class Evaluation:
    """Scores and lengths of whole episodes, by episode number."""

    scores: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval of the mean; NaN for a single episode."""
        return interval(self.scores) or (math.nan, math.nan)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}] over {len(self.scores)} episodes"

    def summary(self) -> dict[str, float | int | str | None]:
        """Return the mean with its 95 % interval, median, interquartile mean and spread."""
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
    """Load the final policy of a run."""
    if not (run.policy / "manifest.json").is_file():
        hint = f"`dna resume {typed(run.path)}` continues it"
        raise BadInput(f"{run.path}: the run is not finished; {hint}")
    return load_policy(run.policy)


def world_seed(seed: int, episode: int) -> int:
    """Return the seed of an episode's environment."""
    return integer(seed, "eval/env", episode)


def padded(obs: Array) -> Tensor:
    """Pad rows to a multiple of `ROWS` with copies of the first."""
    missing = -len(obs) % ROWS
    return torch.from_numpy(np.concatenate([obs, obs[:1].repeat(missing, axis=0)]))


@dataclass
class Player:
    """Acts in many episodes at once, each with its own noise; without a policy, uniformly."""

    policy: SavedPolicy | None
    seed: int
    deterministic: bool
    rngs: dict[int, np.random.Generator] = field(default_factory=dict)  # agent → its noise

    def begin(self, agent: int, episode: int) -> None:
        """Begin an agent's next episode."""
        self.rngs[agent] = generator(self.seed, "eval/act", episode)

    def act(self, vector: VectorEnv, obs: Array, agents: list[int]) -> Array:
        """Return actions [A, W] for all agents; those not listed get zeros."""
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
        """Return actions [B, W] for rows of π's parameters, one per listed agent."""
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
    """Play whole episodes with a policy, or uniformly at random with None.

    Which episodes count is fixed beforehand: counting whichever end first would favor short
    ones. Of A environments, each plays every A-th episode. A vector environment that is passed
    in has its own number of environments, on which scores then depend, and resets them itself.
    """
    how = how or Playing()
    agents = min(how.parallel, episodes)
    ready = isinstance(how.source, gymnasium.vector.VectorEnv)
    if isinstance(how.source, gymnasium.vector.VectorEnv):
        agents = how.source.num_envs
    tournament = _Tournament(episodes, seed, how.progress)
    player = Player(policy, seed, deterministic)
    first = 0
    while len(tournament.played) < episodes:  # more than once only without reseeding
        seeds = tuple(world_seed(seed, first + agent) for agent in range(agents))
        vector = make(env, Making(agents, seeds, None, how.allow_import), how.source)
        queues = [list(range(first + agent, episodes, agents)) for agent in range(agents)]
        try:
            if not vector.can_reseed and not ready:
                queues = [queue[:1] for queue in queues]
            tournament.play(vector, player, queues)
        finally:
            close(vector)
        first += agents
        agents = max(1, min(agents, episodes - first))
    return tournament.result()


class _Tournament:
    """Episodes played so far: number → (score, length)."""

    def __init__(self, episodes: int, seed: int, progress: Callable[[int], None]) -> None:
        self.episodes = episodes
        self.seed = seed
        self.progress = progress
        self.played: dict[int, tuple[float, int]] = {}

    def play(self, vector: VectorEnv, player: Player, queues: list[list[int]]) -> None:
        """Play every agent's queue; agents that are done are held if possible."""
        scores = Scores(vector.agents)
        for agent, queue in enumerate(queues):
            player.begin(agent, queue[0] if queue else self.episodes + agent)
        obs = vector.reset()
        for agent, queue in enumerate(queues):
            self._reseed(vector, agent, queue)
        everyone = list(range(vector.agents))
        while waiting := [agent for agent in everyone if queues[agent]]:
            agents = waiting if vector.can_hold else everyone
            active = np.isin(everyone, agents)
            step = vector.step(
                player.act(vector, obs, agents), None if active.all() else active
            )
            scores.add(step)
            for episode in scores.take():
                if queue := queues[episode.agent]:
                    self.played[queue.pop(0)] = (episode.score, episode.length)
                    self.progress(len(self.played))
                    player.begin(episode.agent, queue[0] if queue else self.episodes)
                    self._reseed(vector, episode.agent, queue)
            _check_end(scores.lengths[waiting])
            obs = step.obs

    def _reseed(self, vector: VectorEnv, agent: int, queue: list[int]) -> None:
        """Set the seed of the episode after the one that begins now."""
        if vector.can_reseed and len(queue) > 1:
            vector.reseed(agent, world_seed(self.seed, queue[1]))

    def result(self) -> Evaluation:
        """Return all episodes in the order of their numbers."""
        scores, lengths = zip(*(self.played[k] for k in range(self.episodes)), strict=True)
        return Evaluation(scores, lengths)


def _check_end(lengths: Array) -> None:
    if (lengths >= LONGEST).any():
        raise EnvironmentFailure(
            f"an episode has not ended after {LONGEST:,} steps; "
            "train with env.max_episode_steps (Atari: env.atari.max_frames) to bound them"
        )
