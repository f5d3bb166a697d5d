"""Object graphs of plain Python environments, written down and put back."""

import array
import copy
import enum
import functools
import io
import random
import sys
import threading
import types
from collections import deque

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from dna.envs.state import generators, graph, qualified_names


class Thing:
    def __init__(self, **fields):
        vars(self).update(fields)


def copied(source, target):
    graph.load(target, graph.save(source))
    return target


def test_values_of_all_kinds_come_back_as_they_were():
    shared = [1, 2]
    fields = {
        "none": None, "yes": True, "number": 3, "huge": 2**100, "real": 0.1,
        "nan": float("nan"), "text": "ä", "pair": (1, (2.5, "x")), "few": {3, 1},
        "queue": deque([1, 2], maxlen=5),
        "table": {1: "a", (2, 3): [4]}, "array": np.arange(6.0).reshape(2, 3),
        "scalar": np.float32(1.5), "words": np.array([b"ab", b"c"]), "empty": np.zeros((0, 3)),
        "one": shared, "same": shared, "inner": Thing(x=1, y=[Thing(z=2)]),
    }  # fmt: skip
    blank = Thing(inner=Thing(y=[Thing()]), leftover=1, queue=deque(maxlen=5))
    other = copied(Thing(**fields), blank)
    assert set(vars(other)) == set(fields)
    simple = ("none", "yes", "number", "huge", "real", "text", "pair", "queue", "few", "table")
    for name in simple:
        assert getattr(other, name) == fields[name], name
        assert type(getattr(other, name)) is type(fields[name])
    assert np.isnan(other.nan)
    for name in ("array", "scalar", "words", "empty"):
        mine, yours = getattr(other, name), fields[name]
        assert (mine.dtype, mine.shape) == (yours.dtype, yours.shape)
        np.testing.assert_array_equal(mine, yours)
    assert other.one is other.same, "one list, held twice"
    assert (other.inner.x, other.inner.y[0].z) == (1, 2)


def test_objects_that_hold_each_other_do():
    source, target = (Thing(child=Thing()) for _ in range(2))
    for thing, number in ((source, 7), (target, 8)):
        thing.child.parent, thing.child.number = thing, number
    copied(source, target)
    assert target.child.parent is target
    assert target.child.number == 7


def test_an_array_that_somebody_else_holds_is_filled_in_place():
    target = Thing(board=np.zeros(3))
    window = target.board[1:]
    copied(Thing(board=np.arange(3.0)), target)
    assert window.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", generators.KINDS)
def test_numpys_generators_go_on(kind):
    source = np.random.Generator(getattr(np.random, kind)(5))
    source.random(3)
    source.integers(0, 9, dtype=np.uint32)
    for present in (None, np.random.default_rng(0)):
        target = copied(Thing(rng=source), Thing(rng=present)).rng
        expected = np.random.Generator(getattr(np.random, kind)())
        expected.bit_generator.state = source.bit_generator.state
        assert np.array_equal(target.random(5), expected.random(5))


def test_older_generators_go_on():
    legacy, python = np.random.RandomState(3), random.Random(3)
    legacy.normal(), python.gauss(0, 1)
    other = copied(Thing(a=legacy, b=python), Thing(a=None, b=None))
    assert [other.a.normal() for _ in range(4)] == [legacy.normal() for _ in range(4)]
    assert [other.b.gauss(0, 1) for _ in range(4)] == [python.gauss(0, 1) for _ in range(4)]


def test_what_belongs_to_the_program_stays():
    target = Thing(function=len, kind=int, space=gymnasium.spaces.Discrete(3))
    before = target.space
    source = Thing(function=len, kind=int, space=gymnasium.spaces.Discrete(3, seed=1))
    copied(source, target)
    assert target.function is len
    assert target.kind is int
    for change in ({"function": max}, {"kind": str}):
        with pytest.raises(graph.Mismatch, match="is not there to be put back"):
            copied(Thing(**vars(source) | change), target)
    assert target.space is before
    assert [target.space.sample() for _ in range(5)] == [
        source.space.sample() for _ in range(5)
    ]


class Slotted:
    __slots__ = ("x",)


class OwnDict(dict):
    pass


@pytest.mark.parametrize(
    "thing",
    [
        threading.Lock(), io.BytesIO(), iter([]), Slotted(), OwnDict(), object(), lambda: 0,
        np.array([object()]), memoryview(b""), open,
    ],
    ids=lambda thing: type(thing).__name__,
)  # fmt: skip
def test_what_cannot_be_written_down_is_named(thing):
    if callable(thing):
        assert graph.opaque(Thing(x=thing), "env") is None, "part of the program"
    else:
        assert "env: " in graph.opaque(Thing(x=thing), "env")


def test_a_graph_is_only_read_into_objects_like_its_own():
    state = graph.save(Thing(inner=Thing(x=1)))
    with pytest.raises(graph.Mismatch, match="cannot be put into"):
        graph.load(Thing(inner=random.Random()), state)
    with pytest.raises(graph.Mismatch, match="cannot be put into"):
        graph.load(Thing(), state)
    text = state["graph"].tobytes().replace(b"test_state_graph.Thing", b"os.system____")
    with pytest.raises(graph.Mismatch):
        graph.load(Thing(inner=Thing()), {"graph": np.frombuffer(text, np.uint8)})
    for junk in (b"", b"[", b'{"number": 0, "dice": {"numpy": {"bit_generator": "os"}}}'):
        with pytest.raises(graph.Mismatch):
            graph.load(Thing(), {"graph": np.frombuffer(junk, np.uint8)})


GYMNASIUM = [
    "CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "FrozenLake-v1", "Taxi-v4",
    "Blackjack-v1", "CliffWalking-v1",
]  # fmt: skip


@pytest.mark.parametrize("env_id", GYMNASIUM)
def test_an_environment_goes_on_in_another_one(env_id):
    source, target = gymnasium.make(env_id), gymnasium.make(env_id)
    source.reset(seed=1)
    source.action_space.seed(1)
    played(source, 7)
    target.reset(seed=2)
    graph.load(target, graph.save(source))
    assert played(target, 200) == played(source, 200)


def played(env, steps):
    seen = []
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append((np.asarray(obs).tobytes(), float(reward), terminated, truncated))
        if terminated or truncated:
            seen.append(np.asarray(env.reset()[0]).tobytes())
    return seen


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Dict({"c": spaces.Discrete(9)})}),
        spaces.Tuple([spaces.Discrete(50), spaces.Box(0, 1, (3,))]),
        spaces.Sequence(spaces.Box(0, 1, (2,))),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_in_spaces_go_on_sampling_where_they_were(space):
    class Holder:
        def __init__(self):
            self.space = copy.deepcopy(space)

    one, other = Holder(), Holder()
    one.space.seed(1)
    other.space.seed(2)
    one.space.sample()
    graph.load(other, graph.save(one))
    for _ in range(3):
        assert repr(one.space.sample()) == repr(other.space.sample())


class Mood(enum.Enum):
    CALM = 0
    ANGRY = 1


class Trait(enum.Flag):
    TALL = 1
    LOUD = 2


class Moody:
    def __init__(self):
        self.mood = Mood.CALM
        self.count = {Mood.CALM: 0, Mood.ANGRY: 0}
        self.seen = {Mood.CALM, None, 3, "x"}
        self.traits = Trait.TALL
        self.now = self.calm

    def calm(self):
        return 0

    def angry(self):
        return 1


def test_members_of_an_enum_are_put_back_wherever_they_are():
    one, other = Moody(), Moody()
    one.mood, one.count[Mood.ANGRY], one.traits = Mood.ANGRY, 5, Trait.TALL | Trait.LOUD
    one.seen.add(Mood.ANGRY)
    graph.load(other, graph.save(one))
    assert other.mood is Mood.ANGRY
    assert other.count == {Mood.CALM: 0, Mood.ANGRY: 5}
    assert other.traits == Trait.TALL | Trait.LOUD
    assert other.seen == one.seen


def test_members_of_a_local_enum_are_found_through_what_is_there():
    class Local(enum.Enum):
        A = 1
        B = 2

    class Holder:
        def __init__(self):
            self.which, self.table = Local.A, {Local.A: 1, Local.B: 2}

    one, other = Holder(), Holder()
    one.which, one.table[Local.A] = Local.B, 7
    graph.load(other, graph.save(one))
    assert other.which is Local.B
    assert other.table == {Local.A: 7, Local.B: 2}


def test_another_method_than_the_one_that_is_there_is_found_in_the_class():
    one, other = Moody(), Moody()
    one.now = one.angry
    assert copied(one, other).now() == 1
    assert other.now.__self__ is other


def test_another_function_than_the_one_that_is_there_is_no_silent_loss():
    one, other = box(counter(1)), box(lambda: 1)
    with pytest.raises(graph.Mismatch, match=r"count#\w+ is not there"):
        copied(one, other)


def test_a_nan_is_found_again_by_its_identity():
    nan = float("nan")
    found = copied(box([nan, {nan: 1}]), box(None)).thing
    assert found[1][found[0]] == 1


def test_numbers_and_words_that_are_one_object_stay_one_and_others_apart():
    big, real, text = 10**6, 0.1, "two words"
    equal = [int("1000000"), float("0.1"), " ".join(["two", "words"])]
    found = copied(box([big, real, text, *equal, big, real, text]), box(None)).thing
    for k in range(3):
        assert found[k] is found[k + 6]
        assert found[k] is not found[k + 3]
        assert found[k] == found[k + 3]
    word = copied(box("".join(["le", "ft"])[:]), box(None)).thing
    assert word == "left"
    assert copied(box(sys.intern(word)), box(None)).thing is sys.intern("left")


def test_equal_words_and_bytes_stay_apart():
    words = ["".join(["ab", "c"]), "".join(["a", "bc"]), bytes([1, 2]), bytes([1]) + bytes([2])]
    found = copied(box([*words, words[1], words[3]]), box(None)).thing
    assert found[:4] == words
    assert [found[4] is one for one in found[:4]] == [False, True, False, False]
    assert [found[5] is one for one in found[:4]] == [False, False, False, True]


class Moves:
    """Its methods are made by one function, and only their closures tell them apart."""

    def __init__(self):
        self.x = 0

    def mover(k):
        def move(self):
            self.x += k

        return move

    up, left = mover(1), mover(7)


def test_methods_of_one_code_are_told_apart():
    source, target = Moves(), Moves()
    source.go, target.go = source.left, target.up
    copied(source, target).go()
    assert target.x == 7

    source.go, target.go = (types.MethodType(Moves.mover(k), source) for k in (9, 1))
    target.go = types.MethodType(Moves.mover(1), target)
    copied(source, target).go()
    assert target.x == 9


def _kind(k, base=object):
    return type("Kind", (base,), {"k": k, "__module__": __name__, "get": lambda self: k})


def _member(k):
    return enum.Enum("Mode", {"A": k}).A


def test_two_classes_of_one_name_are_not_the_same():
    for make in (_kind, lambda k: _kind(k)(), _member, lambda k: vars(_kind(k))["get"]):
        copied(box(make(1)), box(make(1)))
    for make in (_kind, lambda k: _kind(k)(), _member):
        with pytest.raises(graph.Mismatch, match=r"put back"):
            copied(box(make(5)), box(make(1)))


def test_what_cannot_be_recorded_in_a_class_counts_by_its_kind():
    """It is watched, and tells classes of one name apart only if it is of another kind."""
    locked = _kind(threading.Lock())
    assert copied(box(locked), box(locked)).thing is locked
    with pytest.raises(graph.Mismatch):
        copied(box(locked), box(_kind(threading.Event())))


def test_another_spec_is_not_the_same():
    one, other = (gymnasium.spec(name) for name in ("CartPole-v1", "Acrobot-v1"))
    assert copied(box(one), box(one)).thing is one
    with pytest.raises(graph.Mismatch, match="put back"):
        copied(box(one), box(other))


def test_a_module_that_no_name_leads_to_is_named():
    assert "no name leads to" in graph.opaque(box(types.ModuleType("unknown")), "env")


@pytest.mark.parametrize("text", ["<i4", ">i4", "S5", "<U3", "<M8[s]", "<f8"])
def test_dtypes_come_back_by_value(text):
    found = copied(box(np.dtype(text)), box(np.dtype(text))).thing
    assert (found, found.str) == (np.dtype(text), np.dtype(text).str)


def test_dtypes_that_are_not_there_are_made_or_named():
    assert copied(box(np.dtype(">i4")), box(np.dtype("<i4"))).thing.str == ">i4"
    twice = np.dtype("<i4").newbyteorder().newbyteorder()
    plain, again = (graph.save(box(x))["graph"] for x in (np.dtype("<i4"), twice))
    assert plain.tobytes() == again.tobytes()
    record = np.dtype([("a", "<i4")])
    assert copied(box(record), box(np.dtype([("a", "<i4")]))).thing == record
    with pytest.raises(graph.Mismatch):
        copied(box(record), box(np.dtype([("b", "<i4")])))
    assert graph.opaque(box(np.dtype("i4", metadata={"a": 1})), "env")


def test_a_function_with_variables_of_its_own_is_named():
    variables = {"n": 0}
    exec("def count():\n  global n\n  n += 1\n  return n", variables)
    assert "global variables of its own" in graph.opaque(box(variables["count"]), "env")
    kind = type("Bound", (), {"go": variables["count"]})  # they are watched
    assert graph.opaque(box(kind()), "env") is None


class Offset(spaces.Discrete):
    def __init__(self, offset):
        super().__init__(3)
        self.offset = offset


def test_a_space_with_attributes_of_any_name_is_compared():
    copied(box(Offset(1)), box(Offset(1)))
    for one, other in ((1, 2), ({"a", "b"}, {"a", "c"})):
        copied(box(Offset(one)), box(Offset(one)))
        with pytest.raises(graph.Mismatch, match="that changed"):
            copied(box(Offset(one)), box(Offset(other)))
    assert graph.opaque(box(Offset(threading.Lock())), "env")
    copied(box(spaces.Text(5, charset="abcxyz")), box(spaces.Text(5, charset="zyxcba")))


def test_an_attribute_without_a_proper_name_is_named():
    thing = Thing()
    vars(thing)[3] = 1
    assert "Thing" in graph.opaque(box(thing), "box")


@pytest.mark.parametrize("address", [id, hash, repr, lambda x: str(hex(id(x)))])
def test_an_address_that_no_copy_has_is_named(address):
    unit, elsewhere = Unit(1), Unit(2)
    for holder in ([unit, {address(unit): 1}], [address(unit), unit]):
        assert "the id of an object" in graph.opaque(box(holder), "box")
    assert graph.opaque(box([unit, {address(elsewhere): 1}]), "box") is None


def test_a_tuple_that_holds_itself_is_named():
    inner = []
    inner.append((inner,))
    assert "a tuple that holds itself" in graph.opaque(box(inner[0]), "box")


def test_a_name_in_a_file_leads_to_enums_only():
    assert qualified_names.enum("os.system", "x", None) is None
    assert qualified_names.enum("os.path.sep", "x", None) is None
    assert qualified_names.enum("no.such.module.Kind", "x", None) is None
    assert qualified_names.enum(f"{__name__}.Mood", "nobody", None) is None
    assert qualified_names.enum(f"{__name__}.Mood", "ANGRY", None) is Mood.ANGRY


# --- state in odd places: put back, or named; never lost in silence --------------------


class Unit:
    def __init__(self, worth):
        self.worth = worth

    def go(self):
        self.worth += 1
        return self.worth


def box(thing):
    return Thing(thing=thing)


def counter(start):
    """A function with a variable of its own."""

    def count():
        nonlocal start
        start += 1
        return start

    return count


def test_keys_that_are_objects_stay_apart():
    one, other = (box({Unit(1): 5.0, Unit(2): 7.0}) for _ in range(2))
    one.thing = {unit: unit.worth * 10.0 for unit in one.thing}
    found = copied(one, other).thing
    assert [(unit.worth, value) for unit, value in found.items()] == [(1, 10.0), (2, 20.0)]


def test_a_deque_keeps_its_bound():
    found = copied(box(deque([1, 2], maxlen=2)), box(None)).thing
    found.append(3)
    assert list(found) == [2, 3]


def test_variables_of_functions_go_on():
    one, other = box(counter(0)), box(counter(100))
    one.thing()
    assert copied(one, other).thing() == 2


def test_functions_that_share_a_variable_still_do():
    def pair(start):
        up = counter(start)

        def down():
            return up()

        return [up, down]

    one, other = box(pair(0)), box(pair(50))
    one.thing[1]()
    up, down = copied(one, other).thing
    assert [up(), down(), up()] == [2, 3, 4]


def test_the_owner_of_a_method_goes_on():
    one, other = box(Unit(1).go), box(Unit(50).go)
    one.thing()
    assert copied(one, other).thing() == 3


def test_two_lambdas_of_one_line_are_not_the_same():
    up, down = (lambda x: x + 1), (lambda x: x - 1)
    with pytest.raises(graph.Mismatch, match=r"lambda.* is not there"):
        copied(box(up), box(down))


def test_children_of_a_generator_are_the_same():
    one, other = box(np.random.default_rng(3)), box(np.random.default_rng(4))
    one.thing.spawn(2)
    found = copied(one, other).thing
    assert [r.random() for r in found.spawn(2)] == [r.random() for r in one.thing.spawn(2)]


def test_views_that_are_there_are_filled_and_others_are_made():
    def holder(view):
        memory = np.zeros(4)
        return box([memory, memory[:2] if view else None])

    one = holder(view=True)
    one.thing[1][:] = 7
    for view in (True, False):
        found = copied(one, holder(view)).thing
        found[1][:] = 8
        assert found[0].tolist() == [8, 8, 0, 0]


def test_views_of_older_snapshots_are_filled_where_they_are():
    old = {
        "graph": b'{"object": "test_state_graph.Thing", "number": 0, "fields": {"thing": '
        b'{"number": 1, "list": [{"array": "a", "scalar": false, "number": 2, "shared": 9}, '
        b'{"array": "b", "scalar": false, "number": 3, "shared": 9}]}}}',
    }
    state = {"a": np.arange(4.0), "b": np.arange(2.0)}
    state["graph"] = np.frombuffer(old["graph"], np.uint8)
    memory = np.zeros(4)
    target = box([memory, memory[:2]])
    graph.load(target, state)
    assert target.thing[0] is memory
    assert memory.tolist() == [0, 1, 2, 3]
    with pytest.raises(graph.Mismatch, match="were views of one memory"):
        graph.load(box([np.zeros(4), np.zeros(2)]), state)


def test_two_things_do_not_become_one():
    same = Unit(5)
    with pytest.raises(graph.Mismatch, match="cannot be put into"):
        copied(box([Unit(1), Unit(2)]), box([same, same]))


@pytest.mark.parametrize(
    "thing",
    [np.arange(3, dtype=">f8"), np.ones(2, np.longdouble), 1 << 20_000, -(2**63), 1j, b"\0x"],
    ids=lambda x: type(x).__name__,
)
def test_numbers_of_every_kind_come_back(thing):
    found = copied(box(thing), box(None)).thing
    assert np.array_equal(found, thing)
    assert getattr(found, "dtype", None) == getattr(thing, "dtype", None)
    for one in graph.save(box(thing)).values():
        assert torch.from_numpy(one.copy()).numel() == one.size


class Dice(random.Random):
    pass


class Bytes(array.array):
    pass


class Draws(np.random.Generator):
    pass


def _emptied():
    numbers = set(range(2000))
    for i in range(2000):
        if i % 500 != 3 and i != 1000:
            numbers.discard(i)
    return numbers


def _twins():
    bits = np.random.PCG64(5)
    return [np.random.Generator(bits), np.random.Generator(bits)]


@pytest.mark.parametrize(
    "thing",
    [
        Dice(1),
        Bytes("d", [1.0]),
        Draws(np.random.PCG64(3)),
        functools.partial(print, 1),
        np.ma.array([1.0, 2.0], mask=[0, 1]),
        _emptied(),
        _twins(),
        [].append,
    ],
    ids=lambda x: type(x).__name__,
)
def test_memory_that_nobody_sees_is_named(thing):
    assert "cannot be saved" in (graph.opaque(box(thing), "box") or "")


def test_sets_come_out_in_the_same_order_or_are_named():
    rng, alike = random.Random(1), 0
    for size in range(60):
        cells = {(rng.randrange(9), rng.randrange(9)) for _ in range(size % 12)}
        numbers = {rng.randrange(100) for _ in range(size % 20)}
        one = box([cells, numbers])
        if graph.opaque(one, "box") is None:
            found = copied(one, box(None)).thing
            assert [list(each) for each in found] == [list(cells), list(numbers)]
            alike += 1
    assert alike > 10
    words = {"north", "south", "east", "west"}  # of these no process knows the order
    assert copied(box(words), box(None)).thing == words
