"""Playing without learning: scores of a saved policy, and pictures of it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
import torch

from dna.config import EnvConfig
from dna.envs import Array, Making, Source, VectorEnv, make
from dna.envs.guard import close
from dna.episodes import Episode, Scores
from dna.errors import BadInput, EnvironmentFailure
from dna.folder import RunFolder
from dna.media import Frame, as_frame
from dna.policy import SavedPolicy, load_policy
from dna.randomness import generator, integer

#: Environments stepped together while evaluating.
PARALLEL = 16
#: Steps after which an episode is taken to have no end.
LONGEST = 200_000


def _silent(episodes: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Playing:
    """How to play: where environments come from, who is told of finished episodes."""

    allow_import: bool = False
    source: Source = None
    progress: Callable[[int], None] = _silent
    parallel: int = PARALLEL  # environments stepped together


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes."""

    scores: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(self.summary()["mean"])

    @property
    def interval(self) -> tuple[float, float]:
        """A 95 % interval of the mean."""
        found = self.summary()
        return float(found["low"]), float(found["high"])

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}] over {len(self.scores)} episodes"

    def summary(self) -> dict[str, float | int]:
        """Mean, spread and a 95 % interval of the mean (normal approximation)."""
        scores = np.array(self.scores)
        error = float(scores.std(ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else 0.0
        return {
            "episodes": len(scores),
            "mean": float(scores.mean()),
            "std": float(scores.std()),
            "low": float(scores.mean() - 1.96 * error),
            "high": float(scores.mean() + 1.96 * error),
            "min": float(scores.min()),
            "max": float(scores.max()),
            "length": float(np.mean(self.lengths)),
        }


def policy_of(run: RunFolder) -> SavedPolicy:
    """The run's final policy."""
    if not (run.policy / "manifest.json").is_file():
        raise BadInput(f"{run.path}: the run is not finished; `dna resume {run.path}` goes on")
    return load_policy(run.policy)


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

    Each environment plays the same number of episodes, fixed beforehand: taking whichever
    end first would favor short ones.
    """
    how = how or Playing()
    agents = min(how.parallel, episodes)
    if isinstance(how.source, gymnasium.vector.VectorEnv):
        agents = how.source.num_envs
    seeds = tuple(integer(seed, "eval/env", agent) for agent in range(agents))
    vector = make(env, Making(agents, seeds, None, how.allow_import), how.source)
    rng = generator(seed, "eval/act")

    def act(obs: Array) -> Array:
        if policy is None:
            return vector.uniform(rng)
        action = policy.act(torch.from_numpy(obs), rng, deterministic=deterministic)
        return np.asarray(action.numpy())

    try:
        return _play_quota(vector, act, episodes, how.progress)
    finally:
        close(vector)


def _play_quota(
    vector: VectorEnv,
    act: Callable[[Array], Array],
    episodes: int,
    progress: Callable[[int], None],
) -> Evaluation:
    quota = np.full(vector.agents, episodes // vector.agents)
    quota[: episodes % vector.agents] += 1
    played = Scores(vector.agents)
    kept: list[Episode] = []
    obs = vector.reset()
    while quota.any():
        step = vector.step(act(obs))
        played.add(step)
        for episode in played.take():
            if quota[episode.agent]:
                quota[episode.agent] -= 1
                kept.append(episode)
                progress(len(kept))
        if (played.lengths[quota > 0] >= LONGEST).any():
            raise EnvironmentFailure(
                f"an episode is still going after {LONGEST:,} steps; "
                "train with env.max_episode_steps (Atari: env.atari.max_frames) to bound them"
            )
        obs = step.obs
    return Evaluation(tuple(e.score for e in kept), tuple(e.length for e in kept))


@dataclass(frozen=True)
class Recording:
    """One episode in pictures."""

    frames: list[Frame]
    fps: int
    score: float
    whole: bool  # False: cut after so many pictures


def record(
    policy: SavedPolicy, *, seed: int, deterministic: bool, allow_import: bool, most: int = 5000
) -> Recording:
    """Play one episode and keep its pictures."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame needs no screen to draw
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    seeds = (integer(seed, "record/env"),)
    vector = make(policy.env, Making(1, seeds, 1, allow_import, render=True))
    rng = generator(seed, "record")
    frames: list[Frame] = []
    played = Scores(1)
    try:
        obs = vector.reset()
        while not played.window and len(frames) < most:
            frames.append(as_frame(vector.picture()))
            action = policy.act(torch.from_numpy(obs), rng, deterministic=deterministic)
            step = vector.step(action.numpy())
            played.add(step)
            obs = step.obs
    finally:
        close(vector)
    score = played.window[0][0] if played.window else float(played.returns[0])
    return Recording(frames, vector.fps, score, bool(played.window))


def default_video(run: RunFolder) -> Path:
    """Where `dna record` writes unless told otherwise."""
    return run.path / "episode.mp4"
