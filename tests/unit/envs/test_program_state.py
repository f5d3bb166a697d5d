"""Variables of classes and modules that an environment changes are found by its code."""

import decimal
import functools
import itertools
import types

import numpy as np
import pytest

from dna.envs.state.program_state import ProgramState

COUNT = 0
TABLE = {"a": [1]}
RNG = np.random.default_rng(3)
TICKETS = itertools.count()
UNUSED = [0]
CACHE = {}
helper = types.ModuleType("helper_module")
helper.level = 0


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


STATEFUL = [
    ClassAttribute, ClassList, NewClassAttribute, MethodReplaced, Inherited, Global, InGlobal,
    GlobalGenerator, GlobalIterator, OtherModule, ThroughFunction, Default,
    FunctionAttribute, _with_closure(), Held,
]  # fmt: skip


@pytest.mark.parametrize("kind", STATEFUL, ids=lambda kind: kind.__name__)
def test_state_in_classes_and_modules_is_named(kind):
    env = kind()
    state = ProgramState(env)
    if kind is not GlobalIterator:
        assert state.changed() == []
    env.step()
    assert len(state.changed()) == 1


def test_settings_of_numerical_libraries_are_named():
    state = ProgramState(Harmless())
    with np.errstate(divide="raise"):
        assert state.changed() == ["numpy.geterr()"]
    with decimal.localcontext(prec=5):
        assert state.changed() == ["decimal.getcontext()"]
    assert state.changed() == []


class Harmless:
    limit = 7

    def __init__(self):
        self.t = 0

    def step(self):
        self.t += 1
        CACHE[self.t] = self.t
        return self._doubled(self.limit) + len(TABLE)

    @functools.cache  # noqa: B019
    def _doubled(self, x):
        return 2 * x


def test_state_of_its_own_and_caches_are_not():
    env = Harmless()
    state = ProgramState(env)
    env.step()
    UNUSED.append(1)
    assert state.changed() == []
