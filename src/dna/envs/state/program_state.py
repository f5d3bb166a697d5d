"""Variables of classes and modules that environments change, and that no snapshot holds.

`ProgramState` follows the code of an environment's classes to the variables it uses: class
attributes, globals of its modules, variables of enclosing functions, default arguments and
attributes of functions. The user's own modules that it comes to are watched whole, because a
name can be computed; only the main script, which may train as well, is not. What all of them
hold at the start is compared with what they hold later. Caches may grow, because they hold what
can be computed again (`dna.envs.state.caches`); their entries may not change.
"""

import decimal
import dis
import functools
import inspect
import logging
import os
import sys
import types
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from importlib.util import resolve_name
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from dna.envs.state import graph, qualified_names
from dna.envs.state.caches import Caches
from dna.envs.state.watched_values import (
    OF_LOGGERS,
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
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
#: Names in code that reads or sets variables of the process's environment.
ENVIRON = {"environ", "getenv", "putenv", "unsetenv"}
#: Name of all of them as one variable.
PROCESS = "the process's environment variables"
#: Beginnings of those that libraries and test runners set by themselves.
OF_TOOLS = (
    "CUDA", "GOMP", "KINETO", "KMP", "MKL", "NCCL", "OMP", "PYTEST", "TORCH", "TRITON",
)  # fmt: skip
#: Names in code that may use variables and modules whose names are only texts.
REFLECTIVE = {
    "globals", "vars", "getattr", "setattr", "delattr", "attrgetter", "__dict__", "__globals__",
    "modules", "import_module", "__import__", "eval", "exec",
}  # fmt: skip
#: Those of them that may find a module by its name.
IMPORTING = {"modules", "import_module", "__import__", "eval", "exec"}
#: Names in code that lead to the flags of decimal numbers.
CONTEXT = {"getcontext", "localcontext", "Context"}
#: What a trusted class or module may have been given to remember.
SIMPLE = (bool, int, float, str, types.NoneType)
COLLECTIONS = (list, dict, set, deque, bytearray, np.ndarray)
#: Collections of the standard library that change by themselves.
VOLATILE = {
    "cache", "filters", "meta_path", "modules", "onceregistry", "path", "path_hooks",
    "path_importer_cache", "registry",
}  # fmt: skip
#: Modules that may be the script which trains.
MAIN = ("__main__", "__mp_main__")
#: Objects in a variable that no code names, above which it is not watched.
MOST_UNNAMED = 20_000
#: What may be in a module besides the state of the program.
TRAINED = (gymnasium.Env, gymnasium.vector.VectorEnv)
#: Maximum number of classes and functions that are followed.
MOST_PLACES = 5_000


class ProgramState:
    """The values, at one moment, of the program's variables that an environment uses.

    To be made and asked in the thread that steps the environments, if it is always the same.
    """

    def __init__(
        self, root: object, *, one_thread: bool = True, caches_checked: bool = True
    ) -> None:
        """`caches_checked`: whether it is tried out if caches can be computed again."""
        self.root = root
        self.one_thread = one_thread
        self.caches_checked = caches_checked
        self.walk = _Walk(root)
        self.walk.take_whole_modules()
        self.before = {name: watched(value) for name, value in self.walk.variables.items()}
        self.unnamed = {name: watched(value) for name, value in self.walk.unnamed.items()}
        self.cached: dict[str, tuple[Watched, object]] = {}
        self.caches = Caches()
        self._changed_caches(self.walk)

    def changed(self) -> list[str]:
        """Names of variables that have changed since, and of those that cannot be seen."""
        walk = _Walk(self.root)
        walk.take_whole_modules()
        found = []
        for name, value in walk.variables.items():
            now = watched(value)
            unseen = now.unseen or (None if self.one_thread else now.per_thread)
            if unseen is not None and name not in walk.installed:
                found.append(f"{name} ({unseen}, whose state cannot be seen)")
            elif self._is_new(name, now, self.before):
                found.append(name)
        for name, value in walk.unnamed.items():
            if self._is_new(name, watched(value), self.unnamed):
                found.append(name)
        return [*dict.fromkeys(found + self._changed_caches(walk))]

    def _is_new(self, name: str, now: Watched, before: dict[str, Watched]) -> bool:
        """Whether a variable changed, or was created in a place that was there before."""
        if name in self.before or name in self.unnamed:
            return now not in (self.before.get(name), self.unnamed.get(name))
        if name.rpartition(".")[0] in self.walk.places:
            return True
        before[name] = now  # of a module that was loaded later, for example
        return False

    def _changed_caches(self, walk: "_Walk") -> list[str]:
        """Names of entries that are no longer what they were when they were first seen."""
        found = []
        for name, value in walk.cached.items():
            now = watched(value)
            # The value too: as long as it lives, no other object is in its place.
            before, _ = self.cached.setdefault(name, (now, value))
            if before != now:
                found.append(name.partition("#")[0])
        self.caches.add(walk.caches, walk.cache_functions)
        return found + ([] if self.caches_checked else self.caches.grown())


def variables_of(root: object) -> dict[str, Any]:
    """The variables of classes and modules that the code of an environment uses."""
    return _Walk(root).variables


class _Walk:
    """The classes and functions that code leads to, and the variables it uses."""

    def __init__(self, root: object) -> None:
        self.variables: dict[str, Any] = {}
        self.unnamed: dict[str, Any] = {}  # of the user's modules, but not named by the code
        self.cached: dict[str, Any] = {}  # entries of caches
        self.caches: dict[str, dict[Any, Any]] = {}
        self.cache_functions: dict[str, Any] = {}
        self.installed: set[str] = set()  # variables of packages that the environment uses
        self.places: set[str] = set()  # classes, functions, modules whose variables are taken
        self.modules: dict[str, None] = {}  # of the user, in which code was found
        self.visited: set[int] = set()
        self.named: set[tuple[int, frozenset[str]]] = set()  # modules, and names in them
        self.root = root
        self._take_settings()
        for thing in graph.program_in(root):
            if isinstance(thing, EnvSpec):
                self._take_spec(thing)
            self._follow_held(thing)

    def _take_settings(self) -> None:
        # A forked copy inherits these settings, so playing on one cannot show that they matter.
        context = decimal.getcontext()
        self.variables["numpy.geterr()"] = np.geterr()
        self.variables["numpy.get_printoptions()"] = np.get_printoptions()
        self.variables["decimal.getcontext()"] = (
            *(context.prec, context.rounding, context.Emin, context.Emax),
            *(context.capitals, context.clamp, dict(context.traps)),
        )  # its flags are set by ordinary sums
        self.variables["os.getcwd()"] = _folder()

    def _take_spec(self, spec: EnvSpec) -> None:
        """Take the arguments that an environment was made with, but for what it holds."""
        own = {id(thing) for thing in graph.objects_in(self.root)}
        for key, value in spec.kwargs.items():
            if not own & {id(thing) for thing in graph.objects_in(value)}:
                self.variables.setdefault(f"{spec.id}: spec.kwargs.{key}", value)
        for key, value in vars(spec).items():
            if type(value) in SIMPLE:
                self.variables[f"{spec.id}: spec.{key}"] = value
        self.places.add(f"{spec.id}: spec.kwargs")

    def _is_new(self, place: object) -> bool:
        if id(place) in self.visited or len(self.visited) > MOST_PLACES:
            return False
        self.visited.add(id(place))
        return True

    def follow_class(self, kind: type) -> None:
        """Take a class's attributes, and follow its methods and bases."""
        for each in kind.__mro__:
            if not self._is_new(each):
                continue
            place = f"{each.__module__}.{each.__qualname__}"
            if is_trusted(each.__module__):
                self._take_given(vars(each), frozenset(vars(each)), place)
                continue
            self._reach(each.__module__)
            self.follow_class(type(each))
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
            self.cache_functions[name] = value
            for key, result in cached_in(value).items():
                what = qualified_names.of_type(result)
                self.cached[f"{name} (a {what} that it has cached)#{key}"] = result
            value = inspect.unwrap(value)
        parts = qualified_names.functions_of(value)
        if parts is not None:
            for part in parts:
                self.follow(part, name)
        elif isinstance(value, types.FunctionType):
            self.variables[name] = qualified_names.of(value)  # it may be replaced
            self._follow_function(value)
        elif isinstance(value, type):
            self.follow_class(value)
        elif isinstance(value, logging.Logger):
            self._take_logger(value)
        elif _is_data(value):
            self._take(value, name)

    def _take_logger(self, logger: logging.Logger) -> None:
        """Take what a logger was given; the rest is how the process shows messages."""
        given = {name: value for name, value in vars(logger).items() if name not in OF_LOGGERS}
        self.variables[f"logging.getLogger({logger.name!r})"] = given

    def _take(self, value: Any, name: str) -> None:
        """Take a variable, and follow the user's own code that it refers to."""
        if isinstance(value, dict) and "cache" in name.rpartition(".")[2].lower():
            self.caches[name] = value
            for key, entry in entries_of(value).items():
                self.cached[f"{name}[{key}]"] = entry
            return
        self.variables[name] = value
        if is_installed(name.partition(".")[0]):
            self.installed.add(name)
        for thing in graph.program_in(value):
            if not is_installed(_module(thing)):
                self._follow_held(thing)

    def _follow_held(self, thing: Any) -> None:
        """Follow what an object refers to: its class, a function or a whole module."""
        if isinstance(thing, type):
            self.follow_class(thing)
        elif isinstance(thing, types.FunctionType) and not qualified_names.belongs(thing):
            self._follow_globals(thing)  # what it holds itself is seen with its holder
        elif isinstance(thing, types.FunctionType):
            self.follow(thing, qualified_names.of(thing).partition("#")[0])
        elif isinstance(thing, types.ModuleType) and self._is_new(thing):
            self._follow_module(thing, frozenset(vars(thing)))

    def _take_members(self, kind: type[Enum], place: str) -> None:
        """Take the attributes that the members of an Enum were given."""
        for name, member in kind.__members__.items():
            given = {k: v for k, v in vars(member).items() if k not in OF_MEMBERS}
            self.variables[f"{place}.{name}"] = given

    def _take_given(
        self, variables: Mapping[str, Any], names: frozenset[str], place: str
    ) -> None:
        """Take what a class or module that keeps no state by itself has been given."""
        self.places.add(place)
        for name in sorted(names & variables.keys()):
            value = variables[name]
            collection = type(value) in COLLECTIONS and not (
                name.startswith("_") or name in VOLATILE
            )
            if (type(value) in SIMPLE or collection) and not _is_special(name):
                self.variables[f"{place}.{name}"] = value

    def _take_settings_named(self, names: "_Names") -> None:
        """Take the settings of the process that only count for code which names them."""
        if "flags" in names.all() and CONTEXT & names.all():
            flags = dict(decimal.getcontext().flags)
            self.variables["the flags of decimal.getcontext()"] = flags
        if ENVIRON & names.all():
            self._take_process_variables(names.texts)

    def _take_process_variables(self, texts: frozenset[str]) -> None:
        present = {
            key: value
            for key, value in os.environ.items()
            if key in texts or not key.startswith(OF_TOOLS)
        }
        self.variables[PROCESS] = self.variables.get(PROCESS, {}) | present

    def _take_own(self, function: types.FunctionType, place: str) -> None:
        """Take what a function itself holds."""
        free = function.__code__.co_freevars
        for variable, cell in zip(free, function.__closure__ or (), strict=True):
            if variable != "__class__" and cell != types.CellType():
                self.follow(cell.cell_contents, f"{place}: {variable}")
        for name, value in vars(function).items():
            self.follow(value, f"{place}.{name}")
        if function.__defaults__:
            self.variables[f"{place}: default arguments"] = function.__defaults__
        if function.__kwdefaults__:
            self.variables[f"{place}: default arguments by name"] = function.__kwdefaults__

    def _follow_function(self, function: types.FunctionType) -> None:
        if _is_of_library(function) or not self._is_new(function):
            return
        place = f"{function.__module__}.{function.__qualname__}"
        self.places.add(place)
        self._take_own(function, place)
        self._follow_globals(function)

    def _follow_globals(self, function: types.FunctionType) -> None:
        """Follow the code of a function to the variables of modules that it uses."""
        if _is_of_library(function) or not self._is_new(function.__code__):
            return
        names = _names(function.__code__)
        self._take_settings_named(names)
        module = str(function.__globals__.get("__name__"))
        if not qualified_names.has_globals_of_module(function):
            module = f"{function.__qualname__}: globals"
        self.places.add(module)
        self._reach(module)
        self._follow_names(function, module, names)
        for level, name, wanted in sorted(names.imports):
            self._follow_import(function, "." * level + name, frozenset(wanted), names)

    def _follow_names(self, function: types.FunctionType, module: str, names: "_Names") -> None:
        """Follow the global variables of a function that its code names."""
        named = names.variables
        if REFLECTIVE & names.all():
            named |= names.texts | (names.attributes if module in MAIN else frozenset())
        if IMPORTING & names.all():
            for text in sorted(names.texts & sys.modules.keys()):
                if not is_installed(text):
                    self._follow_module(sys.modules[text], names.of_modules())
        for name in sorted(named & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType):
                self._follow_module(value, names.of_modules())
            else:
                self.follow(value, f"{module}.{name}")
        if "getLogger" in names.all():
            loggers = logging.root.manager.loggerDict
            for text in sorted({*names.texts, module} & loggers.keys()):
                self.follow(loggers[text], text)

    def _follow_import(
        self,
        function: types.FunctionType,
        name: str,
        wanted: frozenset[str],
        names: "_Names",
    ) -> None:
        """Follow what a function imports when it is called, if it is loaded by now."""
        with suppress(ImportError):  # beyond the package
            name = resolve_name(name, str(function.__globals__.get("__package__") or ""))
        words = name.split(".")
        for end in range(1, len(words) + 1):
            module = sys.modules.get(".".join(words[:end]))
            self._follow_module(module, names.of_modules() | wanted)

    def _follow_module(self, module: Any, names: frozenset[str]) -> None:
        """Follow these names in a module, and in modules that are among them."""
        known = (id(module), names) in self.named
        if known or not isinstance(module, types.ModuleType) or _top(module.__name__) == "dna":
            return
        self.named.add((id(module), names))
        own = not is_trusted(module.__name__)
        if own:
            self.places.add(module.__name__)
            self._reach(module.__name__)
        else:
            self._take_given(vars(module), names, module.__name__)
        if module is sys:
            self._take_settings_of_interpreter(names)
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if isinstance(value, types.ModuleType):
                # Every name of the code is looked up here; in a package it may be another's.
                other = is_installed(value.__name__) and not is_trusted(value.__name__)
                if not other or value.__name__.startswith(f"{module.__name__}."):
                    self._follow_module(value, names)
            elif own:
                self.follow(value, f"{module.__name__}.{name}")

    def _take_settings_of_interpreter(self, names: frozenset[str]) -> None:
        """Take what code can set, such as by `sys.setrecursionlimit`, and has the name of."""
        for name in sorted(names):
            getter = getattr(sys, f"get{name[3:]}", None) if name.startswith("set") else None
            if callable(getter) and type(value := getter()) in SIMPLE:
                self.variables[f"the interpreter's {name[3:]}"] = value

    # ── variables that no code names ──────────────────────────────────────────────────────

    def _reach(self, module: str) -> None:
        """Remember a module of the user."""
        if module not in MAIN and not is_installed(module):
            self.modules[module] = None

    def take_whole_modules(self) -> None:
        """Take all variables of the user's modules in which code was found."""
        own = {id(thing) for thing in graph.objects_in(self.root) if not _is_fixed(thing)}
        seen: set[int] = set()
        for name in self.modules:
            module = sys.modules.get(name)
            if isinstance(module, types.ModuleType):
                self._take_unnamed(vars(module), name, name, own, seen)

    def _take_unnamed(
        self,
        variables: Mapping[str, Any],
        place: str,
        module: str,
        own: set[int],
        seen: set[int],
    ) -> None:
        self.places.add(place)
        for name, value in [*variables.items()]:
            full = f"{place}.{name}"
            if isinstance(value, type):
                if value.__module__ == module and id(value) not in seen:
                    seen.add(id(value))
                    if issubclass(value, Enum):
                        self._take_members(value, full)
                    else:
                        self._take_unnamed(vars(value), full, module, own, seen)
            elif (
                not (full in self.variables or full in self.caches or _is_special(name))
                and _is_data(value)
                and not _is_code(value)
                and _is_of_program(value, own)
            ):
                self.unnamed[full] = value


class _Names(NamedTuple):
    """What code, and functions inside it, refer to by name."""

    variables: frozenset[str]
    attributes: frozenset[str]
    texts: frozenset[str]  # constants
    imports: frozenset[tuple[int, str, tuple[str, ...]]]  # level, module, names in it

    def of_modules(self) -> frozenset[str]:
        """The names that may be looked up in a module."""
        return self.attributes | (self.texts if REFLECTIVE & self.all() else frozenset())

    def all(self) -> frozenset[str]:
        """The names of variables and attributes, and those that are imported."""
        imported = (name for _, _, wanted in self.imports for name in wanted)
        return self.variables | self.attributes | frozenset(imported)


@functools.cache
def _names(code: types.CodeType) -> _Names:
    """Collect the names in code."""
    variables: set[str] = set()
    attributes: set[str] = set()
    texts: set[str] = set()
    imports: set[tuple[int, str, tuple[str, ...]]] = set()
    last: deque[Any] = deque(maxlen=2)  # arguments of the instructions before
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            level, wanted = last
            imports.add((int(level or 0), str(one.argval), tuple(wanted or ())))
        elif one.opname.endswith(("_GLOBAL", "_NAME")):
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
            imports |= inner.imports
        last.append(one.argval)
    return _Names(
        frozenset(variables), frozenset(attributes), frozenset(texts), frozenset(imports)
    )


def _is_of_library(function: types.FunctionType) -> bool:
    """Whether a function is of a module whose code is not followed."""
    trusted = is_trusted(function.__module__)
    return trusted and qualified_names.has_globals_of_module(function)


def _top(module: str) -> str:
    """The package of a module."""
    return module.partition(".")[0]


def _module(thing: Any) -> str:
    """The module of a class, function or module."""
    attribute = "__name__" if isinstance(thing, types.ModuleType) else "__module__"
    return str(getattr(thing, attribute, ""))  # a dtype has none


def _folder() -> str | None:
    """The working directory, if it is still there."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _is_cache(value: Any) -> bool:
    """Whether this is a function with `functools.cache`, which does not change its results."""
    return callable(getattr(value, "cache_info", None)) and hasattr(value, "__wrapped__")


def _is_data(value: Any) -> bool:
    if type(value).__module__ == "logging":
        return False  # it remembers which levels are on
    if isinstance(value, types.BuiltinFunctionType):
        return not qualified_names.belongs(value)  # a method of something that may change
    return not isinstance(value, NO_DATA)


def _is_code(value: Any) -> bool:
    """Whether this attribute of a class or module is a function."""
    return (
        _is_cache(value) or qualified_names.functions_of(value) is not None or callable(value)
    )


def _is_special(name: str) -> bool:
    """Whether Python or the standard library uses this name."""
    return name.startswith("_abc_") or (name.startswith("__") and name.endswith("__"))


def _is_fixed(thing: object) -> bool:
    """Whether nobody can change this object, so that it may be anybody's."""
    return isinstance(thing, tuple | frozenset | np.generic)


def _is_of_program(value: Any, own: set[int]) -> bool:
    """Whether a variable that no code names may be watched.

    It is neither large nor a part of what is trained: environments, agents, tensors.
    """
    things, program = graph.contents(value, MOST_UNNAMED)
    kinds = [type(thing) for thing in things]
    return (
        len(things) < MOST_UNNAMED
        and not any(id(thing) in own for thing in things)
        and not any(issubclass(kind, TRAINED) for kind in kinds)
        and not any(_top(_module(thing)) in ("dna", "torch") for thing in [*kinds, *program])
    )
