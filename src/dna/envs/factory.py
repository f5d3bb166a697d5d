"""Create environments from an id, `module:factory`, a factory, an instance or a `VectorEnv`.

A run needs `agents` equal environments. An instance is copied by value if it consists of plain
Python objects, which keeps any changes made to it; otherwise it is created again from its
`spec`. What belongs to the user (a `VectorEnv`, or the instance itself when `agents=1`) is
stepped but never closed.
"""

import copy
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dna.common.errors import BadInput, MissingExtra
from dna.common.messages import nearest, quoted
from dna.config import EnvConfig
from dna.config.environments import ATARI, PROCGEN
from dna.envs import mujoco
from dna.envs.atari.vector import rom_of, roms
from dna.envs.benchmark_scores import atari_game, procgen_game
from dna.envs.procgen import GAMES
from dna.envs.protocol import Factory, Source, close, one_line
from dna.envs.spaces import Codec, ObservationCodec, Observer, PackedCodec, action_codec
from dna.envs.specs import MASK, ActionSpec, ObservationSpec
from dna.envs.state import graph

#: Beginnings of MiniGrid's ids.
MINIGRID = ("MiniGrid-", "BabyAI-")


def factory(config: EnvConfig, *, allow_import: bool = False, render: bool = False) -> Source:
    """A callable that makes one environment of this id; refuses ids that do not exist."""
    if not config.id:
        raise BadInput(
            "env.id: names no environment; an environment from Python must be passed again, "
            "for example dna.load(FOLDER, env=…)"
        )
    options: dict[str, Any] = dict(config.options)
    if render:
        options["render_mode"] = "rgb_array"
    if ":" in config.id:
        return _imported(config.id, options, allow_import)
    _check_registered(config.id)
    return lambda: _make(config.id or "", options)


def _make(env_id: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        with mujoco.building(env_id, render="render_mode" in options):
            return gymnasium.make(env_id, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise BadInput(f"{env_id}: {str(error).splitlines()[0]}") from error
    except Exception as error:
        raise BadInput(f"{env_id}: cannot be made ({one_line(error)})") from error


def _check_registered(env_id: str) -> None:
    if env_id.startswith("MinAtar/"):
        register_minatar()
    if env_id.startswith(ATARI):
        rom_of(env_id)
    mujoco.check(env_id)
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error:
        raise BadInput(f"{quoted(env_id)}: no such environment{_hint(env_id)}") from None


def _hint(env_id: str) -> str:
    """Suggest the nearest id; Gymnasium does not know the other names of a game."""
    if game := atari_game(env_id):
        return f"; did you mean '{ATARI}{game}-v5'?"
    if game := procgen_game(env_id):
        return f"; did you mean '{PROCGEN}{game}'?"
    hint = nearest(env_id, list(gymnasium.registry))
    if not hint and env_id.startswith(MINIGRID):  # registered by importing minigrid
        return (
            "; pip install minigrid and give a module:factory that wraps it in "
            "minigrid.wrappers.ImgObsWrapper or FlatObsWrapper"
        )
    return hint or "; `dna list envs` shows what is installed"


def register_minatar() -> None:
    """Register MinAtar's ids, which importing it does not do."""
    if "MinAtar/Breakout-v1" in gymnasium.registry:
        return
    try:
        minatar = importlib.import_module("minatar.gym")
    except ImportError:
        raise MissingExtra("MinAtar", "minatar") from None
    minatar.register_envs()


def ids() -> tuple[list[str], list[str]]:
    """(all ids, what is missing and how to install it), for `dna list envs`."""
    missing: list[str] = []
    for register in (register_minatar, roms):
        try:
            register()
        except MissingExtra as error:
            missing.append(str(error))
    return sorted([*gymnasium.registry, *(PROCGEN + game for game in GAMES)]), missing


def _imported(env_id: str, options: dict[str, Any], allow_import: bool) -> Source:
    """Import `module:factory`, or Gymnasium's `module:Id-v0`; both run the module's code."""
    module_name, _, name = env_id.partition(":")
    if not allow_import:
        raise BadInput(f"{env_id}: would import the module {module_name}; add --allow-import")
    here = str(Path.cwd())
    if here not in sys.path:  # the installed command does not search the working directory
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(f"{env_id}: cannot import {module_name} ({one_line(error)})") from error
    if name in gymnasium.registry:
        return lambda: _make(name, options)
    made = getattr(module, name, None)
    if not callable(made):
        raise BadInput(f"{env_id}: {module_name} has neither a callable nor an id '{name}'")
    return lambda: _call(made, options)


def _call(made: Any, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Call a user's factory; one without `render_mode` may still render."""
    try:
        env: gymnasium.Env[Any, Any] = made(**options)
    except TypeError:
        if "render_mode" not in options:
            raise
        env = made(**{k: v for k, v in options.items() if k != "render_mode"})
    return env


Env = gymnasium.Env[Any, Any]


class KeptEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The user's own instance, which outlives the run."""

    def close(self) -> None:
        """Do nothing: closing it is up to the user."""


class KeptVector(gymnasium.vector.VectorWrapper):
    """The user's own vector environment, which outlives the run."""

    def close(self, **how: Any) -> None:
        """Do nothing: closing it is up to the user."""


@dataclass(frozen=True)
class UserEnv:
    """An environment as the user passed it."""

    env: Any = None  # None: named by the configuration's id

    def __post_init__(self) -> None:
        known = isinstance(self.env, gymnasium.Env | gymnasium.vector.VectorEnv | str)
        if self.env is not None and not known and not callable(self.env):
            raise BadInput(
                f"env: a {type(self.env).__name__} is neither an id, a factory, nor an Env or "
                "VectorEnv of Gymnasium"
            )

    @property
    def id(self) -> str | None:
        """The id, if one was passed."""
        return self.env if isinstance(self.env, str) else None

    @property
    def name(self) -> str | None:
        """The id in the environment's spec; the environment may have been changed since."""
        spec = getattr(self.env, "spec", None)
        return self.id or (spec.id if spec is not None else None)

    @property
    def agents(self) -> int | None:
        """The number of environments in a VectorEnv; None: as many as are asked for."""
        return self.env.num_envs if isinstance(self.env, gymnasium.vector.VectorEnv) else None

    def owned(self, agents: int) -> bool:
        """Whether the user's own object is stepped, not a copy."""
        return self.agents is not None or (agents == 1 and isinstance(self.env, gymnasium.Env))

    def source(self, agents: int, config: EnvConfig) -> Source:
        """The source that `dna.envs.make` takes, for this number of agents."""
        if self.env is None or self.id == config.id is not None:
            return None
        if self.id is not None:  # not the one in the settings
            return factory(EnvConfig(id=self.id), allow_import=True)
        if isinstance(self.env, gymnasium.vector.VectorEnv):
            return KeptVector(self.env)
        if not isinstance(self.env, gymnasium.Env):
            made: Factory = self.env
            return made
        if agents == 1:
            return lambda: KeptEnv(self.env)
        return copies(self.env)

    def spaces(
        self, config: EnvConfig, allow_import: bool
    ) -> tuple[spaces.Space[Any], spaces.Space[Any]] | None:
        """(observation, action) spaces without a reset; None for Atari and Procgen ids."""
        if isinstance(self.env, gymnasium.vector.VectorEnv):
            return self.env.single_observation_space, self.env.single_action_space
        if isinstance(self.env, gymnasium.Env):
            return self.env.observation_space, self.env.action_space
        made: Any = self.source(2, config)
        if made is None:
            if config.atari is not None or (config.id or "").startswith(PROCGEN):
                return None
            made = factory(config, allow_import=allow_import)
        env = made()
        try:
            return env.observation_space, env.action_space
        finally:
            close(env)


def copies(env: Env) -> Factory:
    """A factory of independent copies of an environment; refuses one that cannot be copied."""
    plain = graph.opaque(env, "env") is None
    ways: list[Factory] = [lambda: copy.deepcopy(env)]
    spec = env.spec
    if not plain and spec is not None:
        ways.insert(0, lambda: gymnasium.make(spec, disable_env_checker=True))
    reason = ""
    for way in ways:
        try:
            close(way())
        except Exception as error:
            reason = reason or one_line(error)
        else:
            return way
    raise BadInput(
        f"env: this {type(env.unwrapped).__name__} cannot be copied ({reason:.60}); pass a "
        "factory such as `lambda: MyEnv()`, or agents=1"
    )


def plain_spaces(
    obs: ObservationSpec, action: ActionSpec
) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """The spaces of this package's Atari and Procgen: bytes in, one choice out."""
    return spaces.Box(0, 255, obs.shape, np.uint8), spaces.Discrete(action.sizes[0])


def codecs(
    found: tuple[spaces.Space[Any], spaces.Space[Any]],
    obs: ObservationSpec,
    action: ActionSpec,
) -> tuple[Observer, Codec]:
    """The codecs between these spaces and a policy with these specs."""
    space, acts = found
    writer = action_codec(acts)
    reader: Observer
    if obs.kind == "packed":
        within = isinstance(space, spaces.Dict) and MASK in space.spaces
        reader = PackedCodec(space, writer.spec, in_info=obs.masked and not within)
    else:
        reader = ObservationCodec(space)
    same = (reader.spec.kind, reader.spec.shape) == (obs.kind, obs.shape)
    if not same or writer.spec != action:
        raise BadInput("env: its spaces are not those that the policy was trained with")
    return reader, writer


def is_batch(space: spaces.Space[Any], observation: Any) -> bool:
    """Whether this is a batch of observations of this space, not a single one."""
    while isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping):
            raise BadInput("predict: the observation must be a dictionary, as the space is")
        name, space = next((n, s) for n, s in space.spaces.items() if n != MASK)
        observation = observation[name]
    given, one = np.shape(observation), tuple(space.shape or ())
    if given == one:
        return False
    if given[1:] == one and len(given) == len(one) + 1:
        return True
    raise BadInput(f"predict: an observation of shape {given}, must be {one} or (n, *{one})")
