"""Checksums of the values that variables of the program hold, to see whether they change.

Unlike a snapshot, a checksum may leave out what it cannot see; what may hold state there is
named, so that a run does not count as exact because of it. Large arrays are never copied, and
of those beyond `MOST_BYTES` in one variable only a sample is read.
"""

import contextvars
import copyreg
import ctypes
import gc
import io
import itertools
import json
import logging
import mmap
import random
import re
import struct
import sys
import threading
import types
import weakref
import zlib
from array import array as typed_array
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
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
#: What every logger has.
OF_LOGGERS = frozenset(vars(logging.Logger("")))
#: What nobody can change.
CONSTANT = (types.CodeType, re.Match, logging.Handler, logging.Manager)
#: Generators that may be of a kind that no snapshot holds, and what they are seeded by.
RANDOM = (
    np.random.Generator, np.random.RandomState, np.random.BitGenerator,
    np.random.SeedSequence, random.Random,
)  # fmt: skip
#: Their `repr` shows whether they are held.
LOCKS = (type(threading.Lock()), type(threading.RLock()))
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
    return top in TRUSTED | TESTING or _is_of_standard_library(module)


def _is_of_standard_library(module: object) -> bool:
    top = _top(module)
    return top in sys.stdlib_module_names and top != "__main__"


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
    except (graph.Opaque, ValueError, TypeError, RecursionError, RuntimeError) as error:
        text = _shown(value).encode()
        watcher.unseen = watcher.unseen or f"a {qualified_names.of_type(value)}: {error}"
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
        self.depth = 0  # of objects of installed packages, which may hold values per thread

    def node(self, x: Any) -> Any:
        """The JSON value that stands for x; of an `EnvSpec` also what it can be changed in."""
        if isinstance(x, EnvSpec):
            return {"spec": x.id, "kwargs": self.node(x.kwargs)}
        if isinstance(x, types.ModuleType):
            self.program.append(x)
            return {"constant": f"{x.__name__} {id(x):x}"}  # whatever name leads to it
        if isinstance(x, np.dtype):
            return {"data_type": repr(x)}
        if isinstance(x, CONSTANT) or any(x is stream for stream in _streams()):
            return {"constant": f"{qualified_names.of_type(x)} {id(x):x}"}
        if isinstance(x, logging.Logger):  # its level and where it writes are no state
            given = {name: value for name, value in vars(x).items() if name not in OF_LOGGERS}
            return {"logger": x.name, "given": self.node(given)}
        return super().node(x)

    def _kind(self, x: Any) -> dict[str, Any]:
        if isinstance(x, PER_THREAD) and not self.depth:
            self.per_thread = f"a {qualified_names.of_type(x)}"
        inside = is_installed(type(x).__module__)
        self.depth += inside
        try:
            return super()._kind(x)
        except graph.Opaque:
            return self._parts(x)
        finally:
            self.depth -= inside

    def _miss(self, x: Any) -> None:
        what = "an iterator" if isinstance(x, Iterator) else f"a {qualified_names.of_type(x)}"
        self.unseen = self.unseen or what

    def _parts(self, x: Any) -> dict[str, Any]:
        """What can be seen of an object that no snapshot holds; what cannot is named."""
        node: dict[str, Any] = {"seen": qualified_names.of_type(x)}
        items = self._items(x)
        if items is None and isinstance(x, (*NATIVE, Iterator)):
            self._miss(x)
            return node
        hidden, fields = _hidden(x), _fields_of(x)
        standard = _is_of_standard_library(type(x).__module__)
        parts = reduced(x) if items is None and (hidden or standard) else None
        if items is not None:
            node["items"] = items
        elif parts is not None:
            node["parts"] = self.node(parts)
            if standard:
                return node  # without what it only remembers, such as the text of a path
        elif hidden and not isinstance(x, PER_THREAD):
            if _top(type(x).__module__) not in DRAWING:
                self._miss(x)
        elif not fields:
            node["shown"] = _shown(x)
        return node | {"fields": {name: self.node(value) for name, value in fields.items()}}

    def _items(self, x: Any) -> Any:
        """What an object of a known kind holds besides its attributes; None: another kind."""
        if isinstance(x, np.ndarray | np.generic):
            return self._numbers(x)
        if type(x).__module__.partition(".")[0] == "torch" or _is_tensor(x):
            return self._of_torch(x)
        if isinstance(x, RANDOM):
            return self._random(x)
        if isinstance(x, LOCKS):
            return _shown(x)
        if type(x) in (io.StringIO, io.BytesIO):
            return [] if x.closed else self.node(x.__getstate__())
        for kind in (int, float, complex, str, bytes):
            if isinstance(x, kind):
                return kind.__repr__(x)
        if isinstance(x, memoryview | bytearray | typed_array | mmap.mmap):
            return self._memory(x)
        parts = qualified_names.functions_of(x)
        if parts is not None:
            return [self.node(part) for part in parts]
        return self._held(x)

    def _held(self, x: Any) -> Any:
        """What a container or a reference holds; None: it is something else."""
        if isinstance(x, (dict, *WEAK, types.MappingProxyType)):
            made = getattr(x, "default_factory", None) if isinstance(x, defaultdict) else None
            pairs = [[self.node(k), self.node(v)] for k, v in list(x.items())]
            return [pairs, self.node(made)]
        if isinstance(x, list | tuple | deque):
            return [self.node(item) for item in x]
        if isinstance(x, set | frozenset | weakref.WeakSet):
            return sorted(json.dumps(self.node(item)) for item in list(x))
        if isinstance(x, contextvars.ContextVar):
            return self.node(x.get(None))
        return self.node(x()) if isinstance(x, weakref.ref) else None

    def _numbers(self, x: Any) -> Any:
        """An array of any class and owner, or one of objects."""
        if x.dtype.hasobject:
            return [list(x.shape), repr(x.dtype), self.node(x.tolist())]
        plain = x.view(np.ndarray) if isinstance(x, np.ndarray) else np.asarray(x)
        return self._contents(plain)

    def _of_torch(self, x: Any) -> Any:
        """A tensor's numbers or a generator's state; None: something else of torch."""
        torch = sys.modules["torch"]
        if isinstance(x, torch.Generator):
            return self._of_torch(x.get_state())
        if not isinstance(x, torch.Tensor):
            return None
        try:
            data = x.detach().cpu()
            if data.dtype == torch.bfloat16:  # numpy has no such numbers
                data = data.view(torch.int16)
            found = self._contents(data.numpy())
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return None  # sparse, or without memory
        about = [str(x.dtype), str(x.device), list(x.shape), list(x.stride()), x.requires_grad]
        return [found, about, self.node(x.grad if x.is_leaf else None)]

    def _random(self, x: Any) -> Any:
        """The state of a generator that is not recorded in snapshots, such as a subclass."""
        if isinstance(x, np.random.Generator):
            return self.node(x.bit_generator)
        if isinstance(x, np.random.RandomState):
            return self.node(x.get_state(legacy=False))
        try:
            state = x.getstate() if isinstance(x, random.Random) else x.state
        except NotImplementedError:  # the system's own generator
            return [] if isinstance(x, random.SystemRandom) else None
        return self.node([state, getattr(x, "seed_seq", None)])

    def _memory(self, x: Any) -> Any:
        try:
            view = memoryview(x)
        except ValueError:
            return []  # released or closed
        about = [view.format, view.nbytes, list(view.shape or ()), view.readonly]
        if not view.c_contiguous:
            return [about, self.node(view.tobytes())]
        return [about, self._contents(np.frombuffer(view, np.uint8)) if view.nbytes else None]


class _Plain:
    """An object without memory outside its dictionary, to compare sizes with."""


def reduced(x: Any) -> Any:
    """What pickle would write of an object in C, or None if that does not hold its state."""
    kind = type(x)
    reduce: Any = copyreg.dispatch_table.get(kind)
    if reduce is None and any(
        getattr(kind, name, None) is not getattr(object, name, None)
        for name in ("__reduce__", "__reduce_ex__", "__getstate__")
    ):
        reduce = _reduced
    if reduce is None:
        return [x.format] if isinstance(x, struct.Struct) else None
    try:
        found = reduce(x)
        if isinstance(found, str):  # a name
            return found if qualified_names.loaded(f"{x.__module__}.{found}") is x else None
        return [list(part) if hasattr(part, "__next__") else part for part in found]
    except Exception:
        return None  # it cannot be pickled


def _reduced(x: Any) -> Any:
    return x.__reduce_ex__(4)


def _streams() -> tuple[Any, ...]:
    """What the process prints to."""
    return (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)


def _is_tensor(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor | torch.Generator)


def _fields_of(x: Any) -> dict[str, Any]:
    """The attributes of an object, in slots or in its dictionary."""
    slots = [name for each in type(x).__mro__ for name in _slots(each)]
    fields = {name: getattr(x, name) for name in slots if hasattr(x, name)}
    return fields | {str(name): value for name, value in getattr(x, "__dict__", {}).items()}


def _hidden(x: Any) -> bool:
    """Whether an object has memory besides its slots and its dictionary."""
    kind = type(x)
    slots = [name for each in kind.__mro__ for name in _slots(each)]
    size = (_Plain if hasattr(x, "__dict__") else object).__basicsize__ + 8 * len(slots)
    return kind.__basicsize__ > size or kind.__itemsize__ > 0


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
