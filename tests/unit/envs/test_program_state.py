"""Variables of classes and modules that an environment changes are found by its code."""

import array
import contextvars
import copy
import ctypes
import datetime
import decimal
import enum
import functools
import hashlib
import io
import itertools
import logging
import math
import mmap
import operator
import os
import queue
import random
import re
import sqlite3
import string
import struct
import sys
import threading
import time
import tracemalloc
import types
import typing
import uuid
import weakref
import zoneinfo
from collections import ChainMap, Counter, OrderedDict, defaultdict
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from dna.envs.state import watched_values
from dna.envs.state.program_state import ProgramState, variables_of

COUNT = 0
TABLE = {"a": [1]}
RNG = np.random.default_rng(3)
TICKETS = itertools.count()
DATA = None
CACHE = {}
helper = types.ModuleType("helper_module")
helper.level = 0
helper.Kind = type("Kind", (), {"count": 0, "__module__": "helper_module"})
LOG = logging.getLogger("of a test")


class ClassAttribute:
    count = 0

    def step(self):
        ClassAttribute.count += 1


class ClassList:
    seen = []  # noqa: RUF012

    def step(self):
        self.seen.append(1)


class NewClassAttribute:
    def step(self):
        type(self).made_late = 1


class MethodReplaced:
    def rule(self):
        return 1

    def step(self):
        MethodReplaced.rule = lambda self: 2


class Inherited(ClassList):
    pass


class Global:
    def step(self):
        global COUNT
        COUNT += 1


class InGlobal:
    def step(self):
        TABLE["a"].append(2)


class GlobalGenerator:
    def step(self):
        return RNG.random()


class GlobalIterator:
    def step(self):
        return next(TICKETS)


class OtherModule:
    def step(self):
        helper.level += 1


class ThroughFunction:
    def step(self):
        _count_further()


def _count_further():
    InGlobal().step()


class Default:
    def step(self, seen=[]):  # noqa: B006
        seen.append(1)


class FunctionAttribute:
    def step(self):
        FunctionAttribute.step.calls = getattr(FunctionAttribute.step, "calls", 0) + 1

    step.calls = 0


def _with_closure():
    number = 0

    class Closure:
        def step(self):
            nonlocal number
            number += 1

    return Closure


class Held:
    """Holds an object whose class has state."""

    def __init__(self):
        self.inner = [ClassList()]

    def step(self):
        self.inner[0].step()


class Slotted:
    __slots__ = ("__hidden", "count")

    def __init__(self):
        self.count = 0


SLOTTED = Slotted()


class GlobalWithSlots:
    def step(self):
        SLOTTED.count += 1


LOCKED = types.SimpleNamespace(lock=threading.Lock(), count=0)


class GlobalWithLock:
    def step(self):
        with LOCKED.lock:
            LOCKED.count += 1


class Zone(enum.Enum):
    HERE = 1


class EnumMember:
    def step(self):
        Zone.HERE.visits = 1


class HeldEnumMember:
    def __init__(self):
        self.zone = Zone.HERE

    def step(self):
        self.zone.held = 1


class ProcessVariable:
    def step(self):
        os.environ["SOME_VARIABLE_OF_A_TEST"] = "1"


class HeldModule:
    def __init__(self):
        self.engine = helper

    def step(self):
        self.engine.level += 1


class Slime:
    born = 0

    @classmethod
    def spawn(cls):
        cls.born += 1


KINDS = {"slime": [Slime]}


class InRegistry:
    def step(self):
        KINDS["slime"][0].spawn()


@functools.cache
def _visits():
    return [0]


@functools.lru_cache(maxsize=3)
def _tables(key):
    return {"key": key}


_visits()
_tables(1)
NAMED_CACHE = {"n": 0, 7: 0}


class CachedResult:
    def step(self):
        _visits()[0] += 1


class BoundedCache:
    def step(self):
        _tables(1)["more"] = 1


class EntryOfCache:
    def step(self):
        NAMED_CACHE[7] += 1


class Weak:
    values = weakref.WeakKeyDictionary()  # noqa: RUF012

    def step(self):
        self.values[self] = 1


def _shaped():
    global COUNT
    COUNT += 1


class HeldFunction:
    def __init__(self):
        self.shaping = _shaped

    def step(self):
        self.shaping()


VARIABLE = contextvars.ContextVar("VARIABLE", default=0)
LOCAL = threading.local()


class ContextVariable:
    def step(self):
        VARIABLE.set(VARIABLE.get() + 1)


class ThreadLocal:
    def step(self):
        LOCAL.count = getattr(LOCAL, "count", 0) + 1


class ImportedName:
    def step(self):
        from helper_module import Kind

        Kind.count += 1


class ImportedModule:
    def step(self):
        import helper_module as other

        other.__dict__["level"] += 1


class OtherRegistry:
    kinds = {"a": helper.Kind}  # noqa: RUF012

    def step(self):
        self.kinds["a"].count += 1


class ByName:
    def step(self):
        globals()["COU" + "NT"] += 1


class BySysModules:
    def step(self):
        sys.modules[__name__].COUNT += 1


class OfGymnasium(gymnasium.Env):
    def step(self):
        gymnasium.Env.metadata["count"] = gymnasium.Env.metadata.get("count", 0) + 1


class OfStandardLibrary:
    def step(self):
        math.count = getattr(math, "count", 0) + 1


class OfLogger:
    def step(self):
        LOG.count = getattr(LOG, "count", 0) + 1


class OfLoggerByName:
    def step(self):
        log = logging.getLogger("of a test")
        log.number = getattr(log, "number", 0) + 1


class OfSpec:
    def __init__(self):
        self.spec = copy.deepcopy(gymnasium.spec("CartPole-v1"))

    def step(self):
        self.spec.kwargs["count"] = self.spec.kwargs.get("count", 0) + 1


class OfMetaclass(metaclass=type("Meta", (type,), {"count": 0})):
    def step(self):
        type(type(self)).count += 1


class ComputedProcessVariable:
    key = "SOME_VARIABLE"

    def step(self):
        os.environ[self.key + "_OF_A_TEST"] = str(time.time())


class Interpreter:
    def step(self):
        sys.setswitchinterval(sys.getswitchinterval() * 1.01)


class Folder:
    def step(self):
        os.chdir("..")


STATEFUL = [
    ImportedName, ImportedModule, OtherRegistry, ByName, BySysModules, OfGymnasium,
    OfStandardLibrary, OfLogger, OfLoggerByName, OfSpec, OfMetaclass, ComputedProcessVariable,
    Folder, Interpreter,
    ClassAttribute, ClassList, NewClassAttribute, MethodReplaced, Inherited, Global, InGlobal,
    GlobalGenerator, GlobalIterator, OtherModule, ThroughFunction, Default,
    FunctionAttribute, _with_closure(), Held, GlobalWithSlots, GlobalWithLock, EnumMember,
    HeldEnumMember, ProcessVariable, HeldModule, InRegistry, CachedResult, BoundedCache,
    EntryOfCache, Weak, HeldFunction, ContextVariable, ThreadLocal,
]  # fmt: skip


@pytest.mark.parametrize("kind", STATEFUL, ids=lambda kind: kind.__name__)
def test_state_in_classes_and_modules_is_named(kind, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, helper.__name__, helper)
    monkeypatch.setattr(gymnasium.Env, "metadata", {})
    monkeypatch.setattr(math, "count", 0, raising=False)
    interval = sys.getswitchinterval()
    env = kind()
    state = ProgramState(env)
    if kind is not GlobalIterator:
        assert state.changed() == []
    env.step()
    changed = state.changed()
    sys.setswitchinterval(interval)
    assert len(changed) == 1


LIBRARY = ctypes.CDLL(None)


class Native:
    def step(self):
        LIBRARY.abs(-1)


@pytest.mark.parametrize(
    ("kind", "one_thread"), [(Native, True), (ThreadLocal, False), (ContextVariable, False)]
)
def test_what_cannot_be_seen_is_named_from_the_start(kind, one_thread):
    (name,) = ProgramState(kind(), one_thread=one_thread).changed()
    assert name.endswith("whose state cannot be seen)")


def test_settings_of_numerical_libraries_are_named():
    state = ProgramState(Harmless())
    with np.errstate(divide="raise"):
        assert state.changed() == ["numpy.geterr()"]
    with decimal.localcontext(prec=5):
        assert state.changed() == ["decimal.getcontext()"]
    assert state.changed() == []


@functools.lru_cache(maxsize=3)
def _numbers(key):
    return [key]


class UsesNumbers:
    def step(self):
        return _numbers(1), CACHE


class Harmless:
    limit = 7

    def __init__(self):
        self.t = 0

    def step(self):
        self.t += 1
        CACHE[self.t] = self.t
        _tables(self.t)
        return self._doubled(self.limit) + len(TABLE)

    @functools.cache  # noqa: B019
    def _doubled(self, x):
        return 2 * x


def test_state_of_its_own_and_caches_are_not():
    env = Harmless()
    state = ProgramState(env)
    env.step()
    assert state.changed() == []


UNNAMED = {
    "a variable": lambda module: module.history.append(1),
    "a class": lambda module: setattr(module.Trainer, "best", 2),
    "a new variable": lambda module: setattr(module, "late", 1),
}


@pytest.mark.parametrize("change", list(UNNAMED))
@pytest.mark.parametrize("name", ["module_of_a_user", "__main__"])
def test_only_in_the_main_script_may_change_what_no_code_names(name, change, monkeypatch):
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    module.gymnasium = gymnasium
    source = "history, ticks = [], iter([])\nclass Env(gymnasium.Env):\n"
    exec(source + "  def step(self): return 1\nclass Trainer: best = 1", vars(module))
    module.agent, module.envs = [torch.zeros(3)], [module.Env()]
    state = ProgramState(module.Env())
    module.agent[0] += 1
    module.envs[0].count = 1
    assert state.changed() == [], "what is trained, and what cannot be seen"
    UNNAMED[change](module)
    assert len(state.changed()) == (name != "__main__")


class Keys(enum.Flag):
    RED = 1
    BLUE = 2


def test_flags_that_are_combined_for_the_first_time_are_no_change():
    state = ProgramState(Harmless())
    assert Keys.RED | Keys.BLUE
    assert state.changed() == []
    Keys.RED.visits = 1
    assert state.changed() == [f"{__name__}.Keys.RED"]


def test_a_module_that_is_loaded_later_is_no_change(monkeypatch):
    class Env:
        def step(self):
            import module_of_a_user

            module_of_a_user.level += 1

    env = Env()
    state = ProgramState(env)
    module = types.ModuleType("module_of_a_user")
    module.level, module.table = 0, [1]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert state.changed() == []
    env.step()
    assert state.changed() == ["module_of_a_user.level"]


def test_a_cache_that_is_not_checked_may_not_grow():
    states = [ProgramState(Harmless(), caches_checked=checked) for checked in (True, False)]
    CACHE["new"] = 1
    assert [state.changed() for state in states] == [[], [f"{__name__}.CACHE"]]
    del CACHE["new"]


def test_caches_are_put_back_to_what_they_held_at_first():
    env = UsesNumbers()
    CACHE["first"] = 1
    _numbers(-1)
    caches = ProgramState(env).caches
    before = caches.contents()
    CACHE["own"] = [1]
    inserted = caches.inserted(before)
    assert inserted == {f"{__name__}.CACHE": {"own": [1]}}
    assert caches.lacking(inserted) is None
    _numbers(-2)
    caches.put_back()
    assert "first" in CACHE
    assert _numbers.cache_info().currsize == 0
    assert caches.lacking(inserted) == f"{__name__}.CACHE"
    CACHE["own"] = [2]
    assert caches.lacking(inserted) == f"{__name__}.CACHE"
    del CACHE["own"], CACHE["first"]


class UsesData:
    def step(self):
        return DATA


class HoldsData:
    def __init__(self):
        self.data = DATA


BYTES = 16 * 2**20
LARGE = {
    "array": lambda: np.ones(BYTES // 8),
    "Fortran": lambda: np.asfortranarray(np.ones((1024, BYTES // 8192))),
    "view": lambda: np.ones(BYTES // 8)[::-2],
    "dates": lambda: np.zeros(BYTES // 8, "M8[s]"),
    "text": lambda: np.full(BYTES // 16, "abc", "U4"),
    "records": lambda: np.ones(BYTES // 16, [("x", "f8"), ("n", "i8")]),
    "containers": lambda: {"a": [np.ones(BYTES // 16)], "b": (np.ones(BYTES // 16),)},
    "bytes": lambda: bytes(BYTES),
    "bytearray": lambda: bytearray(BYTES),
    "str": lambda: "ä" * (BYTES // 2),
}


@pytest.mark.parametrize("limit", [watched_values.MOST_BYTES, BYTES // 2])
@pytest.mark.parametrize("name", list(LARGE))
def test_large_data_is_never_copied(name, limit, monkeypatch):
    monkeypatch.setattr(watched_values, "MOST_BYTES", limit)
    monkeypatch.setitem(globals(), "DATA", LARGE[name]())
    for env in (UsesData(), HoldsData()):
        tracemalloc.start()
        state = ProgramState(env)
        assert state.changed() == []
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < BYTES / 4


@pytest.mark.parametrize(
    "make", [lambda: np.ones((2000, 2000))[::2], lambda: np.ones(BYTES // 8)[::-1]]
)
def test_arrays_with_gaps_are_read_in_small_parts(make):
    array = make()
    tracemalloc.start()
    before = watched_values._crc32(array, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BYTES / 4
    array[-1:] = 2
    assert watched_values._crc32(array, 0) != before


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(1000), np.zeros((50, 20)).T, np.zeros(2000)[::-2], np.zeros(9, "M8[s]"),
        np.zeros(9, "S3"), np.zeros(9, [("n", "i4")]), np.zeros(9, ">i8"), np.zeros(9, bool),
        bytearray(2000),
    ],
    ids=lambda data: str(getattr(data, "dtype", "bytes")),
)  # fmt: skip
@pytest.mark.parametrize("place", [0, 7, -1])
def test_every_item_of_small_data_is_compared(data, place, monkeypatch):
    monkeypatch.setitem(globals(), "DATA", {"data": [data]})
    state = ProgramState(UsesData())
    data[place] = 1
    assert state.changed() == [f"{__name__}.DATA"]


def _grown(data):
    data["large"] = np.zeros(len(data["large"]) + 1)


def _replaced(data):
    data["large"] = data["large"].copy()


def _closed(data):
    data["large"].flags.writeable = False


def _first(data):
    data["large"][0] = 1


def _last(data):
    data["large"][-1] = 1


def _all(data):
    data["large"] += 1


def _small(data):
    data["small"][5] = 1


def _bytes(data):
    data["bytes"] += b"a"


@pytest.mark.parametrize(
    "change", [_grown, _replaced, _closed, _first, _last, _all, _small, _bytes]
)
def test_of_large_data_a_sample_is_compared(change, monkeypatch):
    large = {"large": np.zeros(100_000), "bytes": bytearray(900_000), "small": np.zeros(9)}
    monkeypatch.setattr(watched_values, "MOST_BYTES", 1000)
    monkeypatch.setitem(globals(), "DATA", large)
    state = ProgramState(UsesData())
    assert state.changed() == []
    large["large"][1] = 1
    assert state.changed() == [], "not in the sample"
    change(large)
    assert state.changed() == [f"{__name__}.DATA"]


@pytest.mark.parametrize(
    "data", [np.zeros(0), np.zeros(3, "V0"), np.array(b"x" * 10**6), np.zeros((0, 3))[:, 1:]]
)
def test_strange_arrays_are_compared(data, monkeypatch):
    monkeypatch.setattr(watched_values, "MOST_BYTES", 0)
    monkeypatch.setitem(globals(), "DATA", data)
    assert ProgramState(UsesData()).changed() == []


class Asserting(gymnasium.Env):
    """An environment in a test module, where pytest rewrites the assertions."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def step(self, action):
        assert action in self.action_space, "pytest explains a failure with code of its own"
        return 0, 0.0, False, False, {}


def test_assertions_that_pytest_rewrites_lead_to_no_variables_of_pytest():
    assert not [name for name in variables_of(Asserting()) if "pytest" in name.lower()]


def _holder(**fields):
    return types.SimpleNamespace(**fields)


class Whole(int):
    """A number with an attribute."""


def _unlike(make, change):
    """Whether a change of what `make` returns is seen, and what cannot be seen in it."""
    thing = make()
    before = watched_values.watched(thing)
    assert watched_values.watched(thing) == before, "no change"
    change(thing)
    return watched_values.watched(thing) != before, before.unseen


def _torch_step(module):
    with torch.no_grad():
        module.net.weight[20, 20] += 1


def _released(lock):
    lock.acquire()


def _mapped():
    memory = mmap.mmap(-1, 8)
    return np.frombuffer(memory, np.uint8)


class Date(datetime.date):
    """A date with an attribute, which pickle leaves out."""


class Kept:
    """Holds something in a slot and in its dictionary."""

    __slots__ = ("__dict__", "slot")


SEEN = {
    "tensor": (lambda: torch.zeros(5000), lambda x: x[2000:2001].add_(1)),
    "bfloat": (lambda: torch.zeros(50, dtype=torch.bfloat16), lambda x: x[7].add_(1)),
    "sparse": (lambda: torch.eye(3).to_sparse(), lambda x: x.mul_(2)),
    "strided tensor": (lambda: torch.zeros(50, 4)[:, 1], lambda x: x[7].add_(1)),
    "torch generator": (torch.Generator, lambda x: torch.rand(1, generator=x)),
    "layer": (lambda: _holder(net=torch.nn.Linear(40, 40)), _torch_step),
    "masked": (lambda: np.ma.zeros(5), lambda x: x.__setitem__(1, 2)),
    "mask": (lambda: np.ma.zeros(5), lambda x: x.__setitem__(1, np.ma.masked)),
    "foreign memory": (_mapped, lambda x: x.__setitem__(3, 1)),
    "objects": (lambda: np.array([0] * 5000, object), lambda x: x.__setitem__(2000, 1)),
    "record of objects": (
        lambda: np.zeros(3, [("a", object)]), lambda x: x["a"].__setitem__(1, 5)),
    "memory": (lambda: memoryview(bytearray(8)), lambda x: x.__setitem__(3, 1)),
    "typed": (lambda: array.array("i", [0] * 9), lambda x: x.__setitem__(3, 1)),
    "bits": (lambda: np.random.PCG64(7), lambda x: x.random_raw()),
    "seeds": (lambda: np.random.SeedSequence(7), lambda x: x.spawn(1)),
    "text file": (io.StringIO, lambda x: x.write("x")),
    "partial": (lambda: functools.partial(max, [1]), lambda x: x.args[0].append(2)),
    "decimals": (decimal.Context, lambda x: setattr(x, "Emax", 7)),
    "defaultdict": (lambda: defaultdict(list), lambda x: setattr(x, "default_factory", int)),
    "proxy": (lambda: [types.MappingProxyType(d := {}), d],
              lambda x: x[1].update(a=1)),
    "lock": (threading.Lock, _released),
    "whole": (lambda: _holder(n=Whole(2)), lambda x: setattr(x, "n", Whole(3))),
    "property": (lambda: [property(len)], lambda x: x.__setitem__(0, property(repr))),
    "date": (lambda: Date(2020, 1, 1), lambda x: setattr(x, "n", 1)),
    "attribute": (lambda: Kept(), lambda x: setattr(x, "slot", 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SEEN))
def test_changes_inside_objects_of_libraries_are_seen(name):
    assert _unlike(*SEEN[name]) == (True, None)


HIDDEN = {
    "database": lambda: sqlite3.connect(":memory:"),
    "queue": queue.SimpleQueue,
    "held": lambda: _holder(queue=[queue.SimpleQueue()]),
    "pool": lambda: _holder(pool=ThreadPoolExecutor(1)),
    "hash": hashlib.sha256,
    "iterator": lambda: _holder(numbers=itertools.count()),
    "nested": lambda: functools.reduce(lambda x, _: [x], range(3000), []),
    "cache": lambda: [functools.lru_cache(list)],
}


@pytest.mark.parametrize("name", list(HIDDEN))
def test_what_holds_hidden_state_is_named(name):
    assert watched_values.watched(HIDDEN[name]()).unseen


class Color(enum.Enum):
    RED = 1


USUAL = {
    "logger": lambda: logging.getLogger("of a test"),
    "handler": logging.StreamHandler,
    "held logger": lambda: [logging.getLogger()],
    "pattern": lambda: re.compile("a+"),
    "match": lambda: re.match("a", "a"),
    "path": lambda: Path("a") / "b",
    "stream": lambda: sys.stderr,
    "time": lambda: datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
    "duration": lambda: datetime.timedelta(3),
    "numbers": lambda: [decimal.Decimal("0.1"), Fraction(1, 3), 2j, range(3), slice(1)],
    "functions": lambda: [functools.partial(max, 1), operator.itemgetter(1), str.lower, np.add],
    "types": lambda: [int, Color, Color.RED, list[int], np.dtype("f4"), torch.float32],
    "annotations": lambda: [typing.Any, typing.Literal[3], int | str],
    "modules": lambda: [math, np],
    "lock": threading.RLock,
    "event": threading.Event,
    "packer": lambda: struct.Struct("<i"),
    "identifier": lambda: uuid.UUID(int=3),
    "registry": lambda: gymnasium.registry,
    "environment": lambda: gymnasium.make("CartPole-v1"),
    "space": lambda: gymnasium.spaces.Text(3),
    "constants": lambda: [Ellipsis, NotImplemented, object(), types.SimpleNamespace(a=1)],
    "context": lambda: contextvars.ContextVar("c", default=1),
    "queue": queue.Queue,
    "device": lambda: torch.device("cpu"),
    "collections": lambda: [OrderedDict(a=1), Counter("abc"), ChainMap({})],
    "zone": lambda: zoneinfo.ZoneInfo("UTC"),
    "class methods": lambda: [dict.fromkeys, datetime.datetime.now, "".join],
    "random": random.SystemRandom,
    "template": lambda: string.Template("$a"),
}


@pytest.mark.parametrize("name", list(USUAL))
def test_usual_constants_hold_no_hidden_state(name):
    thing = USUAL[name]()
    before = watched_values.watched(thing)
    assert before.unseen is None
    assert str(thing) == str(thing)
    if name in ("path", "logger"):  # they remember this
        assert hash(thing) or thing.isEnabledFor(3) is not None
    assert watched_values.watched(thing) == before


def test_objects_of_pictures_are_not_watched():
    pygame = pytest.importorskip("pygame")
    for thing in (pygame.Surface((3, 3)), pygame.time.Clock()):
        assert watched_values.watched(thing).unseen is None
    corner = pygame.math.Vector2(1, 2)
    before = watched_values.watched(corner)
    corner.x += 1
    assert watched_values.watched(corner) != before


def _with_variables_of_its_own():
    variables = {"n": 0}
    exec("def count():\n  global n\n  n += 1", variables)
    return variables["count"]


counted = _with_variables_of_its_own()
append = [].append


class OwnVariables:
    def step(self):
        counted()


class MethodOfList:
    def step(self):
        append(1)


class Printing:
    def step(self):
        np.set_printoptions(precision=5)


class Flags:
    def step(self):
        decimal.getcontext().flags[decimal.Clamped] = True


class Largest:
    def step(self):
        decimal.getcontext().Emax -= 1


class Divides:
    def step(self):
        return decimal.Decimal(1) / 3


@pytest.mark.parametrize("kind", [OwnVariables, MethodOfList, Printing, Flags, Largest])
def test_settings_and_variables_in_unusual_places_are_named(kind):
    with decimal.localcontext() as context, np.printoptions():
        context.clear_flags()
        for each, named in ((Divides, 0), (kind, 1)):
            state = ProgramState(each())
            assert state.changed() == []
            each().step()
            assert len(state.changed()) == named
