"""The layout of packed rows: Dict entries and an action mask as bytes, one after the other.

`dna.envs.specs.ObservationSpec.pack` orders the parts and `dna.envs.spaces.PackedCodec` writes
the rows. A mask travels in the same row as its observation, so whatever acts on the one or
learns from it has the other at hand.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dna.envs.specs import ObservationSpec, Part

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
