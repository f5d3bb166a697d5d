"""Two snapshots are compared, and the first attribute that differs is named."""

import json
import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dna.common.errors import EnvironmentFailure
from dna.config import EnvConfig
from dna.envs import Making
from dna.envs.gym import GymVector
from dna.envs.state import graph
from dna.envs.state.comparison import difference


class Thing:
    def __init__(self, **fields):
        vars(self).update(fields)


def _made(change=lambda thing: None):
    memory = np.arange(6.0)
    thing = Thing(
        number=1, real=0.5, none=None, words={"b", "a", "c"}, cells={3, 1},
        inner=Thing(items=[1, [2, 3]]), table={"x": 1, (1, 2): np.zeros(2)},
        rng=np.random.default_rng(1), memory=memory, view=memory[2:4],
    )  # fmt: skip
    change(thing)
    return graph.save(thing)


def test_a_snapshot_is_like_itself():
    assert difference(_made(), _made()) is None


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda x: setattr(x, "number", 2), "env.number"),
        (lambda x: setattr(x, "number", True), "env.number"),
        (lambda x: setattr(x, "real", -0.5), "env.real"),
        (lambda x: setattr(x, "none", 0), "env.none"),
        (lambda x: x.words.add("d"), "env.words"),
        (lambda x: x.cells.add(9), "env.cells"),
        (lambda x: x.inner.items[1].append(4), "env.inner.items[1]"),
        (lambda x: setattr(x.inner, "more", 1), "env.inner.more"),
        (lambda x: x.table.update(x=2), "env.table['x']"),
        (lambda x: x.rng.random(), "env.rng"),
        (lambda x: x.memory.__setitem__(5, 1.0), "env.memory"),
        (lambda x: setattr(x, "view", x.memory[1:3]), "env.view"),
        (lambda x: setattr(x, "view", x.memory[2:4].copy()), "env.view"),
        (lambda x: setattr(x.memory.flags, "writeable", False), "env.memory"),
    ],
)
def test_the_first_difference_is_named(change, place):
    assert difference(_made(), _made(change)) == place


def test_an_order_of_words_that_no_process_has_twice_is_no_difference():
    state = _made()
    text = state["graph"].tobytes()
    tree = json.loads(text)
    tree["fields"]["words"]["set"].reverse()
    other = state | {"graph": np.frombuffer(json.dumps(tree).encode(), np.uint8)}
    assert difference(state, other) is None


class Sharing(gymnasium.Env):
    """Holds what its factory gives to all, and counts in it."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, score):
        self.score, self.own = score, [0]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.score[0] += 1
        self.own = self.score
        return np.array([self.score[0] % 7], np.float32), 0.0, False, False, {}


def _many(shared):
    score = [0]
    return GymVector(
        lambda: Sharing(score if shared else [0]), EnvConfig(id="Sharing"), Making(3, (1, 2, 3))
    )


def test_what_environments_share_they_share_again():
    one, other = _many(shared=True), _many(shared=True)
    one.reset()
    one.step(np.zeros((3, 1), np.int64))
    state = one.snapshot()
    other.restore(state)
    assert len({id(env.own) for env in other.envs}) == 1
    assert other.envs[0].score is other.envs[2].own
    assert difference(state, other.snapshot()) is None
    separate = _many(shared=False)
    separate.restore(state)
    assert difference(state, separate.snapshot()) is None, "made to share"


def test_what_environments_do_not_share_stays_apart():
    one, other = _many(shared=False), _many(shared=True)
    one.reset()
    one.envs[1].score[0] = 5
    state = one.snapshot()
    other.restore(state)
    assert [env.score for env in other.envs] == [[0], [5], [0]]
    assert difference(state, other.snapshot()) is None


def test_a_space_that_changed_is_no_silent_loss():
    def holder(choices):
        return Thing(action_space=spaces.Discrete(choices))

    graph.load(holder(3), graph.save(holder(3)))
    with pytest.raises(graph.Mismatch, match="Discrete that changed"):
        graph.load(holder(3), graph.save(holder(4)))


class Deep(Sharing):
    """Needs objects that only its constructor makes."""

    def __init__(self):
        super().__init__([0])
        self.parts = [types.SimpleNamespace()]
        self.last = None

    def reset(self, *, seed=None, options=None):
        self.parts[0].x = 0
        return super().reset(seed=seed)


def test_environments_that_were_half_restored_are_made_again():
    one, other = (GymVector(Deep, EnvConfig(id="Deep"), Making(2, (1, 2))) for _ in range(2))
    one.reset()
    for env in one.envs:
        env.parts.clear()
        env.last = Thing()
    with pytest.raises(EnvironmentFailure, match="cannot be put into"):
        other.restore(one.snapshot())
    other.reset()
    assert [len(env.parts) for env in other.envs] == [1, 1]
