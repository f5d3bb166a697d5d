"""Names of what belongs to the program: classes, functions, members of an Enum.

A name from a file is only ever compared, or looked up among the members of an Enum that is
loaded already: nothing is imported, and nothing is called.
"""

import sys
import types
import zlib
from enum import Enum, Flag
from typing import Any


def of_type(x: object) -> str:
    """The class of an object."""
    return f"{getattr(type(x), '__module__', '?')}.{type(x).__qualname__}"


def of(x: Any) -> str:
    """A function, class, module or the like; of other things their class and what they say."""
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if not isinstance(name, str):
        return of_type(x)
    text = f"{getattr(x, '__module__', '')}.{name}"
    # Two lambdas of one line have one name.
    return f"{text}#{_code(x.__code__):08x}" if isinstance(x, types.FunctionType) else text


def _code(code: types.CodeType) -> int:
    """What a function does, not where it stands."""
    consts = [
        _code(one) if isinstance(one, types.CodeType) else _constant(one)
        for one in code.co_consts
    ]
    return zlib.crc32(repr((code.co_code.hex(), consts, code.co_names)).encode())


def _constant(x: object) -> str:
    return repr(sorted(map(repr, x)) if isinstance(x, frozenset) else x)


def belongs(x: object) -> bool:
    """Whether a function is part of the program: found again by its name, made but once."""
    if isinstance(x, types.BuiltinFunctionType):
        return isinstance(x.__self__, types.ModuleType | type | None)
    if not isinstance(x, types.FunctionType):
        return False
    found: Any = _loaded(f"{x.__module__}.{x.__qualname__}")
    return (found.__func__ if isinstance(found, staticmethod) else found) is x


def member(x: Enum) -> str | int:
    """Flags may be combined, and then have a value only."""
    return int(x.value) if isinstance(x, Flag) else x.name


def enum(kind: str, which: str | int, present: object) -> Enum | None:
    """The member, of the class of what is there now or of a loaded module; else None."""
    found: Any = type(present) if of_type(present) == kind else _loaded(kind)
    if not (isinstance(found, type) and issubclass(found, Enum)):
        return None
    if issubclass(found, Flag):
        return found(which) if isinstance(which, int) else None
    return found.__members__.get(str(which))


def _loaded(kind: str) -> object:
    words = kind.split(".")
    for end in range(len(words) - 1, 0, -1):
        place: Any = sys.modules.get(".".join(words[:end]))
        if place is not None:
            for word in words[end:]:
                place = vars(place).get(word) if hasattr(place, "__dict__") else None
            return place
    return None
