"""Procgen's sixteen games (Cobbe et al., 2020) through EnvPool: `procgen/coinrun`.

EnvPool checks little and links to Qt 5. What it does not do is done here: names and levels
are checked before it is loaded, Qt is found, every action is compared with its range.
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
from dna.config import EnvConfig
from dna.config import Procgen as ProcgenConfig
from dna.config.environments import PROCGEN
from dna.envs import Array, Making, State
from dna.envs.atari.workers import cores
from dna.envs.guard import guard, one_line
from dna.envs.packing import PackedCodec
from dna.envs.spaces import ObservationCodec
from dna.envs.vector import VectorAdapter, no_snapshot

#: Game → the levels it has beside easy and hard.
_BESIDE: dict[str, tuple[str, ...]] = {
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
GAMES = tuple(_BESIDE)
#: The keys that each of the 15 actions holds down; the last six differ from game to game.
_KEYS = "left+down left left+up down noop up right+down right right+up D A W S Q E"
#: Its Core and their ICU come along.
_QT = "libQt5Gui.so.5"


class ProcgenVector(VectorAdapter):
    """A games together; 64 × 64 colors. Its state cannot be saved: EnvPool has no way."""

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
        """EnvPool keeps its state to itself."""
        return f"{self.name}: EnvPool does not hand out its state"

    def snapshot(self) -> State:
        """Not to be had."""
        raise no_snapshot(self.name)

    def restore(self, state: Mapping[str, Array]) -> None:
        """Nothing to restore into."""
        raise no_snapshot(self.name)

    def _codec(self) -> ObservationCodec | PackedCodec:
        """Pictures; and nothing is ever illegal."""
        return ObservationCodec(self.env.single_observation_space)

    def _encode(self, obs: Any, info: Any, over: Array | None = None) -> Array:
        self.shown = super()._encode(obs, info, over)
        return self.shown

    def picture(self) -> Array:
        """What agent 0 sees."""
        return np.array(self.shown[0])

    def meanings(self) -> tuple[str, ...]:
        """The keys held down."""
        return tuple(_KEYS.split())


class _Pool(GymnasiumVectorEnv[Any, Any, Any]):
    """EnvPool with its seeds, its order and its actions made sure of."""

    def __init__(self, task: str, options: dict[str, Any], seeds: tuple[int, ...]) -> None:
        self.make = _envpool().make_gymnasium
        self.task, self.options, self.seeds = task, options, seeds
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
        """Seeds as a list: from one number, environments of neighboring runs would be equal."""
        return self.make(
            self.task, num_envs=len(self.seeds), seed=list(self.seeds), **self.options
        )

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """The first levels of the seeds: EnvPool takes seeds only when it is made."""
        if not self.fresh:
            self.pool = self._made()
        self.fresh = False
        obs, info = self.pool.reset()
        return obs[np.argsort(info["env_id"])], {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step; an action out of range would make EnvPool read past its table."""
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
        """Its threads end with the object."""
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
    offered = ("easy", "hard", *_BESIDE[game])
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
    """Load the Qt 5 that EnvPool's Procgen is linked to; says whose it is.

    The libraries of the PyQt5-Qt5 package lie where no loader looks. Once loaded, they are
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
    """Load a library for all that come later, or say why not."""
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return error
    return None


def _envpool() -> Any:
    """EnvPool, with a Procgen that found Qt even if somebody imported it without."""
    if importlib.util.find_spec("envpool") is None:
        raise MissingExtra("Procgen", "procgen")
    load_qt()
    games = importlib.import_module("envpool.procgen")
    if "ProcgenEnvSpec" not in vars(games):
        importlib.reload(games)
    return importlib.import_module("envpool")
