"""Faults of environments: what goes wrong where, and how the command must end."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from torture.ground import Toy

AT = 70  # steps of one agent: past the first checkpoints
NAN = float("nan")
#: The fault of this process, and the folder of its run; set only in a child process.
fault: "Fault | None" = None
folder = Path()

Act = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Fault:
    """Something that an environment does once."""

    act: Act  # (environment, action) → what `step` returns
    codes: tuple[int, ...] = (5,)
    where: str = "step"  # or reset, close, made
    space: str = "toy"


def happened() -> Path:
    """Return the file that exists once the fault has happened, in one of the environments.

    A variable of this module would be one that environments change: a run would name it.
    """
    return folder.with_suffix(".happened")


def due(where: str, steps: int = AT) -> "Fault | None":
    """Return the fault if it is to happen here and now."""
    if fault is None or fault.where != where or steps < AT or happened().exists():
        return None
    happened().touch()
    return fault


class Faulty(Toy):
    """The toy environment, with the fault of this process."""

    def __init__(self) -> None:
        if found := due("made"):
            found.act(self, None)
        super().__init__()
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if found := due("step", self.steps):
            return found.act(self, action)
        answer = super().step(action)
        waits = fault is not None and fault.where == "reset" and not happened().exists()
        if waits and self.steps >= AT:
            return (*answer[:2], True, *answer[3:])  # end the episode, so that a reset follows
        return answer

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        answer = super().reset(seed=seed, options=options)
        if found := due("reset", self.steps):
            return found.act(self, answer)
        return answer

    def close(self) -> None:
        if found := due("close"):
            found.act(self, None)
        super().close()


# ── other spaces ─────────────────────────────────────────────────────────────────────────────

SPACES: dict[str, Callable[[], spaces.Space[Any]]] = {
    "toy": lambda: spaces.Box(-10, 10, (3,), np.float32),
    "discrete": lambda: spaces.Discrete(5),
    "bits": lambda: spaces.MultiBinary(4),
    "choices": lambda: spaces.MultiDiscrete([3, 4]),
    "image": lambda: spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "dict": lambda: spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)}),
    "double": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float64),
}


class Spaced(gymnasium.Env[Any, Any]):
    """An environment with any observation space, and the fault of this process."""

    def __init__(self, space: str) -> None:
        self.observation_space = SPACES[space]()
        self.action_space = spaces.Discrete(2)
        self.steps = 0

    def _sample(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        sample = self.observation_space.sample()
        return sample % 1 if self.observation_space.dtype == np.float64 else sample

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if found := due("step", self.steps):
            return found.act(self, action)
        return self._sample(), float(action), bool(self.np_random.random() < 0.05), False, {}


def discrete() -> Spaced:
    """An environment with `Discrete` observations."""
    return Spaced("discrete")


def bits() -> Spaced:
    """An environment with `MultiBinary` observations."""
    return Spaced("bits")


def choices() -> Spaced:
    """An environment with `MultiDiscrete` observations."""
    return Spaced("choices")


def image() -> Spaced:
    """An environment with images."""
    return Spaced("image")


def dict_() -> Spaced:
    """An environment with `Dict` observations."""
    return Spaced("dict")


def double() -> Spaced:
    """An environment with observations of double precision."""
    return Spaced("double")


def factory_of(space: str) -> str:
    """Return the id of the environment with this space."""
    names = {"toy": "Faulty", "dict": "dict_"}
    return f"torture.faults:{names.get(space, space)}"


# ── what an environment does ─────────────────────────────────────────────────────────────────


def _answer(**changes: Any) -> Act:
    """Return an answer in which some of the five values are replaced."""

    def act(env: Any, action: Any) -> Any:
        obs, reward, ended, cut, info = _good(env, action)
        given = {"obs": obs, "reward": reward, "ended": ended, "cut": cut, "info": info}
        return tuple((given | changes).values())

    return act


def _good(env: Any, action: Any) -> Any:
    if isinstance(env, Toy):
        return Toy.step(env, action)
    return env._sample(), 0.0, False, False, {}


def _raise(error: BaseException | type[BaseException]) -> Act:
    def act(env: Any, action: Any) -> Any:
        raise error

    return act


def _harmless(effect: Callable[[Any], Any]) -> Act:
    """Do something that does not concern the run, and answer properly."""

    def act(env: Any, action: Any) -> Any:
        effect(env)
        return _good(env, action)

    return act


def _signal(number: int) -> Act:
    """Send this process a signal; a run that is asked to stop saves first."""
    return _harmless(lambda env: os.kill(os.getpid(), number))


def _only_reset(value: Any) -> Act:
    return lambda env, answer: value


class Odd(BaseException):
    """Derived from BaseException, as those of trio and gevent are."""


class Mute(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class NoText(Exception):
    """An exception whose text is no text."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


def _busy(env: Any, action: Any) -> Any:
    while True:
        pass


def _asleep(env: Any, action: Any) -> Any:
    time.sleep(3600)


def _waits_for_a_lock(env: Any, action: Any) -> Any:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _reads_a_pipe(env: Any, action: Any) -> Any:
    os.read(os.pipe()[0], 1)


def _segfault(env: Any, action: Any) -> Any:
    ctypes.string_at(0)


def _recurse(env: Any, action: Any) -> Any:
    return _recurse(env, action)


def _allocate(env: Any, action: Any) -> Any:
    return np.zeros(2**60, np.float32)


def _dying_thread(env: Any) -> None:
    def die() -> None:
        raise RuntimeError("a thread of the environment")

    threading.excepthook = lambda args: None  # as most programs do; else it prints a traceback
    thread = threading.Thread(target=die)
    thread.start()
    thread.join()


def _fork(env: Any) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitpid(pid, 0)


def _many_warnings(env: Any) -> None:
    warnings.warn("an environment warns\nover two lines \x1b[31m", UserWarning, stacklevel=2)


def _print_escapes(env: Any) -> None:
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        print("\x1b[2J" * 1000)


def _remove_logs(env: Any) -> None:
    for name in ("metrics.jsonl", "episodes.csv", "timings.jsonl"):
        (folder / name).unlink()


def _write_files(env: Any) -> None:
    (folder / "mine.txt").write_text("mine")
    (folder / "checkpoints" / "mine").mkdir()


def _change_directory(env: Any) -> None:
    os.chdir("/")


def _remove_directory(env: Any) -> None:
    """Work in a folder that no longer exists."""
    gone = folder.with_suffix(".gone")
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def _forget_handlers(env: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _close_output(env: Any) -> None:
    os.close(1)
    os.close(2)


def _change_answer(env: Any, action: Any) -> Any:
    """Return an array, and change it after it was handed over."""
    obs, *rest = _good(env, action)
    threading.Timer(0.05, lambda: obs.fill(0.0)).start()
    return (obs.copy(), *rest)


def _same_array(env: Any, action: Any) -> Any:
    """Return the state itself instead of a copy."""
    _, *rest = _good(env, action)
    return (env.state, *rest)


def _info_of_itself(env: Any, action: Any) -> Any:
    """Return an info that holds the environment and itself."""
    info: dict[str, Any] = {"env": env}
    info["info"] = info
    return (*_good(env, action)[:4], info)


STOP = 75
CTRL_C = 130
#: Name → fault.
FAULTS: dict[str, Fault] = {
    # exceptions
    "raises": Fault(_raise(RuntimeError("boom"))),
    "raises without a word": Fault(_raise(ValueError())),
    "raises an OSError": Fault(_raise(OSError(5, "Input/output error"))),
    "raises KeyError": Fault(_raise(KeyError("x"))),
    "runs out of memory": Fault(_raise(MemoryError())),
    "allocates an exabyte": Fault(_allocate),
    "recurses": Fault(_recurse),
    "asserts": Fault(_raise(AssertionError("x > 0"))),
    "exits": Fault(_raise(SystemExit(0))),
    "exits with a text": Fault(_raise(SystemExit("bye"))),
    "stops iterating": Fault(_raise(StopIteration())),
    "breaks its pipe": Fault(_raise(BrokenPipeError())),
    "raises a BaseException": Fault(_raise(Odd("odd"))),
    "raises GeneratorExit": Fault(_raise(GeneratorExit())),
    "raises a group of exceptions": Fault(
        _raise(BaseExceptionGroup("two", [ValueError("a"), SystemExit(1)]))
    ),
    "raises Ctrl-C": Fault(_raise(KeyboardInterrupt()), (CTRL_C,)),
    "raises what cannot be printed": Fault(_raise(Mute())),
    "raises a text that is none": Fault(_raise(NoText())),
    "raises a class": Fault(_raise(Odd)),
    "raises a megabyte of text": Fault(_raise(ValueError("x" * 2**20))),
    "raises a thousand lines": Fault(_raise(ValueError("line\n" * 1000))),
    "raises escapes": Fault(_raise(ValueError("\x1b[31m\x1b]0;title\x07\r\u202e"))),
    "raises surrogates": Fault(_raise(ValueError("\ud800"))),
    "raises UnicodeDecodeError": Fault(_raise(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"))),
    "warns as an error": Fault(_raise(UserWarning("as an error"))),
    "raises a numpy error": Fault(_raise(FloatingPointError("overflow"))),
    "raises a torch error": Fault(_raise(torch.cuda.OutOfMemoryError("CUDA"))),
    "raises a timeout": Fault(_raise(TimeoutError("no answer"))),
    # the shape of the answer
    "returns None": Fault(lambda env, action: None),
    "returns nothing": Fault(lambda env, action: ()),
    "returns a number": Fault(lambda env, action: 7),
    "returns four values": Fault(lambda env, action: _good(env, action)[:4]),
    "returns six values": Fault(lambda env, action: (*_good(env, action), {})),
    "returns a generator": Fault(lambda env, action: iter(())),
    # observations
    "wrong shape": Fault(_answer(obs=np.zeros(4, np.float32))),
    "one axis more": Fault(_answer(obs=np.zeros((3, 1), np.float32))),
    "empty observation": Fault(_answer(obs=np.zeros(0, np.float32))),
    "scalar observation": Fault(_answer(obs=np.float32(1))),
    "observation is None": Fault(_answer(obs=None)),
    "observation is text": Fault(_answer(obs="here")),
    "observation is ragged": Fault(_answer(obs=[[1], [1, 2]])),
    "observation of objects": Fault(_answer(obs=np.array([None, 1, "a"], object))),
    "complex observation": Fault(_answer(obs=np.full(3, 1j))),
    "observation of numbers in text": Fault(_answer(obs=np.array(["1", "2", "3"]))),
    "NaN observation": Fault(_answer(obs=np.full(3, NAN, np.float32)), (4,)),
    "infinite observation": Fault(_answer(obs=np.full(3, np.inf, np.float32)), (4,)),
    "masked NaN": Fault(_answer(obs=np.ma.masked_array([1.0, NAN, 1.0], [0, 1, 0])), (4, 5)),
    "too large for single precision": Fault(_answer(obs=np.full(3, 1e300)), (4,)),
    # rewards and ends
    "reward is text": Fault(_answer(reward="much")),
    "reward is None": Fault(_answer(reward=None)),
    "reward is a number in text": Fault(_answer(reward="5")),
    "reward is a vector": Fault(_answer(reward=np.zeros(3))),
    "reward is a list": Fault(_answer(reward=[1.0, 2.0])),
    "reward is complex": Fault(_answer(reward=1j)),
    "reward of 10^400": Fault(_answer(reward=10**400)),
    "NaN reward": Fault(_answer(reward=NAN), (4,)),
    "infinite reward": Fault(_answer(reward=-np.inf), (4,)),
    "reward of 1e300": Fault(_answer(reward=1e300), (4,)),
    "end is a vector": Fault(_answer(ended=np.array([True, False]))),
    "end is None": Fault(_answer(ended=None)),
    "end is text": Fault(_answer(ended="no")),
    "end is 2": Fault(_answer(ended=2)),
    "cut is text": Fault(_answer(cut="no")),
    "info is None": Fault(_answer(info=None), (0, 5)),
    "info is a list": Fault(_answer(info=[]), (0, 5)),
    "NaN in info": Fault(_answer(info={"x": NAN, "episode": {"r": NAN, "l": None}}), (0,)),
    "info refers to itself": Fault(_info_of_itself, (0,)),
    # other spaces
    "discrete: too large": Fault(_answer(obs=5), space="discrete"),
    "discrete: -1": Fault(_answer(obs=-1), space="discrete"),
    "discrete: 1.5": Fault(_answer(obs=1.5), space="discrete"),
    "discrete: None": Fault(_answer(obs=None), space="discrete"),
    "bits: too few": Fault(_answer(obs=np.array([0, 1])), space="bits"),
    "bits: 7": Fault(_answer(obs=np.array([0, 1, 7, 0])), space="bits"),
    "choices: -1": Fault(_answer(obs=np.array([0, -1])), space="choices"),
    "choices: too many": Fault(_answer(obs=np.array([0, 0, 0])), space="choices"),
    "image: turned": Fault(_answer(obs=np.zeros((3, 12, 12), np.uint8)), space="image"),
    "image: no color": Fault(_answer(obs=np.zeros((12, 12), np.uint8)), space="image"),
    "image: 300": Fault(_answer(obs=np.full((12, 12, 3), 300)), space="image"),
    "image: fractions": Fault(_answer(obs=np.full((12, 12, 3), 0.5)), space="image"),
    "image: NaN": Fault(_answer(obs=np.full((12, 12, 3), NAN)), (4, 5), space="image"),
    "dict: a key is missing": Fault(_answer(obs={"a": np.zeros(2, np.float32)}), space="dict"),
    "dict: a list": Fault(_answer(obs=[np.zeros(2, np.float32), 1]), space="dict"),
    "dict: wrong shape inside": Fault(
        _answer(obs={"a": np.zeros(3, np.float32), "b": 1}), space="dict"
    ),
    "dict: NaN inside": Fault(
        _answer(obs={"a": np.full(2, NAN, np.float32), "b": 1}), (4,), space="dict"
    ),
    "double: 1e300": Fault(_answer(obs=np.full(2, 1e300)), (4,), space="double"),
    # hangs
    "busy for ever": Fault(_busy),
    "asleep for ever": Fault(_asleep),
    "waits for a lock": Fault(_waits_for_a_lock),
    "reads an empty pipe": Fault(_reads_a_pipe),
    # ends of the process
    "killed": Fault(_signal(signal.SIGKILL), (-signal.SIGKILL,)),
    "segmentation fault": Fault(_segfault, (-signal.SIGSEGV,)),
    "aborts": Fault(lambda env, action: os.abort(), (-signal.SIGABRT,)),
    "divides in C": Fault(_signal(signal.SIGFPE), (-signal.SIGFPE,)),
    "quits": Fault(_signal(signal.SIGQUIT), (-signal.SIGQUIT,)),
    "os._exit(0)": Fault(lambda env, action: os._exit(0), (0,)),
    "os._exit(7)": Fault(lambda env, action: os._exit(7), (7,)),
    "asks to stop": Fault(_signal(signal.SIGTERM), (STOP,)),
    "presses Ctrl-C": Fault(_signal(signal.SIGINT), (STOP,)),
    "hangs up": Fault(_signal(signal.SIGHUP), (STOP,)),
    "sends SIGUSR1": Fault(_signal(signal.SIGUSR1), (STOP,)),
    # reset
    "raises on reset": Fault(_raise(RuntimeError("no new episode")), where="reset"),
    "exits on reset": Fault(_raise(SystemExit(0)), where="reset"),
    "hangs on reset": Fault(_asleep, where="reset"),
    "reset returns None": Fault(_only_reset(None), where="reset"),
    "reset returns no info": Fault(_only_reset(np.zeros(3, np.float32)), where="reset"),
    "reset returns NaN": Fault(_only_reset((np.full(3, NAN), {})), (4,), where="reset"),
    "reset of a wrong shape": Fault(_only_reset((np.zeros(9), {})), where="reset"),
    # close, after the run has finished
    "raises on close": Fault(_raise(RuntimeError("x")), (0,), where="close"),
    "exits on close": Fault(_raise(SystemExit(9)), (0,), where="close"),
    "Ctrl-C on close": Fault(_raise(KeyboardInterrupt()), (0,), where="close"),
    "BaseException on close": Fault(_raise(Odd("odd")), (0,), where="close"),
    "hangs on close": Fault(_asleep, (0,), where="close"),
    "busy on close": Fault(_busy, (0,), where="close"),
    # making it: nothing has begun
    "raises when made": Fault(_raise(RuntimeError("x")), (2, 5), where="made"),
    "exits when made": Fault(_raise(SystemExit(0)), (2, 5), where="made"),
    "BaseException when made": Fault(_raise(Odd("odd")), (2, 5), where="made"),
    "hangs when made": Fault(_asleep, where="made"),
    # what does not concern the run
    "changes the directory": Fault(_harmless(_change_directory), (0,)),
    "removes the directory": Fault(_harmless(_remove_directory), (0,)),
    "a thread of it dies": Fault(_harmless(_dying_thread), (0,)),
    "forks": Fault(_harmless(_fork), (0,)),
    "warns": Fault(_harmless(_many_warnings), (0,)),
    "prints escapes": Fault(_harmless(_print_escapes), (0,)),
    "closes stdout and stderr": Fault(_harmless(_close_output), (0,)),
    "forgets signal handlers": Fault(_harmless(_forget_handlers), (0,)),
    "collects garbage": Fault(_harmless(lambda env: gc.collect()), (0,)),
    "sets an alarm": Fault(
        _harmless(lambda env: signal.setitimer(signal.ITIMER_REAL, 0)), (0,)
    ),
    "changes its answer later": Fault(_change_answer, (0,)),
    "returns its own array": Fault(_same_array, (0,)),
    "writes files of its own": Fault(_harmless(_write_files), (0,)),
    "changes numpy's errors": Fault(_harmless(lambda env: np.seterr(all="ignore")), (0,)),
    "unsets variables": Fault(_harmless(lambda env: os.environ.pop("HOME", None)), (0,)),
    "limits recursion": Fault(_harmless(lambda env: sys.setrecursionlimit(900)), (0,)),
    # the folder of the run
    "removes the logs": Fault(_harmless(_remove_logs), (0,)),
}
