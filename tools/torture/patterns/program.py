"""Constants of the program that environments hold, and counters that matter much later."""

import contextvars
import enum
import functools
import os
import sys
import threading
import types
import weakref
from typing import Any, ClassVar

import numpy as np

from torture.patterns.base import Hidden, pattern

COUNT = 300
TABLE = [np.full(9, float(i)) for i in range(COUNT)]
LOCKED = tuple(np.full(9, float(i)) for i in range(COUNT))
for _each in LOCKED:
    _each.flags.writeable = False
START = np.zeros(1)


class Tile:
    def __init__(self, number: int) -> None:
        self.number = number
        self.corners = [number] * 9


TILES = {number: Tile(number) for number in range(COUNT)}
WALL, FLOOR = Tile(0), Tile(0)


@functools.cache
def cached_row(number: int) -> Any:
    return np.full(9, float(number))


@functools.cache
def cached_tile(number: int) -> Tile:
    return Tile(number)


class Chosen(Hidden):
    """Every episode uses one of many things that never change."""

    iterations: ClassVar[int] = 24

    def begin(self) -> None:
        self.number = int(self.np_random.integers(COUNT))
        self.choose(self.number)

    def choose(self, number: int) -> None:
        raise NotImplementedError


@pattern
class RowOfTable(Chosen):
    """An array from a list of the module, chosen by reset"""

    def choose(self, number: int) -> None:
        self.row = TABLE[number]

    def advance(self, action: int) -> float:
        return float(self.row[self.steps]) + action


@pattern
class ReadOnlyRow(Chosen):
    """A read-only array from a tuple of the module, and a view of it"""

    def choose(self, number: int) -> None:
        self.row = LOCKED[number]
        self.seen = self.row[::-1]

    def advance(self, action: int) -> float:
        return float(self.seen[self.steps]) + action


@pattern
class CachedRow(Chosen):
    """An array that a function with `functools.cache` returned"""

    def choose(self, number: int) -> None:
        self.row = cached_row(number)

    def advance(self, action: int) -> float:
        return float(self.row[self.steps]) + action


@pattern
class CachedObject(Chosen):
    """An object that a function with `functools.cache` returned"""

    def choose(self, number: int) -> None:
        self.tile = cached_tile(number)

    def advance(self, action: int) -> float:
        return float(self.tile.corners[self.steps] + action)


@pattern
class ObjectOfTable(Chosen):
    """An object from a dict of the module, beside one of its own that looks the same"""

    def choose(self, number: int) -> None:
        self.tiles = [TILES[number], Tile(number)]

    def advance(self, action: int) -> float:
        self.tiles[1].corners[self.steps] += 1 + action
        return float(self.tiles[0].corners[self.steps] + 3 * self.tiles[1].corners[self.steps])


@pattern
class TilesByIdentity(Chosen):
    """A board of two objects of the module that differ in nothing but their identity"""

    def choose(self, number: int) -> None:
        self.board = [FLOOR if self.np_random.random() < 0.5 else WALL for _ in range(9)]

    def advance(self, action: int) -> float:
        return float(3 * (self.board[self.steps] is WALL) + action + self.steps)


@pattern
class StartOfModule(Chosen):
    """A state that begins as an array of the module and is then replaced"""

    def choose(self, number: int) -> None:
        self.state = START

    def advance(self, action: int) -> float:
        self.state = self.state + 1 + action
        return float(self.state[0])


class Later(Hidden):
    """A counter of episodes that matters once there were many."""

    iterations: ClassVar[int] = 24
    many: ClassVar[int] = 60

    def begin(self) -> None:
        self.count()

    def count(self) -> None:
        raise NotImplementedError

    def total(self) -> int:
        raise NotImplementedError

    def advance(self, action: int) -> float:
        return float(action + self.steps + 5 * (self.total() > self.many))


class Counter:
    __slots__ = ("episodes",)

    def __init__(self) -> None:
        self.episodes = 0


COUNTER = Counter()
LOCAL = threading.local()
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)
score_cache: dict[str, int] = {}


@pattern
class LateSlots(Later):
    """An object with slots, of the module"""

    def count(self) -> None:
        COUNTER.episodes += 1

    def total(self) -> int:
        return COUNTER.episodes


@pattern
class LateThreadLocal(Later):
    """A threading.local of the module"""

    def count(self) -> None:
        LOCAL.episodes = getattr(LOCAL, "episodes", 0) + 1

    def total(self) -> int:
        return int(LOCAL.episodes)


@pattern
class LateContextVariable(Later):
    """A context variable of the module"""

    def count(self) -> None:
        VARIABLE.set(VARIABLE.get() + 1)

    def total(self) -> int:
        return VARIABLE.get()


class Zone(enum.Enum):
    HERE = 1
    THERE = 2


@pattern
class LateEnum(Later):
    """An attribute of an Enum's member"""

    def count(self) -> None:
        member: Any = Zone.HERE
        member.visits = getattr(member, "visits", 0) + 1

    def total(self) -> int:
        return int(getattr(Zone.HERE, "visits", 0))


@pattern
class LateProcessVariable(Later):
    """A variable of the process's environment"""

    def count(self) -> None:
        os.environ["TORTURE_EPISODES"] = str(self.total() + 1)

    def total(self) -> int:
        return int(os.environ.get("TORTURE_EPISODES", "0"))


engine = types.ModuleType("torture_engine")
sys.modules["torture_engine"] = engine
exec("ticks = 0\ndef tick():\n    global ticks\n    ticks += 1", vars(engine))


@pattern
class LateEngine(Later):
    """A module that the environment holds as an attribute"""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Any = sys.modules["torture_engine"]

    def count(self) -> None:
        self.engine.tick()

    def total(self) -> int:
        return int(self.engine.ticks)


class Slime:
    born = 0

    @classmethod
    def spawn(cls) -> None:
        cls.born += 1


KINDS = {"slime": Slime}


@pattern
class LateRegistry(Later):
    """An attribute of a class that is in a dict of the module"""

    def count(self) -> None:
        KINDS["slime"].spawn()

    def total(self) -> int:
        return KINDS["slime"].born


@pattern
class LateNamedCache(Later):
    """An entry of a dict that is called a cache"""

    def count(self) -> None:
        score_cache["episodes"] = score_cache.get("episodes", 0) + 1

    def total(self) -> int:
        return score_cache["episodes"]


@functools.cache
def visits() -> Any:
    return np.zeros(1)


@pattern
class LateCachedResult(Later):
    """An array that a function with `functools.cache` returned, and that is written to"""

    def count(self) -> None:
        visits()[0] += 1

    def total(self) -> int:
        return int(visits()[0])


class Field:
    def __init__(self) -> None:
        self.values: Any = weakref.WeakKeyDictionary()

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self.values.get(owner, 0)

    def __set__(self, owner: Any, value: int) -> None:
        self.values[owner] = value


@pattern
class LateDescriptor(Later):
    """A descriptor that keeps its values in a WeakKeyDictionary"""

    many: ClassVar[int] = 25
    episodes = Field()

    def count(self) -> None:
        self.episodes = self.episodes + 1

    def total(self) -> int:
        return int(self.episodes)


_STAGE = 0


def shaped(steps: int) -> int:
    global _STAGE
    _STAGE += steps == 0
    return _STAGE


@pattern
class LateFunction(Later):
    """A function in an attribute that changes a global"""

    def __init__(self) -> None:
        super().__init__()
        self.shaping = shaped

    def count(self) -> None:
        self.shaping(0)

    def total(self) -> int:
        return self.shaping(1)
