"""Reading an object graph back into objects made alike (`dna.envs.state.graph`)."""

import types
from collections import deque
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from dna.envs.state import generators, memory_layout, qualified_names
from dna.envs.state.graph_writer import CONTAINERS, Array, memory_of


class Mismatch(Exception):
    """A graph that is not of these objects."""


class Reader:
    """What was read so far."""

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.state = state
        self.made: dict[int, Any] = {}
        self.taken: set[int] = set()  # ids of what is there and was filled
        self.kept: list[Any] = []  # an id is only good while its object lives
        self.memory: dict[int, int] = {}  # shared memory then → now

    def value(self, node: Any, present: Any) -> Any:
        """What a node stands for; `present` is what is there now, and is filled if it can."""
        if not isinstance(node, dict):
            return node
        if "number" in node:
            return self._made(node, present)
        if "same" in node:
            return self.made[node["same"]]
        if "enum" in node:
            return _there(
                qualified_names.enum(node["enum"], node["member"], present), node["enum"]
            )
        if "constant" in node:
            same = qualified_names.of(present) == node["constant"]
            return _there(present if same else None, node["constant"])
        return _simple(node)

    def _made(self, node: dict[str, Any], present: Any) -> Any:
        if id(present) in self.taken:
            present = None  # two things then, one now: it cannot be both of them
        self.taken.add(id(present))
        self.taken.discard(id(None))
        self.kept.append(present)
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
        """Things that are never made, only filled: objects, functions and their cells."""
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
        if (
            not isinstance(present, types.FunctionType)
            or qualified_names.of(present) != node["function"]
        ):
            raise Mismatch(f"{node['function']} is not there to be put back")
        cells = present.__closure__ or ()
        for inner, cell in zip(node["cells"], cells, strict=True):
            if self.value(inner, cell) is not cell:
                raise Mismatch(f"{node['function']} shares what it holds with another one")
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
        there = isinstance(present, types.MethodType)
        if not there or qualified_names.of(present.__func__) != node["method"]:
            raise Mismatch(f"{node['method']} is not there to be put back")
        owner = self.value(node["self"], present.__self__)
        same = owner is present.__self__
        return present if same else types.MethodType(present.__func__, owner)

    def _array(self, node: dict[str, Any], present: Any) -> Any:
        array = self.state[node["array"]]
        if "dtype" in node:
            array = np.frombuffer(array.tobytes(), node["dtype"]).reshape(node["shape"])
        if node["scalar"]:
            return array[()]
        fits = type(present) is np.ndarray and present.flags.writeable
        fits = fits and (present.shape, present.dtype) == (array.shape, array.dtype)
        lies = node.get("layout", memory_layout.of_array(array))
        fits = fits and memory_layout.of_array(present) == lies
        if "shared" in node:
            memory = memory_of(present)
            if not fits or self.memory.setdefault(node["shared"], memory) != memory:
                raise Mismatch("arrays that looked into one memory no longer do")
        if not fits:
            return self._laid_out(array, lies)
        present[...] = array  # whoever else holds it sees it too
        return present

    @staticmethod
    def _laid_out(array: Array, lies: list[int]) -> Array:
        try:
            return memory_layout.laid_out(array, lies)
        except memory_layout.Unlike as thing:
            raise Mismatch(f"{thing} cannot be put back") from None

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
        kind, nodes = CONTAINERS[name], node[name]
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


def _simple(node: dict[str, Any]) -> Any:
    if "float" in node:
        return float.fromhex(node["float"])
    if "int" in node:
        return int(node["int"], 16)
    if "complex" in node:
        return complex(*(float.fromhex(part) for part in node["complex"]))
    return bytes.fromhex(node["bytes"])


def _there(found: Any, name: str) -> Any:
    if found is None:
        raise Mismatch(f"{name} is not there to be put back")
    return found
