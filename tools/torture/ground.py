"""Common parts of the fault injection: small runs in child processes that can be killed.

The parent imports everything once and forks a child for each attempt, so that an attempt takes
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
from dataclasses import dataclass, field, fields
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
#: Files with everything a run computes, without wall-clock times.
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


#: Counters of an outcome that must stay 0.
HARM = ("lost", "differing", "executed", "hangs", "memory")
#: Bytes by which no child process may grow.
MEMORY = 2 * 2**30
#: Seconds between two lines of progress.
PROGRESS = 30.0


@dataclass
class Outcome:
    """One line of the table."""

    name: str
    tried: int = 0
    survived: int = 0
    lost: int = 0  # acknowledged checkpoints, results or unrelated files
    differing: int = 0  # runs whose result differs from that of an undisturbed run
    executed: int = 0  # files whose content was executed
    hangs: int = 0  # processes that had to be killed because they did not end
    memory: int = 0  # processes that grew by more than `MEMORY`
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    reported: float = field(default_factory=time.perf_counter, repr=False)

    @property
    def harm(self) -> dict[str, int]:
        """The counters that must stay 0."""
        return {name: getattr(self, name) for name in HARM}

    @property
    def trouble(self) -> list[str]:
        """What did not survive or did harm; empty on success."""
        if self.survived == self.tried and not any(self.harm.values()):
            return []
        return [f"{self.survived} of {self.tried}, {self.harm}", *self.notes]

    def count(self, good: bool, note: str) -> None:
        """Count an attempt, and keep the note if it failed."""
        self.add(1, int(good))
        if not good:
            self.notes.append(note)

    def add(self, tried: int, survived: int) -> None:
        """Count several attempts, and print how far this part is."""
        self.tried += tried
        self.survived += survived
        if self.name and time.perf_counter() - self.reported > PROGRESS:
            self.reported = time.perf_counter()
            print(f"    {self.tried} tried, {self.survived} survived", file=sys.stderr)

    def merge(self, other: "Outcome") -> None:
        """Add the figures of a share of this part."""
        for name in HARM:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.notes += other.notes
        self.add(other.tried, other.survived)

    def to_json(self) -> dict[str, Any]:
        """The figures, for a file or another process."""
        tree = {k: v for k, v in vars(self).items() if k != "reported"}
        return {"name": tree.pop("name"), **tree}

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "Outcome":
        """Read what `to_json` made; entries that it does not know are ignored."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in tree.items() if k in known})


#: Hangs and excessive memory of the child processes of this process, whatever their part.
_children = Outcome("")


@contextlib.contextmanager
def timed(name: str) -> Iterator[Outcome]:
    """Provide an outcome, and record its time and what its child processes did."""
    outcome, start = Outcome(name), time.perf_counter()
    _take_children()
    yield outcome
    outcome.merge(_take_children())
    outcome.seconds = time.perf_counter() - start


def _take_children() -> Outcome:
    """Return what was counted about child processes, and start again at 0."""
    global _children
    taken, _children = _children, Outcome("")
    return taken


def _counter() -> Callable[[], int]:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return steps

    return count


class Foe:
    """A dictionary key with identity but without a name."""


class Toy(gymnasium.Env):
    """A small environment that keeps its state in closures, generators and object keys."""

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
    verify: bool = True  # whether restored environments are checked after checkpoints

    @property
    def config(self) -> Config:
        """A tiny configuration in which everything that has state is enabled."""
        toy = self.env == TOY or self.source is not None
        config = tiny(self.algorithm, None if toy else self.env, interactions=self.interactions)
        if self.env.startswith("ALE/"):
            # Eight games are enough for worker processes to be used.
            changes: dict[str, Any] = {"agents": 8, "interactions": 2 * self.interactions}
            changes |= {"env.atari": {}, "env.time_limit": "terminal"}
            config = tweak(config, **changes, repeat_penalty={"amount": 0.25, "after": 3})
        return config

    def how(self, **more: Any) -> How:
        """Options that save a checkpoint every iteration or two."""
        settings = {"verify": self.verify} | more
        return How(threads=1, checkpoint_every=64, tensorboard=False, **settings)

    def train(self, path: Path, sinks: Sequence[Any] = (), **more: Any) -> None:
        """Train in this process."""
        source = self.source or (Toy if self.env == TOY else None)
        how = self.how(**more)
        dna.runs.train.train(self.config, SEED, path, how=how, source=source, sinks=sinks)

    @property
    def digest(self) -> str:
        """Digest of configuration and seed."""
        return digest(self.config, SEED)


#: Exit code of a child process that did not end in time.
HUNG = 999


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Child:
    """A forked process that trains and writes its output to a log."""

    def __init__(
        self,
        work: Callable[[], None],
        log: Path,
        before: Callable[[], None] | None = None,
        marks: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self.grown = 0  # bytes, once it has ended
        self.acknowledged, theirs = os.pipe()
        self.start = _resident()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.acknowledged)
            _live(work, log, before, marks or {}, theirs)
        os.close(theirs)

    def kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """Return the exit code, −n for signal n; kill a child that hangs and return `HUNG`."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._measure(usage.ru_maxrss)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        self.kill(signal.SIGKILL)
        self._measure(os.wait4(self.pid, 0)[2].ru_maxrss)
        _children.hangs += 1
        return HUNG

    def _measure(self, kilobytes: int) -> None:
        self.grown = max(1024 * kilobytes - self.start, 0)
        _children.memory += self.grown > MEMORY

    def newest(self) -> int:
        """Return the interactions of the last acknowledged checkpoint and close the pipe."""
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
    """Run the child; never returns."""
    code = 1
    try:
        os.environ.update(marks)
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        # pytest replaced both.
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        warnings.resetwarnings()  # pytest turns them into errors
        warnings.showwarning = lambda message, *_: os.write(2, f"{message}\n".encode())
        save = checkpoint.save

        def acknowledged(*args: Any) -> Path:
            path = save(*args)
            os.write(acknowledge, path.name.encode() + b"\n")
            return path

        checkpoint.save = acknowledged
        if before is not None:
            before()
        with stop_signals():  # as on the command line
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
    """Hash everything a finished run computed, including the tensors of its last checkpoint."""
    newest = folder / "checkpoints" / checkpoint.names(folder)[-1] / "rank0.safetensors"
    found = {name: (folder / name) for name in FILES} | {newest.parent.name: newest}
    return {n: hashlib.sha256(path.read_bytes()).hexdigest() for n, path in found.items()}


def reference(work: Work, folder: Path) -> tuple[dict[str, str], float]:
    """Train without faults; return the fingerprint and the seconds."""
    start = time.perf_counter()
    child = Child(lambda: work.train(folder), folder.with_suffix(".log"))
    code = child.wait(120)
    child.newest()
    assert code == 0, child.said()
    return fingerprint(folder), time.perf_counter() - start


def finish(work: Work, folder: Path, **more: Any) -> str:
    """Resume without faults until the run is done; return an empty string or the error."""
    child = Child(lambda: work.train(folder, **more), folder.with_suffix(".log"))
    code = child.wait(120)
    child.newest()
    return "" if code == 0 else f"exit {code}: {child.said()[-300:]}"


def intact(work: Work, folder: Path, acknowledged: int) -> bool:
    """Return whether a checkpoint at least as new as the acknowledged one is valid."""
    if not acknowledged:
        return True
    try:
        saved = checkpoint.latest(folder, work.digest)
    except StorageFailure:
        return False
    return saved is not None and saved.interactions >= acknowledged


def warm_up() -> None:
    """Import everything once, so that forked children need not."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Work("dna", TOY, interactions=64).train(Path(folder) / "toy")
        Work("dna", "CartPole-v1", interactions=64).train(Path(folder) / "run")
        Work("ppg", "HalfCheetah-v5", interactions=128).train(Path(folder) / "b")
        Work("ppo", "MinAtar/Breakout-v1", interactions=64).train(Path(folder) / "c")


def shared_out(
    outcome: Outcome, cases: Sequence[Any], one: Callable[[Any, Outcome], None]
) -> None:
    """Run all cases in one process per core and add up their outcomes."""
    lines = []
    for share in range(CORES):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                part = Outcome("")
                _take_children()
                mine = cases[share::CORES]
                for number, case in enumerate(mine):
                    one(case, part)
                    if share == 0 and time.perf_counter() - part.reported > PROGRESS:
                        part.reported = time.perf_counter()
                        print(f"    {number + 1} of {len(mine)}", file=sys.stderr, flush=True)
                part.merge(_take_children())
                with os.fdopen(theirs, "w") as file:
                    json.dump(part.to_json(), file)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(theirs)
        lines.append(ours)
    for line in lines:
        with os.fdopen(line) as file:
            outcome.merge(Outcome.from_json(json.loads(file.read())))
        os.wait()


def dice(part: str) -> random.Random:
    """Return a random generator with a fixed seed."""
    return random.Random(f"torture/{part}")
