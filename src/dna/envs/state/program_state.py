"""Variables of classes and modules that environments change, and that no snapshot holds.

`ProgramState` follows the code of an environment's classes to the variables it uses: class
attributes, globals of its modules, variables of enclosing functions, default arguments and
attributes of functions. What they hold at the start is compared with what they hold later.
Caches may grow, because they hold what can be computed again; their entries may not change.
"""

import decimal
import dis
import functools
import inspect
import os
import types
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from dna.envs.state import graph, qualified_names
from dna.envs.state.watched_values import (
    Watched,
    cached_in,
    entries_of,
    is_installed,
    is_trusted,
    watched,
)

#: Class attributes that Python makes.
MADE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__",
    "__slotnames__",
}  # fmt: skip
#: What an Enum gives its members.
OF_MEMBERS = {"_value_", "_name_", "__objclass__", "_sort_order_", "__doc__"}
#: Attributes of classes and modules that are part of the program.
NO_DATA = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
#: Names in code that reads or sets variables of the process's environment.
ENVIRON = {"environ", "getenv", "putenv", "unsetenv"}
#: Maximum number of classes and functions that are followed.
MOST_PLACES = 5_000


class ProgramState:
    """The values, at one moment, of the program's variables that an environment uses.

    To be made and asked in the thread that steps the environments, if it is always the same.
    """

    def __init__(self, root: object, *, one_thread: bool = True) -> None:
        self.root = root
        self.one_thread = one_thread
        self.walk = _Walk(root)
        self.before = {name: watched(value) for name, value in self.walk.variables.items()}
        self.cached: dict[str, tuple[Watched, object]] = {}
        self._changed_caches(self.walk)

    def changed(self) -> list[str]:
        """Names of variables that have changed since, and of those that cannot be seen."""
        walk = _Walk(self.root)
        found = []
        for name, value in walk.variables.items():
            now = watched(value)
            unseen = now.unseen or (None if self.one_thread else now.per_thread)
            if unseen is not None and name not in walk.installed:
                found.append(f"{name} ({unseen}, whose state cannot be seen)")
            elif name in self.before:
                found += [name] if self.before[name] != now else []
            elif name.rpartition(".")[0] in self.walk.places:  # created since
                found.append(name)
        return found + self._changed_caches(walk)

    def _changed_caches(self, walk: "_Walk") -> list[str]:
        """Names of entries that are no longer what they were when they were first seen."""
        found = []
        for name, value in walk.cached.items():
            now = watched(value)
            # The value too: as long as it lives, no other object is in its place.
            before, _ = self.cached.setdefault(name, (now, value))
            if before != now:
                found.append(name.partition("#")[0])
        return found


def variables_of(root: object) -> dict[str, Any]:
    """The variables of classes and modules that the code of an environment uses."""
    return _Walk(root).variables


class _Walk:
    """The classes and functions that code leads to, and the variables it uses."""

    def __init__(self, root: object) -> None:
        self.variables: dict[str, Any] = {}
        self.cached: dict[str, Any] = {}  # entries of caches
        self.installed: set[str] = set()  # variables of packages that the environment uses
        self.places: set[str] = set()  # classes, functions, modules whose variables are taken
        self.visited: set[int] = set()
        held = graph.program_in(root)
        self.own = {_top(thing) for thing in held if isinstance(thing, type)}
        for thing in held:
            self._follow_held(thing)
        # A forked copy inherits these settings, so playing on one cannot show that they matter.
        context = decimal.getcontext()
        self.variables["numpy.geterr()"] = np.geterr()
        self.variables["decimal.getcontext()"] = (context.prec, context.rounding)

    def _is_new(self, place: object) -> bool:
        if id(place) in self.visited or len(self.visited) > MOST_PLACES:
            return False
        self.visited.add(id(place))
        return True

    def follow_class(self, kind: type) -> None:
        """Take a class's attributes, and follow its methods and bases."""
        for each in kind.__mro__:
            if is_trusted(each.__module__) or not self._is_new(each):
                continue
            place = f"{each.__module__}.{each.__qualname__}"
            if issubclass(each, Enum):
                self._take_members(each, place)
                continue  # combined Flags are made when they are first used
            self.places.add(place)
            for name, value in [*vars(each).items()]:
                if name not in MADE:
                    self.follow(value, f"{place}.{name}")

    def follow(self, value: Any, name: str) -> None:
        """Follow code; take anything else as a variable."""
        if _is_cache(value):
            for key, result in cached_in(value).items():
                what = qualified_names.of_type(result)
                self.cached[f"{name} (a {what} that it has cached)#{key}"] = result
            value = inspect.unwrap(value)
        parts = _code_of(value)
        if parts is not None:
            for part in parts:
                self.follow(part, name)
        elif isinstance(value, types.FunctionType):
            self.variables[name] = qualified_names.of(value)  # it may be replaced
            self._follow_function(value)
        elif isinstance(value, type):
            self.follow_class(value)
        elif _is_data(value):
            self._take(value, name)

    def _take(self, value: Any, name: str) -> None:
        """Take a variable, and follow the user's own code that it refers to."""
        if isinstance(value, dict) and "cache" in name.rpartition(".")[2].lower():
            for key, entry in entries_of(value).items():
                self.cached[f"{name}[{key}]"] = entry
            return
        self.variables[name] = value
        top = name.partition(".")[0]
        if top not in self.own and is_installed(top):
            self.installed.add(name)
        for thing in graph.program_in(value):
            if _top(thing) in self.own:
                self._follow_held(thing)

    def _follow_held(self, thing: Any) -> None:
        """Follow what an object refers to: its class, a function or a whole module."""
        if isinstance(thing, type):
            self.follow_class(thing)
        elif isinstance(thing, types.FunctionType):
            self.follow(thing, qualified_names.of(thing).partition("#")[0])
        elif isinstance(thing, types.ModuleType) and self._is_new(thing):
            self._follow_module(thing, frozenset(vars(thing)))

    def _take_members(self, kind: type[Enum], place: str) -> None:
        """Take the attributes that the members of an Enum were given."""
        for name, member in kind.__members__.items():
            given = {k: v for k, v in vars(member).items() if k not in OF_MEMBERS}
            self.variables[f"{place}.{name}"] = given

    def _take_process_variables(self, code: types.CodeType) -> None:
        for key in _names(code).texts:
            self.variables[f"os.environ[{key!r}]"] = os.environ.get(key)

    def _follow_function(self, function: types.FunctionType) -> None:
        if is_trusted(function.__module__) or not self._is_new(function):
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
        names = _names(code)
        if ENVIRON & (names.variables | names.attributes):
            self._take_process_variables(code)
        module = str(function.__globals__.get("__name__"))
        self.places.add(module)
        for name in sorted(names.variables & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType):
                self._follow_module(value, names.attributes)
            else:
                self.follow(value, f"{module}.{name}")

    def _follow_module(self, module: types.ModuleType, names: frozenset[str]) -> None:
        if not is_trusted(module.__name__):
            self.places.add(module.__name__)
            for name in sorted(names & vars(module).keys()):
                value = vars(module)[name]
                if not isinstance(value, types.ModuleType):
                    self.follow(value, f"{module.__name__}.{name}")


class _Names(NamedTuple):
    """What code, and functions inside it, refer to by name."""

    variables: frozenset[str]
    attributes: frozenset[str]
    texts: frozenset[str]  # constants


@functools.cache
def _names(code: types.CodeType) -> _Names:
    """Collect the names in code."""
    variables: set[str] = set()
    attributes: set[str] = set()
    texts: set[str] = set()
    for one in dis.get_instructions(code):
        if one.opname.endswith(("_GLOBAL", "_NAME")):
            variables.add(str(one.argval))
        elif one.opname.endswith(("_ATTR", "_METHOD")):
            attributes.add(str(one.argval))
        elif type(one.argval) is str:
            texts.add(one.argval)
        elif one.opname.startswith("LOAD_CONST") and isinstance(one.argval, types.CodeType):
            inner = _names(one.argval)
            variables |= inner.variables
            attributes |= inner.attributes
            texts |= inner.texts
    return _Names(frozenset(variables), frozenset(attributes), frozenset(texts))


def _top(thing: Any) -> str:
    """The package of a class, function or module."""
    attribute = "__name__" if isinstance(thing, types.ModuleType) else "__module__"
    name = getattr(thing, attribute, "")  # a dtype has none
    return str(name).partition(".")[0]


def _code_of(value: Any) -> list[Any] | None:
    """The functions of a method or property of a class; None for anything else."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [part for part in (value.fget, value.fset, value.fdel) if part is not None]
    return [value.func] if isinstance(value, functools.cached_property) else None


def _is_cache(value: Any) -> bool:
    """Whether this is a function with `functools.cache`, which does not change its results."""
    return callable(getattr(value, "cache_info", None)) and hasattr(value, "__wrapped__")


def _is_data(value: Any) -> bool:
    if type(value).__module__ == "logging":
        return False  # it remembers which levels are on
    return not isinstance(value, NO_DATA)
