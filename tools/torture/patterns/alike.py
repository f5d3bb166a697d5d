"""State that hides behind a name: methods of one code, classes of one name, equal texts."""

import decimal
import queue
import sqlite3
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch

from torture.patterns.base import Hidden, built, mixed, pattern


def _mover(k: int) -> Callable[[Any], None]:
    def move(self: Any) -> None:
        self.state = mixed(self.state, k) % 1009

    return move


@pattern
class MethodsOfOneCode(Hidden):
    """One of three methods that one function made"""

    walk, run, fly = _mover(1), _mover(3), _mover(7)

    def __init__(self) -> None:
        super().__init__()
        self.state = 1
        self.gait: Any = self.walk

    def advance(self, action: int) -> float:
        self.gait()
        self.gait = (self.walk, self.run, self.fly)[(self.state + action) % 3]
        return float(self.state)


def _kind(k: int) -> type:
    class Mode:
        gain = k

    return Mode


KINDS = [_kind(k) for k in range(3)]


@pattern
class ClassesOfOneName(Hidden):
    """One of three classes of one name, and an object of it"""

    def __init__(self) -> None:
        super().__init__()
        self.state = 1
        self.kind: Any = KINDS[0]
        self.thing: Any = KINDS[0]()

    def advance(self, action: int) -> float:
        self.state = mixed(self.state, self.kind.gain + 5 * self.thing.gain) % 1009
        self.kind = KINDS[(self.state + action) % 3]
        self.thing = KINDS[self.state % 3]()
        return float(self.state)


@pattern
class OrderOfBytes(Hidden):
    """A dtype whose byte order changes"""

    def __init__(self) -> None:
        super().__init__()
        self.kind = np.dtype("<i2")

    def advance(self, action: int) -> float:
        value = int(np.frombuffer(b"\x01\x02", self.kind)[0])
        if action:
            self.kind = self.kind.newbyteorder()
        return float(value + self.steps)


@pattern
class EqualTexts(Hidden):
    """Which of several equal words and bytes is the chosen one"""

    def __init__(self) -> None:
        super().__init__()
        self.words = ["".join(["ab", "c"]) for _ in range(4)]
        self.bits = [bytes([1, 2]) + bytes([3]) for _ in range(4)]
        self.word, self.some = self.words[0], self.bits[0]

    def advance(self, action: int) -> float:
        place = [word is self.word for word in self.words].index(True)
        other = [bits is self.some for bits in self.bits].index(True)
        self.word = self.words[(place + 1 + action) % 4]
        self.some = self.bits[(other + action) % 4]
        return float(place + 7 * other)


class Shifted(gymnasium.spaces.Discrete):
    """A space with a number of its own."""

    offset = 0


@pattern
class SpaceWithOffset(Hidden):
    """A number in an attribute of the environment's own kind of space"""

    def __init__(self) -> None:
        super().__init__()
        self.shifted = Shifted(3)

    def advance(self, action: int) -> float:
        self.shifted.offset = mixed(self.shifted.offset, action) % 1009
        return float(self.shifted.offset)


@pattern
class OwnVariables(Hidden):
    """A function made by `exec` with global variables of its own"""

    def __init__(self) -> None:
        super().__init__()
        variables: dict[str, Any] = {"n": 0}
        exec("def count(k):\n  global n\n  n = n * 7 % 1009 + k\n  return n", variables)
        self.count = variables["count"]

    def advance(self, action: int) -> float:
        return float(self.count(1 + action))


TENSOR = torch.zeros(5000)
LAYER = torch.nn.Linear(40, 40)
torch.nn.init.zeros_(LAYER.weight)
GENERATOR = torch.Generator()
MASKED = np.ma.zeros(5)
OBJECTS = np.array([0] * 5000, object)
MEMORY = memoryview(bytearray(8))
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.execute("create table numbers (n)")
BITS = np.random.PCG64(7)
QUEUE: queue.SimpleQueue[int] = queue.SimpleQueue()


def _count_in_tensor(action: int) -> float:
    TENSOR[2000] += 1 + action
    return float(TENSOR.sum())


def _count_in_layer(action: int) -> float:
    with torch.no_grad():
        LAYER.weight[20, 20] += 1 + action
    return float(LAYER.weight[20, 20]) * 10


def _draw_from_torch(action: int) -> float:
    return float(torch.rand(1 + action, generator=GENERATOR)[0]) * 100


def _count_in_mask(action: int) -> float:
    MASKED[1] = MASKED[1] + 1 + action
    return float(MASKED.sum())


def _count_in_objects(action: int) -> float:
    OBJECTS[2000] += 1 + action
    return float(OBJECTS[2000])


def _count_in_memory(action: int) -> float:
    MEMORY[3] = (MEMORY[3] + 1 + action) % 256
    return float(MEMORY[3])


def _count_in_database(action: int) -> float:
    DATABASE.execute("insert into numbers values (?)", (1 + action,))
    return float(DATABASE.execute("select sum(n) from numbers").fetchone()[0])


def _draw_bits(action: int) -> float:
    return float(BITS.random_raw() % 997 + action)


def _count_in_queue(action: int) -> float:
    QUEUE.put(action)
    return float(QUEUE.qsize())


def _count_in_decimal(action: int) -> float:
    decimal.getcontext().Emax -= 1 + action
    return float(decimal.getcontext().Emax % 1009)


def _count_in_printing(action: int) -> float:
    digits = np.get_printoptions()["precision"]
    np.set_printoptions(precision=(digits + 1 + action) % 7)
    return float(digits)


def _of(function: Callable[[int], float], what: str) -> None:
    """Register a pattern that keeps its state where this function does."""

    def make() -> Any:
        class Outside(Hidden):
            def advance(self, action: int) -> float:
                return function(action)

        return Outside

    make.__name__, make.__doc__ = function.__name__.strip("_"), what
    built(make)


for _function, _what in (
    (_count_in_tensor, "A large tensor of the module"),
    (_count_in_layer, "A layer of a network of the module"),
    (_draw_from_torch, "A generator of torch in the module"),
    (_count_in_mask, "A masked array of the module"),
    (_count_in_objects, "A large array of objects of the module"),
    (_count_in_memory, "A view of bytes of the module"),
    (_count_in_database, "A database in memory of the module"),
    (_draw_bits, "A bit generator of the module"),
    (_count_in_queue, "A queue in C of the module"),
    (_count_in_decimal, "A limit of the decimal context"),
    (_count_in_printing, "The number of digits that numpy prints"),
):
    _of(_function, _what)
