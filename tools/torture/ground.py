"""What every part of the campaign stands on: small runs, in children that can be killed.

The parent loads everything once and forks a child for each attempt, so that an attempt costs
a fraction of a second. Nothing is mocked: the children are real processes with real files.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import dna.runs.train
from dna.common.errors import DnaError, StorageFailure
from dna.common.process import stop_signals
from dna.config import Config
from dna.config.overrides import digest, tweak
from dna.runs import checkpoint
from dna.runs.setup import How
from helpers import tiny

SEED, CORES = 3, os.cpu_count() or 1
#: Everything a run computes. Wall-clock files are not among them.
FILES = ("config.json", "metrics.jsonl", "episodes.csv", "policy/policy.safetensors")
TOY = "toy"
ENVS = (
    TOY,
    "CartPole-v1",
    "HalfCheetah-v5",
    "MinAtar/Breakout-v1",
    "ALE/Pong-v5",
    "ALE/Breakout-v5",
    "ALE/Qbert-v5",
)
ALGORITHMS = ("ppo", "dna", "ppg")


@dataclass
class Outcome:
    """One line of the table."""

    name: str
    tried: int = 0
    survived: int = 0
    lost: int = 0  # acknowledged checkpoints, bytes of results, files outside: must stay 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def trouble(self) -> list[str]:
        """What did not survive or was lost; empty is what everything here is for."""
        if self.survived == self.tried and not self.lost:
            return []
        return [f"{self.survived} of {self.tried}, {self.lost} lost", *self.notes]

    def count(self, good: bool, note: str) -> None:
        """One more try; what went wrong is noted."""
        self.tried += 1
        self.survived += good
        if not good:
            self.notes.append(note)


@contextlib.contextmanager
def timed(name: str) -> Iterator[Outcome]:
    """An outcome that knows how long it took."""
    outcome, start = Outcome(name), time.perf_counter()
    yield outcome
    outcome.seconds = time.perf_counter() - start


def _counter() -> Callable[[], int]:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return steps

    return count


class Foe:
    """Something that is found by what it is, not by its name."""


class Toy(gymnasium.Env):
    """A few numbers that depend on everything that happened before, kept in odd places."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-10, 10, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.state, self.t, self.count = np.zeros(3), 0, _counter()
        self.past: Any = None
        self.foes = {Foe(): 0.1, Foe(): 0.2}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state, self.t = self.np_random.normal(size=3), 0
        self.past, (self.own,) = deque(maxlen=3), self.np_random.spawn(1)
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.state = np.tanh(self.state + (2 * int(action) - 1) * 0.3)
        self.state += 0.1 * self.own.normal(size=3) + 0.01 * (self.count() % 7)
        self.past.append(float(self.state[0]))
        self.foes = {foe: 0.9 * worth + self.past[0] for foe, worth in self.foes.items()}
        ended = bool(self.np_random.random() < 0.05)
        reward = float(self.state.sum()) + sum(self.past) + 0.1 * sum(self.foes.values())
        return self.state.astype(np.float32), reward, ended, self.t >= 30, {}


@dataclass(frozen=True)
class Work:
    """A small run: twelve iterations of an algorithm on an environment."""

    algorithm: str
    env: str
    interactions: int = 768
    source: Any = None

    @property
    def config(self) -> Config:
        """With everything that has state switched on."""
        toy = self.env == TOY or self.source is not None
        config = tiny(self.algorithm, None if toy else self.env, interactions=self.interactions)
        if self.env.startswith("ALE/"):
            # Eight games: so many that worker processes play them.
            changes: dict[str, Any] = {"agents": 8, "interactions": 2 * self.interactions}
            changes |= {"env.atari": {}, "env.time_limit": "terminal"}
            config = tweak(config, **changes, repeat_penalty={"amount": 0.25, "after": 3})
        return config

    def how(self, **more: Any) -> How:
        """A checkpoint at every iteration or two."""
        return How(threads=1, checkpoint_every=64, tensorboard=False, **more)

    def train(self, path: Path, sinks: Sequence[Any] = (), **more: Any) -> None:
        """In this process."""
        source = self.source or (Toy if self.env == TOY else None)
        how = self.how(**more)
        dna.runs.train.train(self.config, SEED, path, how=how, source=source, sinks=sinks)

    @property
    def digest(self) -> str:
        """Of configuration and seed."""
        return digest(self.config, SEED)


class Child:
    """A forked process that trains; `said` is what it would have printed."""

    def __init__(
        self,
        work: Callable[[], None],
        log: Path,
        before: Callable[[], None] | None = None,
        marks: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self.acknowledged, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.acknowledged)
            _live(work, log, before, marks or {}, theirs)
        os.close(theirs)

    def kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code, −n for a signal; one that hangs is killed and gives 999."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        self.kill(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return 999

    def newest(self) -> int:
        """Interactions of the last checkpoint whose saving had returned; closes the pipe."""
        with os.fdopen(self.acknowledged, "rb") as file:
            names = file.read().split()
        return int(names[-1]) if names else 0

    def said(self) -> str:
        return self.log.read_text(errors="replace").strip() if self.log.exists() else ""


def _live(
    work: Callable[[], None],
    log: Path,
    before: Callable[[], None] | None,
    marks: dict[str, str],
    acknowledge: int,
) -> None:
    """The child's life; it never returns."""
    code = 1
    try:
        os.environ.update(marks)
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)  # not pytest's
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        warnings.resetwarnings()  # pytest makes errors of them
        warnings.showwarning = lambda message, *_: os.write(2, f"{message}\n".encode())
        save = checkpoint.save

        def acknowledged(*words: Any) -> Path:
            path = save(*words)
            os.write(acknowledge, path.name.encode() + b"\n")
            return path

        checkpoint.save = acknowledged
        if before is not None:
            before()
        with stop_signals():  # as the command line does it
            work()
        code = 0
    except DnaError as error:
        os.write(2, f"{error}\n".encode())
        code = error.exit_code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def fingerprint(folder: Path) -> dict[str, str]:
    """Hashes of all that a finished run computed, the last checkpoint's tensors included."""
    newest = folder / "checkpoints" / checkpoint.names(folder)[-1] / "rank0.safetensors"
    found = {name: (folder / name) for name in FILES} | {newest.parent.name: newest}
    return {n: hashlib.sha256(path.read_bytes()).hexdigest() for n, path in found.items()}


def reference(work: Work, folder: Path) -> tuple[dict[str, str], float]:
    """The run that nobody disturbed, and its seconds."""
    start = time.perf_counter()
    child = Child(lambda: work.train(folder), folder.with_suffix(".log"))
    code = child.wait(120)
    child.newest()
    assert code == 0, child.said()
    return fingerprint(folder), time.perf_counter() - start


def finish(work: Work, folder: Path, **more: Any) -> str:
    """Resume until done, undisturbed; empty, or what was said instead."""
    child = Child(lambda: work.train(folder, **more), folder.with_suffix(".log"))
    code = child.wait(120)
    child.newest()
    return "" if code == 0 else f"exit {code}: {child.said()[-300:]}"


def intact(work: Work, folder: Path, acknowledged: int) -> bool:
    """Whether a checkpoint at least as new as the acknowledged one verifies."""
    if not acknowledged:
        return True
    try:
        saved = checkpoint.latest(folder, work.digest)
    except StorageFailure:
        return False
    return saved is not None and saved.interactions >= acknowledged


def warm_up() -> None:
    """Load everything once, so that forked children have it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Work("dna", "CartPole-v1", interactions=64).train(Path(folder) / "run")
        Work("ppg", "HalfCheetah-v5", interactions=128).train(Path(folder) / "b")
        Work("ppo", "MinAtar/Breakout-v1", interactions=64).train(Path(folder) / "c")


def shared_out(
    outcome: Outcome, cases: Sequence[Any], one: Callable[[Any, Outcome], None]
) -> None:
    """All cases, in as many processes as there are cores; what they count is added up."""
    lines = []
    for share in range(CORES):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                part = Outcome("")
                for case in cases[share::CORES]:
                    one(case, part)
                with os.fdopen(theirs, "w") as file:
                    json.dump([part.tried, part.survived, part.lost, part.notes], file)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(theirs)
        lines.append(ours)
    for line in lines:
        with os.fdopen(line) as file:
            tried, survived, lost, notes = json.loads(file.read())
        os.wait()
        outcome.tried += tried
        outcome.survived += survived
        outcome.lost += lost
        outcome.notes += notes


def dice(part: str) -> random.Random:
    """Chances that are the same every time."""
    return random.Random(f"torture/{part}")
