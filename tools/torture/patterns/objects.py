"""State in objects: slots, dataclasses, graphs, identities, and classes that misbehave."""

import copy
import enum
import weakref
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

from torture.patterns.base import Hidden, built, mixed, pattern


class Node:
    """A node of a graph."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.next: Any = None
        self.owner: Any = None
        self.children: list[Node] = []


@pattern
class BackReferences(Hidden):
    """Objects that refer back to the environment and to each other"""

    def __init__(self) -> None:
        super().__init__()
        self.one = Node(1)
        self.two = Node(2)
        self.one.next = self.two
        self.two.next = self.one
        self.one.owner = self

    def advance(self, action: int) -> float:
        self.one.value = mixed(self.one.next.value, action) % 1009
        self.one, self.two = self.two, self.one
        self.one.owner = self.two.owner
        return float(self.one.value + self.one.owner.two.value)


@pattern
class LinkedList(Hidden):
    """A linked list of objects that grows and shrinks"""

    def __init__(self) -> None:
        super().__init__()
        self.head: Node | None = None
        self.length = 0

    def advance(self, action: int) -> float:
        node = Node(self.length * 3 + action)
        node.next = self.head
        self.head = node
        self.length += 1
        if self.length > 6 + action:
            self.head = self.head.next.next
            self.length -= 2
        total, at = 0, self.head
        while at is not None:
            total, at = total * 3 % 1009 + at.value, at.next
        return float(total)


@pattern
class FixedRing(Hidden):
    """A ring of five nodes and a pointer that moves around it"""

    def __init__(self) -> None:
        super().__init__()
        nodes = [Node(n) for n in range(5)]
        for n, node in enumerate(nodes):
            node.next = nodes[(n + 1) % 5]
        self.at = nodes[0]

    def advance(self, action: int) -> float:
        self.at.value += 1 + action
        self.at = self.at.next.next if action else self.at.next
        return float(self.at.value * 7 + self.at.next.value)


@pattern
class Tree(Hidden):
    """A tree of objects that is grown and pruned"""

    def __init__(self) -> None:
        super().__init__()
        self.root = Node(1)
        self.root.children = [Node(2), Node(3)]
        self.at = self.root

    def advance(self, action: int) -> float:
        if self.at.children:
            self.at = self.at.children[action % len(self.at.children)]
        else:
            self.at.children = [Node(self.at.value * 2 % 101), Node(self.at.value * 3 % 101)]
            self.at = self.root
        self.at.value += 1
        return float(self.at.value)


@pattern
class GrowingObjects(Hidden):
    """A list of objects that grows from nothing"""

    def begin(self) -> None:
        self.balls: list[Node] = []

    def advance(self, action: int) -> float:
        if self.np_random.random() < 0.6:
            self.balls.append(Node(len(self.balls) + action))
        for ball in self.balls:
            ball.value += 2
        return float(sum(n * ball.value for n, ball in enumerate(self.balls, 1)))


@pattern
class ShrinkingObjects(Hidden):
    """A list of objects that resets fill and steps empty"""

    def begin(self) -> None:
        self.bricks = [Node(int(n)) for n in self.np_random.integers(0, 99, 12)]

    def advance(self, action: int) -> float:
        brick = self.bricks.pop(action)
        self.bricks[0].value += brick.value
        return float(brick.value + len(self.bricks))


@pattern
class PermutedObjects(Hidden):
    """A list of objects in changing order, some of them twice, and a chosen one"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(4)]
        self.chosen = self.nodes[0]

    def advance(self, action: int) -> float:
        self.nodes.insert(0, self.nodes.pop(2 + action))
        self.nodes[3] = self.nodes[1] if action else Node(9)
        self.chosen.value += 1
        self.chosen = self.nodes[2]
        return float(sum(n * node.value for n, node in enumerate(self.nodes)))


@pattern
class OptionalObject(Hidden):
    """An object that resets set to None and steps create now and then"""

    def begin(self) -> None:
        self.bonus: Node | None = None

    def advance(self, action: int) -> float:
        if self.bonus is None and self.np_random.random() < 0.5:
            self.bonus = Node(int(self.np_random.integers(99)))
        elif self.bonus is not None:
            self.bonus.value = mixed(self.bonus.value, action) % 101
        return float(-1 if self.bonus is None else self.bonus.value)


@pattern
class RemovedObject(Hidden):
    """An object that resets create and steps set to None"""

    def begin(self) -> None:
        self.bonus: Node | None = Node(int(self.np_random.integers(99)))

    def advance(self, action: int) -> float:
        if self.bonus is not None and self.np_random.random() < 0.3:
            self.bonus = None
        return float(-1 if self.bonus is None else self.bonus.value + action)


class Running:
    """A state in the state pattern."""

    def __init__(self, since: int) -> None:
        self.since = since

    def act(self, env: Any, action: int) -> int:
        if action:
            env.state = Waiting()
        return self.since + 1


class Waiting:
    """Another state, with another attribute."""

    def __init__(self) -> None:
        self.patience = 3

    def act(self, env: Any, action: int) -> int:
        self.patience -= 1 + action
        if self.patience < 0:
            env.state = Running(env.steps)
        return 40 + self.patience


@pattern
class StatePattern(Hidden):
    """An attribute that holds an object of one class or of another"""

    def __init__(self) -> None:
        super().__init__()
        self.state: Any = Running(0)

    def advance(self, action: int) -> float:
        return float(self.state.act(self, action))


class Calm:
    """A class without attributes."""

    gain = 3


class Angry(Calm):
    """A subclass without attributes."""

    gain = 7


@pattern
class ChangedClass(Hidden):
    """An object whose `__class__` is assigned at run time"""

    def __init__(self) -> None:
        super().__init__()
        self.mood = Calm()
        self.state = 1

    def advance(self, action: int) -> float:
        self.state = (self.state * self.mood.gain + action) % 1009
        self.mood.__class__ = Angry if self.state % 2 else Calm
        return float(self.state)


class SlotsOnly:
    """Slots without a `__dict__`, one of them unset at times."""

    __slots__ = ("__hidden", "maybe", "value")

    def __init__(self) -> None:
        self.value = 1
        self.__hidden = 2

    def up(self, action: int) -> int:
        self.__hidden = mixed(self.__hidden, action) % 1009
        if self.__hidden % 3:
            self.maybe = self.__hidden
        elif hasattr(self, "maybe"):
            del self.maybe
        self.value += 1
        return self.__hidden + getattr(self, "maybe", 5) + self.value


class SlotsAndMore(SlotsOnly):
    """Slots of a base class, and a `__dict__` and a slot of the subclass."""

    __slots__ = ("__dict__", "__hidden", "extra")

    def __init__(self) -> None:
        super().__init__()
        self.extra = 3
        self.free = 4
        self.__hidden = 1

    def up(self, action: int) -> int:
        self.free += 1 + action
        self.__hidden += self.free
        self.extra = (self.extra * 5 + self.__hidden) % 101
        return super().up(action) + self.extra + self.free


@pattern
class Slots(Hidden):
    """An object with slots and no `__dict__`, one of its slots unset at times"""

    def __init__(self) -> None:
        super().__init__()
        self.held = SlotsOnly()

    def advance(self, action: int) -> float:
        return float(self.held.up(action))


@pattern
class SlotsWithDict(Hidden):
    """Slots and a `__dict__`, and private slots of one name in two classes"""

    def __init__(self) -> None:
        super().__init__()
        self.held = SlotsAndMore()

    def advance(self, action: int) -> float:
        return float(self.held.up(action))


@dataclass(frozen=True)
class Point:
    """A frozen dataclass."""

    x: int
    y: tuple[int, ...] = ()


@dataclass(slots=True)
class Body:
    """A dataclass with slots and a list."""

    mass: int = 1
    path: list[Point] = field(default_factory=list)


@dataclass(order=True)
class Item:
    """A dataclass with an order and an attribute that is no field."""

    rank: int
    extra: ClassVar[int] = 3

    def __post_init__(self) -> None:
        self.derived = self.rank * 2


@pattern
class FrozenDataclass(Hidden):
    """A frozen dataclass that is replaced each step"""

    def __init__(self) -> None:
        super().__init__()
        self.point = Point(1)

    def advance(self, action: int) -> float:
        point = replace(self.point, x=mixed(self.point.x, action) % 101)
        self.point = replace(point, y=(*point.y[-2:], point.x))
        return float(sum(self.point.y))


@pattern
class DataclassWithSlots(Hidden):
    """A dataclass with slots, one of them a list of dataclasses"""

    def __init__(self) -> None:
        super().__init__()
        self.body = Body(1, [Point(1), Point(2)])

    def advance(self, action: int) -> float:
        self.body.mass += 1 + self.body.path[0].x + action
        self.body.path.reverse()
        return float(self.body.mass)


@pattern
class DataclassWithMore(Hidden):
    """A dataclass with an attribute that is no field and one that hides a class variable"""

    def __init__(self) -> None:
        super().__init__()
        self.item = Item(1)

    def advance(self, action: int) -> float:
        self.item = max(Item(self.item.derived * 5 % 101), Item(40 + action))
        self.item.derived += action
        vars(self.item)["extra"] = self.item.rank % 7
        return float(self.item.derived + self.item.extra)


@pattern
class FrozenReplaced(Hidden):
    """Frozen dataclasses as dict keys and as members of a tuple, made anew"""

    def __init__(self) -> None:
        super().__init__()
        self.seen = {Point(0): 0}
        self.path = (Point(0), Point(1))

    def advance(self, action: int) -> float:
        point = Point((self.path[-1].x * 3 + 1 + action) % 17)
        self.seen[point] = self.seen.get(point, 0) + 1
        self.path = (self.path[-1], point)
        return float(self.seen[point] + sum(p.x for p in self.path))


class Pair(NamedTuple):
    """A named tuple."""

    left: int
    right: list[int]


@pattern
class NamedTuples(Hidden):
    """Named tuples with a list that is shared and appended to"""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(1, [1])
        self.others = [self.pair]

    def advance(self, action: int) -> float:
        self.pair.right.append(self.pair.left % 7)
        self.pair = self.pair._replace(left=mixed(self.pair.left, action) % 1009)
        self.others = [self.pair, *self.others][:3]
        return float(sum(pair.left for pair in self.others) + sum(self.others[-1].right))


class Mode(enum.Enum):
    """An enumeration whose members have a mutable attribute."""

    WALK = "walk"
    RUN = "run"

    def __init__(self, _: str) -> None:
        self.visits = 0


class Keys(enum.Flag):
    """Flags that combine."""

    RED = 1
    BLUE = 2
    GOLD = 4


@pattern
class Enums(Hidden):
    """Enumeration members and combined flags as values and as keys"""

    def __init__(self) -> None:
        super().__init__()
        self.mode = Mode.WALK
        self.keys = Keys(0)
        self.count = dict.fromkeys(Mode, 0)

    def advance(self, action: int) -> float:
        self.count[self.mode] += 1 + action
        self.mode = Mode.RUN if self.count[self.mode] % 2 else Mode.WALK
        self.keys ^= Keys(1 << self.count[self.mode] % 3)
        return float(self.count[Mode.RUN] * 8 + self.keys.value + (self.mode is Mode.RUN))


@pattern
class EnumMemberState(Hidden):
    """A counter in a member of an enumeration, which belongs to the class"""

    def advance(self, action: int) -> float:
        Mode.RUN.visits += 1 + action
        return float(Mode.RUN.visits)


class Level:
    """A level of a game; there is one object of each."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.goal = number * 17 % 11


#: Objects of the module that environments refer to.
LEVELS = [Level(n) for n in range(5)]
#: Told apart from other values by identity.
MISSING = object()


@pattern
class ModuleObjects(Hidden):
    """An attribute that refers to one of several constant objects of the module"""

    def __init__(self) -> None:
        super().__init__()
        self.level = LEVELS[0]

    def advance(self, action: int) -> float:
        at = LEVELS.index(self.level) if self.level in LEVELS else 7
        self.level = LEVELS[(at + 1 + action) % 5]
        return float(sum(n * level.goal for n, level in enumerate(LEVELS)) + self.level.goal)


@pattern
class Sentinel(Hidden):
    """A sentinel of the module, told apart by `is`"""

    def __init__(self) -> None:
        super().__init__()
        self.held: Any = MISSING

    def advance(self, action: int) -> float:
        if self.held is MISSING:
            self.held = 5 + action
        elif self.np_random.random() < 0.7:
            self.held = MISSING
        return float(3 if self.held is MISSING else 20)


@pattern
class OwnSentinel(Hidden):
    """A sentinel of the instance in two attributes, told apart by `is`"""

    def __init__(self) -> None:
        super().__init__()
        self.empty = object()
        self.cells: list[Any] = [self.empty, self.empty, object()]

    def advance(self, action: int) -> float:
        self.cells.insert(0, self.cells.pop(1 + action))
        return float(sum(3**n for n, cell in enumerate(self.cells) if cell is self.empty))


@pattern
class SameNumber(Hidden):
    """Equal big integers told apart by `is`"""

    def __init__(self) -> None:
        super().__init__()
        self.pair = (1, 2)

    def advance(self, action: int) -> float:
        same = self.pair[0] is self.pair[1]
        number = int(f"{10**20 + self.steps}")
        self.pair = (number, number if action else int(str(number)))
        return float(7 * same + self.steps)


@pattern
class KeyedById(Hidden):
    """A dict whose keys are the `id` of objects"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(3)]
        self.heat = {id(node): 0 for node in self.nodes}

    def advance(self, action: int) -> float:
        node = self.nodes[(self.steps + action) % 3]
        self.heat[id(node)] = self.heat.get(id(node), 0) + 1
        return float(self.heat[id(node)])


@pattern
class KeyedByObject(Hidden):
    """A dict whose keys are objects that compare by identity"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(3)]
        self.heat = {node: 0 for node in self.nodes}  # noqa: C420

    def advance(self, action: int) -> float:
        node = self.nodes[(self.steps + action) % 3]
        self.heat[node] = self.heat.get(node, 0) + 1
        self.nodes.append(self.nodes.pop(0))
        return float(self.heat[node] + 10 * len(self.heat))


@pattern
class SetOfObjects(Hidden):
    """A set of objects that compare by identity, of which the sum is used"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {Node(n) for n in range(4)}

    def advance(self, action: int) -> float:
        least = min(self.nodes, key=lambda node: node.value)
        least.value += 5 + action
        return float(sum(node.value for node in self.nodes))


class Valued:
    """Equal and hashed by a value that may change."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Valued) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@pattern
class EqualObjects(Hidden):
    """Objects that are equal by value as keys; one and the same or merely equal"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Valued(3), Valued(3), Valued(4)]
        self.heat = {self.nodes[0]: 1, self.nodes[2]: 2}

    def advance(self, action: int) -> float:
        key = Valued(3 + action)
        self.heat[key] = mixed(self.heat[key]) % 1009
        held = next(iter(self.heat))
        self.heat[held] = self.heat.pop(held) + (held is self.nodes[action])
        return float(sum(n * v for n, v in enumerate(self.heat.values(), 1)))


@pattern
class ChangedHash(Hidden):
    """A dict key whose hash changed after it was stored, so that it is not found"""

    def __init__(self) -> None:
        super().__init__()
        self.key = Valued(1)
        self.heat = {self.key: 1}

    def advance(self, action: int) -> float:
        if self.steps % 4 == 0:
            self.key = Valued(self.key.value)
            self.heat = {self.key: 1}
        found = self.key in self.heat
        self.key.value += 64
        return float(self.key.value % 101 + 40 * found)


class Agreeable:
    """Equal to everything, never true, without a length."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Quarrelsome:
    """Raises when compared, hashed or printed."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("never compare")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("never print")


@pattern
class OddComparisons(Hidden):
    """Objects that equal everything, or raise when compared or printed"""

    def __init__(self) -> None:
        super().__init__()
        self.one = Agreeable(1)
        self.two = Agreeable(2)
        self.bad = Quarrelsome(3)

    def advance(self, action: int) -> float:
        self.one.value = mixed(self.two.value, action) % 1009
        self.one, self.two = self.two, self.one
        self.bad.value += self.one.value
        return float(self.bad.value + self.one.value)


class Liar:
    """Pickles, copies and reports its state as something else."""

    def __init__(self) -> None:
        self.value = 1

    def __reduce__(self) -> Any:
        return Liar, ()

    def __deepcopy__(self, memo: Any) -> "Liar":
        return Liar()

    def __copy__(self) -> "Liar":
        return Liar()

    def __getstate__(self) -> Any:
        return {"value": 1}

    def __setstate__(self, state: Any) -> None:
        self.value = 99


@pattern
class Lies(Hidden):
    """An object whose pickling and copying methods lie"""

    def __init__(self) -> None:
        super().__init__()
        self.liar = Liar()

    def advance(self, action: int) -> float:
        self.liar.value = mixed(self.liar.value, action) % 1009
        return float(self.liar.value)


class LyingDict:
    """Shows another `__dict__` than it has."""

    def __init__(self) -> None:
        self.value = 1

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {"value": 1}


@pattern
class ShownDict(Hidden):
    """An object whose `__dict__` is a property that shows something else"""

    def __init__(self) -> None:
        super().__init__()
        self.liar = LyingDict()

    def advance(self, action: int) -> float:
        self.liar.value = mixed(self.liar.value, action) % 1009
        return float(self.liar.value)


class Disguised:
    """Claims to be an int."""

    def __init__(self) -> None:
        self.value = 1

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return int

    def __int__(self) -> int:
        return 3


@pattern
class ClaimedClass(Hidden):
    """An object whose `__class__` claims that it is an integer"""

    def __init__(self) -> None:
        super().__init__()
        self.disguised = Disguised()

    def advance(self, action: int) -> float:
        self.disguised.value = mixed(self.disguised.value, action) % 1009
        return float(self.disguised.value)


class Magic:
    """Makes attributes up, and counts how often it had to."""

    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> int:
        if name.startswith("__"):
            raise AttributeError(name)
        asked = self.__dict__["asked"] + 1
        self.__dict__["asked"] = asked
        return int(asked) * len(name)


class Watched:
    """Counts every assignment and transforms what is stored."""

    def __init__(self) -> None:
        object.__setattr__(self, "writes", 0)
        self.value = 1

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, "writes", self.writes + 1)
        object.__setattr__(self, name, -value)


@pattern
class AttributeMagic(Hidden):
    """`__getattr__` and `__setattr__` with side effects"""

    def __init__(self) -> None:
        super().__init__()
        self.magic = Magic()
        self.watched = Watched()

    def advance(self, action: int) -> float:
        self.watched.value = mixed(self.watched.value, action) % 101
        return float(self.magic.anything + self.watched.writes + self.watched.value)


class Descriptor:
    """A descriptor that keeps the values of all objects by a weak reference."""

    def __init__(self) -> None:
        self.values: Any = weakref.WeakKeyDictionary()

    def __get__(self, held: Any, kind: Any) -> Any:
        return self if held is None else self.values.get(held, 1)

    def __set__(self, held: Any, value: int) -> None:
        self.values[held] = value


class Described:
    """Its value is kept by the descriptor, in the class."""

    value = Descriptor()


@pattern
class Descriptors(Hidden):
    """A descriptor that keeps the values of instances in the class"""

    def __init__(self) -> None:
        super().__init__()
        self.held = Described()

    def advance(self, action: int) -> float:
        self.held.value = mixed(self.held.value, action) % 1009
        return float(self.held.value)


@pattern
class Properties(Hidden):
    """Properties whose getter and setter change private state"""

    def __init__(self) -> None:
        super().__init__()
        self._energy = 5
        self._writes = 0

    @property
    def energy(self) -> int:
        self._energy += 1
        return self._energy

    @energy.setter
    def energy(self, value: int) -> None:
        self._writes += 1
        self._energy = value % 101 + self._writes

    def advance(self, action: int) -> float:
        self.energy = self.energy * 3 + action
        return float(self.energy)


@pattern
class LazyAttributes(Hidden):
    """Attributes that are created on demand and deleted again"""

    def advance(self, action: int) -> float:
        name = f"spot{int(self.np_random.integers(6))}"
        if hasattr(self, name):
            delattr(self, name)
        else:
            setattr(self, name, self.steps)
        return float(sum(3**n for n in range(6) if hasattr(self, f"spot{n}")))


@pattern
class DeletedAttribute(Hidden):
    """An attribute that resets create and steps delete"""

    def begin(self) -> None:
        self.target = int(self.np_random.integers(99))

    def advance(self, action: int) -> float:
        if self.np_random.random() < 0.3 and hasattr(self, "target"):
            del self.target
        return float(getattr(self, "target", -5) + action)


@pattern
class OddDict(Hidden):
    """Names in `__dict__` that are no identifiers, and keys that are no strings"""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["two words"] = 1
        self.__dict__["\n$ref"] = 2
        self.__mangled = 3

    def advance(self, action: int) -> float:
        own = self.__dict__
        own["two words"] = mixed(own["two words"], action) % 101
        own["\n$ref"] += own["two words"]
        own[""] = own.get("", 0) + 1
        self.__mangled += own["\n$ref"]
        return float(self.__mangled + own[""])


@pattern
class IntegerAttribute(Hidden):
    """An object whose `__dict__` has an integer as a key"""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(1)
        self.node.__dict__[3] = 1  # type: ignore[index]

    def advance(self, action: int) -> float:
        own: Any = self.node.__dict__
        own[3] = mixed(own[3], action) % 1009
        return float(own[3])


class Borg:
    """All instances share their attributes."""

    shared: ClassVar[dict[str, Any]] = {"value": 1}

    def __init__(self) -> None:
        self.__dict__ = self.shared


@pattern
class SharedDict(Hidden):
    """Objects that share one `__dict__`, which belongs to their class"""

    def __init__(self) -> None:
        super().__init__()
        self.one: Any = Borg()
        self.two: Any = Borg()

    def advance(self, action: int) -> float:
        self.one.value = mixed(self.two.value, action) % 1009
        return float(self.two.value)


@pattern
class TwoObjectsOneDict(Hidden):
    """Two objects that share one `__dict__`, in turns with two that do not"""

    def begin(self) -> None:
        self.one = Node(int(self.np_random.integers(99)))
        self.two = Node(0)
        if self.np_random.random() < 0.5:
            self.two.__dict__ = self.one.__dict__

    def advance(self, action: int) -> float:
        self.one.value += 1 + action
        return float(self.two.value)


class Counted(int):
    """An integer with an attribute."""

    visits: int


class Note(str):
    """A string with an attribute."""

    visits: int


class Degree(float):
    """A float that remembers where it came from."""

    source: Any = None


class Route(tuple[int, ...]):
    """A tuple with an attribute."""

    cost: int


@pattern
class IntegerWithAttribute(Hidden):
    """An instance of a subclass of int with an attribute"""

    def __init__(self) -> None:
        super().__init__()
        self.count = Counted(3)
        self.count.visits = 0

    def advance(self, action: int) -> float:
        self.count.visits += self.count + action
        return float(self.count.visits)


@pattern
class FloatWithAttribute(Hidden):
    """An instance of a subclass of float that refers to the one before"""

    def __init__(self) -> None:
        super().__init__()
        self.degree = Degree(0.5)

    def advance(self, action: int) -> float:
        degree = Degree((self.degree * 3.7 + action) % 1)
        degree.source = float(self.degree)
        value = self.degree.source or 0.0
        self.degree = degree
        return value * 100


@pattern
class StringWithAttribute(Hidden):
    """An instance of a subclass of str with an attribute"""

    def __init__(self) -> None:
        super().__init__()
        self.note = Note("a")
        self.note.visits = 0

    def advance(self, action: int) -> float:
        self.note.visits += len(self.note) + action
        return float(self.note.visits)


@pattern
class TupleWithAttribute(Hidden):
    """An instance of a subclass of tuple with an attribute"""

    def __init__(self) -> None:
        super().__init__()
        self.route = Route((1, 2))
        self.route.cost = 0

    def advance(self, action: int) -> float:
        route = Route((*self.route[-2:], self.route.cost % 7))
        route.cost = self.route.cost + sum(route) + action
        self.route = route
        return float(self.route.cost)


@pattern
class WeakDictionary(Hidden):
    """A WeakValueDictionary and a WeakSet"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(3)]
        self.weak: Any = weakref.WeakValueDictionary(enumerate(self.nodes))

    def advance(self, action: int) -> float:
        self.nodes = [*self.nodes[1:], Node(len(self.weak) + action + 3)]
        self.weak[len(self.weak) + 3 * action] = self.nodes[-1]
        return float(sum(key * node.value for key, node in self.weak.items()))


@pattern
class LateKeyedById(Hidden):
    """A dict whose keys are the `id` of objects, from the sixtieth step on"""

    iterations = 10

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(3)]
        self.heat: dict[int, int] = {}
        self.age = 0

    def advance(self, action: int) -> float:
        self.age += 1
        node = self.nodes[(self.steps + action) % 3]
        if self.age >= 60:
            self.heat[id(node)] = self.heat.get(id(node), 0) + 1
        return float(self.heat.get(id(node), 0) + self.age % 3)


@pattern
class LateModuleObjects(Hidden):
    """An attribute that refers to another constant object of the module after sixty steps"""

    iterations = 10

    def __init__(self) -> None:
        super().__init__()
        self.level = LEVELS[0]
        self.age = 0

    def advance(self, action: int) -> float:
        self.age += 1
        at = LEVELS.index(self.level) if self.level in LEVELS else 7
        if self.age >= 60:
            self.level = LEVELS[(at + 1 + action) % 5]
        return float(sum(n * level.goal for n, level in enumerate(LEVELS)) + at + self.age % 3)


@pattern
class WeakReferences(Hidden):
    """A weak reference, dead or alive"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(3)]
        self.target: Any = weakref.ref(self.nodes[0])

    def advance(self, action: int) -> float:
        self.nodes = [*self.nodes[1:], Node(self.nodes[0].value * 3 % 101 + action + 3)]
        alive = self.target() is not None
        if not alive:
            self.target = weakref.ref(self.nodes[action])
        return float(alive * 10 + sum(node.value for node in self.nodes))


@pattern
class WeakParent(Hidden):
    """A weak reference to the parent alone"""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(n) for n in range(3)]
        self.nodes[0].owner = weakref.ref(self.nodes[1])

    def advance(self, action: int) -> float:
        parent = self.nodes[0].owner()
        parent.value += 1 + action
        self.nodes[0].owner = weakref.ref(self.nodes[1 + parent.value % 2])
        return float(self.nodes[1].value * 5 + self.nodes[2].value)


@pattern
class CopyOfItself(Hidden):
    """The environment keeps a copy of itself and goes back to it"""

    def __init__(self) -> None:
        super().__init__()
        self.value = 1
        self.saved: Any = None

    def advance(self, action: int) -> float:
        if self.saved is None:
            self.saved = copy.deepcopy(self)
        self.value = mixed(self.value, action) % 1009
        if self.value % 5 == 0:
            self.value = self.saved.value + 1
            self.saved = None
        return float(self.value)


@pattern
class InnerEnvironment(Hidden):
    """Another environment inside, made anew now and then"""

    def __init__(self) -> None:
        super().__init__()
        self.inner: Any = gymnasium.make("CartPole-v1")
        self.episodes = 0

    def begin(self) -> None:
        self.episodes += 1
        if self.episodes % 3 == 0:
            self.inner = gymnasium.make("CartPole-v1", max_episode_steps=5)
        self.inner.reset(seed=int(self.np_random.integers(999)))

    def advance(self, action: int) -> float:
        seen, _, over, late, _ = self.inner.step(action)
        if over or late:
            self.inner.reset()
        return float(seen[0] * 1000 + late)


class Registered:
    """Every instance is added to a list of the class."""

    made: ClassVar[list[Any]] = []

    def __init__(self, value: int) -> None:
        self.value = value
        self.made.append(self)


@pattern
class InstancesOfClass(Hidden):
    """A class that keeps a list of its instances"""

    def begin(self) -> None:
        self.thing = Registered(int(self.np_random.integers(9)))

    def advance(self, action: int) -> float:
        self.thing.value += 1 + action
        return float(sum(thing.value for thing in Registered.made))


class Singleton:
    """There is one instance."""

    one: ClassVar[Any] = None
    value = 1

    def __new__(cls) -> "Singleton":
        if cls.one is None:
            cls.one = super().__new__(cls)
        return cls.one  # type: ignore[no-any-return]


@pattern
class OneInstance(Hidden):
    """A singleton that all environments change"""

    def __init__(self) -> None:
        super().__init__()
        self.single = Singleton()

    def advance(self, action: int) -> float:
        self.single.value = mixed(Singleton().value, action) % 1009
        return float(Singleton.one.value)


@pattern
class Farewell(Hidden):
    """An object whose `__del__` changes the environment's list"""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[int] = []
        self.thing = Leaving(self.gone, 1)

    def advance(self, action: int) -> float:
        if self.np_random.random() < 0.4:
            self.thing = Leaving(self.gone, self.steps + action)
        return float(sum(self.gone) + self.thing.value)


class Leaving:
    """Leaves a number behind when it is deleted."""

    def __init__(self, gone: list[int], value: int) -> None:
        self.gone = gone
        self.value = value

    def __del__(self) -> None:
        self.gone.append(self.value)


@pattern
class KeptException(Hidden):
    """An exception with arguments that is kept and changed"""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception = ValueError(1, [2])

    def advance(self, action: int) -> float:
        number = mixed(self.error.args[0], action) % 1009
        try:
            raise (KeyError if number % 2 else ValueError)(number, [number])
        except (KeyError, ValueError) as error:
            self.error = error
        return float(self.error.args[0] + 5 * isinstance(self.error, KeyError))


@pattern
class ArraysInObjects(Hidden):
    """Objects that hold views of one array of the environment, as a physics engine does"""

    def __init__(self) -> None:
        super().__init__()
        self.positions = np.arange(8.0).reshape(4, 2)
        self.bodies = [Node(n) for n in range(4)]
        for n, body in enumerate(self.bodies):
            body.owner = self.positions[n]

    def advance(self, action: int) -> float:
        for n, body in enumerate(self.bodies):
            body.owner += (n + action) % 3
        first = self.bodies.pop(0)
        self.bodies.append(first)
        first.owner, self.bodies[0].owner = self.bodies[0].owner, first.owner
        return float(self.positions.ravel() @ np.arange(8) + self.bodies[1].owner[0])


class Speed(enum.IntEnum):
    """Members that are integers."""

    SLOW = 1
    FAST = 5


class Name(enum.StrEnum):
    """Members that are strings."""

    ANN = "ann"
    BOB = "bob"


@pattern
class IntegerEnums(Hidden):
    """Members of IntEnum and StrEnum, or the plain values that equal them"""

    def __init__(self) -> None:
        super().__init__()
        self.speed: Any = Speed.SLOW
        self.name: Any = Name.ANN

    def advance(self, action: int) -> float:
        value = 3 * isinstance(self.speed, Speed) + 5 * isinstance(self.name, Name)
        value += self.speed + 2 * (self.name == "bob")
        self.speed = (Speed.FAST, 5, Speed.SLOW, 1)[(value + action) % 4]
        self.name = (Name.ANN, "ann", Name.BOB, "bob")[value % 4]
        return float(value)


@dataclass
class DataclassEnvironment(Hidden):
    """The environment is itself a dataclass, which cannot be hashed"""

    value: int = 1
    path: list[int] = field(default_factory=list)
    steps: int = 0

    def advance(self, action: int) -> float:
        self.value = mixed(self.value, action) % 1009
        self.path.append(self.value % 7)
        return float(self.value + sum(self.path))


pattern(DataclassEnvironment)


@pattern
class ListEnvironment(Hidden, list[int]):
    """The environment is itself a list, empty and false at times"""

    def advance(self, action: int) -> float:
        self.append(1 + action + len(self) % 3)
        value = sum(self)
        if value % 4 == 0:
            self.clear()
        return float(value)


@pattern
class DictEnvironment(Hidden, dict[str, int]):
    """The environment is itself a dict"""

    def advance(self, action: int) -> float:
        self["n"] = mixed(self.get("n", 1), action) % 1009
        return float(self["n"])


@pattern
class FalseEnvironment(Hidden):
    """The environment is false, equals everything and has no length"""

    def __init__(self) -> None:
        super().__init__()
        self.value = 1

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 7

    def __len__(self) -> int:
        return 0

    def advance(self, action: int) -> float:
        self.value = mixed(self.value, action) % 1009
        return float(self.value)


@pattern
class GuardedEnvironment(Hidden):
    """The environment refuses new attributes after its constructor"""

    def __init__(self) -> None:
        super().__init__()
        self.value = 1
        self._np_random = None
        self._np_random_seed = None
        self.done = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "done" in self.__dict__ and name not in self.__dict__:
            raise AttributeError(f"no {name}")
        super().__setattr__(name, value)

    def advance(self, action: int) -> float:
        self.value = mixed(self.value, action) % 1009
        return float(self.value)


@pattern
class CountingEnvironment(Hidden):
    """The environment counts how often its attributes are read"""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "advance":
            own = object.__getattribute__(self, "__dict__")
            own["reads"] = own.get("reads", 0) + 1
        return super().__getattribute__(name)

    def advance(self, action: int) -> float:
        return float(self.reads * 3 + action)


@pattern
class Delegating(Hidden):
    """The environment has no attributes of its own but those of an inner object"""

    def __init__(self) -> None:
        self.__dict__["inner"] = Node(1)
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["inner"], name, value)

    def advance(self, action: int) -> float:
        self.value = mixed(self.value, action) % 1009
        return float(self.value)


@built
def agents_that_know_each_other() -> Any:
    """Environments that refer to each other, and look at each other's state"""
    made: list[Any] = []

    class Knowing(Hidden):
        def __init__(self) -> None:
            super().__init__()
            self.value = len(made)
            self.others = made
            made.append(self)

        def advance(self, action: int) -> float:
            last = self.others[-1].value + self.others[-2].value
            self.value = mixed(last, action) % 1009
            return float(self.value)

    return Knowing
