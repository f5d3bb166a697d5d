"""Snapshots of plain Python environments: their object graph as JSON and arrays, and back.

Numbers, text, arrays, containers and numpy's generators are recorded by value; objects are
walked attribute by attribute, functions made at run time cell by cell. What belongs to the
program (functions of a module, classes, members of an Enum) is recorded by name and must exist
when the snapshot is restored. Nothing is ever built from a name in a file: a graph is read back
*into* objects that were made in the same way. Anything that cannot be recorded, such as a
window, a C++ object or an object with its own memory, makes the environment inexact and is
named.
"""

import json
import re
import sys
import types
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from dna.envs.state import generators, memory_layout, qualified_names

Array = npt.NDArray[Any]
#: Part of the program, not of its state.
CONSTANT = (types.ModuleType, type, EnvSpec)
#: Attributes of classes in C, which nobody can change.
DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.MemberDescriptorType,
    types.GetSetDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
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
#: Fields of a `Text` space in an order that no process has twice; another holds them sorted.
UNORDERED = ("_char_set", "_char_list", "_char_index")
#: An address as `repr` shows it.
ADDRESS = re.compile(r"0x([0-9a-fA-F]{6,16})")
#: Maximum number of objects in a graph.
MOST_NODES = 200_000
#: Length above which an outline contains the hash of a string instead of the string.
LONG = 1_000


class Opaque(Exception):
    """Something whose state cannot be recorded."""


class Mismatch(Exception):
    """A graph that does not belong to these objects."""


#: Objects that several environments hold: [environment, number, first environment, number].
Sharing = list[list[int]]
#: An object of the program: a variable's name, and its number among what the variable holds.
Name = tuple[str, int]


class Restored(Protocol):
    """What the part of a graph that was read already stands for."""

    @property
    def state(self) -> Mapping[str, Array]:
        """The arrays of the graph."""

    @property
    def made(self) -> Mapping[int, Any]:
        """Number of a node → its object."""

    @property
    def values(self) -> Sequence[Any]:
        """Numbers and texts, in the order of the graph."""


class Unchanged(Protocol):
    """An object of the program that a node stands for, with its parts."""

    @property
    def made(self) -> Mapping[int, Any]:
        """Number of a node → the object or part of it."""

    @property
    def values(self) -> Sequence[Any]:
        """Numbers and texts in it, in the order of the graph."""


class Outside(Protocol):
    """What the program holds of the objects to restore into (`dna.envs.state.outside`)."""

    def __contains__(self, thing: object, /) -> bool: ...

    def unchanged(self, node: Any, present: Any, before: Restored) -> Unchanged | None:
        """The program's object that was recorded in this node, if it is still the same."""

    def remade(self, thing: Any) -> Any:
        """What to fill instead of an object that must not be written into."""


class Record(NamedTuple):
    """A graph in memory."""

    tree: Any
    arrays: dict[str, Array]
    things: list[Any]  # by number
    values: list[Any]  # numbers and texts, in the order of the graph


def save(root: object, names: Mapping[int, Name] | None = None) -> dict[str, Array]:
    """Record everything that `root` holds as named arrays; raises `Opaque`."""
    return save_all([root], names)[0][0]


def save_all(
    roots: Sequence[object], names: Mapping[int, Name] | None = None
) -> tuple[list[dict[str, Array]], Sharing]:
    """Record several objects, each by itself, and which parts they have in common.

    `names`: of objects that belong to the program, by their ids.
    """
    bits: dict[int, int] = {}
    writers = [_Writer(bits, names) for _ in roots]
    states = [writer.save(root) for writer, root in zip(writers, roots, strict=True)]
    first: dict[int, list[int]] = {}  # id → first holder and number
    sharing: Sharing = []
    for which, writer in enumerate(writers):
        for number, thing in enumerate(writer.alive):
            if isinstance(thing, np.generic | tuple | frozenset):
                continue  # nobody can change them
            if id(thing) in first:
                sharing.append([which, number, *first[id(thing)]])
            else:
                first[id(thing)] = [which, number]
    return states, sharing


def load(root: object, state: Mapping[str, Array], outside: Outside | None = None) -> None:
    """Restore a graph into an object that was made in the same way as the saved one."""
    load_all([root], [state], [], outside)


def load_all(
    roots: Sequence[object],
    states: Sequence[Mapping[str, Array]],
    sharing: Sharing | None,
    outside: Outside | None = None,
) -> None:
    """Put graphs back, without writing into objects that something outside holds too.

    `sharing` is None in older snapshots, which did not record it.
    """
    readers: list[_Reader] = []
    together = _Together(sharing or [], outside)
    try:
        for which, (root, state) in enumerate(zip(roots, states, strict=True)):
            if sharing is None:
                together = _Together([], outside)
            readers.append(_Reader(state, which, together))
            readers[-1].value(json.loads(state["graph"].tobytes()), root)
        for reader in readers:
            for array in reader.readonly:
                array.flags.writeable = False
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:
        raise Mismatch(f"not a graph of these objects ({error})") from error


def outline(root: object) -> tuple[bytes, list[Array]]:
    """The graph of `root` as JSON, and its arrays, which are not copied; raises `Opaque`.

    It is valid in this process only, because large strings are represented by their hashes.
    """
    writer = Outliner()
    return writer.text(root), writer.contents


def objects_in(root: object) -> list[Any]:
    """The objects that `root` holds, in the order of the graph, as far as it can be walked."""
    return _walked(root).alive


def program_in(root: object) -> list[Any]:
    """The modules and functions that `root` refers to, and the classes of all it holds."""
    writer = _walked(root)
    made = [thing for thing in writer.alive if isinstance(thing, types.FunctionType)]
    return [*writer.program, *made, *dict.fromkeys(type(thing) for thing in writer.alive)]


def contents(root: object, most: int) -> tuple[list[Any], list[Any]]:
    """The objects that `root` holds, at most so many, and what it refers to of the program."""
    writer = _walked(root, most)
    return writer.alive, writer.program


def _walked(root: object, most: int = MOST_NODES) -> "Outliner":
    writer = Outliner()
    writer.most = most
    with suppress(Opaque, ValueError, TypeError, RecursionError, RuntimeError):
        writer.node(root)
    return writer


def record(root: object) -> Record | None:
    """The graph of `root`; None if it cannot be saved."""
    writer = _Writer()
    try:
        tree = json.loads(json.dumps(writer.node(root)))
    except (Opaque, ValueError, TypeError, RecursionError, RuntimeError):
        return None
    return Record(tree, writer.arrays, writer.alive, writer.kept)


def opaque(root: object, name: str) -> str | None:
    """Why `root` cannot be saved, or None."""
    try:
        save(root)
    except Opaque as thing:
        return f"{name}: {thing} cannot be saved"
    return None


class _Writer:
    """Records a graph; every object is written once and referred to by its number."""

    def __init__(
        self, bits: dict[int, int] | None = None, names: Mapping[int, Name] | None = None
    ) -> None:
        self.most = MOST_NODES
        self.names = names or {}  # id of an object of the program → its name
        self.arrays: dict[str, Array] = {}
        self.seen: dict[int, int] = {}  # id of an object → its number
        self.alive: list[object] = []  # by number; an id is unique while its object lives
        self.values: dict[int, int] = {}  # id of a number or text → its number among these
        self.kept: list[object] = []
        self.program: list[Any] = []  # modules, classes and functions that are referred to
        self.unfinished: set[int] = set()  # ids of what cannot be made before its parts
        self.bits = {} if bits is None else bits  # bits of a generator → its id
        self.classes: dict[
            type, dict[str, Any]
        ] = {}  # class → what a node says besides its name

    def save(self, root: object) -> dict[str, Array]:
        """The graph of `root` as named arrays."""
        text = self.text(root)
        return {"graph": np.frombuffer(text, np.uint8).copy(), **self.arrays}

    def text(self, root: object) -> bytes:
        """The graph of `root` as JSON, without the contents of its arrays."""
        try:
            text = json.dumps(self.node(root)).encode()
            self._check_no_address()
        except RecursionError:
            raise Opaque("something nested that deeply") from None
        except (ValueError, TypeError, RuntimeError) as error:  # of what another thread changes
            raise Opaque(f"something ({error})") from error
        return text

    def node(self, x: Any) -> Any:
        """The JSON value that stands for x."""
        simple = encoded(x)
        if simple is not None or x is None:
            if isinstance(x, Enum):
                self.program.append(type(x))
                return simple | self._class(type(x))
            return self._value(x, simple)
        if isinstance(x, np.dtype):
            return _dtype_node(x)
        if isinstance(x, CONSTANT) or qualified_names.belongs(x):
            self.program.append(x)
            return self._constant(x)
        if id(x) in self.seen:
            if id(x) in self.unfinished:
                raise Opaque("a tuple that holds itself")
            return {"same": self.seen[id(x)]}
        if len(self.seen) >= self.most:
            raise Opaque(f"more than {self.most} objects")
        number = self.seen[id(x)] = len(self.seen)
        self.alive.append(x)
        if isinstance(x, tuple | frozenset | types.MethodType):
            self.unfinished.add(id(x))  # made when all it holds is there
        node = self._kind(x)
        self.unfinished.discard(id(x))
        node["number"] = number
        if id(x) in self.names:
            node["held"] = list(self.names[id(x)])
        return node

    def _constant(self, x: Any) -> dict[str, Any]:
        """A name, which must lead to this very part of the program."""
        node = {"constant": qualified_names.of(x)}
        if isinstance(x, type):
            return node | self._class(x)
        if isinstance(x, EnvSpec):
            return {**node, "spec": x.id}
        if isinstance(x, types.ModuleType) and sys.modules.get(x.__name__) is not x:
            raise Opaque(f"the module {x.__name__}, which no name leads to,")
        if isinstance(x, types.BuiltinFunctionType) and isinstance(x.__self__, type):
            return node | self._class(x.__self__)
        return node

    def _class(self, kind: type) -> dict[str, Any]:
        """What a node says of a class that no name leads to: a checksum of its definition."""
        if kind not in self.classes:
            named = qualified_names.is_reachable(kind)
            self.classes[kind] = {} if named else {"class": self._definition(kind)}
        return self.classes[kind]

    def _definition(self, kind: type) -> str:
        return _class_checksum(kind)

    def _check_no_address(self) -> None:
        """Refuse values that are the id or the hash of an object, which differ in a copy."""
        for x in self.kept:
            numbers = [x, x * 16] if type(x) is int else []
            if type(x) is str and "0x" in x:
                numbers = [int(digits, 16) for digits in ADDRESS.findall(x)]
            if any(number in self.seen for number in numbers):
                raise Opaque("the id of an object")

    def _value(self, x: Any, simple: Any) -> Any:
        """A value, or a reference to the earlier value that is the same object."""
        if not self._is_apart(x):
            return simple
        if id(x) in self.values:
            return {"again": self.values[id(x)]}
        self.values[id(x)] = len(self.values)
        self.kept.append(x)
        return self._apart(x, simple)

    def _is_apart(self, x: Any) -> bool:
        """Whether there may be another object that is equal to this value."""
        if type(x) is bytes:
            return len(x) > 1
        return has_identity(x) or (type(x) is str and not _is_interned(x))

    def _apart(self, x: Any, simple: Any) -> Any:
        """The node of a value with an identity that older snapshots did not record."""
        if type(x) is bytes:
            return {"data": x.hex()}
        return {"text": x} if type(x) is str and x.isidentifier() else simple

    def _kind(self, x: Any) -> dict[str, Any]:
        if type(x) is float:
            return {"nan": x.hex()}
        if isinstance(x, np.generic) or type(x) is np.ndarray:
            return self._array(x)
        if type(x) is bytearray:
            return self._bytearray(x)
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
            return self._method(x)
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
        for part in generators.parts_of(x):
            if self.bits.setdefault(id(part), id(x)) != id(x):
                raise Opaque("a generator that shares its bits with another")
        return {"dice": generators.save(x)}

    def _function(self, x: types.FunctionType) -> dict[str, Any]:
        """A function made at run time: the variables it holds are state."""
        if not qualified_names.has_globals_of_module(x):
            raise Opaque(f"{x.__qualname__}, a function with global variables of its own,")
        return self._described(x)

    def _described(self, x: types.FunctionType) -> dict[str, Any]:
        return {
            "function": qualified_names.of(x),
            "cells": [self.node(cell) for cell in x.__closure__ or ()],
            "defaults": self.node(x.__defaults__),
            "keywords": self.node(x.__kwdefaults__),
            "fields": self.node(vars(x)),
        }

    def _method(self, x: types.MethodType) -> dict[str, Any]:
        """A bound method: its owner, and the way from there to exactly this function."""
        node = {"method": qualified_names.of(x.__func__), "self": self.node(x.__self__)}
        if qualified_names.belongs(x.__func__):
            return node
        name = qualified_names.attribute(x.__self__, x.__func__)
        return node | ({"of": self.node(x.__func__)} if name is None else {"attribute": name})

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
            kind = {**self._class(type(x)), "space": _space_checksum(x)}
            fields = {name: self.node(vars(x)[name]) for name in SAMPLED if name in vars(x)}
            return {"object": qualified_names.of_type(x), **kind, "fields": fields}
        elif _is_plain(x) and all(type(name) is str for name in vars(x)):
            kind = self._class(type(x))
            fields = {name: self.node(value) for name, value in vars(x).items()}
        else:
            raise Opaque(qualified_names.of_type(x))
        return {"object": qualified_names.of_type(x), **kind, "fields": fields}

    def _array(self, x: Any) -> dict[str, Any]:
        if x.dtype.hasobject or (x.dtype.fields is not None and isinstance(x, np.generic)):
            raise Opaque(f"an array of {x.dtype}")
        if isinstance(x, np.ndarray) and memory_layout.is_view(x):
            return self._view(x)
        return self._contents(x)

    def _contents(self, x: Any) -> dict[str, Any]:
        """An array with memory of its own, or a scalar."""
        name = f"array/{len(self.arrays)}"
        array = np.array(x, order="C")
        node: dict[str, Any] = {"array": name, "scalar": isinstance(x, np.generic)}
        if isinstance(x, np.ndarray):
            layout = memory_layout.of_array(x)
            if layout != memory_layout.of_array(array):
                node["layout"] = layout
            if not x.flags.writeable:
                node["readonly"] = True
        if not _is_storable(array.dtype):  # text, dates, records, foreign byte orders
            node |= _dtype_entry(array.dtype)
            node["shape"] = list(array.shape)
            array = np.frombuffer(array.tobytes(), np.uint8)
        self.arrays[name] = array
        return node

    def _view(self, x: Array) -> dict[str, Any]:
        """An array in memory that it does not own: the owner, and the place in its memory."""
        owner = memory_layout.owner_of(x)
        if not memory_layout.can_own(owner):
            raise Opaque(f"an array in the memory of a {qualified_names.of_type(owner)}")
        try:
            place = memory_layout.place_of(x, owner)
        except memory_layout.LayoutError as error:
            raise Opaque(str(error)) from None
        node = {
            "view": self.node(owner),
            "offset": place.offset,
            "strides": list(place.strides),
            "shape": list(place.shape),
            **_dtype_entry(x.dtype),
        }
        if not x.flags.writeable:
            node["readonly"] = True
        return node

    def _bytearray(self, x: bytearray) -> dict[str, Any]:
        name = f"array/{len(self.arrays)}"
        self.arrays[name] = np.frombuffer(bytes(x), np.uint8)
        return {"bytearray": name}


class Outliner(_Writer):
    """Records a graph without copying what its arrays contain."""

    def __init__(self) -> None:
        super().__init__()
        self.contents: list[Array] = []

    def node(self, x: Any) -> Any:
        """The JSON value that stands for x; large strings are not written out."""
        if type(x) in (str, bytes) and len(x) > LONG:
            return {"hash": hash(x)}  # Python computes it once and keeps it
        return super().node(x)

    def _definition(self, kind: type) -> str:
        return f"{id(kind):x}"

    def _is_apart(self, x: Any) -> bool:
        return has_identity(x)  # a text may become the one that names in the program are

    def _contents(self, x: Any) -> dict[str, Any]:
        if isinstance(x, np.generic):
            return {"scalar": x.tobytes().hex(), **_dtype_entry(x.dtype)}
        self.contents.append(x)
        return {
            "array": len(self.contents),
            "shape": list(x.shape),
            "strides": list(x.strides),
            "readonly": not x.flags.writeable,
            **_dtype_entry(x.dtype),
        }

    def _bytearray(self, x: bytearray) -> dict[str, Any]:
        self.contents.append(np.frombuffer(x, np.uint8))
        return {"bytearray": len(self.contents), "length": len(x)}


class _Definer(_Writer):
    """Describes classes and spaces by value, alike in every process."""

    def __init__(self, within: frozenset[type] = frozenset()) -> None:
        """`within`: classes that are being described, to which their parts may refer."""
        super().__init__()
        self.within = within

    def checksum(self, x: Any) -> str:
        """A checksum of x; raises `Opaque`."""
        try:
            text = json.dumps(self.node(x)).encode()
        except RecursionError:
            raise Opaque("something nested that deeply") from None
        except (ValueError, TypeError, RuntimeError) as error:
            raise Opaque(f"something ({error})") from error
        parts = [text, *(array.tobytes() for array in self.arrays.values())]
        return f"{zlib.crc32(b''.join(parts)):08x}"

    def node(self, x: Any) -> Any:
        """The JSON value that stands for x; of what belongs to a class, the functions in it."""
        if isinstance(x, DESCRIPTORS):
            return {"constant": qualified_names.of(x)}
        if (parts := qualified_names.functions_of(x)) is not None:
            return {"functions": [self.node(part) for part in parts]}
        try:
            return super().node(x)
        except Opaque:
            if not self.within:
                raise
            # It tells classes of one name apart by its kind only; what it holds is watched.
            return {"unseen": qualified_names.of(x)}

    def _function(self, x: types.FunctionType) -> dict[str, Any]:
        return self._described(x)

    def _definition(self, kind: type) -> str:
        return "" if kind in self.within else _class_checksum(kind, self.within)

    def _is_apart(self, x: Any) -> bool:
        return False

    def _container(self, name: str, x: Any) -> dict[str, Any]:
        if name not in ("set", "frozenset"):
            return super()._container(name, x)
        return {name: sorted(json.dumps(_Definer(self.within).node(item)) for item in x)}

    def _object(self, x: Any) -> dict[str, Any]:
        if isinstance(x, gymnasium.Space):
            return {"object": qualified_names.of_type(x), "space": _space_checksum(x)}
        return super()._object(x)


class _Together:
    """What the graphs of several environments have in common while they are read."""

    def __init__(self, sharing: Sharing, outside: Outside | None) -> None:
        self.outside = outside
        self.first = {(which, number): (i, k) for which, number, i, k in sharing}
        self.made: dict[tuple[int, int], Any] = {}  # first holder and number → object
        self.taken: dict[int, tuple[int, int]] = {}  # id of an object that was filled → its key
        self.alive: list[Any] = []  # an id is unique only while its object lives


class _Reader:
    """Reads a recorded graph back into objects that were made in the same way."""

    def __init__(self, state: Mapping[str, Array], which: int, together: _Together) -> None:
        self.state = state
        self.which = which
        self.together = together
        self.made: dict[int, Any] = {}  # number of a node → its object
        self.values: list[Any] = []  # numbers and texts, in the order of the graph
        self.memory: dict[int, int] = {}  # older snapshots: shared memory when saved → now
        self.readonly: list[Array] = []  # arrays to be made so when all are filled

    def value(self, node: Any, present: Any) -> Any:
        """What a node stands for; `present` is the object there now, filled if it fits."""
        if not isinstance(node, dict):
            return self._value(node)
        if "number" in node:
            return self._numbered(node, present)
        if "again" in node:
            return self.values[node["again"]]
        if "same" in node:
            return self.made[node["same"]]
        if "enum" in node:
            member = qualified_names.enum(node["enum"], node["member"], present)
            if member is None or not _is_class(node, type(member)):
                raise Mismatch(f"{node['enum']} is not there to be put back")
            return member
        if "constant" in node:
            return self._constant(node, present)
        if "data_type" in node:
            return _dtype_of(node, present)
        if "text" in node or "data" in node:
            self.values.append(decoded(node))
            return self.values[-1]
        return self._value(decoded(node))

    def _constant(self, node: dict[str, Any], present: Any) -> Any:
        """The present part of the program, if it is the one that was recorded."""
        same = present is not None and qualified_names.is_name_of(node["constant"], present)
        if same and isinstance(present, types.BuiltinFunctionType):
            same = _is_class(node, present.__self__)
        elif same and isinstance(present, EnvSpec):
            same = node.get("spec", present.id) == present.id  # older snapshots have none
        elif same:
            same = _is_class(node, present)
        if not same:
            raise Mismatch(f"{node['constant']} is not there to be put back")
        return present

    def _value(self, x: Any) -> Any:
        """Remember a value, to which later nodes may refer as the same object."""
        if type(x) is str and x.isidentifier():
            return sys.intern(x)  # like the names in a program, which may be compared by `is`
        if has_identity(x):
            self.values.append(x)
        return x

    def _numbered(self, node: dict[str, Any], present: Any) -> Any:
        together, number = self.together, node["number"]
        key = self._key(number)
        shared = key in together.made  # by an environment that was read before this one
        if not shared and together.outside is not None:
            unchanged = together.outside.unchanged(node, present, self)
            if unchanged is not None and self._is_free(unchanged):
                return self._take_over(unchanged, number)
            if present in together.outside:
                present = together.outside.remade(present)
        if shared:
            present = together.made[key]
        elif together.taken.get(id(present), key) != key:
            present = None  # two objects when saved, one now: it cannot be both of them
        if present is not None:
            together.taken[id(present)] = key
            together.alive.append(present)
        self._read(node, present, number)
        if shared:
            self.made[number] = present
        together.made[key] = self.made[number]
        return self.made[number]

    def _key(self, number: int) -> tuple[int, int]:
        """The first holder of a node's object, and its number there."""
        return self.together.first.get((self.which, number), (self.which, number))

    def _is_free(self, unchanged: Unchanged) -> bool:
        """Whether nothing in it stands for another object already."""
        taken = self.together.taken
        pairs = unchanged.made.items()
        return all(
            taken.get(id(thing), self._key(each)) == self._key(each) for each, thing in pairs
        )

    def _take_over(self, unchanged: Unchanged, number: int) -> Any:
        """Use an object of the program as it is, with everything in it."""
        for each, thing in unchanged.made.items():
            self.together.made[self._key(each)] = self.made[each] = thing
            self.together.taken[id(thing)] = self._key(each)
            self.together.alive.append(thing)
        self.values.extend(unchanged.values)
        return self.made[number]

    def _read(self, node: dict[str, Any], present: Any, number: int) -> None:
        if "object" in node or "function" in node or "cell" in node:
            self.made[number] = present
            self._fill(node, present)
        elif "method" in node:
            self.made[number] = self._method(node, present)
        elif "array" in node:
            self.made[number] = self._array(node, present)
        elif "view" in node:
            self.made[number] = self._view(node, present)
        elif "bytearray" in node:
            self.made[number] = self._bytearray(node, present)
        elif "nan" in node:
            self.made[number] = float.fromhex(node["nan"])
        elif "dict" in node:
            self._dict(node["dict"], present, number)
        elif "dice" in node:
            self.made[number] = generators.load(node["dice"], present)
        else:
            self.made[number] = self._container(node, present, number)

    def _fill(self, node: dict[str, Any], present: Any) -> None:
        """Fill what is never made here: objects, functions and their cells."""
        if "cell" in node:
            self._cell(node, present)
        elif "function" in node:
            self._function(node, present)
        elif qualified_names.of_type(present) != node["object"]:
            there = qualified_names.of_type(present)
            raise Mismatch(f"a {node['object']} cannot be put into a {there}")
        elif not (_is_class(node, type(present)) and _is_space(node, present)):
            raise Mismatch(f"a {node['object']} that changed cannot be put back")
        else:
            self._fields(node["fields"], present)

    def _fields(self, fields: dict[str, Any], present: Any) -> None:
        for name, node in fields.items():
            vars(present)[name] = self.value(node, vars(present).get(name))
        if not isinstance(present, gymnasium.Space):
            for name in set(vars(present)) - set(fields):
                del vars(present)[name]
            if list(vars(present)) != list(fields):
                ordered = {name: vars(present)[name] for name in fields}
                vars(present).clear()
                vars(present).update(ordered)

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
        bound = isinstance(present, types.MethodType)
        owner = self.value(node["self"], present.__self__ if bound else None)
        there = [present.__func__] if bound else []
        if "of" in node:
            function = self.value(node["of"], there[0] if there else None)
        elif "attribute" in node:
            function = qualified_names.functions_in(owner).get(node["attribute"])
        else:  # one of the owner's methods
            there += qualified_names.functions_in(owner).values()
            named = [one for one in there if qualified_names.is_name_of(node["method"], one)]
            # Older snapshots have no attribute where a name leads to another function.
            found = [*filter(qualified_names.belongs, named), *named, None]
            function = found[0]
        if function is None or not qualified_names.is_name_of(node["method"], function):
            raise Mismatch(f"{node['method']} is not there to be put back")
        same = bound and owner is present.__self__ and function is present.__func__
        return present if same else types.MethodType(function, owner)

    def _array(self, node: dict[str, Any], present: Any) -> Any:
        array = self.state[node["array"]]
        if "dtype" in node or "record" in node:
            dtype = _dtype_from(node, present)
            array = np.frombuffer(array.tobytes(), dtype).reshape(node["shape"])
        if node["scalar"]:
            return array[()]
        layout = node.get("layout", memory_layout.of_array(array))
        fits = (
            type(present) is np.ndarray
            and (present.shape, present.dtype) == (array.shape, array.dtype)
            and memory_layout.of_array(present) == layout
            and _is_writeable(present)
        )
        if "shared" in node:  # older snapshots recorded views like this, without their place
            memory = id(memory_layout.owner_of(present)) if fits else 0
            if not fits or self.memory.setdefault(node["shared"], memory) != memory:
                raise Mismatch("arrays that were views of one memory no longer are")
        elif "layout" not in node:
            fits = fits and present.flags.owndata  # a view is part of something else
        if fits:
            present[...] = array  # in place: other holders of the array see it too
        else:
            try:
                present = memory_layout.laid_out(array, layout)
            except memory_layout.LayoutError as error:
                raise Mismatch(f"{error} cannot be put back") from None
        return self._marked(node, present)

    def _marked(self, node: dict[str, Any], array: Array) -> Array:
        """Remember an array that was read-only; it is made so when everything is filled."""
        if node.get("readonly"):
            self.readonly.append(array)
        return array

    def _view(self, node: dict[str, Any], present: Any) -> Array:
        """The present array if it lies at the recorded place of its owner, else a new view."""
        there = memory_layout.owner_of(present) if type(present) is np.ndarray else None
        owner = self.value(node["view"], there)
        if not memory_layout.can_own(owner):
            raise Mismatch("a view of something without memory")
        dtype = _dtype_from(node, owner, present)
        place = memory_layout.Place(
            node["offset"], tuple(node["strides"]), tuple(node["shape"])
        )
        try:
            made = memory_layout.view_at(owner, place, dtype)
        except memory_layout.LayoutError as error:
            raise Mismatch(f"{error} cannot be put back") from None
        if (
            type(present) is np.ndarray
            and there is owner
            and not (self.together.outside is not None and present in self.together.outside)
            and present.dtype == dtype
            and memory_layout.lies_at(present, owner, place)
            and (_is_writeable(present) or node.get("readonly"))
        ):
            made = present
        return self._marked(node, made)

    def _bytearray(self, node: dict[str, Any], present: Any) -> bytearray:
        data = self.state[node["bytearray"]].tobytes()
        if type(present) is not bytearray or len(present) != len(data):
            return bytearray(data)
        present[:] = data
        return present

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


def has_identity(x: Any) -> bool:
    """Whether every value of this kind that is not written as the same is another object."""
    if type(x) is int:
        return not -5 <= x <= 256
    return type(x) in (float, complex) or (type(x) is str and not x.isidentifier())


def encoded(x: Any) -> Any:
    """A value that is its own state, as JSON; None for anything else."""
    kind = type(x)
    if kind in (bool, str) or (kind is int and abs(x) < 2**63):
        return x
    if kind is int:
        return {"int": hex(x)}
    if kind is float and x == x:  # dictionaries find a NaN by its identity
        return {"float": x.hex()}
    if kind is complex:
        return {"complex": [x.real.hex(), x.imag.hex()]}
    if kind is bytes:
        return {"bytes": x.hex()}
    if isinstance(x, Enum):
        return {"enum": qualified_names.of_type(x), "member": qualified_names.member(x)}
    return None


def is_value(node: Any) -> bool:
    """Whether a node is a value, or refers to one."""
    kinds = ("again", "float", "int", "complex", "bytes", "text", "data")
    return not isinstance(node, dict) or any(kind in node for kind in kinds)


def is_counted(node: Any, x: Any) -> bool:
    """Whether later nodes may refer to the value of this node as the same object."""
    return has_identity(x) or (isinstance(node, dict) and ("text" in node or "data" in node))


def decoded(node: Any) -> Any:
    """The inverse of `encoded`, except for Enums."""
    if not isinstance(node, dict):
        return node
    if "text" in node:
        return str(node["text"])
    if "data" in node:
        return bytes.fromhex(node["data"])
    if "float" in node:
        return float.fromhex(node["float"])
    if "int" in node:
        return int(node["int"], 16)
    if "complex" in node:
        return complex(*(float.fromhex(part) for part in node["complex"]))
    return bytes.fromhex(node["bytes"])


def _dtype_entry(dtype: "np.dtype[Any]") -> dict[str, Any]:
    """How a node names a dtype; record dtypes are compared, never created from a file."""
    return {"dtype": dtype.str} if dtype.fields is None else {"record": repr(dtype)}


def _dtype_from(node: dict[str, Any], *present: Any) -> "np.dtype[Any]":
    """The inverse of `_dtype_entry`; a record dtype is taken from an array that is present."""
    if "record" not in node:
        dtype = np.dtype(str(node["dtype"]))
        if dtype.hasobject or dtype.fields is not None:
            raise Mismatch(f"an array of {dtype} is never saved like this")
        return dtype
    for array in present:
        known = isinstance(array, np.ndarray) and not array.dtype.hasobject
        if known and repr(array.dtype) == node["record"]:
            found: np.dtype[Any] = array.dtype
            return found
    raise Mismatch(f"an array of {node['record']!s:.60} is not there to be put back")


def _is_writeable(x: Array) -> bool:
    """Make an array writeable if its owner permits it; return whether it is."""
    if not x.flags.writeable:
        try:
            x.flags.writeable = True
        except ValueError:
            return False
    return True


def _class_checksum(kind: type, within: frozenset[type] = frozenset()) -> str:
    """A checksum of the definition of a class that no name leads to; raises `Opaque`."""
    own = {
        name: value
        for name, value in sorted(vars(kind).items())
        if not qualified_names.is_made_by_python(name, value)
    }
    if issubclass(kind, Enum):
        own = {name: value for name, value in own.items() if callable(value)}
        own["members"] = {name: member.value for name, member in kind.__members__.items()}
    try:
        return _Definer(within | {kind}).checksum([type(kind), *kind.__bases__, own])
    except Opaque as thing:
        raise Opaque(f"{qualified_names.of(kind)}, a class that holds {thing},") from None


def _space_checksum(space: gymnasium.Space[Any]) -> str:
    """A checksum of what defines a space; raises `Opaque`."""
    unordered = UNORDERED if isinstance(space, gymnasium.spaces.Text) else ()
    left_out = (*SAMPLED, *unordered)
    own = {name: value for name, value in vars(space).items() if name not in left_out}
    return _Definer().checksum(own)


def _is_class(node: dict[str, Any], present: Any) -> bool:
    """Whether this is the class that a node says more about than its name."""
    if not isinstance(present, type):
        return "class" not in node
    if "class" not in node:
        # Older snapshots say nothing of classes that no name leads to.
        return qualified_names.is_reachable(present) or not qualified_names.leads_to(present)
    try:
        return not qualified_names.is_reachable(present) and (
            _class_checksum(present) == node["class"]
        )
    except Opaque:
        return False


def _is_space(node: dict[str, Any], present: Any) -> bool:
    """Whether this is the space that a node describes, if it describes one."""
    if "space" in node:
        try:
            return bool(_space_checksum(present) == node["space"])
        except Opaque:
            return False
    return "traits" not in node or bool(_traits(present) == node["traits"])


def _traits(space: gymnasium.Space[Any]) -> str | None:
    """The checksum of a space in older snapshots; None where they have none."""
    writer = _Writer()
    own = {name: value for name, value in vars(space).items() if name not in SAMPLED}
    try:
        text = json.dumps(writer.node(own))
    except (Opaque, ValueError, TypeError, RecursionError):
        return None
    if 'set"' in text:  # the order of strings in a set differs between processes
        return None
    parts = [text.encode(), *(array.tobytes() for array in writer.arrays.values())]
    return f"{zlib.crc32(b''.join(parts)):08x}"


def _dtype_node(dtype: "np.dtype[Any]") -> dict[str, Any]:
    """A dtype by the name of its class, if there is one of that class, or by value."""
    name = qualified_names.of_type(dtype)
    kind: Any = type(dtype)
    if dtype.metadata is not None:
        raise Opaque(f"the dtype {dtype}, which has metadata,")
    with suppress(TypeError, ValueError):
        if kind() == dtype:
            return {"constant": name}
    if dtype.hasobject:
        raise Opaque(f"the dtype {dtype}")
    with suppress(TypeError, ValueError):
        if np.dtype(dtype.str) == dtype and dtype.fields is None:
            return {"data_type": dtype.str}
    return {"data_type": None, "record": repr(dtype)}


def _dtype_of(node: dict[str, Any], present: Any) -> "np.dtype[Any]":
    """The inverse of `_dtype_node`; a record is never made from a file."""
    if node["data_type"] is not None:
        made = np.dtype(str(node["data_type"]))
        if not made.hasobject and made.fields is None:
            return made
    if not isinstance(present, np.dtype) or repr(present) != node.get("record"):
        raise Mismatch("a dtype is not there to be put back")
    return present


def _is_interned(x: str) -> bool:
    """Whether a text is the one object that names in the program with these letters are."""
    return len(x) < 2 or sys.intern(f"{x} "[:-1]) is x


def _is_storable(dtype: "np.dtype[Any]") -> bool:
    """Whether the safetensors format supports this dtype."""
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
