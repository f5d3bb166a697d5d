"""Names of what belongs to the program: classes, functions, members of an Enum.

A name from a file is only ever compared, or looked up among the members of an Enum that is
loaded already: nothing is imported, and nothing is called.
"""

import sys
import types
import zlib
from enum import Enum, Flag
from typing import Any

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
    found: Any = _loaded(f"{x.__module__}.{x.__qualname__}")
    return (found.__func__ if isinstance(found, staticmethod) else found) is x


def member(x: Enum) -> str | int:
    """The name of an Enum's member; combined Flags have a value only."""
    return int(x.value) if isinstance(x, Flag) else x.name


def enum(kind: str, which: str | int, present: object) -> Enum | None:
    """The member of the present object's class or of a loaded module's; None: not there."""
    found: Any = type(present) if of_type(present) == kind else _loaded(kind)
    if not (isinstance(found, type) and issubclass(found, Enum)):
        return None
    if issubclass(found, Flag):
        return found(which) if isinstance(which, int) else None
    return found.__members__.get(str(which))


def _loaded(kind: str) -> object:
    """What a dotted name leads to among the loaded modules."""
    words = kind.split(".")
    for end in range(len(words) - 1, 0, -1):
        place: Any = sys.modules.get(".".join(words[:end]))
        if place is not None:
            for word in words[end:]:
                place = vars(place).get(word) if hasattr(place, "__dict__") else None
            return place
    return None
