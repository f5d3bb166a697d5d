"""What an environment looks like to the agent: shapes and kinds, JSON out and in.

The only description of spaces that networks, distributions and saved policies know; the
conversion from Gymnasium's spaces is in `dna.envs.spaces`.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Stack:
    """Channels are one frame each, oldest first, with the time drawn on the oldest."""

    limit: int | None  # raw frames at which the time bar is full; None: no bar


@dataclass(frozen=True)
class ObservationSpec:
    """`image`: [H, W, C], channels last whatever the environment says; `vector`: [D]."""

    kind: Literal["vector", "image"]
    shape: tuple[int, ...]
    dtype: Literal["uint8", "bool", "float32"]
    stack: Stack | None = None

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ObservationSpec":
        """The inverse of `to_json`."""
        stack = tree.get("stack")
        stacked = None if stack is None else Stack(stack["limit"])
        return cls(tree["kind"], tuple(tree["shape"]), tree["dtype"], stacked)

    def to_json(self) -> dict[str, Any]:
        """Plain values for policy.json."""
        return asdict(self)


@dataclass(frozen=True)
class ActionSpec:
    """`categorical`: one choice among each of `sizes`; `gaussian`: `sizes[0]` real numbers."""

    kind: Literal["categorical", "gaussian"]
    sizes: tuple[int, ...]

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ActionSpec":
        """The inverse of `to_json`."""
        return cls(tree["kind"], tuple(tree["sizes"]))

    def to_json(self) -> dict[str, Any]:
        """Plain values for policy.json."""
        return asdict(self)

    @property
    def width(self) -> int:
        """Columns of an action: one per choice or real number."""
        return len(self.sizes) if self.kind == "categorical" else self.sizes[0]
