"""State in random number generators of Python, numpy and torch."""

import copy
import random
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from torture.patterns.base import Hidden, built, mixed, pattern


@pattern
class OwnGenerator(Hidden):
    """A Generator that is replaced by a child of its own"""

    def begin(self) -> None:
        if not hasattr(self, "own"):
            self.own = np.random.default_rng(int(self.np_random.integers(99)))

    def advance(self, action: int) -> float:
        value = self.own.integers(1000)
        if value % 5 == 0:
            self.own = self.own.spawn(2)[action]
        return float(value)


@pattern
class HalfWord(Hidden):
    """Generators with half of a 64-bit word left over"""

    def __init__(self) -> None:
        super().__init__()
        kinds = (np.random.PCG64, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM)
        self.own = [np.random.Generator(kind(5)) for kind in kinds]

    def advance(self, action: int) -> float:
        draws = [own.integers(0, 1000, dtype=np.int32) for own in self.own[: 3 + action]]
        return float(sum(draws))


@pattern
class AnotherBitGenerator(Hidden):
    """A Generator on a bit generator whose class changes at run time"""

    def __init__(self) -> None:
        super().__init__()
        self.own = np.random.Generator(np.random.PCG64(1))

    def advance(self, action: int) -> float:
        value = int(self.own.integers(1000))
        if value % 4 == 0:
            kind = (np.random.PCG64, np.random.MT19937, np.random.Philox)[value % 3]
            self.own = np.random.Generator(kind(value))
        return float(value + action)


@pattern
class SharedBitGenerator(Hidden):
    """Two Generators and a RandomState on one bit generator"""

    def __init__(self) -> None:
        super().__init__()
        bits = np.random.MT19937(4)
        self.one = np.random.Generator(bits)
        self.two = np.random.Generator(bits)
        self.old = np.random.RandomState(bits)

    def advance(self, action: int) -> float:
        return float(self.one.integers(99) + self.two.integers(99) * 3 + self.old.randint(9))


@pattern
class SharedOrNot(Hidden):
    """Two attributes with one Generator, or with equal copies of it, in turns"""

    def begin(self) -> None:
        self.one = np.random.default_rng(int(self.np_random.integers(99)))
        alike = self.np_random.random() < 0.5
        self.two = self.one if alike else copy.deepcopy(self.one)

    def advance(self, action: int) -> float:
        return float(self.one.integers(99) * 3 + self.two.integers(99))


@pattern
class AliasOfNpRandom(Hidden):
    """An alias of `np_random` from the first reset, which later resets may replace"""

    def begin(self) -> None:
        if not hasattr(self, "alias"):
            self.alias = self.np_random
        elif self.np_random.random() < 0.3:
            self.np_random = np.random.default_rng(int(self.alias.integers(999)))

    def advance(self, action: int) -> float:
        return float(self.alias.integers(99) * 3 + self.np_random.integers(99) + action)


@pattern
class LegacyState(Hidden):
    """A RandomState with a normal number left over"""

    def __init__(self) -> None:
        super().__init__()
        self.old = np.random.RandomState(3)

    def advance(self, action: int) -> float:
        return float(self.old.standard_normal() * 100 + self.old.randint(9 + action))


@pattern
class SeedSequences(Hidden):
    """A SeedSequence that is spawned from"""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = np.random.SeedSequence(5)

    def advance(self, action: int) -> float:
        child = self.seeds.spawn(1 + action)[-1]
        return float(np.random.default_rng(child).integers(1000))


@pattern
class SpawnCount(Hidden):
    """A bit generator whose seed sequence is spawned from directly"""

    def begin(self) -> None:
        if not hasattr(self, "bits"):
            self.bits: Any = np.random.PCG64(int(self.np_random.integers(99)))

    def advance(self, action: int) -> float:
        child = self.bits.seed_seq.spawn(1 + action)[-1]
        return float(np.random.default_rng(child).integers(1000))


@pattern
class BareBitGenerator(Hidden):
    """A bit generator without a Generator, jumped ahead"""

    def __init__(self) -> None:
        super().__init__()
        self.bits: Any = np.random.PCG64(1)

    def advance(self, action: int) -> float:
        value = int(self.bits.random_raw()) % 1009
        if action:
            self.bits = self.bits.jumped()
        return float(value)


@pattern
class StateRestored(Hidden):
    """A saved state of the generator that the environment goes back to"""

    def __init__(self) -> None:
        super().__init__()
        self.own = np.random.default_rng(1)
        self.saved = self.own.bit_generator.state

    def advance(self, action: int) -> float:
        value = int(self.own.integers(1000))
        if value % 4 == 0:
            self.own.bit_generator.state = self.saved
            self.own.integers(2, size=value % 9)
        elif action:
            self.saved = self.own.bit_generator.state
        return float(value)


class Loaded(random.Random):
    """A generator of Python with an attribute."""

    bias = 0


@pattern
class PythonRandom(Hidden):
    """A random.Random with a Gaussian number left over"""

    def __init__(self) -> None:
        super().__init__()
        self.own = random.Random(3)

    def advance(self, action: int) -> float:
        return float(self.own.gauss(0, 100) + self.own.randrange(9 + action))


@pattern
class PythonRandomSubclass(Hidden):
    """A subclass of random.Random with an attribute"""

    def __init__(self) -> None:
        super().__init__()
        self.own = Loaded(3)

    def advance(self, action: int) -> float:
        self.own.bias += 1 + action
        return float(self.own.randrange(99) + self.own.bias)


@pattern
class GlobalPython(Hidden):
    """Python's global generator, not seeded"""

    def advance(self, action: int) -> float:
        return float(random.randrange(1000))


@pattern
class GlobalPythonSeeded(Hidden):
    """Python's global generator, seeded by every reset"""

    def begin(self) -> None:
        random.seed(int(self.np_random.integers(999)))

    def advance(self, action: int) -> float:
        return float(random.randrange(1000))


@pattern
class GlobalNumpy(Hidden):
    """numpy's global generator, not seeded"""

    def advance(self, action: int) -> float:
        return float(np.random.randint(1000))


@pattern
class GlobalNumpySeededOnce(Hidden):
    """numpy's global generator, seeded by the first reset of the first environment"""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        GlobalNumpySeededOnce.made += 1
        if GlobalNumpySeededOnce.made == 1:
            np.random.seed(5)

    def advance(self, action: int) -> float:
        return float(np.random.randint(1000))


@pattern
class GlobalNumpyRarely(Hidden):
    """numpy's global generator, drawn from in few of the steps, seeded by the constructor"""

    def __init__(self) -> None:
        super().__init__()
        np.random.seed(5)
        self.age = 0

    def advance(self, action: int) -> float:
        self.age += 1
        if self.age > 40 and self.age % 5 == 0:
            return float(np.random.randint(1000))
        return float(self.age + action)


@pattern
class GlobalNumpyVeryLate(Hidden):
    """numpy's global generator, seeded once and drawn from after a hundred and ten steps"""

    iterations = 14

    def __init__(self) -> None:
        super().__init__()
        np.random.seed(5)
        self.age = 0

    def advance(self, action: int) -> float:
        self.age += 1
        return float(np.random.randint(1000) if self.age > 110 else self.age + action)


@pattern
class BoundGlobalNumpy(Hidden):
    """A method of numpy's global generator kept in an attribute"""

    def __init__(self) -> None:
        super().__init__()
        np.random.seed(5)
        self.draw = np.random.randint

    def advance(self, action: int) -> float:
        return float(self.draw(1000) + action)


@pattern
class TorchGenerator(Hidden):
    """A torch.Generator of the environment"""

    def __init__(self) -> None:
        super().__init__()
        self.own = torch.Generator().manual_seed(3)

    def advance(self, action: int) -> float:
        return float(torch.randint(1000, (), generator=self.own)) + action


@pattern
class TorchGlobal(Hidden):
    """torch's global generator, not seeded"""

    def advance(self, action: int) -> float:
        return float(torch.randint(1000, ()))


@pattern
class TorchGlobalSeeded(Hidden):
    """torch's global generator, seeded by the first environment"""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        TorchGlobalSeeded.made += 1
        torch.manual_seed(TorchGlobalSeeded.made)

    def advance(self, action: int) -> float:
        return float(torch.randint(1000, ()))


@pattern
class TorchTensor(Hidden):
    """A tensor, and a view of it that moves"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.arange(6)
        self.view = self.cells[:2]

    def advance(self, action: int) -> float:
        self.view += 1 + action
        at = int(self.cells.sum()) % 5
        self.view = self.cells[at : at + 2]
        return float(self.view.sum() * 3 + self.cells[0])


@pattern
class TorchTensorAlone(Hidden):
    """A tensor made anew each step, with another dtype"""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.arange(6)

    def advance(self, action: int) -> float:
        self.cells = (self.cells * 5 + 1 + action) % 97
        self.cells = self.cells.to(torch.bfloat16 if action else torch.int64)
        return float(self.cells.sum())


@pattern
class TorchModule(Hidden):
    """A small network with a buffer, trained by the environment with momentum"""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.net = torch.nn.Linear(2, 1)
        self.net.register_buffer("count", torch.zeros(()))
        self.sgd = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)

    def advance(self, action: int) -> float:
        with torch.enable_grad():
            loss = (self.net(torch.tensor([1.0, float(action)])) - self.steps).square().sum()
            self.sgd.zero_grad()
            loss.backward()
        self.sgd.step()
        self.net.count += 1
        return float(self.net.weight.sum() * 100 + self.net.count)


@pattern
class SpaceOfInstance(Hidden):
    """A space of the instance that the environment samples from"""

    def __init__(self) -> None:
        super().__init__()
        self.things = spaces.Discrete(1000, seed=5)

    def advance(self, action: int) -> float:
        return float(self.things.sample() + action)


@pattern
class SpaceOfClass(Hidden):
    """The class's action space, which resets seed and steps sample from"""

    action_space = spaces.Discrete(2, seed=7)

    def advance(self, action: int) -> float:
        return float(sum(self.action_space.sample() << n for n in range(8)))


@pattern
class ActionSpaceSampled(Hidden):
    """An action space of the instance, seeded by resets"""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(2)

    def begin(self) -> None:
        self.action_space.seed(int(self.np_random.integers(999)))

    def advance(self, action: int) -> float:
        return float(sum(self.action_space.sample() << n for n in range(8)))


@pattern
class SpaceThatGrows(Hidden):
    """A private space that is replaced by a larger one"""

    def __init__(self) -> None:
        super().__init__()
        self.things = spaces.Discrete(10, seed=5)

    def advance(self, action: int) -> float:
        value = int(self.things.sample())
        if value % 3 == 0:
            self.things = spaces.Discrete(10 + value, seed=value, start=action)
        return float(value + int(self.things.n))


@built
def generator_shared_by_agents() -> Any:
    """One generator shared by the environments of all agents, in a closure"""
    own = np.random.default_rng(5)

    class Sharing(Hidden):
        def __init__(self) -> None:
            super().__init__()
            self.draw = lambda: own.integers(1000)

        def advance(self, action: int) -> float:
            return float(self.draw() + action)

    return Sharing


@built
def generator_of_the_factory() -> Any:
    """A generator of the factory, which environments draw from but do not refer to"""
    own = np.random.default_rng(5)

    class Sharing(Hidden):
        def advance(self, action: int) -> float:
            return float(own.integers(1000) + action)

    return Sharing


@built
def counter_of_the_factory() -> Any:
    """A counter in a dict of the factory, which methods refer to as a closure"""
    shared = {"n": 1}

    class Sharing(Hidden):
        def advance(self, action: int) -> float:
            shared["n"] = mixed(shared["n"], action) % 1009
            return float(shared["n"])

    return Sharing
