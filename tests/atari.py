"""Atari vectors for tests, and Gymnasium's own preprocessing to compare them with."""

from typing import Any

import ale_py  # noqa: F401  registers its ids
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from dna.common.randomness import integer
from dna.config import EnvConfig
from dna.config.environments import Atari
from dna.envs import Making, Step, make
from dna.envs.atari.vector import AtariVector

#: The paper's games that the parity test plays: lives or none, short or long, paddles, timers.
PARITY_GAMES = (
    "Breakout", "Pong", "Qbert", "MsPacman", "Seaquest",
    "BeamRider", "Freeway", "Boxing", "SpaceInvaders", "Assault",
)  # fmt: skip
PLAIN = {"sticky": 0.0, "noops": None, "time": "hidden", "last_action": "hidden"}


def vector(
    game: str, agents: int = 2, threads: int | None = 1, seed: int = 0, **settings: Any
) -> AtariVector:
    """Some games of a kind, reset."""
    config = EnvConfig(id=f"ALE/{game}-v5", atari=Atari(**settings))
    seeds = tuple(integer(seed, "env", agent) for agent in range(agents))
    env = make(config, Making(agents, seeds, threads))
    assert isinstance(env, AtariVector)
    return env


def actions(env: AtariVector, seed: int, steps: int) -> list[Any]:
    """Random actions of all agents."""
    rng = np.random.default_rng(seed)
    return [env.uniform(rng) for _ in range(steps)]


def trace(step: Step) -> tuple[Any, ...]:
    """Everything a step says, for comparisons to the byte."""
    parts = (step.obs, step.reward, step.terminated, step.done, step.over, step.unseen)
    finals = [(i, obs.tobytes()) for i, obs in sorted(step.final_obs.items())]
    return (*(np.ascontiguousarray(p).tobytes() for p in parts), finals)


def gymnasiums(game: str, life_loss: bool) -> gymnasium.Env[Any, Any]:
    """The same game behind Gymnasium's wrappers: no no-ops, no stickiness."""
    base = gymnasium.make(
        f"ALE/{game}-v5",
        frameskip=1,
        repeat_action_probability=0.0,
        full_action_space=not life_loss,
        max_num_frames_per_episode=108_000,
    )
    prepared = AtariPreprocessing(
        base, noop_max=0, frame_skip=4, screen_size=84, terminal_on_life_loss=life_loss
    )
    return FrameStackObservation(prepared, 4)


def disagreements(game: str, steps: int, *, life_loss: bool) -> list[str]:
    """Play both with the same actions; say where frames, rewards or ends differ.

    Gymnasium starts a new game after every end, ours goes on behind a lost life: so in that
    case both begin anew.
    """
    settings = PLAIN | ({"actions": "minimal", "life_loss": "terminal"} if life_loss else {})
    theirs, ours = gymnasiums(game, life_loss), vector(game, 1, **settings)
    found: list[str] = []
    rng = np.random.default_rng(0)
    seen, _ = theirs.reset(seed=0)
    obs = ours.reset()
    for t in range(steps):
        if not np.array_equal(np.moveaxis(seen, 0, -1), obs[0]):
            found.append(f"step {t}: frames")
        action = ours.uniform(rng)
        step = ours.step(action)
        seen, reward, terminated, truncated, _ = theirs.step(int(action[0, 0]))
        if float(reward) != step.reward[0] and not (life_loss and terminated):
            found.append(f"step {t}: reward")
        if (bool(terminated), bool(terminated or truncated)) != (
            bool(step.terminated[0]),
            bool(step.done[0]),
        ):
            found.append(f"step {t}: ends")
        obs = step.obs
        if terminated or truncated or step.done[0]:
            if not life_loss and not np.array_equal(
                np.moveaxis(seen, 0, -1), step.final_obs[0]
            ):
                found.append(f"step {t}: last frames")
            seen, _ = theirs.reset()
            obs = ours.reset() if not step.over[0] or life_loss else obs
        if len(found) > 5:
            break
    theirs.close()
    ours.close()
    return found
