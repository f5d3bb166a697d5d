"""Environments passed from Python: an id, a factory, an instance or a `VectorEnv`.

A run needs `agents` equal environments. An instance is copied: by value where all of it is
plain Python, so that any change to it is kept; otherwise it is made again from its `spec`.
What belongs to the user (a `VectorEnv`, or the instance itself with `agents=1`) is stepped
but never closed.
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
from dna.envs.factory import factory
from dna.envs.guard import close, one_line
from dna.envs.protocol import Factory, Source
from dna.envs.spaces import Codec, ObservationCodec, Observer, PackedCodec, action_codec
from dna.envs.specs import MASK, ActionSpec, ObservationSpec
from dna.envs.state import graph

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
