"""Gymnasium's spaces of observations → our spec, and the data of one into the other.

`Box` of three axes with few channels is an image (first or last axis is the channel, the
smallest decides), any other `Box` is flattened to a vector; `Discrete`, `MultiDiscrete` and
`MultiBinary` become one-hot vectors. `Dict`s and masks are packed: `dna.envs.packing`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from dna.common.errors import BadInput, NonFinite
from dna.envs.specs import MASK, Dtype, ObservationSpec

Array = npt.NDArray[Any]
#: More channels than this on the smallest axis, and three axes are no picture.
MOST_CHANNELS = 32


class ObservationCodec:
    """One environment's observations as rows of our spec."""

    def __init__(self, space: spaces.Space[Any], *, maskless: bool = False) -> None:
        """`maskless`: choices are made, and nothing said that some may be illegal."""
        self.space, self.maskless = space, maskless
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
                "Discrete, MultiDiscrete, MultiBinary or a Dict of these, or wrap it in "
                "FlattenObservation"
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

    def encode(self, observation: Any, info: Any = None, *, final: bool = False) -> Array:
        """One observation as our spec has it; nothing of `info` is in it."""
        if self.maskless:
            check_unmasked(info)
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

    def encode_batch(self, observations: Any, info: Any = None, over: Any = None) -> Array:
        """A vector environment's observations, one row per agent."""
        if self.maskless:
            check_unmasked(info)
        buffer = self.empty(len(observations))
        for row, observation in zip(buffer, observations, strict=True):
            row[...] = self.encode(observation)
        return buffer

    def numbers(self, rows: Array) -> Array:
        """What of these rows can fail to be finite."""
        return rows

    def legal(self, rows: Array) -> npt.NDArray[np.bool_] | None:
        """Every choice always is."""
        return None


def check_unmasked(info: Any) -> None:
    """A mask that comes late would be ignored: networks are built for what a reset shows."""
    if info and MASK in info:
        raise ValueError(
            f"info has an '{MASK}' now, but had none at the first reset; give it at every "
            "reset and step"
        )


def check_finite(what: str, array: Array, agents: Sequence[int] | Array | None = None) -> None:
    """Stop at the first number that is not one, naming the agent."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        agent = int(rows[0] if agents is None else agents[rows[0]])
        text = f"the environment gave a {what} that is not finite (agent {agent})"
        raise NonFinite(text, {what.replace(" ", "_"): array})
