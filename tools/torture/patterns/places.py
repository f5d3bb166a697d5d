"""Counters in places that no variable named in the code leads to, and caches that are state."""

import functools
import logging
import math
import os
import sys
import types
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from torture.patterns.base import Hidden, pattern
from torture.patterns.program import Later

LOG = logging.getLogger("torture.patterns")
CORNER = [0, 0]
FIELD = np.zeros(4)
level_cache: dict[int, int] = {}
number_cache: dict[int, int] = {}
row_cache: dict[int, list[int]] = {}
visits = 0

tools = types.ModuleType("torture_tools")
sys.modules["torture_tools"] = tools
exec("uses = 0\nCORNER = [0, 0]\nclass Total:\n    count = 0", vars(tools))
TOTALS = {"only": tools.Total}


@pattern
class LateLogger(Later):
    """An attribute of a logger"""

    def count(self) -> None:
        vars(LOG)["episodes"] = self.total() + 1

    def total(self) -> int:
        return int(getattr(LOG, "episodes", 0))


@pattern
class LateStandardModule(Later):
    """An attribute that a module of the standard library was given"""

    def count(self) -> None:
        setattr(math, "episodes", self.total() + 1)  # noqa: B010

    def total(self) -> int:
        return int(getattr(math, "episodes", 0))


@pattern
class LateMetadata(Later):
    """An entry in the metadata of Gymnasium's base class"""

    def count(self) -> None:
        gymnasium.Env.metadata["episodes"] = self.total() + 1

    def total(self) -> int:
        return int(gymnasium.Env.metadata.get("episodes", 0))


@pattern
class LateComputedName(Later):
    """A global variable whose name is computed"""

    def count(self) -> None:
        globals()["visit" + "s"] += 1

    def total(self) -> int:
        return int(globals()["visit" + "s"])


@pattern
class LateOwnModule(Later):
    """A global variable of the module that is looked up among the loaded ones"""

    def count(self) -> None:
        module: Any = sys.modules[type(self).__module__]
        module.visits += 1

    def total(self) -> int:
        return visits


@pattern
class LateImportedClass(Later):
    """An attribute of a class that a method imports"""

    def count(self) -> None:
        from torture_tools import Total  # type: ignore[import-not-found]

        Total.count += 1

    def total(self) -> int:
        from torture_tools import Total

        return int(Total.count)


@pattern
class LateImportedModule(Later):
    """A variable of a module that a method imports"""

    def count(self) -> None:
        import torture_tools

        torture_tools.uses += 1

    def total(self) -> int:
        import torture_tools

        return int(torture_tools.uses)


@pattern
class LateOtherRegistry(Later):
    """An attribute of a class of another file that is in a dict of the module"""

    def count(self) -> None:
        TOTALS["only"].count += 1

    def total(self) -> int:
        return int(TOTALS["only"].count)


@pattern
class LateComputedVariable(Later):
    """A variable of the process's environment whose name is an attribute"""

    key: ClassVar[str] = "TORTURE_VISITS"

    def count(self) -> None:
        os.environ[self.key] = str(self.total() + 1)

    def total(self) -> int:
        return int(os.environ.get(self.key, "0"))


class Counting(type):
    episodes = 0


@pattern
class LateMetaclass(Later, metaclass=Counting):
    """An attribute of the metaclass, found by the type of the type"""

    def count(self) -> None:
        kind: Any = type(type(self))
        kind.episodes += 1

    def total(self) -> int:
        kind: Any = type(type(self))
        return int(kind.episodes)


@pattern
class LateSpec(Later):
    """An argument in the specification that the environment was made by"""

    spec = EnvSpec("LateSpec-v0", entry_point="torture.patterns.places:LateSpec")

    def count(self) -> None:
        self.spec.kwargs["episodes"] = self.total() + 1

    def total(self) -> int:
        return int(self.spec.kwargs.get("episodes", 0))


@pattern
class LateFolder(Later):
    """The working directory, which is changed once"""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def count(self) -> None:
        self.begun += 1
        if self.begun == 6:
            os.chdir("/")

    def total(self) -> int:
        return self.begun * (os.getcwd() == "/")


@pattern
class LateLengthOfCache(Later):
    """The length of a dict that is called a cache"""

    def count(self) -> None:
        number_cache[len(number_cache)] = 1

    def total(self) -> int:
        return len(number_cache)


@pattern
class DrawnCache(Hidden):
    """A dict that is called a cache, of levels that are drawn when they are missing"""

    iterations: ClassVar[int] = 24

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1
        level = self.begun // 3
        if level not in level_cache:
            level_cache[level] = int(self.np_random.integers(100))
        self.level = level_cache[level]

    def advance(self, action: int) -> float:
        return float(self.level * 7 + self.steps + action)


@functools.cache
def row(number: int) -> list[int]:
    return [number * k % 11 for k in range(9)]


@pattern
class RealCaches(Hidden):
    """A dict and a function that only hold what can be computed again"""

    def begin(self) -> None:
        self.number = int(self.np_random.integers(300))

    def advance(self, action: int) -> float:
        if self.number not in row_cache:
            row_cache[self.number] = [k * k for k in range(self.number % 7 + 1)]
        return float(row(self.number)[self.steps] + len(row_cache[self.number]) + action)


class CopiesOnWrite(Hidden):
    """A constant that is copied before the first change."""

    def begin(self) -> None:
        self.place, self.owned = self.first(), False

    def first(self) -> Any:
        raise NotImplementedError

    def advance(self, action: int) -> float:
        if not self.owned:
            self.place, self.owned = self.place.copy(), True
        self.place[0] = (self.place[0] + action) % 2
        return float(self.place[0] + 2 * self.first()[0] + 4 * self.steps)


@pattern
class CopiedList(CopiesOnWrite):
    """A list of the module that is copied before the first change"""

    def first(self) -> Any:
        return CORNER


@pattern
class CopiedArray(CopiesOnWrite):
    """An array of the module that is copied before the first change"""

    def first(self) -> Any:
        return FIELD


@pattern
class CopiedImport(CopiesOnWrite):
    """A list that a method imports, and that is copied before the first change"""

    def first(self) -> Any:
        from torture_tools import CORNER

        return CORNER
