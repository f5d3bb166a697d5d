"""Gymnasium's MuJoCo tasks: valid ids, construction without notices, exact snapshots.

A step of the simulator starts from its *integration state* alone. But environments read
derived arrays before they step: Ant's reward subtracts a body's position that lags behind
the joints, and the rewards of Reacher-v4 and Humanoid use similar arrays. Therefore the arrays
of `MjData` are saved as well.
"""

import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from dna.common.errors import BadInput, EnvironmentFailure, MissingExtra

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]
#: The paper's eight tasks (appendix K), and Gymnasium's other three.
PAPER = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Reacher",
    "Swimmer",
    "Walker2d",
)
TASKS = (*PAPER, "Humanoid", "HumanoidStandup", "Pusher")
_ID = re.compile(rf"({'|'.join(TASKS)})-v(\d+)")
#: Gymnasium's tasks import the second for rendering, even when they render nothing.
_PACKAGES = ("mujoco", "imageio")
_TASK_MODULE = re.compile(r"gymnasium\.envs\.mujoco\.\w+_v[45]")
_LOW = (1 << 64) - 1


def check(env_id: str) -> None:
    """Refuse versions that Gymnasium dropped; name the extra that the others need."""
    task = _ID.fullmatch(env_id)
    if task and task[2] in ("2", "3"):
        raise BadInput(
            f"{env_id}: Gymnasium has dropped MuJoCo's v2 and v3; use {task[1]}-v5 "
            "(pip install 'ppo-dna[mujoco]')"
        )
    if task and any(importlib.util.find_spec(name) is None for name in _PACKAGES):
        raise MissingExtra(env_id, "mujoco")


@contextmanager
def building(env_id: str, *, render: bool = False) -> Iterator[None]:
    """Make a task without MuJoCo's notices, which it prints and writes to ./MUJOCO_LOG.TXT.

    The notice that HalfCheetah's model uses a deprecated attribute is dropped, as only
    Gymnasium can change that; any other becomes a Python warning.
    """
    if not _ID.fullmatch(env_id):
        yield
        return
    if render and sys.platform == "linux" and not _has_screen():
        os.environ.setdefault("MUJOCO_GL", "egl")  # the default, GLFW, needs a screen
    simulator = importlib.import_module("mujoco")
    before = simulator.get_mju_user_warning()
    notices: list[str] = []
    simulator.set_mju_user_warning(notices.append)
    try:
        yield
    finally:
        simulator.set_mju_user_warning(before)
    for text in notices:
        if "deprecated" not in text:
            warnings.warn(f"{env_id}: {text}", stacklevel=3)


def _has_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def exact(env: Env) -> bool:
    """Whether `snapshot` covers the whole state: Gymnasium's task behind known wrappers."""
    known = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
    if any(type(wrapper) not in known for wrapper in _wrappers(env)):
        return False
    return _TASK_MODULE.fullmatch(type(env.unwrapped).__module__) is not None


def snapshot(envs: Sequence[Env]) -> dict[str, Array]:
    """The state of equal tasks; each array has one row per environment."""
    simulator = importlib.import_module("mujoco")
    derived = _derived(simulator, envs[0])
    saved = [_save(simulator, env, derived) for env in envs]
    return {name: np.stack([state[name] for state in saved]) for name in saved[0]}


def restore(envs: Sequence[Env], state: Mapping[str, Array]) -> None:
    """Restore newly made tasks to the state of a snapshot."""
    simulator = importlib.import_module("mujoco")
    derived = _derived(simulator, envs[0])
    expected = {
        name: (len(envs), *array.shape)
        for name, array in _save(simulator, envs[0], derived).items()
    }
    if {name: np.shape(array) for name, array in state.items()} != expected:
        raise EnvironmentFailure(
            "the snapshot does not fit: it is from another task, another number of agents or "
            "another version of MuJoCo"
        )
    for row, env in enumerate(envs):
        _load(simulator, env, derived, {name: array[row] for name, array in state.items()})


def _save(simulator: Any, env: Env, derived: Sequence[str]) -> dict[str, Array]:
    task: Any = env.unwrapped
    kind = simulator.mjtState.mjSTATE_INTEGRATION
    state = np.empty(simulator.mj_stateSize(task.model, kind))
    simulator.mj_getState(task.model, task.data, state, kind)
    return {
        "integration": state,
        "random": _random_words(task.np_random),
        "wrappers": np.array([_count(wrapper) for wrapper in _wrappers(env)], np.int64),
        **{f"data/{name}": getattr(task.data, name).copy() for name in derived},
    }


def _load(simulator: Any, env: Env, derived: Sequence[str], state: Mapping[str, Array]) -> None:
    task: Any = env.unwrapped
    kind = simulator.mjtState.mjSTATE_INTEGRATION
    simulator.mj_setState(task.model, task.data, state["integration"], kind)
    simulator.mj_forward(task.model, task.data)  # contacts have no fixed size: compute them
    simulator.mj_setState(task.model, task.data, state["integration"], kind)
    for name in derived:
        getattr(task.data, name)[...] = state[f"data/{name}"]
    task.np_random = _generator(state["random"])
    for wrapper, count in zip(_wrappers(env), state["wrappers"], strict=True):
        if isinstance(wrapper, TimeLimit):
            vars(wrapper)["_elapsed_steps"] = int(count) if count >= 0 else None
        elif isinstance(wrapper, OrderEnforcing):
            vars(wrapper)["_has_reset"] = bool(count)


def _derived(simulator: Any, env: Env) -> list[str]:
    """The names of real-valued arrays of fixed size: a new `MjData` has no contacts.

    Integers are left out: they are indices, and a forged one would make MuJoCo read anywhere.
    """
    fresh = simulator.MjData(env.unwrapped.model)  # type: ignore[attr-defined]
    arrays = {name: getattr(fresh, name) for name in dir(fresh) if not name.startswith("_")}
    return [
        name
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.dtype == np.float64 and array.size
    ]


def _wrappers(env: Env) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _count(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> int:
    """A wrapper's state: its steps (−1: not reset yet), or whether it was reset."""
    if isinstance(wrapper, TimeLimit):
        return -1 if wrapper._elapsed_steps is None else wrapper._elapsed_steps
    return int(wrapper.has_reset) if isinstance(wrapper, OrderEnforcing) else 0


def _random_words(rng: np.random.Generator) -> npt.NDArray[np.uint64]:
    """The state of the PCG64 that Gymnasium draws from, as six words."""
    tree: Any = rng.bit_generator.state
    if tree["bit_generator"] != "PCG64":
        raise EnvironmentFailure(f"a random generator of kind {tree['bit_generator']}")
    state, increment = tree["state"]["state"], tree["state"]["inc"]
    halves = [state >> 64, state & _LOW, increment >> 64, increment & _LOW]
    return np.array([*halves, tree["has_uint32"], tree["uinteger"]], np.uint64)


def _generator(words: Array) -> np.random.Generator:
    """The inverse of `_random_words`."""
    word = [int(each) for each in words]
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": word[0] << 64 | word[1], "inc": word[2] << 64 | word[3]},
        "has_uint32": word[4],
        "uinteger": word[5],
    }
    return np.random.Generator(bits)
