"""State in functions, closures, methods, generators and classes."""

import functools
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from torture.patterns.base import Hidden, built, mixed, pattern


@pattern
class Generated(Hidden):
    """A generator that yields the numbers of an episode"""

    def begin(self) -> None:
        self.numbers = self._numbers(int(self.np_random.integers(999)))

    def _numbers(self, start: int) -> Iterator[int]:
        while True:
            start = mixed(start) % 1009
            yield start

    def advance(self, action: int) -> float:
        return float(next(self.numbers) + action)


@pattern
class GeneratorInClosure(Hidden):
    """A generator that only a closure refers to"""

    def __init__(self) -> None:
        super().__init__()
        numbers = (mixed(n) % 1009 for n in range(10**6))
        self.draw = lambda: next(numbers)

    def advance(self, action: int) -> float:
        return float(self.draw() + action)


@pattern
class LateGenerator(Hidden):
    """A generator that appears after thirty steps"""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0
        self.script: Any = None

    def advance(self, action: int) -> float:
        self.age += 1
        if self.age == 30:
            self.script = (mixed(n) % 1009 for n in range(10**6))
        return float(self.age if self.script is None else next(self.script))


@pattern
class Nonlocal(Hidden):
    """A closure that counts in a nonlocal variable"""

    def __init__(self) -> None:
        super().__init__()
        count = 1

        def draw(action: int) -> int:
            nonlocal count
            count = mixed(count, action) % 10007
            return count

        self.draw = draw

    def advance(self, action: int) -> float:
        return float(self.draw(action))


@pattern
class TwoClosuresOneCell(Hidden):
    """Two closures that share a variable, in turns with two that do not"""

    def begin(self) -> None:
        self.put, self.get = self._pair()
        if self.np_random.random() < 0.5:
            self.get = self._pair()[1]

    def _pair(self) -> tuple[Callable[[int], None], Callable[[], int]]:
        count = 0

        def put(number: int) -> None:
            nonlocal count
            count += number

        def get() -> int:
            return count

        return put, get

    def advance(self, action: int) -> float:
        self.put(1 + action)
        return float(self.get())


@pattern
class OneOfTwoLambdas(Hidden):
    """One of two lambdas with one qualified name"""

    def __init__(self) -> None:
        super().__init__()
        self.state = 1
        self.rule: Callable[[int], int] = self._rule(0)

    def _rule(self, n: int) -> Callable[[int], int]:
        return (lambda x: x * 3 + 1) if n % 2 else (lambda x: x * 5 + 2)

    def advance(self, action: int) -> float:
        self.state = self.rule(self.state) % 1009
        self.rule = self._rule(self.state + action)
        return float(self.state)


@pattern
class LambdaDefaults(Hidden):
    """A lambda made anew with other default arguments"""

    def __init__(self) -> None:
        super().__init__()
        self.draw = lambda k=1: k

    def advance(self, action: int) -> float:
        self.draw = lambda k=mixed(self.draw(), action) % 1009: k
        return float(self.draw())


@pattern
class FunctionParts(Hidden):
    """A function of the instance whose defaults, attributes and code are the state"""

    def __init__(self) -> None:
        super().__init__()

        def draw(n: int = 1, *, k: int = 2) -> int:
            return n + 3 * k

        self.draw: Any = draw
        self.draw.count = 0

    def advance(self, action: int) -> float:
        self.draw.count += 1 + action
        self.draw.__defaults__ = (self.draw.count % 7,)
        self.draw.__kwdefaults__ = {"k": self.draw() % 11}
        return float(self.draw() + self.draw.count)


@pattern
class Partials(Hidden):
    """A functools.partial with other arguments each step"""

    def __init__(self) -> None:
        super().__init__()
        self.draw: Callable[..., int] = functools.partial(mixed, 1)

    def advance(self, action: int) -> float:
        value = self.draw() % 10007
        self.draw = functools.partial(mixed, value, change=action)
        return float(value)


@pattern
class PartialOfPartial(Hidden):
    """A partial with attributes, a list among its arguments, around the environment's method"""

    def __init__(self) -> None:
        super().__init__()
        self.history = [1]
        self.draw: Any = functools.partial(self._draw, self.history)
        self.draw.calls = 0

    def _draw(self, history: list[int], action: int) -> int:
        history.append(mixed(history[-1], action) % 1009)
        return sum(history)

    def advance(self, action: int) -> float:
        self.draw.calls += 1
        return float(self.draw(action) + self.draw.calls)


@pattern
class MethodSwapped(Hidden):
    """An attribute that is one of two bound methods"""

    def __init__(self) -> None:
        super().__init__()
        self.state = 1
        self.rule: Callable[[int], int] = self.slow

    def slow(self, action: int) -> int:
        self.rule = self.fast if self.state % 2 else self.slow
        return self.state + 1 + action

    def fast(self, action: int) -> int:
        self.rule = self.slow if action else self.fast
        return self.state * 3 + action

    def advance(self, action: int) -> float:
        self.state = self.rule(action) % 1009
        return float(self.state)


class Counter:
    """An object with a method."""

    def __init__(self, count: int) -> None:
        self.count = count

    def up(self, action: int) -> int:
        self.count = mixed(self.count, action) % 1009
        return self.count


@pattern
class MethodOfAnother(Hidden):
    """A bound method of an object that nothing else refers to"""

    def begin(self) -> None:
        self.draw = Counter(int(self.np_random.integers(99))).up

    def advance(self, action: int) -> float:
        return float(self.draw(action))


@pattern
class MethodOfGenerator(Hidden):
    """A method of a random generator that nothing else refers to"""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(7).random

    def advance(self, action: int) -> float:
        return self.random() * 100 + action


@pattern
class MethodOfList(Hidden):
    """The `pop` of a list that nothing else refers to"""

    def __init__(self) -> None:
        super().__init__()
        self.pop = list(range(5000)).pop

    def advance(self, action: int) -> float:
        return float(self.pop() + action)


@pattern
class PatchedStep(Hidden):
    """The instance's own `step`, replaced at run time by another function"""

    def advance(self, action: int) -> float:
        return float(3 + action + self.steps)

    def other(self, action: int) -> Any:
        seen, reward, end, late, info = type(self).step(self, action)
        if self.np_random.random() < 0.2:
            del self.step  # type: ignore[method-assign]
        return seen * np.float32(0.5), reward - 0.5, end, late, info

    def begin(self) -> None:
        if self.np_random.random() < 0.6:
            self.step = self.other  # type: ignore[method-assign]


@pattern
class PatchedClass(Hidden):
    """A method of the class, replaced at run time"""

    rule: Any = staticmethod(lambda n: n + 1)

    def __init__(self) -> None:
        super().__init__()
        self.state = 1

    def advance(self, action: int) -> float:
        self.state = type(self).rule(self.state) % 1009
        k = 2 + self.state % 5
        type(self).rule = staticmethod(lambda n: n * k + 1)
        return float(self.state + action)


@pattern
class CachedProperty(Hidden):
    """A cached property that is computed once and dropped now and then"""

    def __init__(self) -> None:
        super().__init__()
        self.state = 1

    @functools.cached_property
    def level(self) -> int:
        return self.state % 101

    def advance(self, action: int) -> float:
        self.state = mixed(self.state, action) % 10007
        if self.state % 3 == 0:
            vars(self).pop("level", None)
        return float(self.level)


@functools.lru_cache(maxsize=4)
def _remembered(key: int) -> list[int]:
    return [key]


@pattern
class LruCache(Hidden):
    """A function with an lru_cache that remembers lists which grow"""

    def advance(self, action: int) -> float:
        held = _remembered(action)
        held.append(len(held) + action)
        return float(sum(held))


@pattern
class LruCacheOfInstance(Hidden):
    """An lru_cache of the instance whose statistics are the state"""

    def __init__(self) -> None:
        super().__init__()
        self.look = functools.lru_cache(maxsize=3)(lambda n: n * 7)

    def advance(self, action: int) -> float:
        self.look(self.look.cache_info().hits % 4 + action)
        return float(3 * self.look.cache_info().hits + self.look.cache_info().misses)


def _counted(counts: list[int] = [0]) -> int:
    counts[0] += 1
    return counts[0]


@pattern
class DefaultArgument(Hidden):
    """The mutable default argument of a module's function"""

    def advance(self, action: int) -> float:
        return float(_counted() + action)


def _attributed(action: int) -> int:
    _attributed.count = getattr(_attributed, "count", 0) + 1 + action  # type: ignore[attr-defined]
    return int(_attributed.count)  # type: ignore[attr-defined]


@pattern
class FunctionAttribute(Hidden):
    """An attribute of a module's function"""

    def advance(self, action: int) -> float:
        return float(_attributed(action))


def _even(n: int) -> int:
    return n // 2


def _odd(n: int) -> int:
    return n * 3 + 1


@pattern
class FunctionChosen(Hidden):
    """One of two functions of the module"""

    def __init__(self) -> None:
        super().__init__()
        self.state = 7
        self.rule = _odd

    def advance(self, action: int) -> float:
        self.state = self.rule(self.state) + action
        self.rule = _odd if self.state % 2 else _even
        return float(self.state)


@pattern
class BuiltinChosen(Hidden):
    """One of two builtin functions"""

    def __init__(self) -> None:
        super().__init__()
        self.choose: Any = max

    def advance(self, action: int) -> float:
        picked = self.choose(self.steps, 4)
        if action:
            self.choose = min if self.choose is max else max
        return float(picked)


@pattern
class UfuncChosen(Hidden):
    """One of two ufuncs of numpy"""

    def __init__(self) -> None:
        super().__init__()
        self.rule: Any = np.add

    def advance(self, action: int) -> float:
        value = self.rule(5, self.steps)
        if action:
            self.rule = np.multiply if self.rule is np.add else np.add
        return float(value)


@pattern
class TypeChosen(Hidden):
    """One of several classes, as a value"""

    def __init__(self) -> None:
        super().__init__()
        self.kind: Any = int
        self.state = 1

    def advance(self, action: int) -> float:
        self.state = mixed(self.state, len(self.kind.__name__)) % 1009
        self.kind = (int, float, complex, Counter)[(self.state + action) % 4]
        return float(self.state)


@pattern
class ModuleChosen(Hidden):
    """One of two modules, as a value"""

    def __init__(self) -> None:
        super().__init__()
        self.library: Any = math

    def advance(self, action: int) -> float:
        was = self.library is math
        if action:
            self.library = operator if was else math
        return float(was * 5 + self.steps)


@pattern
class GetterChosen(Hidden):
    """An operator.itemgetter with another item"""

    def __init__(self) -> None:
        super().__init__()
        self.get: Any = operator.itemgetter(0)

    def advance(self, action: int) -> float:
        got = self.get((1, 5, 9))
        self.get = operator.itemgetter((got + action) % 3)
        return float(got + self.steps)


@built
def class_made_at_run_time() -> Any:
    """Objects whose class is made by `type` at run time, with state in the class"""

    class Making(Hidden):
        def __init__(self) -> None:
            super().__init__()
            self.kind = type("Kind", (), {"count": 0})
            self.thing = self.kind()

        def advance(self, action: int) -> float:
            self.kind.count = mixed(self.kind.count, action) % 1009
            if self.kind.count % 4 == 0:
                self.kind = type("Kind", (), {"count": self.kind.count, "extra": 5})
                self.thing = self.kind()
            return float(self.thing.count + getattr(self.thing, "extra", 0))

    return Making


@pattern
class BoundElsewhere(Hidden):
    """A function bound to another object each step by types.MethodType"""

    def __init__(self) -> None:
        super().__init__()
        self.counters = [Counter(1), Counter(2), Counter(3)]
        self.draw: Any = types.MethodType(Counter.up, self.counters[0])

    def advance(self, action: int) -> float:
        value = self.draw(action)
        self.draw = types.MethodType(Counter.up, self.counters[value % 3])
        return float(value + self.counters[0].count)


@pattern
class Composed(Hidden):
    """A function wrapped in another closure now and then, up to five deep"""

    def __init__(self) -> None:
        super().__init__()
        self.state = 1
        self.depth = 0
        self.rule: Callable[[int], int] = _odd

    def _wrap(self, inner: Callable[[int], int], k: int) -> Callable[[int], int]:
        return lambda n: inner(n) + k

    def advance(self, action: int) -> float:
        self.state = self.rule(self.state) % 1009
        self.depth += 1
        if self.depth > 5:
            self.rule, self.depth = _odd, 0
        self.rule = self._wrap(self.rule, self.state % 7 + action)
        return float(self.state)


@pattern
class Memo(Hidden):
    """A recursive closure with a memo that changes the result"""

    def __init__(self) -> None:
        super().__init__()
        memo: dict[int, int] = {}

        def look(n: int) -> int:
            if n not in memo:
                memo[n] = len(memo) * 3 + (look(n - 1) if n > 0 else 1)
            return memo[n]

        self.look = look

    def advance(self, action: int) -> float:
        return float(self.look(int(self.np_random.integers(3)) + self.steps + action))


@pattern
class MapsAndFilters(Hidden):
    """A map over a filter over an iterator of an endless callable"""

    def __init__(self) -> None:
        super().__init__()
        self.counter = Counter(1)
        endless = iter(functools.partial(self.counter.up, 1), None)
        self.numbers = map(_odd, filter(lambda n: n % 3, endless))

    def advance(self, action: int) -> float:
        return float(next(self.numbers) + action)
