"""Names of what belongs to the program: classes, functions, members of an Enum.

A name from a file is only ever compared, or looked up among the members of an Enum that is
loaded already: nothing is imported, and nothing is called.
"""

import functools
import sys
import types
import zlib
from enum import Enum, Flag
from typing import Any

#: Bit of a class that is not compiled into a program written in C.
ON_HEAP = 1 << 9

#: Present → recorded name of each class of this package that has moved: snapshots keep the name
#: it had first, so that old and new ones are the same. Besides these, a snapshot can contain
#: the environments of `dna.envs.fake`, and `KeptEnv` and `KeptVector` of `dna.envs.factory`.
#: Their attributes are recorded by name too, and must not be renamed.
MOVED = {
    "dna.envs.gym.ActionMaskInfo": "dna.envs.masks.AskedMasks",
    "dna.envs.factory.KeptEnv": "dna.envs.instances.KeptEnv",
    "dna.envs.factory.KeptVector": "dna.envs.instances.KeptVector",
}


def of_type(x: object) -> str:
    """The dotted name of an object's class."""
    return _recorded(f"{getattr(type(x), '__module__', '?')}.{type(x).__qualname__}")


def of(x: Any) -> str:
    """The dotted name of a function, class or module; of anything else, that of its class."""
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if not isinstance(name, str):
        return of_type(x)
    text = _recorded(f"{getattr(x, '__module__', '')}.{name}")
    # Two lambdas on one line have the same name: the code tells them apart.
    return f"{text}#{_code(x.__code__):08x}" if isinstance(x, types.FunctionType) else text


def _recorded(name: str) -> str:
    """The name under which snapshots record what is now called `name`."""
    for new, old in MOVED.items():
        if name == new or name.startswith(f"{new}."):
            return old + name.removeprefix(new)
    return name


def is_name_of(recorded: str, present: Any) -> bool:
    """Whether a recorded name is that of a present function, class or module.

    Functions of this package are compared by name alone, so that editing one, or its
    docstring, leaves older snapshots readable.
    """
    name = of(present)
    if name.startswith("dna."):
        return name.partition("#")[0] == recorded.partition("#")[0]
    return name == recorded


def _code(code: types.CodeType) -> int:
    """A checksum of what a function does, whatever its line numbers."""
    consts = [
        _code(one) if isinstance(one, types.CodeType) else _constant(one)
        for one in code.co_consts
    ]
    return zlib.crc32(repr((code.co_code.hex(), consts, code.co_names)).encode())


def _constant(x: object) -> str:
    return repr(sorted(map(repr, x)) if isinstance(x, frozenset) else x)


def belongs(x: object) -> bool:
    """Whether a function is part of the program: found by its name, and made only once."""
    if isinstance(x, types.BuiltinFunctionType):
        return isinstance(x.__self__, types.ModuleType | type | None)
    if not isinstance(x, types.FunctionType):
        return False
    found: Any = loaded(f"{x.__module__}.{x.__qualname__}")
    found = found.__func__ if isinstance(found, staticmethod | classmethod) else found
    return found is x and has_globals_of_module(x)


def has_globals_of_module(x: types.FunctionType) -> bool:
    """Whether the global variables of a function are those of a loaded module."""
    own = x.__globals__
    module = sys.modules.get(str(own.get("__name__")))
    return module is not None and getattr(module, "__dict__", None) is own


def is_reachable(kind: type) -> bool:
    """Whether the name of a class leads to this very class."""
    return not kind.__flags__ & ON_HEAP or loaded(_dotted(kind)) is kind


def leads_to(kind: type) -> bool:
    """Whether the name of a class leads to a class."""
    return isinstance(loaded(_dotted(kind)), type)


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def functions_in(owner: object) -> dict[str, Any]:
    """The functions that are methods of an object or a class, by their names there."""
    found: dict[str, Any] = {}
    for kind in owner.__mro__ if isinstance(owner, type) else type(owner).__mro__:
        for name, value in vars(kind).items():
            function = value.__func__ if isinstance(value, classmethod) else value
            if isinstance(function, types.FunctionType):
                found.setdefault(name, function)
    return found


def attribute(owner: object, function: object) -> str | None:
    """The name by which a method's owner leads to exactly this function."""
    names = (name for name, one in functions_in(owner).items() if one is function)
    return next(names, None)


def functions_of(value: Any) -> list[Any] | None:
    """The functions of a method or property of a class; None for anything else."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [part for part in (value.fget, value.fset, value.fdel) if part is not None]
    return [value.func] if isinstance(value, functools.cached_property) else None


def is_made_by_python(name: str, value: object) -> bool:
    """Whether this attribute of a class describes it, and does nothing."""
    special = name.startswith("__") and name.endswith("__")
    return name.startswith("_abc_") or (
        special and not callable(value) and functions_of(value) is None
    )


def member(x: Enum) -> str | int:
    """The name of an Enum's member; combined Flags have a value only."""
    return int(x.value) if isinstance(x, Flag) else x.name


def enum(kind: str, which: str | int, present: object) -> Enum | None:
    """The member of the present object's class or of a loaded module's; None: not there."""
    found: Any = type(present) if of_type(present) == kind else loaded(kind)
    if not (isinstance(found, type) and issubclass(found, Enum)):
        return None
    if issubclass(found, Flag):
        return found(which) if isinstance(which, int) else None
    return found.__members__.get(str(which))


def loaded(kind: str) -> object:
    """What a dotted name leads to among the loaded modules."""
    words = kind.split(".")
    for end in range(len(words) - 1, 0, -1):
        place: Any = sys.modules.get(".".join(words[:end]))
        if place is not None:
            for word in words[end:]:
                place = vars(place).get(word) if hasattr(place, "__dict__") else None
            return place
    return None
