"""Restoring environments never writes into what the program holds too."""

import functools
from collections import deque

import gymnasium
import numpy as np
import pytest

from dna.config import EnvConfig
from dna.envs import Making
from dna.envs.gym import GymVector
from dna.envs.state import graph
from dna.envs.state.comparison import difference
from dna.envs.state.outside import Outside, held_outside

COUNT = 300  # beyond the small numbers that exist only once
MAPS = [np.full(3, float(i)) for i in range(COUNT)]
for _map in MAPS[::2]:
    _map.flags.writeable = False
START = np.zeros(3)


class Tile:
    def __init__(self, number):
        self.number = number
        self.corners = [number] * 4


TILES = {i: Tile(i) for i in range(COUNT)}
WALL, FLOOR = Tile(1), Tile(1)


@functools.cache
def cached_map(i):
    return np.full(3, float(i))


@functools.cache
def cached_tile(i):
    return Tile(i)


class Box(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1000, 1000, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.begin(int(self.np_random.integers(COUNT)))
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(3, self.t, np.float32), 0.0, False, self.t > 5, {}


class Chooses(Box):
    def begin(self, i):
        self.map, self.row = MAPS[i], MAPS[i][1:]
        self.tile, self.tiles = TILES[i], [TILES[i], TILES[COUNT - 1 - i], Tile(i)]
        self.cached, self.cached_tile = cached_map(i), cached_tile(i)
        self.queue = deque([MAPS[i], MAPS[0]])


class Starts(Box):
    def begin(self, i):
        self.state = START

    def step(self, action):
        self.state = self.state + self.np_random.normal()
        return super().step(action)


class CopiesOnWrite(Box):
    """Takes a constant, and a copy of it before the first change."""

    def begin(self, i):
        self.state, self.owned = START, False

    def step(self, action):
        if not self.owned:
            self.state, self.owned = self.state.copy(), True
        self.state[0] = (self.state[0] + 1) % 2
        return super().step(action)


class Draws(Box):
    """A board of tiles that are told apart by identity alone."""

    def begin(self, i):
        self.board = [[WALL if self.np_random.random() < 0.5 else FLOOR for _ in range(4)]]


def made(kind, seed=0, agents=3):
    vector = GymVector(
        kind, EnvConfig(id="box"), Making(agents, tuple(range(seed, seed + agents)))
    )
    vector.reset()
    for _ in range(2):
        vector.step(np.zeros((agents, 1), np.int64))
    return vector


def constants():
    """Everything above that no environment may change."""
    arrays = [*MAPS, START, *map(cached_map, range(COUNT))]
    tiles = [*TILES.values(), *map(cached_tile, range(COUNT)), WALL, FLOOR]
    return [(a.tolist(), a.flags.writeable) for a in arrays], [vars(t) for t in tiles]


@pytest.mark.parametrize("kind", [Chooses, Starts, Draws])
def test_constants_stay_as_they_are_and_the_snapshot_is_restored(kind):
    before = repr(constants())
    for seed in range(0, 30, 3):
        state = made(kind).snapshot()
        other = made(kind, seed)
        other.restore(state)
        assert repr(constants()) == before
        assert difference(state, other.snapshot()) is None


def test_what_was_the_programs_own_object_is_so_again():
    one = made(Chooses)
    other = made(Chooses, 100)
    other.restore(one.snapshot())
    for left, right in zip(one.envs, other.envs, strict=True):
        assert right.map is left.map
        assert right.tile is left.tile
        assert right.tiles[1] is left.tiles[1]
        assert right.tiles[2] is not left.tiles[2]
        assert right.row.base is left.map
        assert right.queue[0] is left.map
        assert right.cached is not left.cached, "nothing leads to what a cache holds"
        assert right.cached.tolist() == left.cached.tolist()


def test_an_object_of_its_own_is_never_replaced_by_one_of_the_program():
    one, other = made(CopiesOnWrite), made(CopiesOnWrite, 9)
    state = one.snapshot()
    assert all(env.owned and env.state.tolist() == START.tolist() for env in one.envs)
    for env in other.envs:
        env.reset()
        assert env.state is START
    other.restore(state)
    for env in other.envs:
        assert env.state is not START
        env.step(0)
    assert START.tolist() == [0, 0, 0]
    assert difference(one.snapshot(), other.snapshot()) is not None, "a step later"
    other.restore(state)
    other.envs[0].state = START
    assert difference(state, other.snapshot()) == "agent 0: env.state"


def test_objects_that_look_alike_are_told_apart():
    for seed in range(20):
        one, other = made(Draws), made(Draws, seed)
        other.restore(one.snapshot())
        for left, right in zip(one.envs, other.envs, strict=True):
            assert [tile is WALL for tile in right.board[0]] == [
                tile is WALL for tile in left.board[0]
            ]


def test_what_a_restore_replaces_is_not_written_into():
    """The environment gets its table as it was, the program keeps the one that changed."""
    box = Box()
    box.rows = box.same = rows = [1, [2.5, np.arange(3.0)], {"a": bytearray(b"ab")}]
    state = graph.save(box)
    rows[1][1][0], rows[0] = 7, 8
    rows[2]["a"][0] = 0
    kept = repr(rows)
    graph.load(box, state, Outside([box]))
    assert repr(rows) == kept
    assert box.rows is box.same is not rows
    assert repr(box.rows) == repr([1, [2.5, np.arange(3.0)], {"a": bytearray(b"ab")}])


def test_parts_of_their_own_are_not_held_outside():
    class Own(Box):
        def __init__(self):
            self.grid = np.zeros((3, 3))
            self.row, self.turned = self.grid[1], self.grid.T[::-1]
            self.tile = Tile(1)
            self.tiles = {"a": [self.tile, self.tile], "b": {self.tile.number}}
            self.back = deque([self.tiles])
            self.callback = self.step
            self.random = np.random.default_rng(0)
            other = [1]
            self.closure = lambda x=other: (x, other, self.grid)

    envs = [gymnasium.wrappers.TimeLimit(Own(), 5) for _ in range(3)]
    assert not held_outside(envs)
    for name in ("CartPole-v1", "FrozenLake-v1", "Blackjack-v1"):
        envs = [gymnasium.make(name) for _ in range(2)]
        for env in envs:
            env.reset(seed=1)
        assert not held_outside(envs), name


def test_what_hangs_on_something_held_outside_is_held_too():
    tile = Tile(1)
    boxes = [Box(), Box()]
    boxes[0].hands = (tile, [0])
    boxes[1].tile = tile
    held = held_outside(boxes)
    assert {id(tile), id(tile.corners)} == set(held)
    del tile, held
    assert not held_outside(boxes), "two environments share it, and nobody else"


class Sampling(gymnasium.Env):
    """Draws its observations from its own space, which gets new generators."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.MultiBinary(4)
        self.action_space = gymnasium.spaces.Discrete(2)

    def _seen(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), 0.0, False, False, {}


def test_the_space_of_an_environment_is_its_own():
    """Restored environments have new spaces, and must be saved as the first ones were."""
    seeds = ((1, 2), (51, 52))  # a resumed run makes environments with other seeds
    first, second = (GymVector(Sampling, EnvConfig(), Making(2, each)) for each in seeds)
    first.reset()
    second.restore(first.snapshot())
    action = np.zeros((2, 1), np.int64)
    for _ in range(3):
        np.testing.assert_array_equal(first.step(action).obs, second.step(action).obs)
    mine, yours = first.snapshot(), second.snapshot()
    assert {name: array.tobytes() for name, array in mine.items()} == {
        name: array.tobytes() for name, array in yours.items()
    }


RULES = [lambda n, k=k: n + k for k in range(4)]


class OneOfSeveral(gymnasium.Env):
    def __init__(self, rule):
        self.rule = rule

    def step(self, action):
        return RULES[0](action)


def test_a_function_of_the_program_is_never_filled():
    one, other = OneOfSeveral(RULES[2]), OneOfSeveral(RULES[0])
    graph.load(other, graph.save(one, Outside([one]).names()), Outside([other]))
    assert other.rule is RULES[2]
    assert [rule(0) for rule in RULES] == [0, 1, 2, 3]
