"""The state of plain Python environments: their object graph as JSON and arrays, and back.

Numbers, text, arrays, containers and numpy's generators are written down; objects are walked
attribute by attribute; what belongs to the program (functions, classes, members of an Enum) is
written down by its name, and must be there again. Nothing is ever built from a name in a file:
a graph is read back *into* objects made alike. Whatever cannot be written down, such as a
window or a C++ world, makes the environment inexact, and is named.
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

from dna.envs import dice, names

Array = npt.NDArray[Any]
#: Part of the program, not of its state.
CONSTANT = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    property,
    EnvSpec,
    np.dtype,
)
CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "deque": deque, "set": set}
#: Whose objects stand for something outside of Python's memory.
FOREIGN = (
    "multiprocessing", "threading", "_thread", "concurrent", "asyncio", "subprocess", "socket",
    "selectors", "ctypes", "io", "_io", "tempfile", "weakref", "torch", "jax", "Box2D",
    "pygame",
)  # fmt: skip
#: Fields of a space with generators in them: its own, and those of the spaces it is made of.
SAMPLED = ("_np_random", "spaces", "feature_space", "node_space", "edge_space")
#: How CPython marks classes that were made by a `class` statement (or in that manner).
HEAP_TYPE = 1 << 9
#: How many objects a graph may have.
MOST_NODES = 200_000


class Opaque(Exception):
    """Something that cannot be written down."""


class Mismatch(Exception):
    """A graph that is not of these objects."""


def save(root: object) -> dict[str, Array]:
    """Everything that `root` holds, as named arrays; raises `Opaque`."""
    writer = _Writer()
    tree = writer.node(root)
    text = json.dumps(tree).encode()
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
    except RecursionError:
        return f"{name}: objects nested that deeply cannot be saved"
    except Opaque as thing:
        return f"{name}: {thing} cannot be saved"
    return None


class _Writer:
    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.seen: dict[int, int] = {}
        self.alive: list[object] = []  # an id is only good while its object lives

    def node(self, x: Any) -> Any:
        """A JSON value that stands for x."""
        if x is None or type(x) in (bool, int, str):
            return x
        if type(x) is float:
            return {"float": x.hex()}
        if isinstance(x, Enum):
            return {"enum": names.of_type(x), "member": names.member(x)}
        if isinstance(x, CONSTANT):
            return {"constant": names.of(x)}
        if id(x) in self.seen:
            return {"same": self.seen[id(x)]}
        if len(self.seen) > MOST_NODES:
            raise Opaque(f"more than {MOST_NODES} objects")
        number = self.seen[id(x)] = len(self.seen)
        self.alive.append(x)
        return {"number": number, **self._kind(x)}

    def _kind(self, x: Any) -> dict[str, Any]:
        if isinstance(x, np.generic | np.ndarray):
            return self._array(x)
        if dice.is_dice(x):
            return {"dice": dice.save(x)}
        for name, kind in CONTAINERS.items():
            if type(x) is kind:
                items = sorted(x, key=_order) if kind is set else x
                return {name: [self.node(item) for item in items]}
        if type(x) is dict:
            return {"dict": [[self.node(k), self.node(v)] for k, v in x.items()]}
        return self._object(x)

    def _object(self, x: Any) -> dict[str, Any]:
        if isinstance(x, gymnasium.Space):
            # A space is part of the program but for the generators it may sample from.
            inner = {name: self.node(vars(x)[name]) for name in SAMPLED if name in vars(x)}
            return {"object": names.of_type(x), "fields": inner}
        if not _is_plain(x):
            raise Opaque(names.of_type(x))
        return {
            "object": names.of_type(x),
            "fields": {name: self.node(value) for name, value in vars(x).items()},
        }

    def _array(self, x: Any) -> dict[str, Any]:
        if x.dtype.hasobject or x.dtype.fields is not None:
            raise Opaque(f"an array of {x.dtype}")
        name, array = f"array/{len(self.arrays)}", np.array(x)
        what = {"array": name, "scalar": isinstance(x, np.generic)}
        if array.dtype.kind not in "biuf":  # text, dates: files of numbers do not know them
            what |= {"dtype": array.dtype.str, "shape": list(array.shape)}
            array = np.frombuffer(array.tobytes(), np.uint8)
        self.arrays[name] = array
        return what


class _Reader:
    def __init__(self, state: Mapping[str, Array]) -> None:
        self.state = state
        self.made: dict[int, Any] = {}

    def value(self, node: Any, present: Any) -> Any:
        """What a node stands for; `present` is what is there now, and is filled if it can."""
        if not isinstance(node, dict):
            return node
        if "float" in node:
            return float.fromhex(node["float"])
        if "enum" in node:
            return _there(names.enum(node["enum"], node["member"], present), node["enum"])
        if "constant" in node:
            same = names.of(present) == node["constant"]
            return _there(present if same else None, node["constant"])
        if "same" in node:
            return self.made[node["same"]]
        return self._made(node, present)

    def _made(self, node: dict[str, Any], present: Any) -> Any:
        number = node["number"]
        if "object" in node:
            if names.of_type(present) != node["object"]:
                raise Mismatch(
                    f"a {node['object']} cannot be put into a {names.of_type(present)}"
                )
            self.made[number] = present
            self._fields(node["fields"], present)
            return present
        if "array" in node:
            self.made[number] = self._array(node, present)
        elif "dict" in node:
            self.made[number] = self._dict(node["dict"], present, number)
        elif "dice" in node:
            self.made[number] = dice.load(node["dice"], present)
        else:
            self.made[number] = self._container(node, present, number)
        return self.made[number]

    def _fields(self, fields: dict[str, Any], present: Any) -> None:
        for name, node in fields.items():
            vars(present)[name] = self.value(node, vars(present).get(name))
        if not isinstance(present, gymnasium.Space):
            for name in set(vars(present)) - set(fields):
                del vars(present)[name]

    def _array(self, node: dict[str, Any], present: Any) -> Any:
        array = self.state[node["array"]]
        if "dtype" in node:
            array = np.frombuffer(array.tobytes(), node["dtype"]).reshape(node["shape"])
        if node["scalar"]:
            return array[()]
        same = isinstance(present, np.ndarray) and present.flags.writeable
        if same and (present.shape, present.dtype) == (array.shape, array.dtype):
            present[...] = array  # whoever else holds it sees it too
            return present
        return array.copy()

    def _dict(self, pairs: list[Any], present: Any, number: int) -> dict[Any, Any]:
        made = present if type(present) is dict else {}
        self.made[number] = made
        old = dict(made)
        made.clear()
        for k, v in pairs:
            key = self.value(k, next(iter(old), None))  # of their kind, if they are alike
            made[key] = self.value(v, old.get(key))
        return made

    def _container(self, node: dict[str, Any], present: Any, number: int) -> Any:
        name = next(name for name in CONTAINERS if name in node)
        nodes = node[name]
        alike = type(present) is CONTAINERS[name] and name != "set"
        old = list(present) if alike else []
        old += [None] * (len(nodes) - len(old))
        if name in ("list", "deque"):
            made = present if alike else CONTAINERS[name]()
            self.made[number] = made
            made.clear()
            made.extend(self.value(n, o) for n, o in zip(nodes, old, strict=False))
            return made
        return CONTAINERS[name](self.value(n, o) for n, o in zip(nodes, old, strict=False))


def _there(found: Any, name: str) -> Any:
    if found is None:
        raise Mismatch(f"{name} is not there to be put back")
    return found


def _is_plain(x: object) -> bool:
    """Whether all there is to an object is in its dictionary, written in Python."""
    kinds = [kind for kind in type(x).__mro__ if kind is not object]
    python = all(kind.__flags__ & HEAP_TYPE for kind in kinds)
    slots = any(getattr(kind, "__slots__", ()) for kind in kinds)
    foreign = any(names.of_type(x).partition(".")[0] == module for module in FOREIGN)
    return hasattr(x, "__dict__") and python and not slots and not foreign


def _order(x: object) -> tuple[str, str]:
    """The same for equal sets, whatever is in them."""
    return type(x).__qualname__, repr(x)
