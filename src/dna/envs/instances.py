"""What users of Python pass as an environment: an id, a factory, an instance, a `VectorEnv`.

A run needs `agents` environments alike. An instance is copied: by value where all of it is
plain Python, so that whatever was changed on it is kept; else it is made again from its
`spec`. What belongs to the user (a `VectorEnv`, the instance itself when `agents=1`) is
stepped, but never closed.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from dna.common.errors import BadInput
from dna.config import EnvConfig
from dna.config.environments import PROCGEN
from dna.envs import Factory, Source
from dna.envs.actions import Codec, action_codec
from dna.envs.factory import factory
from dna.envs.guard import close, one_line
from dna.envs.packing import PackedCodec
from dna.envs.spaces import ObservationCodec
from dna.envs.specs import MASK, ActionSpec, ObservationSpec
from dna.envs.state import graph

Env = gymnasium.Env[Any, Any]
Vector = gymnasium.vector.VectorEnv[Any, Any, Any]
Observer = ObservationCodec | PackedCodec


class KeptEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The user's own instance: it outlives the run."""

    def close(self) -> None:
        """That is for the user to do."""


class KeptVector(gymnasium.vector.VectorWrapper):
    """The user's own vector environment: it outlives the run."""

    def close(self, **how: Any) -> None:
        """That is for the user to do."""


@dataclass(frozen=True)
class World:
    """An environment as it was passed."""

    env: Any = None  # None: by its id, in the configuration

    def __post_init__(self) -> None:
        known = isinstance(self.env, gymnasium.Env | gymnasium.vector.VectorEnv | str)
        if self.env is not None and not known and not callable(self.env):
            raise BadInput(
                f"env: a {type(self.env).__name__} is neither an id, a factory, nor an Env or "
                "VectorEnv of Gymnasium's"
            )

    @property
    def id(self) -> str | None:
        """The id, where it was passed as one."""
        return self.env if isinstance(self.env, str) else None

    @property
    def name(self) -> str | None:
        """The id that an environment says it has: it may have been changed since."""
        spec = getattr(self.env, "spec", None)
        return self.id or (spec.id if spec is not None else None)

    @property
    def agents(self) -> int | None:
        """How many environments it is; None: as many as are asked for."""
        return self.env.num_envs if isinstance(self.env, gymnasium.vector.VectorEnv) else None

    def owned(self, agents: int) -> bool:
        """Whether the user's own object is stepped."""
        return self.agents is not None or (agents == 1 and isinstance(self.env, gymnasium.Env))

    def source(self, agents: int, config: EnvConfig) -> Source:
        """What `dna.envs.make` is to be given for so many agents."""
        if self.env is None or self.id == config.id is not None:
            return None
        if self.id is not None:  # another than the settings say
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
        """(observation, action) spaces, nothing is reset; None: the id is one of our own."""
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
    """Makes environments like this one, each with nothing shared; refused if that fails."""
    plain = graph.opaque(env, "env") is None
    ways: list[Factory] = [lambda: copy.deepcopy(env)]
    if not plain and env.spec is not None:
        ways.insert(0, lambda: _again(env))
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


def _again(env: Env) -> Env:
    assert env.spec is not None
    return gymnasium.make(env.spec, disable_env_checker=True)


def plain_spaces(
    obs: ObservationSpec, action: ActionSpec
) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Those of Atari and Procgen as we make them: bytes in, one choice out."""
    return spaces.Box(0, 255, obs.shape, np.uint8), spaces.Discrete(action.sizes[0])


def codecs(
    found: tuple[spaces.Space[Any], spaces.Space[Any]],
    obs: ObservationSpec,
    action: ActionSpec,
) -> tuple[Observer, Codec]:
    """What reads observations and writes actions of these spaces for a policy like this."""
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
    """Whether these are several observations of this space, one behind the other."""
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
