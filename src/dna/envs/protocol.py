"""The protocol of all environments, whatever their library or autoreset mode, and `make`.

A `VectorEnv` steps A environments and returns a `Step`: the observation to act on next, the raw
reward, the two kinds of episode ends (no future / boundary), the true last observation where an
episode was cut, and which rows were real steps at all. `guard` turns exceptions raised inside
an environment into one-line errors that name it.
"""

import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from dna.common.errors import BadInput, DnaError, EnvironmentFailure, NonFinite, Unsaveable
from dna.common.messages import shown, text_of
from dna.config import EnvConfig
from dna.config.environments import PROCGEN
from dna.envs.specs import ActionSpec, ObservationSpec

Array = npt.NDArray[Any]


class guard:
    """Context manager around every call into an environment: `with guard("CartPole-v1", 3):`.

    A class, not a generator: it is entered at every single step. This package's own errors
    and Ctrl-C pass; everything else becomes a failure of the environment, even a `sys.exit()`
    or another exception that does not derive from `Exception`.
    """

    def __init__(self, name: str, agent: int | None = None) -> None:
        self.name = name
        self.agent = agent

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, DnaError | KeyboardInterrupt):
            where = self.name if self.agent is None else f"{self.name}, agent {self.agent}"
            raise EnvironmentFailure(f"{where}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The type of an error and the first line of its message, without control characters.

    Without a message, the line that raised it.
    """
    kind = shown(type(error).__name__, 60)
    first = shown((text_of(error).splitlines() or [""])[0], 120)
    return f"{kind}: {first}" if first else f"{kind}{_raised_at(error)}"


def _raised_at(error: BaseException) -> str:
    """The line that raised an error, such as ` at cart.py:12: assert self.ready`."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    if not frames:
        return ""
    line = f": {frames[0].line}" if frames[0].line else ""
    return shown(f" at {Path(frames[0].filename).name}:{frames[0].lineno}{line}", 120)


def all_finite(array: Array) -> bool:
    """Whether all numbers are finite; counting is faster than `all` for small arrays."""
    return int(np.count_nonzero(np.isfinite(array))) == array.size


def check_finite(what: str, array: Array, agents: Sequence[int] | Array | None = None) -> None:
    """Stop at the first non-finite number, naming the agent."""
    if array.dtype.kind == "f" and not all_finite(array):
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        agent = int(rows[0] if agents is None else agents[rows[0]])
        article = "an" if what.startswith(("a", "e", "i", "o", "u")) else "a"
        text = f"the environment gave {article} {what} that is not finite (agent {agent})"
        raise NonFinite(text, {what.replace(" ", "_"): array})


def unsaveable(name: str, thing: Exception | str = "its state") -> Unsaveable:
    """The error for a snapshot that cannot be taken; `inexact` names those that never can."""
    return Unsaveable(f"{name}: {thing} cannot be saved; start new episodes instead")


class Closable(Protocol):
    """Anything with a `close` method."""

    def close(self) -> object:
        """Release all resources."""


class CloseInterrupted(BaseException):
    """Raised in a `close()` that does not return."""


def close(env: Closable, name: str = "environment") -> None:
    """Close an environment; its errors become warnings, as they must not spoil a finished run.

    Not even `SystemExit` and `KeyboardInterrupt` pass: they may be the environment's own, and
    the work that they could interrupt is done.
    """
    try:
        env.close()
    except CloseInterrupted:
        raise  # not to wait for the other environments of a vector either
    except BaseException as error:
        text = f"{name}: close() failed ({one_line(error)})"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


State = dict[str, Array]
#: All agents of a run are in this process.
ALL = slice(None)
Factory = Callable[[], gymnasium.Env[Any, Any]]
#: What `make` accepts instead of an id: a factory of single environments, or a vector one.
Source = Factory | gymnasium.vector.VectorEnv[Any, Any, Any] | None


@dataclass(frozen=True)
class Step:  # axis [A]: agents
    """One step of all environments."""

    obs: Array  # [A, …] what to act on next
    reward: npt.NDArray[np.float32]  # [A] raw
    terminated: npt.NDArray[np.bool_]  # [A] no future
    done: npt.NDArray[np.bool_]  # [A] the episode's boundary: terminated or truncated
    valid: npt.NDArray[np.bool_]  # [A] False: the row only carried a reset
    final_obs: dict[int, Array]  # agent → true last observation, where `obs` is a new one
    # Where a game continues after the end of an episode (a lost life ends one in easy Atari):
    over: npt.NDArray[np.bool_] | None = None  # [A] the game's true end; None: `done`
    unseen: npt.NDArray[np.float32] | None = None  # [A] reward that no decision earned
    elapsed: npt.NDArray[np.int64] | None = None  # [A] the time that `obs` shows

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """[A] where a score is complete."""
        return self.done if self.over is None else self.over


class VectorEnv(Protocol):
    """A environments stepped together."""

    agents: int
    observation: ObservationSpec
    action: ActionSpec
    can_hold: bool  # whether `step` can leave some environments where they are
    can_reseed: bool  # whether `reseed` works
    fps: int  # frames per second of a film

    @property
    def inexact(self) -> str | None:
        """Why a restored snapshot would not continue bit-identically; None: it would."""

    def reset(self) -> Array:
        """First observations, [A, …]."""

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """Step every environment, or only the active ones."""

    def reseed(self, agent: int, seed: int) -> None:
        """Begin an agent's next game from this seed, as an environment made with it would."""

    def uniform(
        self,
        rng: np.random.Generator,
        agents: int | None = None,
        own: slice = ALL,
        only: int | None = None,
    ) -> Array:
        """Actions drawn uniformly from the space, [A, W].

        Drawn for all `agents` of the run, of which the `own` are returned; or for agent `only`
        alone, [1, W].
        """

    def snapshot(self) -> State:
        """Everything that decides what comes next, as named arrays."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a snapshot of a vector made alike, in this process or another."""

    def picture(self) -> Array:
        """Agent 0 in color, [H, W, 3], for films."""

    def meanings(self) -> tuple[str, ...]:
        """Names of the actions of a single choice; empty where they are not known."""

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True)
class Making:
    """How to build environments: settings that cannot change results, unlike `Config`."""

    agents: int
    seeds: tuple[int, ...]
    threads: int | None = 1  # or processes, where threads cannot help; None: choose
    allow_import: bool = False
    render: bool = False  # pictures will be asked for
    neighbors: int = 1  # ranks of the run that share this machine's cores


def make(config: EnvConfig, making: Making, source: Source = None) -> VectorEnv:
    """Make the environments of a run: by id, or from a factory or vector environment."""
    if source is None and config.atari is not None:
        from dna.envs.atari.vector import AtariVector

        return AtariVector(config, making)
    if source is None and (config.id or "").startswith(PROCGEN):
        from dna.envs.procgen import ProcgenVector

        return ProcgenVector(config, making)
    from dna.envs.factory import factory
    from dna.envs.gym import GymVector, VectorAdapter

    if source is None:
        source = factory(config, allow_import=making.allow_import, render=making.render)
    if isinstance(source, gymnasium.vector.VectorEnv):
        return VectorAdapter(source, config, making.seeds)
    if callable(source):
        return GymVector(source, config, making)
    raise BadInput(
        f"env: expected an id, a callable or a VectorEnv, got {type(source).__name__}"
    )
