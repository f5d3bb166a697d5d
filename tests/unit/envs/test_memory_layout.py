"""What a program can notice of how arrays and sets lie in memory, and of shared generators."""

import array as array_module
import mmap
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
from dna.envs.state import generators, graph, memory_layout


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
    assert found.flags.owndata or name in ("flipped", "turned", "nothing"), "can be resized"


def test_an_array_with_gaps_is_filled_where_one_is_and_made_where_none_is():
    x = np.arange(12.0).reshape(3, 4)[:, ::2]
    room = np.zeros(12).reshape(3, 4)[:, ::2]
    assert copied(x, room) is room
    for found in (room, copied(x)):
        np.testing.assert_array_equal(found, x)
        assert memory_layout.of_array(found) == memory_layout.of_array(x)


class Parts:
    """Named arrays, of which some are views of others."""

    def __init__(self, **parts):
        vars(self).update(parts)


def _moving_row(t):
    table = np.arange(20.0).reshape(5, 4).copy()
    return Parts(table=table, row=table[t])


def _row_before_its_table(t):
    table = np.arange(20.0).reshape(5, 4).copy()
    return Parts(row=table[t], table=table)


def _double_buffer(t):
    both = np.arange(8.0)
    halves = [both[:4], both[4:]]
    return Parts(front=halves[t % 2], back=halves[1 - t % 2])


def _sliding_window(t):
    tape = np.arange(30.0)
    windows = np.lib.stride_tricks.sliding_window_view(tape, 6, writeable=True)
    return Parts(tape=tape, window=windows[t])


def _reversed_and_transposed(t):
    table = np.arange(24.0).reshape(2, 3, 4).copy()
    return Parts(table=table, back=table[::-1, t:, ::-2], turned=table.T[t])


def _bytes_of_numbers(t):
    numbers = np.arange(5.0)
    return Parts(numbers=numbers, low=numbers.view(np.uint8)[t * 8 : t * 8 + 8])


def _broadcast(t):
    row = np.arange(3.0)
    return Parts(row=row, wide=np.broadcast_to(row[t : t + 1], (4, 2)))


def _owner_unheld(t):
    memory = np.arange(9.0)
    return Parts(one=memory[t : t + 4], two=memory[t + 2 : t + 5])


def _fortran(t):
    table = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    return Parts(table=table, column=table[:, t], row=table[t])


def _records(t):
    records = np.zeros(4, [("x", "f8"), ("n", "i4")])
    records["x"] = np.arange(4)
    return Parts(records=records, x=records["x"][t:], some=records[t:])


def _view_of_bytes(t):
    return Parts(text=np.frombuffer(b"0123456789", np.uint8)[t:])


def _view_of_a_bytearray(t):
    memory = bytearray(b"0123456789")
    return Parts(memory=memory, text=np.frombuffer(memory, np.uint8)[t:])


def _dates(t):
    days = np.arange("2026-01-01", "2026-01-09", dtype="M8[D]")
    return Parts(days=days, today=days[t : t + 1])


def _growing(t):
    table = np.arange(6.0)
    return Parts(table=table, seen=table[: t * 2])


def _shrinking(t):
    table = np.asfortranarray(np.arange(12.0).reshape(6, 2))
    return Parts(seen=table[4 - t * 2 : 4], table=table, last=table[::-1, 2 - t :])


def _growing_bytes(t):
    text = b"0123456789"
    return Parts(text=np.frombuffer(text, np.uint8)[: t * 3], none=np.frombuffer(b"", np.uint8))


def _always_empty(t):
    boxes = np.zeros((0, 4))
    return Parts(boxes=boxes, corners=boxes[:, t:], flat=boxes.reshape(-1))


def _read_only(t):
    table = np.arange(6.0)
    row, frozen = table[t:], table[: t + 1]
    frozen.flags.writeable = False
    table.flags.writeable = t == 0
    return Parts(table=table, row=row, frozen=frozen)


VIEWS = [
    _moving_row, _row_before_its_table, _double_buffer, _sliding_window,
    _reversed_and_transposed, _bytes_of_numbers, _broadcast, _owner_unheld, _fortran,
    _records, _view_of_bytes, _view_of_a_bytearray, _dates, _growing, _shrinking,
    _growing_bytes, _always_empty, _read_only,
]  # fmt: skip


def _shown(parts):
    return {
        name: x.tolist() if isinstance(x, np.ndarray) else bytes(x)
        for name, x in vars(parts).items()
    }


def _scribbled(parts):
    """Everything that is seen while one array after the other is written to."""
    seen = []
    for number, x in enumerate(vars(parts).values()):
        flat = x.flags.writeable if isinstance(x, np.ndarray) else True
        seen.append(flat)
        if flat and isinstance(x, np.ndarray) and x.dtype.fields is None:
            x[...] = np.asarray(number + 40).astype(x.dtype)
        elif isinstance(x, bytearray):
            x[2] = 65
        seen.append(_shown(parts))
    return seen


@pytest.mark.parametrize("make", VIEWS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("then", [0, 1, 2])
def test_views_come_back_at_their_place_in_their_memory(make, then):
    one, other = make(then), make(0)
    graph.load(other, graph.save(one))
    for name, x in vars(one).items():
        if isinstance(x, np.ndarray):
            found = getattr(other, name)
            assert (found.strides, found.dtype) == (x.strides, x.dtype)
            assert found.flags.writeable == x.flags.writeable
            assert (found.base is None) == (x.base is None)
    assert _shown(other) == _shown(one)
    assert _scribbled(other) == _scribbled(one), "written to one, seen in the other"


@pytest.mark.parametrize("make", VIEWS, ids=lambda make: make.__name__)
def test_views_that_a_fresh_environment_does_not_have_are_made(make):
    one = make(1)
    other = Parts(**dict.fromkeys(vars(one)))
    if make is _records:
        with pytest.raises(graph.Mismatch, match="is not there to be put back"):
            graph.load(other, graph.save(one))
        return
    graph.load(other, graph.save(one))
    assert _scribbled(other) == _scribbled(one)


def test_a_view_that_is_in_place_stays_the_same_object():
    one, other = _moving_row(0), _moving_row(0)
    one.table[:] = 7
    row, table = other.row, other.table
    graph.load(other, graph.save(one))
    assert (other.row is row, other.table is table) == (True, True)
    assert row.tolist() == [7] * 4


@pytest.mark.parametrize("length", [0, 4])
@pytest.mark.parametrize("present", ["empty", "whole", "beyond", "nothing"])
def test_an_empty_view_keeps_its_memory_whatever_is_there(length, present):
    def part(table, which):
        if which == "beyond":  # a place that no snapshot records
            return np.lib.stride_tricks.as_strided(table, (99,))
        return {"empty": table[8:8], "whole": table[:], "nothing": None}[which]

    one, other = np.arange(8.0), np.zeros(8)
    target = Parts(table=other, seen=part(other, present))
    graph.load(target, graph.save(Parts(table=one, seen=one[3 : 3 + length])))
    assert target.seen.shape == (length,)
    assert target.seen.base is target.table is other
    other[:] = 5
    assert target.seen.tolist() == [5] * length


def test_an_empty_view_of_an_older_snapshot_comes_back_by_itself():
    older = graph.save(Parts(table=np.arange(3.0), seen=np.zeros(0)))  # written as if its own
    target = Parts(table=np.zeros(3))
    target.seen = target.table[:0]
    graph.load(target, older)
    assert (target.table.tolist(), target.seen.tolist()) == ([0, 1, 2], [])
    again = graph.save(target)
    assert {name: x.tobytes() for name, x in again.items()} == {
        name: x.tobytes() for name, x in older.items()
    }


def test_an_empty_array_in_foreign_memory_is_recorded_by_itself():
    mapped = np.frombuffer(mmap.mmap(-1, 64), np.uint8)[:0]
    assert copied(mapped).shape == (0,)


def test_memory_that_was_private_is_not_put_into_what_is_a_view_now():
    constant = np.zeros(4)
    other = Holder(constant[1:3])
    graph.load(other, graph.save(Holder(np.ones(2))))
    assert other.thing.tolist() == [1, 1]
    assert constant.tolist() == [0] * 4


def test_a_snapshot_does_not_depend_on_where_things_are():
    def text():
        return graph.save(_moving_row(2))["graph"].tobytes()

    assert text() == text()


class Subclass(np.ndarray):
    pass


def test_arrays_in_foreign_memory_are_named():
    mapped = mmap.mmap(-1, 64)
    for array in (
        np.frombuffer(mapped, np.uint8),
        np.frombuffer(array_module.array("d", [1.0])),
        np.asarray(Subclass((3,)))[1:],
    ):
        assert "in the memory of a" in (graph.opaque(Holder(array), "box") or "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"offset": 64', b'"offset": 152'),
        (b'"offset": 64', b'"offset": -8'),
        (b'"offset": 64', b'"offset": 6.4'),
        (b'"strides": [8]', b'"strides": [80]'),
        (b'"strides": [8]', b'"strides": [-32]'),
        (b'"strides": [8]', b'"strides": []'),
        (b'"shape": [4]', b'"shape": [99]'),
        (b'"shape": [4]', b'"shape": [-1]'),
        (b'"shape": [4]', b'"shape": [true]'),
        (
            b'"offset": 64, "strides": [8], "shape": [4]',
            b'"offset": 168, "strides": [8], "shape": [0]',
        ),
        (
            b'"offset": 64, "strides": [8], "shape": [4]',
            b'"offset": -8, "strides": [8], "shape": [0]',
        ),
        (b'"strides": [8], "shape": [4]', b'"strides": [8, 8], "shape": [0, -1]'),
        (
            b'"strides": [8], "shape": [4]',
            b'"strides": [8, 8], "shape": [0, 9999999999999999999999]',
        ),
        (b'"dtype": "<f8"', b'"dtype": "O"'),
        (b'"dtype": "<f8"', b'"dtype": "V200"'),
        (b'"dtype": "<f8"', b'"dtype": "i4,O"'),
        (b'"view": {"same": 1}', b'"view": 7'),
        (b'"view": {"same": 1}', b'"view": {"bytes": "00"}'),
    ],
)
def test_a_forged_view_never_reaches_outside_its_memory(before, after):
    state = graph.save(_moving_row(2))
    text = state["graph"].tobytes()
    assert before in text
    for target in (_moving_row(0), Parts()):
        with pytest.raises(graph.Mismatch):
            graph.load(
                target, state | {"graph": np.frombuffer(text.replace(before, after), np.uint8)}
            )


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


@pytest.mark.parametrize("source", ["np.random", "random"])
def test_drawing_from_the_process_is_noticed_at_any_time(source):
    vector = _many("own")
    vector.reset()
    for _ in range(generators.CALLS + 1):
        vector.step(np.zeros((2, 1), np.int64))
    for env in vector.envs:
        env.source = source
    with pytest.warns(RuntimeWarning, match=f"draws from {source}"):
        vector.step(np.zeros((2, 1), np.int64))
    assert source in vector.inexact


@pytest.mark.parametrize("made", [_many, _ready])
def test_drawing_from_its_own_is_exact(made):
    vector = made("own")
    vector.reset()
    for _ in range(3):
        vector.step(np.zeros((2, 1), np.int64))
    assert vector.inexact is None
    assert vector.snapshot()
