"""State in containers: aliases, cycles, orders, and collections of the standard library."""

import array
import heapq
import itertools
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from types import MappingProxyType, SimpleNamespace
from typing import Any

from torture.patterns.base import Hidden, built, mixed, pattern


@pattern
class TwoNamesOfAList(Hidden):
    """Two attributes that name one list, or two lists, in turns"""

    def __init__(self) -> None:
        super().__init__()
        self.one: list[int] = []
        self.two: list[int] = []

    def begin(self) -> None:
        self.two = self.one if self.np_random.random() < 0.5 else list(self.one)

    def advance(self, action: int) -> float:
        self.one.append(1 + action)
        return float(sum(self.two))


@pattern
class ListInItself(Hidden):
    """A list that contains itself, at a position that moves"""

    def __init__(self) -> None:
        super().__init__()
        self.ring: list[Any] = [1, 2, 3]
        self.ring.insert(0, self.ring)

    def advance(self, action: int) -> float:
        at = next(n for n, item in enumerate(self.ring) if item is self.ring)
        del self.ring[at]
        self.ring[action] = mixed(self.ring[-1], action) % 1009
        self.ring.insert((at + 1 + action) % 4, self.ring)
        return float(sum(n * item for n, item in enumerate(self.ring) if item is not self.ring))


@pattern
class TupleInCycle(Hidden):
    """A tuple that holds a list that holds the tuple, replaced each step"""

    def __init__(self) -> None:
        super().__init__()
        self.pair: tuple[int, list[Any]] = (1, [])
        self.pair[1].append(self.pair)

    def advance(self, action: int) -> float:
        held = self.pair[1]
        self.pair = (mixed(held[-1][0], action) % 1009, held)
        held.append(self.pair)
        del held[:-3]
        return float(sum(pair[0] for pair in held) + (held[-1] is self.pair))


@pattern
class DictOrder(Hidden):
    """A dict in which the order of the keys is the state"""

    def __init__(self) -> None:
        super().__init__()
        self.seats = dict.fromkeys("abcd", 0)

    def advance(self, action: int) -> float:
        name = list(self.seats)[1 + action]
        self.seats[name] = self.seats.pop(name) + 1
        return float(sum(n * ord(key) for n, key in enumerate(self.seats)))


@pattern
class AttributeOrder(Hidden):
    """The order in which attributes were set is the state"""

    def __init__(self) -> None:
        super().__init__()
        self.a = 1
        self.b = 2
        self.c = 3

    def advance(self, action: int) -> float:
        own = [name for name in vars(self) if len(name) == 1]
        name = own[action]
        value = vars(self).pop(name)
        setattr(self, name, value)
        return float(sum(n * ord(key) for n, key in enumerate(own, 1)))


@pattern
class MixedKeys(Hidden):
    """A dict with keys of many types, among them equal ones of different type"""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[Any, int] = {None: 1, (1, "a"): 2, frozenset({1}): 3, 1.0: 4, b"x": 5}

    def advance(self, action: int) -> float:
        key = list(self.table)[action]
        number = mixed(self.table.pop(key), action) % 997
        self.table[key] = number
        self.table[number % 3 if number % 2 else float(number % 3)] = 1
        return float(
            sum(self.table.values()) + 9 * sum(isinstance(k, float) for k in self.table)
        )


@pattern
class NanKey(Hidden):
    """A NaN that a dict finds by identity only"""

    def begin(self) -> None:
        self.nan = float("nan")
        self.found = {self.nan: int(self.np_random.integers(9)), float("nan"): 5}

    def advance(self, action: int) -> float:
        self.found[self.nan] += 1 + action
        return float(len(self.found) * 100 + self.found.get(self.nan, 50))


@pattern
class Deques(Hidden):
    """A deque whose maximum length changes"""

    def __init__(self) -> None:
        super().__init__()
        self.last: deque[int] = deque([1, 2, 3], maxlen=3)

    def advance(self, action: int) -> float:
        self.last.append(mixed(self.last[0], action) % 1009)
        self.last.rotate(action)
        longest = 2 + self.last[-1] % 4
        if longest != self.last.maxlen:
            self.last = deque(self.last, maxlen=longest)
        return float(sum(self.last))


@pattern
class UnboundedDeque(Hidden):
    """A deque that is bounded in fresh environments and unbounded later"""

    def __init__(self) -> None:
        super().__init__()
        self.last: deque[int] = deque([1], maxlen=2)
        self.episodes = 0

    def begin(self) -> None:
        self.episodes += 1
        if self.episodes == 2:
            self.last = deque(self.last)

    def advance(self, action: int) -> float:
        self.last.append(1 + action)
        return float(sum(self.last))


@pattern
class Ordered(Hidden):
    """An OrderedDict whose order changes"""

    def __init__(self) -> None:
        super().__init__()
        self.seats: OrderedDict[str, int] = OrderedDict(a=1, b=2, c=3)

    def advance(self, action: int) -> float:
        self.seats.move_to_end("abc"[1 + action], last=bool(self.steps % 2))
        return float(sum(n * ord(key) for n, key in enumerate(self.seats)))


@pattern
class Defaulting(Hidden):
    """A defaultdict of lists"""

    def __init__(self) -> None:
        super().__init__()
        self.lists: defaultdict[str, list[int]] = defaultdict(list)

    def advance(self, action: int) -> float:
        self.lists["abcdef"[self.steps % 6]].append(len(self.lists) + action)
        return float(sum(map(sum, self.lists.values())))


@pattern
class Counted(Hidden):
    """A collections.Counter"""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[int] = Counter()

    def advance(self, action: int) -> float:
        self.counts.update([action, self.counts.total() % 5])
        return float(sum(n * key for n, (key, _) in enumerate(self.counts.most_common(), 1)))


@pattern
class Chained(Hidden):
    """A ChainMap that gets new children"""

    def __init__(self) -> None:
        super().__init__()
        self.chain: ChainMap[str, int] = ChainMap({}, {"x": 1})

    def advance(self, action: int) -> float:
        self.chain["xy"[action]] = self.chain["x"] + 1
        if len(self.chain.maps[0]) > 1:
            self.chain = self.chain.new_child()
        return float(self.chain["x"] * 3 + len(self.chain.maps))


@pattern
class DefaultFactory(Hidden):
    """A defaultdict whose factory is replaced at run time"""

    def __init__(self) -> None:
        super().__init__()
        self.default: defaultdict[int, Any] = defaultdict(int)
        self.count = 0

    def begin(self) -> None:
        self.default.default_factory = (int, complex, bool, float)[self.count % 4]
        self.count += 1

    def advance(self, action: int) -> float:
        made = self.default[self.count * 100 + self.steps]
        return float({"int": 3, "complex": 5, "bool": 7, "float": 11}[type(made).__name__])


@pattern
class ShrunkSet(Hidden):
    """A set of integers from which items were removed"""

    def __init__(self) -> None:
        super().__init__()
        self.left = set(range(0, 400, 7))

    def advance(self, action: int) -> float:
        item = self.left.pop()
        self.left.add(item * 31 % 1021)
        self.left.discard(next(iter(self.left)) if action else -1)
        self.left.add(self.steps * 17 + 1000)
        return float(sum(n * item for n, item in zip(range(3), self.left, strict=False)))


@pattern
class SetOrder(Hidden):
    """A growing set of integers whose order depends on the order of insertion"""

    def begin(self) -> None:
        if not hasattr(self, "seen") or len(self.seen) > 40:
            self.seen: set[int] = set()

    def advance(self, action: int) -> float:
        self.seen.add(int(self.np_random.integers(2**40)) * 8 + 8 * action)
        return float(sum(n * (item % 101) for n, item in enumerate(self.seen)))


@pattern
class SetFromDifference(Hidden):
    """Sets made by set operations, whose tables are larger than their content"""

    def __init__(self) -> None:
        super().__init__()
        self.free = frozenset(range(0, 640, 5))

    def advance(self, action: int) -> float:
        self.free = self.free - {next(iter(self.free)), action}
        if len(self.free) < 100:
            self.free = self.free | frozenset(range(1, 300, 7))
        return float(sum(n * item for n, item in zip(range(3), self.free, strict=False)))


@pattern
class SetOfTuples(Hidden):
    """A set of tuples of integers, iterated over and removed from"""

    def begin(self) -> None:
        self.cells = {(x, y) for x in range(4) for y in range(4)}

    def advance(self, action: int) -> float:
        cell = min(self.cells) if action else self.cells.pop()
        self.cells.discard(cell)
        return float(7 * cell[0] + cell[1] + len(self.cells))


@pattern
class SetOfStrings(Hidden):
    """A set of strings, of which only membership and size matter"""

    def __init__(self) -> None:
        super().__init__()
        self.words = {"a", "b"}

    def advance(self, action: int) -> float:
        word = max(self.words)
        self.words.add(word + "ab"[action])
        if len(word) > 6:
            self.words = {"b", *sorted(self.words)[: 2 + action]}
        return float(sum(len(word) for word in self.words) + ("baa" in self.words))


@pattern
class SetOfStringsOrder(Hidden):
    """The first string that a set yields, which depends on the process"""

    def __init__(self) -> None:
        super().__init__()
        self.words = {f"word{n}" for n in range(10)}

    def advance(self, action: int) -> float:
        word = next(iter(self.words))
        self.words.discard(word)
        self.words.add(word + "x")
        return float(sum(map(ord, word)))


@pattern
class Heap(Hidden):
    """A priority queue of tuples with a running number"""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[tuple[int, int, list[int]]] = [(n * 7 % 5, n, [n]) for n in range(5)]
        heapq.heapify(self.queue)
        self.number = 5

    def advance(self, action: int) -> float:
        time, number, held = heapq.heappop(self.queue)
        held.append(action)
        heapq.heappush(self.queue, (time + 1 + number % 3 + action, self.number, held))
        self.number += 1
        return float(time * 10 + number + len(held))


@pattern
class ByteArray(Hidden):
    """A bytearray that grows and shrinks"""

    def __init__(self) -> None:
        super().__init__()
        self.memory = bytearray(b"\0\1\2")

    def advance(self, action: int) -> float:
        self.memory.append(mixed(self.memory[-1], action) >> 8 & 255)
        if len(self.memory) > 7:
            del self.memory[1 + action : 4]
        return float(sum(self.memory))


@pattern
class ArrayModule(Hidden):
    """An array.array whose type code changes"""

    def __init__(self) -> None:
        super().__init__()
        self.cells: array.array[Any] = array.array("i", [1, 2, 3])

    def advance(self, action: int) -> float:
        self.cells.append(mixed(int(self.cells[0]), action) % 100)
        self.cells.pop(0)
        self.cells = array.array("ihd"[int(self.cells[1]) % 3], map(int, self.cells))
        return float(sum(self.cells) * self.cells.itemsize)


@pattern
class MemoryViews(Hidden):
    """A memoryview of a bytearray at an offset that moves"""

    def __init__(self) -> None:
        super().__init__()
        self.memory = bytearray(range(20))
        self.view = memoryview(self.memory)[0:4]

    def advance(self, action: int) -> float:
        self.view[0] = (self.view[1] * 5 + 1 + action) % 256
        at = self.view[0] % 16
        self.view = memoryview(self.memory)[at : at + 4]
        return float(sum(self.view) + self.memory[3])


@pattern
class Counting(Hidden):
    """An itertools.count and an itertools.cycle"""

    def __init__(self) -> None:
        super().__init__()
        self.count = itertools.count(3, 2)
        self.cycle = itertools.cycle([1, 5, 2, 8, 13])

    def advance(self, action: int) -> float:
        return float(next(self.count) + next(self.cycle) * (1 + action))


@pattern
class HalfReadList(Hidden):
    """The iterator of a list, halfway, of a list that grows"""

    def begin(self) -> None:
        self.items = [int(n) for n in self.np_random.integers(0, 99, 4)]
        self.reader = iter(self.items)

    def advance(self, action: int) -> float:
        item = next(self.reader)
        self.items.append(mixed(item, action) % 101)
        return float(item)


@pattern
class HalfReadRange(Hidden):
    """The iterator of a range, halfway"""

    def __init__(self) -> None:
        super().__init__()
        self.reader = iter(range(3, 9000, 2))

    def advance(self, action: int) -> float:
        return float(next(self.reader) + action)


@pattern
class HalfReadDict(Hidden):
    """An enumeration of the items of a dict, halfway"""

    def begin(self) -> None:
        items = {n: int(self.np_random.integers(99)) for n in range(12)}
        self.reader = enumerate(items.values())

    def advance(self, action: int) -> float:
        number, item = next(self.reader)
        return float(number + item + action)


@pattern
class HalfReadBackward(Hidden):
    """A zip of a string and of a reversed list, halfway"""

    def begin(self) -> None:
        items = [int(n) for n in self.np_random.integers(0, 99, 12)]
        self.reader = zip("abcdefghijkl", reversed(items), strict=True)

    def advance(self, action: int) -> float:
        letter, item = next(self.reader)
        return float(ord(letter) + item + action)


@pattern
class DictViewHeld(Hidden):
    """The live values view of a dict that keeps changing"""

    def __init__(self) -> None:
        super().__init__()
        self.table = {0: 1}
        self.values = self.table.values()

    def advance(self, action: int) -> float:
        self.table[(len(self.table) + action) % 9] = sum(self.values) % 101 + 1
        return float(sum(self.values))


@pattern
class Proxy(Hidden):
    """A read-only proxy of a dict that keeps changing"""

    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": 1}
        self.proxy = MappingProxyType(self.table)

    def advance(self, action: int) -> float:
        self.table["a"] = mixed(self.proxy["a"], action) % 1009
        return float(self.proxy["a"])


@pattern
class Namespace(Hidden):
    """A SimpleNamespace"""

    def __init__(self) -> None:
        super().__init__()
        self.space = SimpleNamespace(at=0, path=[1])

    def advance(self, action: int) -> float:
        self.space.at += 1 + action
        self.space.path.append(self.space.at % 7)
        return float(sum(self.space.path))


@pattern
class UserContainers(Hidden):
    """A UserDict and a UserList"""

    def __init__(self) -> None:
        super().__init__()
        self.user: UserDict[str, int] = UserDict(b=2)
        self.items: UserList[int] = UserList([1])

    def advance(self, action: int) -> float:
        self.user["b"] = mixed(self.user["b"], action) % 101
        self.items.append(self.user["b"])
        return float(sum(self.items))


@pattern
class NumberTypes(Hidden):
    """Big integers, complex numbers, signed zeros, infinities, and 1 / 1.0 / True"""

    def __init__(self) -> None:
        super().__init__()
        self.big = 3**200
        self.pair = complex(-0.0, 1)
        self.zero = -0.0
        self.one: Any = True

    def advance(self, action: int) -> float:
        self.big = self.big * 7 + action
        if self.big.bit_length() > 900:
            self.big >>= 500
        self.pair = complex(self.pair.imag, -self.pair.real)
        self.zero = -self.zero if action else self.zero
        self.one = (True, 1, 1.0, complex(1))[self.big % 4]
        kind = {"bool": 2, "int": 3, "float": 5, "complex": 7}[type(self.one).__name__]
        sign = str(self.zero).count("-") + 2 * str(self.pair).count("-")
        return float(self.big % 10007 + 10 * kind + sign)


@pattern
class DeepNesting(Hidden):
    """A list nested hundreds of levels deep, whose innermost item changes"""

    def __init__(self) -> None:
        super().__init__()
        self.inner = [1]
        nested: list[Any] = [self.inner]
        for _ in range(800):
            nested = [nested]
        self.nested = nested

    def advance(self, action: int) -> float:
        self.inner[0] = mixed(self.inner[0], action) % 1009
        at: Any = self.nested
        while isinstance(at[0], list):
            at = at[0]
        return float(at[0])


@pattern
class VeryDeepNesting(Hidden):
    """A linked list of tens of thousands of lists"""

    def begin(self) -> None:
        if not hasattr(self, "chain"):
            self.chain: list[Any] = [0, None]
            for n in range(20_000):
                self.chain = [n, self.chain]

    def advance(self, action: int) -> float:
        self.chain[1][1][0] += 1 + action
        self.chain = self.chain[1]
        return float(self.chain[0] + self.chain[1][0])


class Tagged(dict[str, int]):
    """A dict with attributes, and an order of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __getitem__(self, key: str) -> int:
        self.reads += 1
        return super().__getitem__(key)


class Doubling(dict[str, int]):
    """A dict that doubles what is stored."""

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, 2 * value)

    def items(self) -> Any:
        return [(key, value // 2) for key, value in super().items()]


class Negating(list[int]):
    """A list that stores the negative of what is appended, and iterates backward."""

    total = 0

    def append(self, value: int) -> None:
        self.total += value
        super().append(-value)

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self) - 1, -1, -1))


@pattern
class DictWithAttributes(Hidden):
    """A dict subclass that counts its reads in an attribute"""

    def __init__(self) -> None:
        super().__init__()
        self.table = Tagged()
        self.table["a"] = 1

    def advance(self, action: int) -> float:
        self.table["a"] = self.table["a"] + action
        return float(self.table["a"] + 3 * self.table.reads)


@pattern
class DictThatDoubles(Hidden):
    """A dict subclass that changes what is stored and what it shows"""

    def __init__(self) -> None:
        super().__init__()
        self.table = Doubling()
        self.table["a"] = 1

    def advance(self, action: int) -> float:
        self.table["a"] = (self.table["a"] + 1 + action) % 1009
        return float(self.table["a"])


@pattern
class ListThatNegates(Hidden):
    """A list subclass that changes what is appended and how it iterates"""

    def __init__(self) -> None:
        super().__init__()
        self.items = Negating()

    def advance(self, action: int) -> float:
        self.items.append(1 + action + len(self.items) % 3)
        return float(sum(n * item for n, item in enumerate(self.items)) + self.items.total)


@built
def shared_list_of_two_agents() -> Any:
    """One list shared by the environments of all agents"""
    shared: list[int] = []

    class Sharing(Hidden):
        def __init__(self) -> None:
            super().__init__()
            self.shared = shared

        def advance(self, action: int) -> float:
            self.shared.append(1 + action)
            return float(sum(self.shared))

    return Sharing


#: Constants of the module that environments refer to.
ROUTES = {"easy": [1, 2, 3], "hard": [4, 5, 6, 7], "mad": [8, 9]}


@pattern
class ModuleListChosen(Hidden):
    """One of several constant lists of the module"""

    def __init__(self) -> None:
        super().__init__()
        self.route = ROUTES["easy"]

    def advance(self, action: int) -> float:
        self.route = list(ROUTES.values())[(self.route[0] + action) % 3]
        routes = sum(n * sum(route) for n, route in enumerate(ROUTES.values(), 1))
        return float(routes + self.route[-1])


@pattern
class StrangeStrings(Hidden):
    """Strings with lone surrogates and zeros, as values, keys and names of attributes"""

    def __init__(self) -> None:
        super().__init__()
        self.text = "\udc80\0"
        self.table = {"\ud800": 1}
        setattr(self, "\udcff", 1)

    def advance(self, action: int) -> float:
        self.text = (self.text + chr(0xD800 + len(self.text) + action))[-9:]
        self.table[self.text[-1]] = self.table["\ud800"] + action
        setattr(self, "\udcff", getattr(self, "\udcff") + 1)
        return float(sum(map(ord, self.text)) + len(self.table) + getattr(self, "\udcff"))


@pattern
class HugeInteger(Hidden):
    """An integer of thousands of digits, more than Python prints"""

    def __init__(self) -> None:
        super().__init__()
        self.huge = -(7**9000)

    def advance(self, action: int) -> float:
        self.huge = self.huge * 3 + action
        return float(self.huge % 10007)


@pattern
class NonFinite(Hidden):
    """Infinities and NaN as values, in a list and as a key"""

    def __init__(self) -> None:
        super().__init__()
        self.best = float("-inf")
        self.cells = [float("nan"), float("inf")]
        self.table = {float("inf"): 1}

    def advance(self, action: int) -> float:
        self.best = max(self.best, -self.best) if action else -self.best
        self.cells.reverse()
        self.table[float("inf")] += 1
        return float((self.best > 0) * 5 + (self.cells[0] > 0) * 7 + sum(self.table.values()))


@pattern
class ChangingType(Hidden):
    """An attribute that is a list, a dict, a string, a tuple, a number, None, in turns"""

    def __init__(self) -> None:
        super().__init__()
        self.thing: Any = None
        self.count = 0

    def advance(self, action: int) -> float:
        self.count += 1 + action
        value = {"NoneType": 1}.get(type(self.thing).__name__, len(str(self.thing)))
        kinds = [None, [self.count], {"n": [1]}, "abcd", (1, [2]), 5.5, b"xy", 1j, True, {3}]
        self.thing = kinds[(self.count * 7 + value) % len(kinds)]
        return float(value + self.count)


@pattern
class Slices(Hidden):
    """Ranges, slices and Ellipsis as values"""

    def __init__(self) -> None:
        super().__init__()
        self.range = range(3)
        self.slice = slice(0, 2)
        self.rest: Any = ...

    def advance(self, action: int) -> float:
        self.range = range(action, 3 + len(self.range) * 5 % 11, 2)
        self.slice = slice(len(self.range), None, 1 + action)
        self.rest = ... if action else NotImplemented
        return float(sum(self.range) + self.slice.start * 7)


@pattern
class RangeAlone(Hidden):
    """A range that changes"""

    def __init__(self) -> None:
        super().__init__()
        self.range = range(3)

    def advance(self, action: int) -> float:
        self.range = range(action, 3 + len(self.range) * 5 % 11, 2)
        return float(sum(self.range))


@pattern
class DictInItself(Hidden):
    """A dict that contains itself and the environment, and the environment's own `__dict__`"""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[Any, Any] = {"n": 1}
        self.table["self"] = self.table
        self.table["env"] = self

    def advance(self, action: int) -> float:
        self.table["self"]["n"] = mixed(self.table["n"], action) % 1009
        self.table["env"].seen = self.table["n"]
        return float(vars(self)["seen"])


@built
def shared_hub() -> Any:
    """An object shared by all agents, one part of which any of them may replace"""

    class Hub:
        def __init__(self) -> None:
            self.items = [1]

    hub = Hub()

    class Sharing(Hidden):
        def __init__(self) -> None:
            super().__init__()
            self.hub = hub
            self.items = hub.items

        def begin(self) -> None:
            self.items = self.hub.items

        def advance(self, action: int) -> float:
            self.items.append(len(self.items) % 5 + action)
            if self.np_random.random() < 0.1:
                self.hub.items = self.items[-3:]
            return float(sum(self.items) + sum(self.hub.items))

    return Sharing
