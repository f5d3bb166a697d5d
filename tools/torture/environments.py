"""Environments that die, hang, raise or return invalid values."""

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from torture.ground import Child, Outcome, Toy, Work, fingerprint, finish, shared_out, timed

#: The fault of an environment at step `AT`; set only in a child process.
fault: Callable[["Faulty"], Any] | None = None
AT = 70  # steps of one agent: past the first checkpoints


class Faulty(Toy):
    """The toy environment with a fault at step `AT`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if fault is not None and self.steps == AT:
            return fault(self)
        return super().step(action)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if fault is not None and self.steps >= AT - 10 and fault in (_reset_raises,):
            raise RuntimeError("no new episode")
        return super().reset(seed=seed, options=options)


def _answer(**changes: Any) -> Callable[[Faulty], Any]:
    def answer(env: Faulty) -> Any:
        obs, reward, ended, cut, info = Toy.step(env, 1)
        given = {"obs": obs, "reward": reward, "ended": ended, "cut": cut, "info": info}
        return tuple((given | changes).values())

    return answer


def _raise(error: BaseException) -> Callable[[Faulty], Any]:
    def answer(env: Faulty) -> Any:
        raise error

    return answer


def _reset_raises(env: Faulty) -> Any:
    obs, reward, _, cut, info = Toy.step(env, 1)
    return obs, reward, True, cut, info


def _busy(env: Faulty) -> Any:
    while True:
        pass


def _asleep(env: Faulty) -> Any:
    time.sleep(3600)


def _killed(env: Faulty) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _segfault(env: Faulty) -> Any:
    ctypes.string_at(0)


NAN, SHAPE = float("nan"), np.zeros(4, np.float32)
#: Name → (fault, expected exit codes).
INSIDE: dict[str, tuple[Callable[[Faulty], Any], tuple[int, ...]]] = {
    "raises": (_raise(RuntimeError("boom")), (5,)),
    "raises without a word": (_raise(ValueError()), (5,)),
    "raises an OSError": (_raise(OSError(5, "Input/output error")), (5,)),
    "raises KeyError": (_raise(KeyError("x")), (5,)),
    "runs out of memory": (_raise(MemoryError()), (5,)),
    "recurses": (_raise(RecursionError("deep")), (5,)),
    "asserts": (_raise(AssertionError("x > 0")), (5,)),
    "exits": (_raise(SystemExit(0)), (5,)),
    "stops iterating": (_raise(StopIteration()), (5,)),
    "breaks its pipe": (_raise(BrokenPipeError()), (5,)),
    "raises on reset": (_reset_raises, (5,)),
    "returns None": (lambda env: None, (5,)),
    "returns four values": (lambda env: Toy.step(env, 1)[:4], (5,)),
    "returns six values": (lambda env: (*Toy.step(env, 1), {}), (5,)),
    "wrong shape": (_answer(obs=SHAPE), (5,)),
    "scalar observation": (_answer(obs=np.float32(1)), (5,)),
    "observation is None": (_answer(obs=None), (5,)),
    "observation is text": (_answer(obs="here"), (5,)),
    "observation is ragged": (_answer(obs=[[1], [1, 2]]), (5,)),
    "reward is text": (_answer(reward="much"), (5,)),
    "reward is None": (_answer(reward=None), (4, 5)),  # numpy converts it to NaN
    "reward is a vector": (_answer(reward=np.zeros(3)), (5,)),
    "NaN observation": (_answer(obs=np.full(3, NAN, np.float32)), (4,)),
    "infinite observation": (_answer(obs=np.full(3, np.inf, np.float32)), (4,)),
    "NaN reward": (_answer(reward=NAN), (4,)),
    "infinite reward": (_answer(reward=-np.inf), (4,)),
    "busy for ever": (_busy, (5,)),
    "asleep for ever": (_asleep, (5,)),
    "killed": (_killed, (-signal.SIGKILL,)),
    "segmentation fault": (_segfault, (-signal.SIGSEGV,)),
}
WORKER = {"worker killed": signal.SIGKILL, "worker frozen": signal.SIGSTOP}
#: Seconds until the process must end; a frozen worker may be saving a game, which is slow.
SECONDS, FROZEN = 15.0, 45.0


def environment_faults(root: Path, every: int = 1, workers: int = 20) -> Outcome:
    """Inject every `every`-th fault in the process; kill and freeze workers of Atari games."""
    with timed("environment that fails") as outcome:
        work = Work("dna", "toy", source=Faulty)
        trouble = finish(work, root / "whole")
        assert not trouble, trouble
        expected = fingerprint(root / "whole")

        def one(name: str, part: Outcome) -> None:
            _inside(root / name.replace(" ", "-"), work, name, expected, part)

        shared_out(outcome, list(INSIDE)[::every], one)
        if workers:
            game = Work("dna", "ALE/Qbert-v5")
            trouble = finish(game, root / "game")
            assert not trouble, trouble
            for number in range(workers):
                name = list(WORKER)[number % 10 == 9]  # a frozen one takes ten seconds
                _outside(root / "hit", game, name, fingerprint(root / "game"), outcome, number)
    return outcome


def _inside(
    folder: Path, work: Work, name: str, expected: dict[str, str], outcome: Outcome
) -> None:
    answer, codes = INSIDE[name]

    def before() -> None:
        sys.modules[__name__].fault = answer  # type: ignore[attr-defined]

    def live() -> None:
        work.train(folder, env_timeout=2.0)

    child = Child(live, folder.with_suffix(".log"), before)
    _judge(folder, work, child, (codes, SECONDS), name, expected, outcome)


def _outside(
    folder: Path,
    work: Work,
    name: str,
    expected: dict[str, str],
    outcome: Outcome,
    number: int,
) -> None:
    child = Child(lambda: work.train(folder), folder.with_suffix(".log"))
    workers, patience = list[int](), time.perf_counter() + 60
    # Wait until a worker exists and the run has started.
    while not (workers and (folder / "metrics.jsonl").is_file()):
        assert time.perf_counter() < patience, "no worker has begun"
        time.sleep(0.01)
        workers = _workers(child.pid)
    time.sleep(0.05 * number)
    os.kill(workers[number % len(workers)], WORKER[name])
    limit = FROZEN if name == "worker frozen" else SECONDS
    _judge(folder, work, child, ((5,), limit), name, expected, outcome)


def _judge(
    folder: Path,
    work: Work,
    child: Child,
    allowed: tuple[tuple[int, ...], float],
    name: str,
    expected: dict[str, str],
    outcome: Outcome,
) -> None:
    start = time.perf_counter()
    code = child.wait(60)
    took, said = time.perf_counter() - start, child.said()
    child.newest()
    plain, (codes, limit) = "Traceback" not in said, allowed
    trouble = finish(work, folder)
    same = not trouble and fingerprint(folder) == expected
    outcome.count(
        code in codes and took < limit and plain and same,
        f"{name}: exit {code} in {took:.1f} s, same {same}, {trouble or said[-200:]}",
    )
    shutil.rmtree(folder, ignore_errors=True)


def _workers(pid: int) -> list[int]:
    """Return the Atari workers of a process, which may briefly have other children."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"dna.envs.atari.workers" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found
