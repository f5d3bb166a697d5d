"""Packed observations: rows of bytes that hold the parts of a Dict space, read with numpy.

A row is an observation like any other to everything between environment and network: it is
stored, gathered and saved as bytes. It is taken apart here, and by torch in `dna.unpack`, into
numbers for an encoder and into the choices that are legal.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dna.spaces import ObservationSpec, Part

Array = npt.NDArray[Any]


def spans(spec: ObservationSpec) -> dict[Part, slice]:
    """Where each part lies in a row."""
    found, start = {}, 0
    for part in spec.parts:
        found[part] = slice(start, start + part.bytes)
        start += part.bytes
    return found


def columns(spec: ObservationSpec) -> dict[str, tuple[Part, slice]]:
    """Entry → where it lies in the numbers that `Unpack` and `numbers` give."""
    found, start = dict[str, tuple[Part, slice]](), 0
    for part in spec.entries:
        found[part.name] = part, slice(start, start + part.elements)
        start += part.elements
    return found


def elements(spec: ObservationSpec) -> int:
    """Numbers in the entries of a row."""
    return sum(part.elements for part in spec.entries)


def divisors(spec: ObservationSpec) -> npt.NDArray[np.float64]:
    """255 where a number is a pixel or another byte, else 1."""
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
    """Which choices are legal [B, C]; None: all of them, always."""
    for part, span in spans(spec).items():
        if part.kind == "mask":
            return np.not_equal(rows[:, span], 0)
    return None
