"""While it trains, a run finds out whether a resume would be exact, and says so."""

import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dna.common.errors import Preempted
from dna.common.forked_copy import can_fork
from dna.envs.factory import UserEnv
from dna.runs import checkpoint, restore_check
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import train
from helpers import Stopper, bytes_of, collector, tiny

pytestmark = pytest.mark.skipif(not can_fork(), reason="the check needs a forked copy")
HOW = How(tensorboard=False, threads=1, checkpoint_every=1)
FILES = ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors")


class Walk(gymnasium.Env):
    """Shows a number and the time; where the number is kept is up to the subclasses."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.start()
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        self.move(action)
        return self.seen(), float(self.x % 3), self.t >= 9, False, {}

    def seen(self):
        return np.array([self.x, self.t], np.float32)

    def start(self):
        self.x = 0.0

    def move(self, action):
        self.x += action


class Rows(Walk):
    """A row that moves through a table that remembers."""

    def start(self):
        self.table = np.zeros((12, 2))
        self.row = self.table[0]
        self.x = 0.0

    def move(self, action):
        self.row += action + 1
        self.row = self.table[(self.t * 5) % 12]
        self.x = float(self.table.sum() + 10 * self.row[0])


class Seen(Walk):
    """A window over what has been seen, which is empty at first."""

    def start(self):
        self.buffer = np.zeros(12)
        self.window = self.buffer[:0]
        self.x = 0.0

    def move(self, action):
        self.buffer[self.t] = action + 1
        self.window = self.buffer[: self.t + 1]
        self.x = float(self.window.sum())


class Ahead(Seen):
    """A window that is whole at first and then empty at every second step."""

    def start(self):
        super().start()
        self.window = self.buffer[:]

    def move(self, action):
        self.window.base[self.t] = action + 1
        self.window = self.buffer[self.t % 2 * 12 :]
        self.x = float(self.buffer.sum())


class Ball:
    def __init__(self, size):
        self.size = size


class Growing(Walk):
    def start(self):
        self.balls = []
        self.x = 0.0

    def move(self, action):
        self.balls.append(Ball(self.t))
        self.x = float(sum(ball.size for ball in self.balls))


class InClass(Walk):
    count = 0

    def move(self, action):
        InClass.count += 1
        self.x = float(InClass.count % 97)


class ById(Walk):
    def start(self):
        self.key = [0]
        self.table = {id(self.key) + 1: 1.0}
        self.x = 0.0

    def move(self, action):
        self.x = self.table[id(self.key) + 1]


class LateGrowing(Growing):
    """Like `Growing`, after the first checkpoint."""

    def __init__(self):
        self.steps = 0

    def move(self, action):
        self.steps += 1
        if self.steps > 30:
            super().move(action)


class Counts(Walk):
    """Uses a dict that is called a cache as a counter, and starts to use it late."""

    cache = {}  # noqa: RUF012

    def start(self):
        self.cache[len(self.cache)] = 1
        self.x = float(len(self.cache) > 1000)


class Caches(Walk):
    """Keeps what it can compute again."""

    cache = {}  # noqa: RUF012

    def move(self, action):
        if self.x not in self.cache:
            self.cache[self.x] = [2 * self.x]
        self.x += self.cache[self.x][0] % 3 + action


class Draws(Walk):
    """Draws what its cache does not hold yet."""

    cache = {}  # noqa: RUF012

    def start(self):
        level = int(self.np_random.integers(3))
        if level not in self.cache:
            self.cache[level] = self.np_random.random()
        self.x = self.cache[level]


class CopiesOnWrite(Walk):
    """Begins with a list of the class, and copies it before the first change."""

    first = [0, 0]  # noqa: RUF012

    def start(self):
        self.place = self.first
        self.x = 0.0

    def move(self, action):
        if self.t == 1:
            self.place = [*self.place]
        self.place[0] = (self.place[0] + action) % 2
        self.x = float(self.place[0] + 2 * self.first[0])


def said(tmp_path, source, how=HOW, **changes):
    """Train, and return the reasons in machine.json."""
    train(tiny("ppo", None, **changes), 0, tmp_path, how=how, source=source)
    machine = RunFolder(tmp_path).machine()
    assert machine["exact"] == (not machine["why_not_exact"])
    return machine["why_not_exact"]


@pytest.mark.parametrize("kind", [Walk, Rows, Seen, Ahead, Caches, CopiesOnWrite])
def test_what_can_be_restored_is_exact_and_the_check_changes_nothing(kind, tmp_path):
    assert said(tmp_path / "checked", kind) == []
    unchecked = How(tensorboard=False, threads=1, checkpoint_every=1, verify=False)
    assert said(tmp_path / "unchecked", kind, unchecked) == []
    assert bytes_of(tmp_path / "checked", *FILES) == bytes_of(tmp_path / "unchecked", *FILES)


def test_a_row_that_moved_goes_on_where_it_was(tmp_path):
    config = tiny("ppo", None)
    train(config, 3, tmp_path / "whole", how=HOW, source=Rows)
    with pytest.raises(Preempted):
        train(config, 3, tmp_path / "cut", how=HOW, source=Rows, sinks=[Stopper(0)])
    train(config, 3, tmp_path / "cut", how=HOW, source=Rows)
    assert bytes_of(tmp_path / "whole", *FILES) == bytes_of(tmp_path / "cut", *FILES)
    assert RunFolder(tmp_path / "cut").machine()["exact"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Growing, "cannot be restored from a checkpoint"),
        (InClass, "InClass.count, which checkpoints do not hold"),
        (InClass, "continue differently (observation of agent 0, step 1)"),
        (ById, "restored environments fail"),
        (Counts, "Counts.cache cannot be computed again"),
        (Draws, "continue differently (observation of agent "),
    ],
)
def test_what_cannot_be_restored_is_said_while_training(kind, reason, tmp_path):
    with pytest.warns(RuntimeWarning) as warned:
        reasons = said(tmp_path, kind)
    assert [f"a resumed run may not be exact: {each}" for each in reasons] == [
        str(one.message) for one in warned
    ]
    assert any(reason in each for each in reasons)


def test_where_nothing_is_forked_a_cache_may_not_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(restore_check, "can_fork", lambda: False)
    monkeypatch.setattr(Caches, "cache", {})
    with pytest.warns(RuntimeWarning):
        (why,) = said(tmp_path, Caches)
    assert why.endswith("Caches.cache, which checkpoints do not hold")


def test_a_later_checkpoint_is_checked_too_and_a_resume_knows_of_it(tmp_path):
    config = tiny("ppo", None, interactions=320)
    with (
        pytest.warns(RuntimeWarning, match="cannot be restored from"),
        pytest.raises(Preempted),
    ):
        train(config, 0, tmp_path, how=HOW, source=LateGrowing, sinks=[Stopper(3)])
    (why,) = RunFolder(tmp_path).machine()["why_not_exact"]
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    shutil.rmtree(newest)  # as if the run had been killed before it
    with pytest.warns(RuntimeWarning):
        train(config, 0, tmp_path, how=HOW, source=LateGrowing)
    assert RunFolder(tmp_path).machine()["why_not_exact"][0] == why


class InThread(Walk):
    """Keeps its state in a thread of the module."""

    def move(self, action):
        if InThread.pool is None:
            InThread.pool = ThreadPoolExecutor(1)
        self.x = float(InThread.pool.submit(lambda: self.t).result())

    pool = None


def test_a_copy_that_hangs_when_it_is_played_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(restore_check, "PATIENCE", 0.5)
    with pytest.warns(RuntimeWarning):
        assert "restored environments do not answer" in said(tmp_path, InThread)
    InThread.pool.shutdown()


def test_the_check_can_be_turned_off(tmp_path):
    how = How(tensorboard=False, threads=1, checkpoint_every=1, verify=False)
    assert said(tmp_path, Growing, how) == []


def test_an_instance_of_the_user_is_checked_in_a_copy(tmp_path):
    config = tiny("ppo", None, agents=1)
    env = InClass()
    with pytest.warns(RuntimeWarning):
        reasons = said(tmp_path, UserEnv(env).source(1, config.env), agents=1)
    assert any("continue differently" in reason for reason in reasons)


class Obstinate(Walk):
    """Can be made as often as a run needs it; then it hangs, exits or raises."""

    left = 0
    end = "hang"

    def __init__(self):
        Obstinate.left -= 1
        if Obstinate.left < 0 and Obstinate.end == "hang":
            time.sleep(60)
        elif Obstinate.left < 0:
            raise SystemExit(7) if Obstinate.end == "exit" else StopIteration


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("hang", "environments were not made a second time within 0.5 s to check it"),
        ("exit", "environments cannot be made a second time to check it (environment: "),
        ("raise", "environments cannot be made a second time to check it (environment: "),
    ],
)
def test_what_cannot_be_checked_is_said_and_does_not_harm_the_run(
    end, reason, tmp_path, monkeypatch
):
    monkeypatch.setattr(restore_check, "MAKING", 0.5)
    monkeypatch.setattr(Obstinate, "left", 4)
    monkeypatch.setattr(Obstinate, "end", end)
    with pytest.warns(RuntimeWarning, match="a resumed run may not be exact: environments"):
        (why,) = said(tmp_path, Obstinate)
    assert why.startswith(reason)


class Dying(Walk):
    """Ends the process when it is made more often than a run needs it."""

    left = 0

    def __init__(self):
        Dying.left -= 1
        if Dying.left < 0:
            os._exit(9)


def test_a_copy_that_dies_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(Dying, "left", 4)
    with pytest.warns(RuntimeWarning):
        assert said(tmp_path, Dying) == [
            "the process that makes environments a second time to check it died"
        ]


class Outside(Walk):
    """Does something outside of the process when it is made, or when it steps."""

    place = None

    def count(self):
        path = self.place / "count"
        path.write_text(str(int(path.read_text()) + 1) if path.exists() else "0")
        return float(int(path.read_text()) % 97)


class CountsInFile(Outside):
    def move(self, action):
        self.x = self.count()


class Logs(Outside):
    def __init__(self):
        (self.place / "log").write_text("")

    def move(self, action):
        with (self.place / "log").open("a") as log:
            log.write("a step\n")


class MakesFolder(Outside):
    def __init__(self):
        self.folder = tempfile.mkdtemp(dir=self.place)


class Starts(Outside):
    def __init__(self):
        self.pid = subprocess.Popen(["sleep", "0"]).pid
        (self.place / f"started-{self.pid}").touch()


@pytest.mark.parametrize(
    ("kind", "attempt"),
    [
        (CountsInFile, "write"),
        (Logs, "write"),
        (MakesFolder, "create"),
        (Starts, "start sleep"),
    ],
)
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_the_check_changes_nothing_outside_of_the_process(kind, attempt, tmp_path, monkeypatch):
    found = {}
    for verify in (True, False):
        place = tmp_path / f"place-{verify}"
        place.mkdir()
        monkeypatch.setattr(Outside, "place", place)
        how = How(tensorboard=False, threads=1, checkpoint_every=1, verify=verify)
        with pytest.warns(RuntimeWarning) if verify else nullcontext():
            reasons = said(tmp_path / f"run-{verify}", kind, how)
        assert len(reasons) == verify
        assert all(f"environments {attempt}" in reason for reason in reasons), reasons
        left = sorted(path.name[:3] for path in place.iterdir())
        content = [path.read_text() for path in place.iterdir() if path.is_file()]
        found[verify] = left, content, bytes_of(tmp_path / f"run-{verify}", *FILES)
    assert found[True] == found[False]


def test_restored_environments_are_written_again_and_compared():
    acting = collector(tiny("ppo", "CartPole-v1"))
    state = acting.env.snapshot()
    assert checkpoint._check_environments(acting, state) is None
    acting.env.step(np.zeros((4, 1), np.int64))
    reason = checkpoint._check_environments(acting, state) or ""
    assert "elapsed" in reason
    acting.env.elapsed[:] = 0
    reason = checkpoint._check_environments(acting, state) or ""
    assert "agent 0: env.env." in reason
