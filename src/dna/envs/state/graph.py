"""Snapshots of plain Python environments: their object graph as JSON and arrays, and back.

Numbers, text, arrays, containers and numpy's generators are recorded by value; objects are
walked attribute by attribute, functions made at run time cell by cell. What belongs to the
program (functions of a module, classes, members of an Enum) is recorded by name and must be
there again. Nothing is ever built from a name in a file: a graph is read back *into* objects
made alike. Anything that cannot be recorded, such as a window, a C++ world or an object with
memory of its own, makes the environment inexact, and is named.
"""

import json
import types
from collections import deque
from collections.abc import Mapping
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
#: Packages whose objects stand for something outside Python's memory.
FOREIGN = (
    "multiprocessing", "threading", "_thread", "concurrent", "asyncio", "subprocess", "socket",
    "selectors", "ctypes", "io", "_io", "tempfile", "weakref", "torch", "jax", "Box2D",
    "pygame",
)  # fmt: skip
#: Fields of a space with generators in them: its own, and those of the spaces it is made of.
SAMPLED = ("_np_random", "spaces", "feature_space", "node_space", "edge_space")
#: Maximum number of objects in a graph.
MOST_NODES = 200_000


class Opaque(Exception):
    """Something whose state cannot be recorded."""


class Mismatch(Exception):
    """A graph that does not belong to these objects."""


def save(root: object) -> dict[str, Array]:
    """Record everything that `root` holds as named arrays; raises `Opaque`."""
    writer = _Writer()
    try:
        text = json.dumps(writer.node(root)).encode()
    except RecursionError:
        raise Opaque("something nested that deeply") from None
    except (ValueError, TypeError) as error:
        raise Opaque(f"something ({error})") from error
    return {"graph": np.frombuffer(text, np.uint8).copy(), **writer.arrays}


def load(root: object, state: Mapping[str, Array]) -> None:
    """Put a graph back into an object made like the one it was saved from."""
    try:
        tree = json.loads(state["graph"].tobytes())
        _Reader(state).value(tree, root)
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:
        raise Mismatch(f"not a graph of these objects ({error})") from error


def opaque(root: object, name: str) -> str | None:
    """Why `root` cannot be saved, or None."""
    try:
        save(root)
    except Opaque as thing:
        return f"{name}: {thing} cannot be saved"
    return None


class _Writer:
    """Records a graph; every object is written once and referred to by its number."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.seen: dict[int, int] = {}  # id of an object → its number
        self.alive: list[object] = []  # an id is unique only while its object lives
        self.owners: dict[int, list[dict[str, Any]]] = {}  # memory → nodes of arrays in it
        self.bits: set[int] = set()  # bit generators

    def node(self, x: Any) -> Any:
        """The JSON value that stands for x."""
        simple = _encode_simple(x)
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
        node["number"] = number  # into the same dictionary: arrays may be marked later
        return node

    def _kind(self, x: Any) -> dict[str, Any]:
        if isinstance(x, np.generic) or type(x) is np.ndarray:
            return self._array(x)
        if generators.is_generator(x):
            return self._generator(x)
        for name, kind in CONTAINERS.items():
            if type(x) is kind:
                return self._container(name, x)
        if type(x) is dict:
            return {"dict": [[self.node(k), self.node(v)] for k, v in x.items()]}
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return {"method": qualified_names.of(x.__func__), "self": self.node(x.__self__)}
        if isinstance(x, types.CellType):
            return self._cell(x)
        return self._object(x)

    def _container(self, name: str, x: Any) -> dict[str, Any]:
        items = x
        if name in ("set", "frozenset"):
            try:
                items = memory_layout.insertions(x)
            except memory_layout.LayoutError as error:
                raise Opaque(str(error)) from None
        node = {name: [self.node(item) for item in items]}
        if name == "deque":
            node["maxlen"] = x.maxlen
        return node

    def _generator(self, x: Any) -> dict[str, Any]:
        bits = generators.bits_of(x)
        if bits in self.bits:
            raise Opaque("a generator that shares its bits with another")
        self.bits.add(bits)
        return {"dice": generators.save(x)}

    def _function(self, x: types.FunctionType) -> dict[str, Any]:
        """A function made at run time: the variables it holds are state."""
        return {
            "function": qualified_names.of(x),
            "cells": [self.node(cell) for cell in x.__closure__ or ()],
            "defaults": self.node(x.__defaults__),
            "keywords": self.node(x.__kwdefaults__),
            "fields": self.node(vars(x)),
        }

    def _cell(self, x: types.CellType) -> dict[str, Any]:
        try:
            return {"cell": self.node(x.cell_contents)}
        except ValueError:
            if x == types.CellType():
                return {"cell": None, "empty": True}
            raise

    def _object(self, x: Any) -> dict[str, Any]:
        if isinstance(x, gymnasium.Space):
            # A space is part of the program except for the generators it may sample from.
            fields = {name: self.node(vars(x)[name]) for name in SAMPLED if name in vars(x)}
        elif _is_plain(x):
            fields = {name: self.node(value) for name, value in vars(x).items()}
        else:
            raise Opaque(qualified_names.of_type(x))
        return {"object": qualified_names.of_type(x), "fields": fields}

    def _array(self, x: Any) -> dict[str, Any]:
        if x.dtype.hasobject or x.dtype.fields is not None:
            raise Opaque(f"an array of {x.dtype}")
        name = f"array/{len(self.arrays)}"
        array = np.array(x, order="C")
        node: dict[str, Any] = {"array": name, "scalar": isinstance(x, np.generic)}
        if isinstance(x, np.ndarray):
            layout = memory_layout.of_array(x)
            if layout != memory_layout.of_array(array):
                node["layout"] = layout
        if not _is_storable(array.dtype):  # text, dates, foreign byte orders
            node["dtype"] = array.dtype.str
            node["shape"] = list(array.shape)
            array = np.frombuffer(array.tobytes(), np.uint8)
        self.arrays[name] = array
        if isinstance(x, np.ndarray):
            self._mark_shared(x, node)
        return node

    def _mark_shared(self, x: Array, node: dict[str, Any]) -> None:
        """Mark arrays that are views of the same memory."""
        owner = _memory_of(x)
        nodes = self.owners.setdefault(owner, [])
        nodes.append(node)
        if len(nodes) > 1:
            for each in nodes:
                each["shared"] = owner


class _Reader:
    """Reads a recorded graph back into objects made alike."""

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.state = state
        self.made: dict[int, Any] = {}  # number of a node → its object
        self.taken: set[int] = set()  # ids of present objects that were filled
        self.alive: list[Any] = []  # an id is unique only while its object lives
        self.memory: dict[int, int] = {}  # shared memory when saved → now

    def value(self, node: Any, present: Any) -> Any:
        """What a node stands for; `present` is the object there now, filled if it fits."""
        if not isinstance(node, dict):
            return node
        if "number" in node:
            return self._numbered(node, present)
        if "same" in node:
            return self.made[node["same"]]
        if "enum" in node:
            member = qualified_names.enum(node["enum"], node["member"], present)
            if member is None:
                raise Mismatch(f"{node['enum']} is not there to be put back")
            return member
        if "constant" in node:
            if not qualified_names.is_name_of(node["constant"], present) or present is None:
                raise Mismatch(f"{node['constant']} is not there to be put back")
            return present
        return _decode_simple(node)

    def _numbered(self, node: dict[str, Any], present: Any) -> Any:
        if id(present) in self.taken:
            present = None  # two objects when saved, one now: it cannot be both of them
        self.taken.add(id(present))
        self.taken.discard(id(None))
        self.alive.append(present)
        number = node["number"]
        if "object" in node or "function" in node or "cell" in node:
            self.made[number] = present
            self._fill(node, present)
        elif "method" in node:
            self.made[number] = self._method(node, present)
        elif "array" in node:
            self.made[number] = self._array(node, present)
        elif "dict" in node:
            self._dict(node["dict"], present, number)
        elif "dice" in node:
            self.made[number] = generators.load(node["dice"], present)
        else:
            self.made[number] = self._container(node, present, number)
        return self.made[number]

    def _fill(self, node: dict[str, Any], present: Any) -> None:
        """Fill what is never made here: objects, functions and their cells."""
        if "cell" in node:
            self._cell(node, present)
        elif "function" in node:
            self._function(node, present)
        elif qualified_names.of_type(present) != node["object"]:
            there = qualified_names.of_type(present)
            raise Mismatch(f"a {node['object']} cannot be put into a {there}")
        else:
            self._fields(node["fields"], present)

    def _fields(self, fields: dict[str, Any], present: Any) -> None:
        for name, node in fields.items():
            vars(present)[name] = self.value(node, vars(present).get(name))
        if not isinstance(present, gymnasium.Space):
            for name in set(vars(present)) - set(fields):
                del vars(present)[name]

    def _function(self, node: dict[str, Any], present: Any) -> None:
        same = isinstance(present, types.FunctionType)
        if not same or not qualified_names.is_name_of(node["function"], present):
            raise Mismatch(f"{node['function']} is not there to be put back")
        cells = present.__closure__ or ()
        for inner, cell in zip(node["cells"], cells, strict=True):
            if self.value(inner, cell) is not cell:
                raise Mismatch(f"{node['function']} shares a variable with another function")
        present.__defaults__ = self.value(node["defaults"], present.__defaults__)
        present.__kwdefaults__ = self.value(node["keywords"], present.__kwdefaults__)
        self.value(node["fields"], vars(present))

    def _cell(self, node: dict[str, Any], present: Any) -> None:
        if not isinstance(present, types.CellType):
            raise Mismatch("a variable of a function is not there to be put back")
        empty = present == types.CellType()
        if not node.get("empty"):
            now = None if empty else present.cell_contents
            present.cell_contents = self.value(node["cell"], now)
        elif not empty:
            del present.cell_contents

    def _method(self, node: dict[str, Any], present: Any) -> Any:
        same = isinstance(present, types.MethodType)
        if not same or not qualified_names.is_name_of(node["method"], present.__func__):
            raise Mismatch(f"{node['method']} is not there to be put back")
        owner = self.value(node["self"], present.__self__)
        if owner is present.__self__:
            return present
        return types.MethodType(present.__func__, owner)

    def _array(self, node: dict[str, Any], present: Any) -> Any:
        array = self.state[node["array"]]
        if "dtype" in node:
            array = np.frombuffer(array.tobytes(), node["dtype"]).reshape(node["shape"])
        if node["scalar"]:
            return array[()]
        layout = node.get("layout", memory_layout.of_array(array))
        fits = (
            type(present) is np.ndarray
            and present.flags.writeable
            and (present.shape, present.dtype) == (array.shape, array.dtype)
            and memory_layout.of_array(present) == layout
        )
        if "shared" in node:
            memory = _memory_of(present)
            if not fits or self.memory.setdefault(node["shared"], memory) != memory:
                raise Mismatch("arrays that were views of one memory no longer are")
        if fits:
            present[...] = array  # in place: other holders of the array see it too
            return present
        try:
            return memory_layout.laid_out(array, layout)
        except memory_layout.LayoutError as error:
            raise Mismatch(f"{error} cannot be put back") from None

    def _dict(self, pairs: list[Any], present: Any, number: int) -> None:
        made = self.made[number] = present if type(present) is dict else {}
        old = dict(made)
        keys = [*old, *([None] * len(pairs))]
        made.clear()
        for (k, v), there in zip(pairs, keys, strict=False):
            key = self.value(k, there)
            made[key] = self.value(v, old.get(key))

    def _container(self, node: dict[str, Any], present: Any, number: int) -> Any:
        name = next(name for name in CONTAINERS if name in node)
        kind = CONTAINERS[name]
        nodes = node[name]
        alike = type(present) is kind and name not in ("set", "frozenset")
        if name == "deque":
            alike = alike and present.maxlen == node["maxlen"]
        old = [*(present if alike else ()), *([None] * len(nodes))]
        if name in ("list", "deque"):
            empty: Any = deque(maxlen=node["maxlen"]) if name == "deque" else []
            made = self.made[number] = present if alike else empty
            made.clear()
            made.extend([self.value(n, o) for n, o in zip(nodes, old, strict=False)])
            return made
        return kind(self.value(n, o) for n, o in zip(nodes, old, strict=False))


def _encode_simple(x: Any) -> Any:
    """A value that is its own state, as JSON; None for anything else."""
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


def _decode_simple(node: dict[str, Any]) -> Any:
    """The inverse of `_encode_simple`, except for Enums."""
    if "float" in node:
        return float.fromhex(node["float"])
    if "int" in node:
        return int(node["int"], 16)
    if "complex" in node:
        return complex(*(float.fromhex(part) for part in node["complex"]))
    return bytes.fromhex(node["bytes"])


def _memory_of(x: Any) -> int:
    """The id of the object whose memory an array is a view of."""
    while isinstance(x, np.ndarray) and x.base is not None:
        x = x.base
    return id(x)


def _is_storable(dtype: "np.dtype[Any]") -> bool:
    """Whether a safetensors file has this type."""
    return dtype.kind in "biuf" and dtype.isnative and dtype.itemsize <= 8


class _Plain:
    """An object without memory outside its dictionary, to compare sizes with."""


def _is_plain(x: object) -> bool:
    """Whether an object's whole state is in its dictionary, with no base written in C."""
    kinds = [kind for kind in type(x).__mro__ if kind is not object]
    in_c = type(x).__basicsize__ > _Plain.__basicsize__ or type(x).__itemsize__ > 0
    slots = any(getattr(kind, "__slots__", ()) for kind in kinds)
    foreign = any(str(kind.__module__).partition(".")[0] in FOREIGN for kind in kinds)
    return hasattr(x, "__dict__") and not in_c and not slots and not foreign
