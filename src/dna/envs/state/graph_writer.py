"""Writing an object graph down (`dna.envs.state.graph`): every object once, by number."""

import types
from collections import deque
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from dna.envs.state import generators, memory_layout, qualified_names

Array = npt.NDArray[Any]
#: Part of the program, not of its state.
CONSTANT = (types.ModuleType, type, property, EnvSpec, np.dtype)
CONTAINERS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "set": set,
    "frozenset": frozenset,
}
#: Whose objects stand for something outside of Python's memory.
FOREIGN = (
    "multiprocessing", "threading", "_thread", "concurrent", "asyncio", "subprocess", "socket",
    "selectors", "ctypes", "io", "_io", "tempfile", "weakref", "torch", "jax", "Box2D",
    "pygame",
)  # fmt: skip
#: Fields of a space with generators in them: its own, and those of the spaces it is made of.
SAMPLED = ("_np_random", "spaces", "feature_space", "node_space", "edge_space")
#: How many objects a graph may have.
MOST_NODES = 200_000


class Opaque(Exception):
    """Something that cannot be written down."""


class _Plain:
    """An object without memory beside its dictionary, to measure others by."""


class Writer:
    """What was written so far."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.seen: dict[int, int] = {}
        self.alive: list[object] = []  # an id is only good while its object lives
        self.owners: dict[int, list[dict[str, Any]]] = {}  # of memory → arrays in it
        self.bits: set[int] = set()  # of generators

    def node(self, x: Any) -> Any:
        """A JSON value that stands for x."""
        simple = _simple(x)
        if simple is not None or x is None:
            return simple
        if isinstance(x, CONSTANT) or qualified_names.belongs(x):
            return {"constant": qualified_names.of(x)}
        if id(x) in self.seen:
            return {"same": self.seen[id(x)]}
        if len(self.seen) > MOST_NODES:
            raise Opaque(f"more than {MOST_NODES} objects")
        number = self.seen[id(x)] = len(self.seen)
        self.alive.append(x)
        node = self._kind(x)
        node["number"] = number  # into the very dictionary: arrays may be marked later
        return node

    def _kind(self, x: Any) -> dict[str, Any]:
        if isinstance(x, np.generic) or type(x) is np.ndarray:
            return self._array(x)
        if generators.is_dice(x):
            return self._dice(x)
        for name, kind in CONTAINERS.items():
            if type(x) is kind:
                return self._container(name, x)
        if type(x) is dict:
            return {"dict": [[self.node(k), self.node(v)] for k, v in x.items()]}
        if isinstance(x, types.FunctionType | types.MethodType | types.CellType):
            return self._code(x)
        return self._object(x)

    def _code(self, x: Any) -> dict[str, Any]:
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return {"method": qualified_names.of(x.__func__), "self": self.node(x.__self__)}
        return _cell(x, self)

    def _container(self, name: str, x: Any) -> dict[str, Any]:
        more = {"maxlen": x.maxlen} if name == "deque" else {}
        items = self._insertions(x) if name in ("set", "frozenset") else x
        return {name: [self.node(item) for item in items], **more}

    @staticmethod
    def _insertions(x: Any) -> list[Any]:
        try:
            return memory_layout.insertions(x)
        except memory_layout.Unlike as thing:
            raise Opaque(str(thing)) from None

    def _dice(self, x: Any) -> dict[str, Any]:
        inner = generators.memory(x)
        if inner in self.bits:
            raise Opaque("a generator that shares its bits with another")
        self.bits.add(inner)
        return {"dice": generators.save(x)}

    def _function(self, x: types.FunctionType) -> dict[str, Any]:
        """One that was made at run time: what it holds is state."""
        held = {"defaults": x.__defaults__, "keywords": x.__kwdefaults__, "fields": vars(x)}
        return {
            "function": qualified_names.of(x),
            "cells": [self.node(cell) for cell in x.__closure__ or ()],
            **{name: self.node(value) for name, value in held.items()},
        }

    def _object(self, x: Any) -> dict[str, Any]:
        if isinstance(x, gymnasium.Space):
            # A space is part of the program but for the generators it may sample from.
            inner = {name: self.node(vars(x)[name]) for name in SAMPLED if name in vars(x)}
            return {"object": qualified_names.of_type(x), "fields": inner}
        if not _is_plain(x):
            raise Opaque(qualified_names.of_type(x))
        fields = {name: self.node(value) for name, value in vars(x).items()}
        return {"object": qualified_names.of_type(x), "fields": fields}

    def _array(self, x: Any) -> dict[str, Any]:
        if x.dtype.hasobject or x.dtype.fields is not None:
            raise Opaque(f"an array of {x.dtype}")
        name, array = f"array/{len(self.arrays)}", np.array(x, order="C")
        what = {"array": name, "scalar": isinstance(x, np.generic)}
        if isinstance(x, np.ndarray) and memory_layout.of_array(x) != memory_layout.of_array(
            array
        ):
            what["layout"] = memory_layout.of_array(x)
        if not _of_numbers(array.dtype):  # text, dates, foreign byte orders
            what |= {"dtype": array.dtype.str, "shape": list(array.shape)}
            array = np.frombuffer(array.tobytes(), np.uint8)
        self.arrays[name] = array
        if isinstance(x, np.ndarray):
            self._share(x, what)
        return what

    def _share(self, x: Array, node: dict[str, Any]) -> None:
        """Mark arrays that look into the same memory."""
        owner = memory_of(x)
        found = self.owners.setdefault(owner, [])
        found.append(node)
        if len(found) > 1:
            for one in found:
                one["shared"] = owner


def memory_of(x: Any) -> int:
    """The array, or whatever else it is, whose memory this one looks into."""
    while isinstance(x, np.ndarray) and x.base is not None:
        x = x.base
    return id(x)


def _simple(x: Any) -> Any:
    """Values that are their own state; None: it is none of them."""
    kind = type(x)
    if kind in (bool, str) or (kind is int and abs(x) < 2**63):
        return x
    if kind is int:
        return {"int": hex(x)}
    if kind is float:
        return {"float": x.hex()}
    if kind is complex:
        return {"complex": [x.real.hex(), x.imag.hex()]}
    if kind is bytes:
        return {"bytes": x.hex()}
    if isinstance(x, Enum):
        return {"enum": qualified_names.of_type(x), "member": qualified_names.member(x)}
    return None


def _cell(x: types.CellType, writer: Writer) -> dict[str, Any]:
    try:
        return {"cell": writer.node(x.cell_contents)}
    except ValueError:
        if x == types.CellType():
            return {"cell": None, "empty": True}
        raise


def _of_numbers(dtype: "np.dtype[Any]") -> bool:
    """Whether a file of tensors knows it."""
    return dtype.kind in "biuf" and dtype.isnative and dtype.itemsize <= 8


def _is_plain(x: object) -> bool:
    """Whether all there is to an object is in its dictionary, written in Python."""
    kinds = [kind for kind in type(x).__mro__ if kind is not object]
    size, items = type(x).__basicsize__, type(x).__itemsize__
    memory = size > _Plain.__basicsize__ or items > 0  # C's own, where a class has more
    slots = any(getattr(kind, "__slots__", ()) for kind in kinds)
    foreign = any(str(kind.__module__).partition(".")[0] in FOREIGN for kind in kinds)
    return hasattr(x, "__dict__") and not memory and not slots and not foreign
