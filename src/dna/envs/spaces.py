"""Gymnasium's spaces → our two specs, and the data of one into the other.

Observations: `Box` of three axes with few channels is an image (first or last axis is the
channel, the smallest decides), any other `Box` is flattened to a vector; `Discrete`,
`MultiDiscrete` and `MultiBinary` become one-hot vectors. Actions: `Discrete`,
`MultiDiscrete`, `MultiBinary` and `Box`.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from dna.errors import BadInput, NonFinite
from dna.spaces import ActionSpec, ObservationSpec

Array = npt.NDArray[Any]
Dtype = Literal["uint8", "bool", "float32"]
#: More channels than this on the smallest axis, and three axes are no picture.
MOST_CHANNELS = 32


class ObservationCodec:
    """One environment's observations as rows of our spec."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.one_hot = isinstance(
            space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
        )
        self.channels_first = False
        if self.one_hot:
            self.spec = ObservationSpec("vector", (flatdim(space),), "float32")
        elif isinstance(space, spaces.Box):
            self.spec = self._box(space)
        else:
            raise BadInput(
                f"observation space {type(space).__name__} is not supported; use Box, "
                "Discrete, MultiDiscrete or MultiBinary, or wrap it in FlattenObservation"
            )

    def _box(self, space: spaces.Box) -> ObservationSpec:
        if np.issubdtype(space.dtype, np.complexfloating):
            raise BadInput(f"observations of {space.dtype} are not supported; use real numbers")
        shape = space.shape
        bytes_or_bools: dict[str, Dtype] = {"uint8": "uint8", "bool": "bool"}
        dtype: Dtype = bytes_or_bools.get(str(space.dtype), "float32")
        if len(shape) == 3 and min(shape[0], shape[2]) <= MOST_CHANNELS and min(shape) >= 1:
            # Pictures are mostly square: then the odd side out is the channels.
            self.channels_first = shape[0] != shape[1] and (
                shape[1] == shape[2] or shape[0] < shape[2]
            )
            height_width_channels = (*shape[1:], shape[0]) if self.channels_first else shape
            return ObservationSpec("image", height_width_channels, dtype)
        return ObservationSpec("vector", (int(np.prod(shape)),), dtype)

    def empty(self, agents: int) -> Array:
        """A buffer for one observation of each agent."""
        return np.empty((agents, *self.spec.shape), dtype=np.dtype(self.spec.dtype))

    def encode(self, observation: Any) -> Array:
        """One observation as our spec has it."""
        if self.one_hot:
            return np.asarray(flatten(self.space, observation), dtype=np.float32)
        array = np.asarray(observation)
        if array.shape != self.space.shape:
            raise ValueError(f"observation of shape {array.shape} is not {self.space.shape}")
        if array.dtype.kind == "f" and self.spec.dtype != "float32":
            raise ValueError(f"observation of {array.dtype} in a space of {self.space.dtype}")
        if self.spec.kind == "image":
            return np.moveaxis(array, 0, -1) if self.channels_first else array
        return array.reshape(-1)

    def encode_batch(self, observations: Any) -> Array:
        """A vector environment's observations, one row per agent."""
        buffer = self.empty(len(observations))
        for row, observation in zip(buffer, observations, strict=True):
            row[...] = self.encode(observation)
        return buffer


class ActionCodec:
    """Our rows of actions as what one environment's `step` takes."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.start: Array = np.zeros(1, dtype=np.int64)
        if isinstance(space, spaces.Discrete):
            self.start = np.array([space.start], dtype=np.int64)
            self.spec = ActionSpec("categorical", (int(space.n),))
        elif isinstance(space, spaces.MultiDiscrete):
            self.start = np.asarray(space.start, dtype=np.int64).reshape(-1)
            self.spec = ActionSpec("categorical", tuple(int(n) for n in space.nvec.reshape(-1)))
        elif isinstance(space, spaces.MultiBinary):
            self.spec = ActionSpec("categorical", (2,) * int(np.prod(space.shape)))
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            self.spec = ActionSpec("gaussian", (int(np.prod(space.shape)),))
        else:
            raise BadInput(
                f"action space {type(space).__name__} is not supported; use Discrete, "
                "MultiDiscrete, MultiBinary or a Box of real numbers"
            )

    def decode(self, action: Array) -> Any:
        """One agent's action; real numbers are clipped here, not in the policy."""
        if isinstance(self.space, spaces.Discrete):
            return int(action[0] + self.start[0])
        shape = self.space.shape or ()
        if isinstance(self.space, spaces.Box):
            action = np.clip(action.reshape(shape), self.space.low, self.space.high)
            return action.astype(self.space.dtype)
        return (action + self.start).reshape(shape).astype(self.space.dtype)

    def decode_batch(self, actions: Array) -> Any:
        """Every agent's action, stacked as a vector environment takes them."""
        return np.stack([np.asarray(self.decode(action)) for action in actions])

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Actions drawn uniformly; standard normal where a real number has no bounds."""
        if isinstance(self.space, spaces.Box):
            low, high = self.space.low.reshape(-1), self.space.high.reshape(-1)
            bounded = np.isfinite(low) & np.isfinite(high)
            span = np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0)
            inside = np.where(bounded, low, 0.0) + span * rng.random((agents, len(low)))
            free = rng.standard_normal((agents, len(low)))
            return np.where(bounded, inside, free).astype(np.float32)
        return rng.integers(0, self.spec.sizes, size=(agents, self.spec.width))


def check_finite(what: str, array: Array, agents: Sequence[int] | Array | None = None) -> None:
    """Stop at the first number that is not one, naming the agent."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        agent = int(rows[0] if agents is None else agents[rows[0]])
        text = f"the environment gave a {what} that is not finite (agent {agent})"
        raise NonFinite(text, {what.replace(" ", "_"): array})
