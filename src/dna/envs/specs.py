"""What an environment looks like to the agent: shapes and kinds, JSON out and in.

The only description of spaces that networks, distributions and saved policies know; the
conversion from Gymnasium's spaces is in `dna.envs.spaces` and `dna.envs.packing`.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Dtype = Literal["uint8", "bool", "float32"]
#: Bytes to which a packed row is filled up, so that its floats lie where floats may.
ALIGNMENT = 8
#: The name of the part that says which choices are legal.
MASK = "action_mask"


@dataclass(frozen=True)
class Stack:
    """Channels are one frame each, oldest first, with the time drawn on the oldest."""

    limit: int | None  # raw frames at which the time bar is full; None: no bar


@dataclass(frozen=True)
class Part:
    """One entry of a packed observation; images are [H, W, C], as everywhere here."""

    name: str
    kind: Literal["vector", "image", "mask"]
    shape: tuple[int, ...]
    dtype: Dtype

    @property
    def elements(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its share of a row."""
        return self.elements * (4 if self.dtype == "float32" else 1)


@dataclass(frozen=True)
class ObservationSpec:
    """`image`: [H, W, C], channels last whatever the environment says; `vector`: [D].

    `packed`: rows of bytes that hold several parts one behind the other, floats first: the
    entries of a Dict space, and which choices are legal (`dna.envs.packing` reads them).
    """

    kind: Literal["vector", "image", "packed"]
    shape: tuple[int, ...]
    dtype: Dtype
    stack: Stack | None = None
    parts: tuple[Part, ...] = ()

    @classmethod
    def pack(cls, parts: list[Part]) -> "ObservationSpec":
        """Rows of these parts; floats go to the front, else the order stays."""
        ordered = sorted(parts, key=lambda part: part.dtype != "float32")
        size = sum(part.bytes for part in ordered)
        row = math.ceil(size / ALIGNMENT) * ALIGNMENT
        return cls("packed", (row,), "uint8", None, tuple(ordered))

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ObservationSpec":
        """The inverse of `to_json`."""
        stack = tree.get("stack")
        stacked = None if stack is None else Stack(stack["limit"])
        shape = tuple(tree["shape"])
        if tree["kind"] != "packed":
            return cls(tree["kind"], shape, tree["dtype"], stacked)
        parts = [Part(**part | {"shape": tuple(part["shape"])}) for part in tree["parts"]]
        spec = cls.pack(parts)
        if spec.shape != shape:
            raise ValueError(f"parts fill {spec.shape} bytes, not {shape}")
        return spec

    def to_json(self) -> dict[str, Any]:
        """Plain values for policy.json."""
        tree = asdict(self)
        if not self.parts:
            del tree["parts"]
        return tree

    @property
    def entries(self) -> tuple[Part, ...]:
        """The parts that an encoder sees."""
        return tuple(part for part in self.parts if part.kind != "mask")

    @property
    def masked(self) -> bool:
        """Whether it says which choices are legal."""
        return any(part.kind == "mask" for part in self.parts)

    @property
    def images(self) -> list[tuple[int, ...]]:
        """Shapes [H, W, C] of the images in it."""
        if self.kind == "image":
            return [self.shape]
        return [part.shape for part in self.parts if part.kind == "image"]


@dataclass(frozen=True)
class ActionSpec:
    """`categorical`: one choice among each of `sizes`; `gaussian`: `sizes[0]` real numbers.

    `hybrid`: choices among `sizes`, and behind them `reals` real numbers.
    """

    kind: Literal["categorical", "gaussian", "hybrid"]
    sizes: tuple[int, ...]
    reals: int = 0

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ActionSpec":
        """The inverse of `to_json`."""
        return cls(tree["kind"], tuple(tree["sizes"]), tree.get("reals", 0))

    def to_json(self) -> dict[str, Any]:
        """Plain values for policy.json."""
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
        """Real numbers in it."""
        return self.sizes[0] if self.kind == "gaussian" else self.reals

    @property
    def width(self) -> int:
        """Columns of an action: one per choice or real number."""
        return len(self.choices) + self.numbers
