"""Specs of observations and actions: kinds and shapes, to and from JSON, and packed rows.

The only description of spaces that networks, distributions and saved policies use; the
conversion from Gymnasium's spaces is in `dna.envs.spaces`. Dict observations and action masks
are packed into rows of bytes, which the functions at the end read with numpy.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter

Dtype = Literal["uint8", "bool", "float32"]
#: Sizes in a file are below this, so that products of a few of them fit 64 bits.
MAX_SIZE = 2**31
Size = Annotated[int, Field(gt=0, lt=MAX_SIZE)]
#: Packed rows are padded to a multiple of this many bytes, so that floats are aligned.
ALIGNMENT = 8
#: The name of the part that tells which choices are legal.
MASK = "action_mask"


@dataclass(frozen=True)
class Stack:
    """Channels are frames, oldest first, with the time bar drawn on the oldest."""

    limit: int | None  # raw frames at which the time bar is full; None: no bar


@dataclass(frozen=True)
class Part:
    """One entry of a packed observation; images are [H, W, C]."""

    name: str
    kind: Literal["vector", "image", "mask"]
    shape: tuple[Size, ...]
    dtype: Dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Number of bytes in a row."""
        return self.elements * (4 if self.dtype == "float32" else 1)


@dataclass(frozen=True)
class ObservationSpec:
    """`image`: [H, W, C], channels last whatever the environment's order; `vector`: [D].

    `packed`: rows of bytes with several parts one after the other, floats first: the entries
    of a Dict space, and which choices are legal (`dna.envs.specs` reads them).
    """

    kind: Literal["vector", "image", "packed"]
    shape: tuple[Size, ...]
    dtype: Dtype
    stack: Stack | None = None
    parts: tuple[Part, ...] = ()

    @classmethod
    def pack(cls, parts: list[Part]) -> "ObservationSpec":
        """The spec of rows with these parts; floats come first, otherwise the order is kept."""
        ordered = sorted(parts, key=lambda part: part.dtype != "float32")
        size = sum(part.bytes for part in ordered)
        row = math.ceil(size / ALIGNMENT) * ALIGNMENT
        return cls("packed", (row,), "uint8", None, tuple(ordered))

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ObservationSpec":
        """The inverse of `to_json`; a ValueError for anything else."""
        spec = TypeAdapter(cls).validate_json(json.dumps(tree), strict=True)
        if any(len(shape) != 3 for shape in spec.images):
            raise ValueError(f"an image has the shape {spec.images[0]}")
        if spec.kind == "packed":
            packed = cls.pack(list(spec.parts))
            if packed.shape != spec.shape:
                raise ValueError(f"parts fill {packed.shape} bytes, not {spec.shape}")
            return packed
        return spec

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for policy.json."""
        tree = asdict(self)
        if not self.parts:
            del tree["parts"]
        return tree

    @property
    def entries(self) -> tuple[Part, ...]:
        """The parts that an encoder sees: all but the mask."""
        return tuple(part for part in self.parts if part.kind != "mask")

    @property
    def masked(self) -> bool:
        """Whether there is an action mask."""
        return any(part.kind == "mask" for part in self.parts)

    @property
    def images(self) -> list[tuple[int, ...]]:
        """Shapes [H, W, C] of all images."""
        if self.kind == "image":
            return [self.shape]
        return [part.shape for part in self.parts if part.kind == "image"]


@dataclass(frozen=True)
class ActionSpec:
    """`categorical`: one choice among each of `sizes`; `gaussian`: `sizes[0]` real numbers.

    `hybrid`: choices among `sizes`, followed by `reals` real numbers.
    """

    kind: Literal["categorical", "gaussian", "hybrid"]
    sizes: tuple[Size, ...]
    reals: Annotated[int, Field(ge=0, lt=MAX_SIZE)] = 0

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ActionSpec":
        """The inverse of `to_json`; a ValueError for anything else."""
        spec = TypeAdapter(cls).validate_json(json.dumps(tree), strict=True)
        if not spec.sizes or (spec.kind == "gaussian" and len(spec.sizes) > 1):
            raise ValueError(f"{spec.kind} actions have the sizes {spec.sizes}")
        return spec

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, for policy.json."""
        tree = asdict(self)
        if self.kind != "hybrid":
            del tree["reals"]
        return tree

    @property
    def choices(self) -> tuple[int, ...]:
        """Sizes of the groups of choices."""
        return () if self.kind == "gaussian" else self.sizes

    @property
    def numbers(self) -> int:
        """Number of real numbers."""
        return self.sizes[0] if self.kind == "gaussian" else self.reals

    @property
    def width(self) -> int:
        """Columns of an action's row: one per choice or real number."""
        return len(self.choices) + self.numbers


Array = npt.NDArray[Any]


def spans(spec: ObservationSpec) -> dict[Part, slice]:
    """Part → its bytes in a row."""
    found = {}
    start = 0
    for part in spec.parts:
        found[part] = slice(start, start + part.bytes)
        start += part.bytes
    return found


def columns(spec: ObservationSpec) -> dict[str, tuple[Part, slice]]:
    """Entry → its part and its columns in the output of `Unpack` and `numbers`."""
    found = {}
    start = 0
    for part in spec.entries:
        found[part.name] = (part, slice(start, start + part.elements))
        start += part.elements
    return found


def elements(spec: ObservationSpec) -> int:
    """Total number of elements in the entries of a row."""
    return sum(part.elements for part in spec.entries)


def divisors(spec: ObservationSpec) -> npt.NDArray[np.float64]:
    """255 where an element is a pixel or another byte, else 1."""
    parts = [np.full(p.elements, 255.0 if p.dtype == "uint8" else 1.0) for p in spec.entries]
    return np.concatenate(parts)


def numbers(spec: ObservationSpec, rows: Array) -> npt.NDArray[np.float32]:
    """Rows of bytes [B, R] as the numbers of their entries [B, E], not yet scaled."""
    parts = []
    for part, span in spans(spec).items():
        if part.kind != "mask":
            piece = np.ascontiguousarray(rows[:, span])
            parts.append(piece.view(np.float32) if part.dtype == "float32" else piece)
    return np.concatenate(parts, axis=1, dtype=np.float32)


def legal(spec: ObservationSpec, rows: Array) -> npt.NDArray[np.bool_] | None:
    """Which choices are legal [B, C]; None: every choice is always legal."""
    for part, span in spans(spec).items():
        if part.kind == "mask":
            return np.not_equal(rows[:, span], 0)
    return None
