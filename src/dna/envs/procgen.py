"""Procgen's sixteen games (Cobbe et al., 2020) through EnvPool: `procgen/coinrun`.

EnvPool checks little and links to Qt 5. So names and levels are checked here before it is
loaded, Qt is located, and every action is compared with its range.
"""

import ctypes
import functools
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space

from dna.common.errors import BadInput, MissingExtra
from dna.common.messages import nearest, quoted
from dna.common.threads import cores
from dna.config import EnvConfig
from dna.config import Procgen as ProcgenConfig
from dna.config.environments import PROCGEN
from dna.envs.gym import VectorAdapter
from dna.envs.protocol import Array, Making, State, guard, one_line, unsaveable
from dna.envs.spaces import ObservationCodec, Observer

#: Game → its distributions of levels other than easy and hard.
_OTHERS: dict[str, tuple[str, ...]] = {
    "bigfish": (),
    "bossfight": (),
    "caveflyer": ("memory", "exploration"),
    "chaser": ("extreme",),
    "climber": ("exploration",),
    "coinrun": ("exploration",),
    "dodgeball": ("extreme", "memory"),
    "fruitbot": (),
    "heist": ("memory", "exploration"),
    "jumper": ("memory", "exploration"),
    "leaper": ("extreme", "exploration"),
    "maze": ("memory", "exploration"),
    "miner": ("memory",),
    "ninja": ("exploration",),
    "plunder": (),
    "starpilot": ("extreme",),
}
GAMES = tuple(_OTHERS)
#: The keys that each of the 15 actions holds down; the last six differ from game to game.
_KEYS = "left+down left left+up down noop up right+down right right+up D A W S Q E"
#: The loader finds Qt's core library and ICU next to it.
_QT = "libQt5Gui.so.5"


class ProcgenVector(VectorAdapter):
    """A vector of games, 64 × 64 pixels in color; EnvPool cannot save their state."""

    def __init__(self, config: EnvConfig, making: Making) -> None:
        task, options = _task(config)
        options["num_threads"] = min(
            making.threads or max(cores() // making.neighbors, 1), making.agents
        )
        name = config.id or task
        with guard(name):
            pool = _Pool(task, options, making.seeds)
        super().__init__(pool, config, making.seeds)
        self.shown = self._obs.empty(self.agents)

    @property
    def inexact(self) -> str | None:
        """Always: EnvPool does not expose its state."""
        return f"{self.name}: EnvPool does not expose its state"

    def snapshot(self) -> State:
        """Fail: there is no state to save."""
        raise unsaveable(self.name)

    def restore(self, state: Mapping[str, Array]) -> None:
        """Fail: there is no state to restore."""
        raise unsaveable(self.name)

    def _codec(self) -> Observer:
        """Images, without a mask."""
        return ObservationCodec(self.env.single_observation_space)

    def _encode(self, obs: Any, info: Any, over: Array | None = None) -> Array:
        self.shown = super()._encode(obs, info, over)
        return self.shown

    def picture(self) -> Array:
        """What agent 0 sees."""
        return np.array(self.shown[0])

    def meanings(self) -> tuple[str, ...]:
        """The keys that each action holds down."""
        return tuple(_KEYS.split())


class _Pool(GymnasiumVectorEnv[Any, Any, Any]):
    """EnvPool with one seed per environment, rows in order, and actions checked."""

    def __init__(self, task: str, options: dict[str, Any], seeds: tuple[int, ...]) -> None:
        self.make = _envpool().make_gymnasium
        self.task = task
        self.options = options
        self.seeds = seeds
        self.pool = self._made()
        self.num_envs = len(seeds)
        self.metadata = {"autoreset_mode": self.pool.metadata["autoreset_mode"]}
        self.single_observation_space = self.pool.observation_space
        self.single_action_space = self.pool.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.choices = int(self.pool.action_space.n)
        self.fresh = True

    def _made(self) -> Any:
        """A new pool; seeds as a list, as from one number neighboring runs would share some."""
        return self.make(
            self.task, num_envs=len(self.seeds), seed=list(self.seeds), **self.options
        )

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start from the seeds, in a new pool if need be: seeds are given when it is made."""
        if not self.fresh:
            self.pool = self._made()
        self.fresh = False
        obs, info = self.pool.reset()
        return obs[np.argsort(info["env_id"])], {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step; refuses an action out of range, on which EnvPool reads past its table."""
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions of shape {actions.shape} are not ({self.num_envs},)")
        wrong = np.flatnonzero((actions < 0) | (actions >= self.choices))
        if len(wrong):
            first, last = int(wrong[0]), self.choices - 1
            raise ValueError(f"action {actions[first]} of agent {first} is not 0 to {last}")
        *rows, info = self.pool.step(actions.astype(np.int32))
        order = np.argsort(info["env_id"])
        obs, reward, terminated, truncated = (row[order] for row in rows)
        return obs, reward, terminated, truncated, {}

    def close(self, **kwargs: Any) -> None:
        """Drop the pool: its threads end with the object."""
        self.pool = None


def _task(config: EnvConfig) -> tuple[str, dict[str, Any]]:
    """EnvPool's id and options."""
    game = (config.id or "").removeprefix(PROCGEN)
    settings = config.procgen or ProcgenConfig()
    if game not in GAMES:
        hint = nearest(game, list(GAMES)) or f"; known: {', '.join(GAMES)}"
        raise BadInput(f"{quoted(config.id or '')}: no such game{hint}")
    if config.options:
        raise BadInput("env.options: not for Procgen; set keys of env.procgen")
    if config.max_episode_steps is not None:
        raise BadInput("env.max_episode_steps: leave it null; procgen has its own limits")
    offered = ("easy", "hard", *_OTHERS[game])
    if settings.distribution not in offered:
        raise BadInput(
            f"env.procgen.distribution: {game} has no {settings.distribution} levels, "
            f"only {', '.join(offered)}"
        )
    if settings.start_level + settings.num_levels >= 2**31:
        raise BadInput("env.procgen.start_level: start_level + num_levels must be below 2^31")
    options = {
        "num_levels": settings.num_levels,
        "start_level": settings.start_level,
        "channel_first": False,
    }
    return f"{game.capitalize()}{settings.distribution.capitalize()}-v0", options


@functools.cache
def load_qt() -> str:
    """Load the Qt 5 that EnvPool's Procgen is linked to; returns where it comes from.

    No loader searches the folder of the PyQt5-Qt5 package. Once loaded, its libraries are
    found by name, and no LD_LIBRARY_PATH is needed.
    """
    if sys.platform != "linux":
        return "EnvPool's own"
    if _loaded(_QT) is None:
        return "the system's"
    package = importlib.util.find_spec("PyQt5")
    folders = list(package.submodule_search_locations or ()) if package else []
    if not folders:
        raise MissingExtra("Procgen's Qt 5", "procgen")
    error = _loaded(str(Path(folders[0]) / "Qt5" / "lib" / _QT))
    if error is not None:
        raise BadInput(
            f"Procgen's Qt 5 cannot be loaded ({one_line(error)}): "
            "pip install 'ppo-dna[procgen]' and the system's libgl1 and libglib2.0-0"
        )
    return "of the package PyQt5-Qt5"


def _loaded(library: str) -> OSError | None:
    """Load a library for those that link to it; returns the error if that fails."""
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return error
    return None


def _envpool() -> Any:
    """EnvPool, with Procgen reloaded if it was imported before Qt was there."""
    if importlib.util.find_spec("envpool") is None:
        raise MissingExtra("Procgen", "procgen")
    load_qt()
    games = importlib.import_module("envpool.procgen")
    if "ProcgenEnvSpec" not in vars(games):
        importlib.reload(games)
    return importlib.import_module("envpool")
