"""How arrays and sets lie in memory, as far as a program can notice (`dna.envs.state.graph`).

Sums of an array depend in their last bits on the order of its axes in memory; what a set gives
out next depends on the slots its items are in, and on those that were left. Both are state.
"""

import ctypes
import os
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: How many orders of a set are tried.
MOST_TURNS = 50


class Unlike(Exception):
    """Memory that cannot be laid out again."""


def of_array(x: Array) -> list[int]:
    """Steps from item to item along each axis; 0 where there is no next one."""
    if x.size == 0:
        return [0] * x.ndim
    pairs = zip(x.shape, x.strides, strict=True)
    return [step // x.itemsize if length > 1 else 0 for length, step in pairs]


def laid_out(x: Array, layout: list[int]) -> Array:
    """A copy of an array with this layout, which owns its memory if any could."""
    if len(layout) != x.ndim:
        raise Unlike("an array of another shape")
    axes = sorted(range(x.ndim), key=lambda axis: -abs(layout[axis]))
    inner = np.empty([x.shape[axis] for axis in axes], x.dtype)
    made = np.empty_like(inner.transpose(np.argsort(axes)), order="K")
    if any(step < 0 for step in layout):
        made = made[tuple(slice(None, None, -1 if step < 0 else 1) for step in layout)]
    if of_array(made) != layout:
        raise Unlike("an array with gaps in its memory")
    made[...] = x
    return made


def insertions(x: Any) -> list[Any]:
    """A set's items in an order in which to put them in, so that the same set comes about.

    Of items that hash differently in every process nobody knows an order: a program that
    depends on it is not even the same when it is started twice.
    """
    items = list(x)
    if not all(_hashes_alike(item) for item in items):
        return items
    slots = _slots(x)
    for k in range(min(len(items), MOST_TURNS) or 1):  # those that had to wrap around go last
        turned = items[k:] + items[:k]
        if slots is not None and _slots(type(x)(turned)) == slots:
            return turned
    raise Unlike("a set in an order that cannot be made again")


def _hashes_alike(x: object) -> bool:
    """In every process."""
    if type(x) is tuple:
        return all(_hashes_alike(item) for item in x)
    if type(x) in (str, bytes):
        return os.environ.get("PYTHONHASHSEED", "random") != "random"
    return type(x) in (bool, int, float) or isinstance(x, np.number)


def _slots(x: Any) -> tuple[int, list[tuple[bool, int]]] | None:
    """Where `pop` goes on, and every slot's hash; None: not the set that CPython has.

    Python itself tells neither: items that were taken out leave marks behind, which decide
    where the next ones go and when the table grows.
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
