"""Environments behind one convention, whatever library or autoreset mode they come from.

A `VectorEnv` steps A environments and hands out `Step`s: the observation to act on next, raw
reward, the two ends of episodes (no future / boundary), the true last observation where an
episode was cut, and which rows were real steps at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from dna.config import EnvConfig
from dna.errors import BadInput
from dna.spaces import ActionSpec, ObservationSpec

Array = npt.NDArray[Any]
Factory = Callable[[], gymnasium.Env[Any, Any]]
#: What `make` accepts beside an id: a factory of single environments, or a ready vector one.
Source = Factory | gymnasium.vector.VectorEnv[Any, Any, Any] | None


@dataclass(frozen=True)
class Step:  # axis [A]: agents
    """One step of all environments."""

    obs: Array  # [A, …] what to act on next
    reward: npt.NDArray[np.float32]  # [A] raw
    terminated: npt.NDArray[np.bool_]  # [A] no future
    done: npt.NDArray[np.bool_]  # [A] the episode's boundary: terminated or truncated
    valid: npt.NDArray[np.bool_]  # [A] False: the row only carried a reset
    final_obs: dict[
        int, Array
    ]  # agent → true last observation, where `obs` is already a new one


class VectorEnv(Protocol):
    """A environments stepped together."""

    agents: int
    observation: ObservationSpec
    action: ActionSpec
    can_hold: bool  # whether `step` can leave some environments where they are

    def reset(self) -> Array:
        """First observations, [A, …]."""

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """Step every environment, or only the active ones."""

    def uniform(self, rng: np.random.Generator) -> Array:
        """Actions drawn uniformly from the space, [A, W]."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True)
class Making:
    """How to build environments: what cannot change the results lives here, not in `Config`."""

    agents: int
    seeds: tuple[int, ...]
    threads: int = 1
    allow_import: bool = False


def make(config: EnvConfig, making: Making, source: Source = None) -> VectorEnv:
    """The environments of a run: by id, or from a factory or vector environment."""
    from dna.envs.gym import GymVector, factory
    from dna.envs.vector import VectorAdapter

    if source is None:
        source = factory(config, allow_import=making.allow_import)
    if isinstance(source, gymnasium.vector.VectorEnv):
        return VectorAdapter(source, config, making.seeds)
    if callable(source):
        return GymVector(source, config, making)
    raise BadInput(
        f"env: expected an id, a callable or a VectorEnv, got {type(source).__name__}"
    )
