"""What a program can notice of how arrays and sets lie in memory, and of shared generators."""

import os
import random
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dna.common.errors import Unsaveable
from dna.config import EnvConfig
from dna.envs import Making
from dna.envs.gym import GymVector, VectorAdapter
from dna.envs.state import graph, memory_layout


class Holder:
    def __init__(self, thing):
        self.thing = thing


def copied(thing, present=None):
    there = Holder(present)
    graph.load(there, graph.save(Holder(thing)))
    return there.thing


def _arrays():
    x = np.random.default_rng(1).normal(size=(5, 7, 3)).astype(np.float32)
    return {
        "C": x,
        "F": np.asfortranarray(x),
        "permuted": x.transpose(1, 2, 0) * np.float32(2),
        "flipped": x[::-1],
        "turned": np.rot90(x),
        "one": x[:, :1].copy(),
        "nothing": x[:, :0],
    }


@pytest.mark.parametrize("name", list(_arrays()))
@pytest.mark.parametrize("present", [None, "C", "F"])
def test_arrays_come_back_as_they_lay(name, present):
    x = _arrays()[name]
    there = None if present is None else np.zeros(x.shape, x.dtype, order=present)
    found = copied(x, there)
    np.testing.assert_array_equal(found, x)
    assert memory_layout.of_array(found) == memory_layout.of_array(x)
    assert float(found.sum()).hex() == float(x.sum()).hex(), "to the last bit"
    assert found.flags.owndata or name in ("flipped", "turned"), "can be resized"


def test_an_array_with_gaps_is_put_where_one_is_or_is_refused():
    x = np.arange(12.0).reshape(3, 4)[:, ::2]
    room = np.zeros((3, 4))[:, ::2]
    assert copied(x, room) is room
    np.testing.assert_array_equal(room, x)
    with pytest.raises(graph.Mismatch, match="gaps"):
        copied(x)


def test_the_layout_of_a_strange_file_is_refused():
    state = graph.save(Holder(np.asfortranarray(np.ones((2, 3)))))
    text = state["graph"].tobytes()
    for lies in (b"[1, 2, 3]", b"[5, 1]", b'["a", 1]', b"7"):
        bad = np.frombuffer(text.replace(b"[1, 2]", lies), np.uint8)
        with pytest.raises(graph.Mismatch):
            graph.load(Holder(None), state | {"graph": bad})


def _grown(rng):
    return {int(k) for k in rng.integers(0, 500, 12)}


def _popped(rng):
    found = set(range(40))
    for _ in range(int(rng.integers(1, 30))):
        found.pop()
    return found


def _thinned(rng):
    found = set(range(60))
    return found - {int(k) for k in rng.integers(0, 60, 50)}


def _churned(rng):
    found = set(range(40))
    for k in rng.integers(0, 40, 25):
        found.discard(int(k))
        found.add(int(k) + 100)
    return found


@pytest.mark.parametrize("make", [_grown, _popped, _thinned, _churned])
def test_a_set_goes_on_as_the_one_it_was_saved_from_or_is_named(make):
    exact = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        one = make(rng)
        if graph.opaque(Holder(one), "box") is not None:
            continue
        exact += 1
        other = copied(one)
        for k in rng.integers(0, 4000, 60):  # taken out, put in, grown: always the same
            for each in (one, other):
                each.add(int(k))
                each.discard(int(k) // 2)
            assert list(one) == list(other)
        assert [one.pop() for _ in range(5)] == [other.pop() for _ in range(5)]
    assert exact > 0 or make in (_popped, _churned), "sets that only grow are kept"


def test_a_set_that_lost_items_is_named():
    left = set(range(40))
    left.pop()
    assert "a set in an order" in (graph.opaque(Holder(left), "box") or "")


def test_words_count_as_alike_where_the_hash_seed_is_fixed():
    program = "from dna.envs.state import memory_layout as m; print(m._hashes_alike('a'))"
    for seed, alike in (("0", "True"), ("7", "True"), ("random", "False")):
        env = os.environ | {"PYTHONHASHSEED": seed}
        out = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True)
        assert out.stdout.decode().strip() == alike


class Draws(gymnasium.Env):
    """Draws from a generator of its own, numpy's or Python's."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, source):
        self.source = source

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.source == "own":
            drawn = self.np_random.normal()
        else:
            drawn = np.random.normal() if self.source == "np.random" else random.random()  # noqa: NPY002
        return np.array([drawn], np.float32), 0.0, False, False, {}


def _many(source):
    return GymVector(lambda: Draws(source), EnvConfig(id="Draws"), Making(2, (1, 2), 1))


def _ready(source):
    many = gymnasium.vector.SyncVectorEnv([lambda: Draws(source)] * 2)
    return VectorAdapter(many, EnvConfig(), (1, 2))


@pytest.mark.parametrize("made", [_many, _ready])
@pytest.mark.parametrize("source", ["np.random", "random"])
def test_drawing_from_the_process_is_said_and_never_called_exact(source, made):
    vector = made(source)
    vector.reset()
    assert vector.inexact is None
    with pytest.warns(RuntimeWarning, match=f"draws from {source}"):
        vector.step(np.zeros((2, 1), np.int64))
    assert source in vector.inexact
    with pytest.raises(Unsaveable, match=source):
        vector.snapshot()


@pytest.mark.parametrize("made", [_many, _ready])
def test_drawing_from_its_own_is_exact(made):
    vector = made("own")
    vector.reset()
    for _ in range(3):
        vector.step(np.zeros((2, 1), np.int64))
    assert vector.inexact is None
    assert vector.snapshot()
