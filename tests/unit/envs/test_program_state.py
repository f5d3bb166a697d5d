"""Variables of classes and modules that an environment changes are found by its code."""

import contextvars
import copy
import ctypes
import decimal
import enum
import functools
import itertools
import logging
import math
import os
import sys
import threading
import time
import tracemalloc
import types
import weakref

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
