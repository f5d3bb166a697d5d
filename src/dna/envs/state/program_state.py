"""Variables of classes and modules that environments change, and that no snapshot holds.

`ProgramState` follows the code of an environment's classes to the variables it uses: class
attributes, globals of its modules, variables of enclosing functions, default arguments and
attributes of functions. What they hold at the start is compared with what they hold later.
Variables with `cache` in their names are left out: they hold what can be computed again.

Programs keep data sets of gigabytes in globals. Arrays are therefore never copied, and of those
beyond `MOST_BYTES` in one variable only a sample is read.
"""

import decimal
import dis
import functools
import inspect
import sys
import types
import zlib
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.envs.state import graph, memory_layout, qualified_names

Array = npt.NDArray[Any]
#: Packages whose classes and modules keep no state of an episode.
TRUSTED = {"gymnasium", "numpy", "dna", "torch", "scipy", "minatar", "ale_py", "mujoco"}
#: Class attributes that Python makes.
MADE = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"}
#: Attributes of classes and modules that are part of the program.
NO_DATA = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
ITERATOR = "iterator"
#: Maximum number of classes and functions that are followed.
MOST_PLACES = 5_000
#: Size of the arrays in one variable that are read in full: reading it takes about 10 ms.
MOST_BYTES = 64 * 2**20
#: Number of items that are read of every other array.
SAMPLE = 1_000
#: Maximum number of bytes that are copied at a time, unless one item is larger.
BLOCK = 2**20


class ProgramState:
    """The values, at one moment, of the program's variables that an environment uses."""

    def __init__(self, root: object) -> None:
        self.root = root
        self.walk = _Walk(root)
        self.before = self.walk.checksums()

    def changed(self) -> list[str]:
        """Names of variables that have changed since, and of iterators, which always do."""
        return [
            name
            for name, value in _Walk(self.root).checksums().items()
            if self._is_other(name, value)
        ]

    def _is_other(self, name: str, value: str) -> bool:
        if name in self.before:
            return value == ITERATOR or self.before[name] != value
        return name.rpartition(".")[0] in self.walk.places  # created since, in a watched place


def variables_of(root: object) -> dict[str, Any]:
    """The variables of classes and modules that the code of an environment uses."""
    return _Walk(root).variables


class _Walk:
    """The classes and functions that code leads to, and the variables it uses."""

    def __init__(self, root: object) -> None:
        self.variables: dict[str, Any] = {}
        self.places: set[str] = set()  # classes, functions, modules whose variables are taken
        self.visited: set[int] = set()
        for kind in dict.fromkeys(type(thing) for thing in graph.objects_in(root)):
            self.follow_class(kind)
        # A forked copy inherits these settings, so playing on one cannot show that they matter.
        context = decimal.getcontext()
        self.variables["numpy.geterr()"] = np.geterr()
        self.variables["decimal.getcontext()"] = (context.prec, context.rounding)

    def checksums(self) -> dict[str, str]:
        """Name → checksum of every variable."""
        return {name: _checksum(value) for name, value in self.variables.items()}

    def _is_new(self, place: object) -> bool:
        if id(place) in self.visited or len(self.visited) > MOST_PLACES:
            return False
        self.visited.add(id(place))
        return True

    def follow_class(self, kind: type) -> None:
        """Take a class's attributes, and follow its methods and bases."""
        for each in kind.__mro__:
            if _is_trusted(each.__module__) or not self._is_new(each):
                continue
            if issubclass(each, Enum):
                continue  # combined Flags are made when they are first used
            place = f"{each.__module__}.{each.__qualname__}"
            self.places.add(place)
            for name, value in [*vars(each).items()]:
                if name not in MADE:
                    self.follow(value, f"{place}.{name}")

    def follow(self, value: Any, name: str) -> None:
        """Follow code; take anything else as a variable."""
        value = inspect.unwrap(value) if _is_cache(value) else value
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, property):
            for part in (value.fget, value.fset, value.fdel):
                if part is not None:
                    self.follow(part, name)
        elif isinstance(value, functools.cached_property):
            self.follow(value.func, name)
        elif isinstance(value, types.FunctionType):
            self.variables[name] = qualified_names.of(value)  # it may be replaced
            self._follow_function(value)
        elif isinstance(value, type):
            self.follow_class(value)
        elif _is_data(value) and "cache" not in name.rpartition(".")[2].lower():
            self.variables[name] = value

    def _follow_function(self, function: types.FunctionType) -> None:
        if _is_trusted(function.__module__) or not self._is_new(function):
            return
        place = f"{function.__module__}.{function.__qualname__}"
        self.places.add(place)
        code = function.__code__
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if variable != "__class__" and cell != types.CellType():
                self.follow(cell.cell_contents, f"{place}: {variable}")
        for name, value in vars(function).items():
            self.follow(value, f"{place}.{name}")
        if function.__defaults__:
            self.variables[f"{place}: default arguments"] = function.__defaults__
        if function.__kwdefaults__:
            self.variables[f"{place}: default arguments by name"] = function.__kwdefaults__
        globals_used, attributes_used = _names(code)
        module = str(function.__globals__.get("__name__"))
        self.places.add(module)
        for name in sorted(globals_used & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType):
                self._follow_module(value, attributes_used)
            else:
                self.follow(value, f"{module}.{name}")

    def _follow_module(self, module: types.ModuleType, names: frozenset[str]) -> None:
        if not _is_trusted(module.__name__):
            self.places.add(module.__name__)
            for name in sorted(names & vars(module).keys()):
                value = vars(module)[name]
                if not isinstance(value, types.ModuleType):
                    self.follow(value, f"{module.__name__}.{name}")


@functools.cache
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the globals and of the attributes that code, and functions inside it, use."""
    globals_used: set[str] = set()
    attributes_used: set[str] = set()
    for one in dis.get_instructions(code):
        if one.opname.endswith(("_GLOBAL", "_NAME")):
            globals_used.add(str(one.argval))
        elif one.opname.endswith(("_ATTR", "_METHOD")):
            attributes_used.add(str(one.argval))
        elif one.opname.startswith("LOAD_CONST") and isinstance(one.argval, types.CodeType):
            inner = _names(one.argval)
            globals_used |= inner[0]
            attributes_used |= inner[1]
    return frozenset(globals_used), frozenset(attributes_used)


def _is_trusted(module: object) -> bool:
    top = str(module).partition(".")[0]
    return top in TRUSTED or (top in sys.stdlib_module_names and top != "__main__")


def _is_cache(value: Any) -> bool:
    """Whether this is a function with `functools.cache`, which does not change its results."""
    return callable(getattr(value, "cache_info", None)) and hasattr(value, "__wrapped__")


def _is_data(value: Any) -> bool:
    if type(value).__module__ == "logging":
        return False  # it remembers which levels are on
    return not isinstance(value, NO_DATA)


def _checksum(value: Any) -> str:
    """A checksum of a value or, if it cannot be saved, of its `repr`."""
    if hasattr(type(value), "__next__"):
        return ITERATOR
    try:
        text, arrays = graph.outline(value)
    except graph.Opaque:
        try:
            text, arrays = repr(value).encode(), []
        except Exception:
            return ""  # it cannot even be shown
    checksum = zlib.crc32(text)
    left = MOST_BYTES
    for array in sorted(arrays, key=lambda array: array.nbytes):
        left -= array.nbytes
        if left >= 0:
            checksum = _crc32(array, checksum)
        else:
            place = str(array.ctypes.data).encode()
            checksum = _crc32(_sample(array), zlib.crc32(place, checksum))
    return f"{checksum:08x}"


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
