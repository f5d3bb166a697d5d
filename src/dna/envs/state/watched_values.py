"""Checksums of the values that variables of the program hold, to see whether they change.

Unlike a snapshot, a checksum may leave out what it cannot see; what may hold state there is
named, so that a run does not count as exact because of it. Large arrays are never copied, and
of those beyond `MOST_BYTES` in one variable only a sample is read.
"""

import contextvars
import ctypes
import gc
import itertools
import json
import sys
import threading
import types
import weakref
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from dna.envs.state import graph, memory_layout, qualified_names

Array = npt.NDArray[Any]
#: Packages whose classes and modules keep no state of an episode.
TRUSTED = {"gymnasium", "numpy", "dna", "torch", "scipy", "minatar", "ale_py", "mujoco"}
#: Packages whose code pytest puts into the assertions of an environment in a test module.
TESTING = {"_pytest", "pytest", "pluggy"}
#: Packages that draw: pictures, fonts and windows are no state of an episode either.
DRAWING = {"pygame", "pyglet", "OpenGL", "PIL", "cv2", "matplotlib"}
#: Each thread has a value of its own.
PER_THREAD = (threading.local, contextvars.ContextVar)
#: Libraries in other languages.
NATIVE = (ctypes.CDLL, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer)
WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
#: Class of the links in a bounded `functools.lru_cache`.
LINK = "_lru_list_elem"
#: Size of the arrays in one variable that are read in full: reading it takes about 10 ms.
MOST_BYTES = 64 * 2**20
#: Number of items that are read of every other array, and of entries of a cache.
SAMPLE = 1_000
#: Maximum number of bytes that are copied at a time, unless one item is larger.
BLOCK = 2**20


def is_trusted(module: object) -> bool:
    """Whether the classes and functions of a module keep no state of an episode."""
    top = _top(module)
    return top in TRUSTED | TESTING or (top in sys.stdlib_module_names and top != "__main__")


class Watched(NamedTuple):
    """What was seen of a value."""

    checksum: str
    unseen: str | None  # what in it may hold state that cannot be seen
    per_thread: str | None  # what in it has another value in every thread


def watched(value: Any) -> Watched:
    """See as much of a value as possible."""
    watcher = _Watcher()
    try:
        text = json.dumps(watcher.node(value)).encode()
    except (graph.Opaque, ValueError, TypeError, RecursionError, RuntimeError):
        text = _shown(value).encode()
    checksum = zlib.crc32(text)
    left = MOST_BYTES
    for array in sorted(watcher.contents, key=lambda array: array.nbytes):
        left -= array.nbytes
        if left >= 0:
            checksum = _crc32(array, checksum)
        else:
            place = str(array.ctypes.data).encode()
            checksum = _crc32(_sample(array), zlib.crc32(place, checksum))
    return Watched(f"{checksum:08x}", watcher.unseen, watcher.per_thread)


class _Watcher(graph.Outliner):
    """Outlines a value as far as it can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.unseen: str | None = None
        self.per_thread: str | None = None
        self.depth = 0  # of objects of installed packages, which may hold what they like

    def node(self, x: Any) -> Any:
        """The JSON value that stands for x; of an `EnvSpec` also what it can be changed in."""
        if isinstance(x, EnvSpec):
            return {"spec": x.id, "kwargs": self.node(x.kwargs)}
        return super().node(x)

    def _kind(self, x: Any) -> dict[str, Any]:
        if hasattr(type(x), "__next__"):
            self._miss("an iterator")
        elif isinstance(x, NATIVE):
            self._miss(f"a {qualified_names.of_type(x)}")
        elif isinstance(x, PER_THREAD) and not self.depth:
            self.per_thread = f"a {qualified_names.of_type(x)}"
        inside = is_installed(type(x).__module__)
        self.depth += inside
        try:
            return super()._kind(x)
        except graph.Opaque:
            return self._parts(x)
        finally:
            self.depth -= inside

    def _miss(self, what: str) -> None:
        if not self.depth:
            self.unseen = self.unseen or what

    def _parts(self, x: Any) -> dict[str, Any]:
        """What can be seen of an object that no snapshot holds."""
        kind = type(x)
        node: dict[str, Any] = {"seen": qualified_names.of_type(x)}
        if isinstance(x, (dict, *WEAK)):
            node["items"] = [[self.node(k), self.node(v)] for k, v in list(x.items())]
        elif isinstance(x, list | tuple | deque):
            node["items"] = [self.node(item) for item in x]
        elif isinstance(x, set | frozenset | weakref.WeakSet):
            node["items"] = sorted(json.dumps(self.node(item)) for item in list(x))
        elif isinstance(x, contextvars.ContextVar):
            node["items"] = self.node(x.get(None))
        slots = [name for each in kind.__mro__ for name in _slots(each)]
        fields = {name: getattr(x, name) for name in slots if hasattr(x, name)}
        fields |= {str(name): value for name, value in getattr(x, "__dict__", {}).items()}
        node["fields"] = {name: self.node(value) for name, value in fields.items()}
        if "items" not in node and not fields:
            node["shown"] = _shown(x)
        size = (_Plain if hasattr(x, "__dict__") else object).__basicsize__ + 8 * len(slots)
        known = is_trusted(kind.__module__) or _top(kind.__module__) in DRAWING
        if "items" not in node and not known and kind.__basicsize__ > size:
            self._miss(f"a {qualified_names.of_type(x)}")
        return node


class _Plain:
    """An object without memory outside its dictionary, to compare sizes with."""


def cached_in(function: Any) -> dict[str, Any]:
    """What a function with `functools.cache` has returned, by the places of the objects."""
    held = [thing for thing in gc.get_referents(function) if thing is not vars(function)]
    if function.cache_info().maxsize is None:  # one dictionary holds the results
        held = [one for thing in held if type(thing) is dict for one in thing.values()]
    else:  # the function does, and a dictionary of links to them
        held = [thing for thing in held if not _holds_links(thing)]
    results = [thing for thing in held if not isinstance(thing, type | types.FunctionType)]
    return {
        f"{id(one):x}": one
        for one in results[:SAMPLE]
        if graph.encoded(one) is None and one is not None
    }


def _holds_links(thing: object) -> bool:
    return type(thing) is dict and all(type(x).__name__ == LINK for x in thing.values())


def entries_of(cache: Mapping[Any, Any]) -> dict[str, Any]:
    """The entries of a dictionary that is called a cache, by their keys."""
    pairs = itertools.islice(list(cache.items()), SAMPLE)
    return {
        repr(key) if isinstance(key, int | str | float) else f"{hash(key):x}": value
        for key, value in pairs
    }


def _slots(kind: type) -> list[str]:
    """Names of the slots that a class itself has, as they are mangled."""
    found = vars(kind).get("__slots__", ())
    names = [found] if isinstance(found, str) else [*found]
    private = f"_{kind.__name__.lstrip('_')}"
    return [
        f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
    ]


def is_installed(module: str) -> bool:
    """Whether a module is of a package that was installed, not the user's own code."""
    place = getattr(sys.modules.get(module), "__file__", None) or ""
    return is_trusted(module) or "-packages" in place


def _top(module: object) -> str:
    return str(module).partition(".")[0]


def _shown(x: Any) -> str:
    try:
        return repr(x)
    except Exception:
        return ""  # it cannot even be shown


def _crc32(array: Array, start: int) -> int:
    """The checksum of an array's items; only of an array with gaps, blocks are copied."""
    if not array.nbytes:
        return start
    try:
        return zlib.crc32(memory_layout.memory_of(array).data, start)
    except memory_layout.LayoutError:
        count = BLOCK // array.itemsize or 1
        for first in range(0, array.size, count):
            block = array.flat[first : first + count].view(np.uint8)
            start = zlib.crc32(block.data, start)
        return start


def _sample(array: Array) -> Array:
    """Items of an array at equal distances, from the first to the last."""
    count = min(SAMPLE, BLOCK // array.itemsize) or 1
    places = np.linspace(0, array.size - 1, count).astype(np.intp)
    items: Array = array.flat[places]
    return items
