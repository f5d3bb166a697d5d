"""The memory layout of arrays and sets, as far as a program can notice it.

Sums over an array depend in their last bits on the order of its axes in memory; what is written
to a view changes the array it is a view of; the order in which a set yields its items depends
on the slots they are in and on the slots of items removed before. All of this is therefore part
of the state to save.
"""

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Maximum number of orders of a set that are tried.
MOST_TURNS = 50


class LayoutError(Exception):
    """A memory layout that cannot be reproduced."""


def of_array(x: Array) -> list[int]:
    """Strides in items along each axis; 0 where an axis has no second item."""
    if x.size == 0:
        return [0] * x.ndim
    pairs = zip(x.shape, x.strides, strict=True)
    return [step // x.itemsize if length > 1 else 0 for length, step in pairs]


def laid_out(x: Array, layout: list[int]) -> Array:
    """A copy of an array with this layout, which owns its memory unless an axis is reversed."""
    if len(layout) != x.ndim:
        raise LayoutError("an array of another shape")
    axes = sorted(range(x.ndim), key=lambda axis: -abs(layout[axis]))
    inner = np.empty([x.shape[axis] for axis in axes], x.dtype)
    made = np.empty_like(inner.transpose(np.argsort(axes)), order="K")
    if any(step < 0 for step in layout):
        made = made[tuple(slice(None, None, -1 if step < 0 else 1) for step in layout)]
    if of_array(made) != layout:
        raise LayoutError("an array with gaps in its memory")
    made[...] = x
    return made


@dataclass(frozen=True)
class Place:
    """Where a view lies in the memory of its owner; offset and strides are in bytes."""

    offset: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    def check_within(self, itemsize: int, nbytes: int) -> None:
        """Refuse a view that would reach outside `nbytes` of memory."""
        numbers = (self.offset, *self.strides, *self.shape)
        if any(type(number) is not int for number in numbers):
            raise LayoutError("a view at a place that is not given in whole numbers")
        if len(self.strides) != len(self.shape) or min(self.shape, default=0) < 0:
            raise LayoutError("a view of no valid shape")
        start = end = self.offset
        if 0 not in self.shape:
            pairs = zip(self.strides, self.shape, strict=True)
            ways = [step * (length - 1) for step, length in pairs]
            start += sum(way for way in ways if way < 0)
            end += sum(way for way in ways if way > 0) + itemsize
        if start < 0 or end > nbytes:
            raise LayoutError("a view that reaches outside its memory")


def owner_of(x: Array) -> Any:
    """The object whose memory an array lies in: an array, bytes or a foreign object."""
    found: Any = x
    while True:
        if isinstance(found, np.ndarray) and found.base is not None:
            found = found.base
        elif isinstance(found, memoryview):
            found = found.obj
        elif type(found).__name__ == "DummyArray" and type(found).__module__.startswith(
            "numpy."
        ):
            found = found.base  # numpy's own, in every result of `as_strided`
        else:
            return found


def can_own(owner: object) -> bool:
    """Whether views into the memory of this object can be recorded."""
    return type(owner) in (bytes, bytearray) or (
        type(owner) is np.ndarray and owner.flags.owndata
    )


def is_view(x: Array) -> bool:
    """Whether an array lies in memory that it does not own.

    Nothing can be read from foreign memory, or written to it, through an empty array: it counts
    as an array of its own.
    """
    own = x.base is None and x.flags.owndata
    return not own and (x.size > 0 or can_own(owner_of(x)))


def place_of(x: Array, owner: Any) -> Place:
    """Where an array lies in its owner's memory."""
    memory = memory_of(owner)
    offset = _address(x) - _address(memory)
    if not x.size:  # older versions of numpy let a view of an empty array begin after its end
        offset = min(max(offset, 0), memory.nbytes)
    place = Place(offset, x.strides, x.shape)
    place.check_within(x.itemsize, memory.nbytes)
    return place


def lies_at(x: Array, owner: Any, place: Place) -> bool:
    """Whether an array lies at this place of the owner's memory."""
    try:
        return place_of(x, owner) == place
    except LayoutError:
        return False


def view_at(owner: Any, place: Place, dtype: "np.dtype[Any]") -> Array:
    """A view at this place of the owner's memory."""
    memory = memory_of(owner)
    place.check_within(dtype.itemsize, memory.nbytes)
    if dtype.hasobject:
        raise LayoutError("a view of references")
    return np.ndarray(place.shape, dtype, memory, place.offset, place.strides)


def memory_of(owner: Any) -> Array:
    """The memory of an array or of bytes, as bytes in the order of their addresses."""
    if not isinstance(owner, np.ndarray):
        return np.frombuffer(owner, np.uint8)
    axes = sorted(range(owner.ndim), key=lambda axis: -owner.strides[axis])
    straight = owner.transpose(axes)
    if not straight.flags.c_contiguous:
        raise LayoutError("an array with gaps in its memory")
    return straight.reshape(-1).view(np.uint8)


def _address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


def insertions(x: Any) -> list[Any]:
    """A set's items in an insertion order that reproduces the set.

    Items that hash differently in every process have no such order: a program that depends on
    it already differs between two starts.
    """
    items = list(x)
    if not all(_hashes_alike(item) for item in items):
        return items
    slots = _slots(x)
    for k in range(min(len(items), MOST_TURNS) or 1):  # items that wrapped around go last
        turned = items[k:] + items[:k]
        if slots is not None and _slots(type(x)(turned)) == slots:
            return turned
    raise LayoutError("a set in an order that cannot be made again")


def _hashes_alike(x: object) -> bool:
    """Whether x has the same hash in every process."""
    if type(x) is tuple:
        return all(_hashes_alike(item) for item in x)
    if type(x) in (str, bytes):
        return os.environ.get("PYTHONHASHSEED", "random") != "random"
    return type(x) in (bool, int, float) or isinstance(x, np.number)


def _slots(x: Any) -> tuple[int, list[tuple[bool, int]]] | None:
    """Where `pop` continues, and every slot's hash; None: not CPython's set.

    Read from memory, because Python exposes neither. Removed items leave markers behind, which
    decide where the next items go and when the table grows.
    """
    if sys.implementation.name != "cpython":
        return None
    start = id(x) + object.__basicsize__
    _, used, mask, table, _, finger = (ctypes.c_ssize_t * 6).from_address(start)
    if used != len(x) or mask & (mask + 1) or not used <= mask + 1 <= 2**32:
        return None
    slots = (ctypes.c_ssize_t * (2 * (mask + 1))).from_address(table)
    keys, hashes = slots[0::2], slots[1::2]
    return finger, [
        (key != 0, code if key else 0) for key, code in zip(keys, hashes, strict=True)
    ]
