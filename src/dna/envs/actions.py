"""Our rows of actions → what environments take: Gymnasium's spaces of actions.

`Discrete`, `MultiDiscrete`, `MultiBinary`, `Box`, and `Dict`s of these: choices and real
numbers together are a hybrid action.
"""

from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from dna.common.errors import BadInput
from dna.envs.specs import ActionSpec

Array = npt.NDArray[Any]
#: MinAtar's letters.
MINATAR = {"n": "noop", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}


class Codec(Protocol):
    """Rows of actions as what one environment's `step` takes."""

    spec: ActionSpec

    def decode(self, action: Array) -> Any:
        """One agent's action."""

    def decode_batch(self, actions: Array) -> Any:
        """Every agent's action, stacked as a vector environment takes them."""

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Actions drawn uniformly; standard normal where a real number has no bounds."""


def action_codec(space: spaces.Space[Any]) -> Codec:
    """For this space."""
    return DictActionCodec(space) if isinstance(space, spaces.Dict) else ActionCodec(space)


class ActionCodec:
    """One plain space."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.start: Array = np.zeros(1, dtype=np.int64)
        if isinstance(space, spaces.Discrete):
            self.start = np.array([space.start], dtype=np.int64)
            self.spec = ActionSpec("categorical", (int(space.n),))
        elif isinstance(space, spaces.MultiDiscrete):
            self.start = np.asarray(space.start, dtype=np.int64).reshape(-1)
            self.spec = ActionSpec("categorical", tuple(int(n) for n in space.nvec.reshape(-1)))
        elif isinstance(space, spaces.MultiBinary):
            self.spec = ActionSpec("categorical", (2,) * int(np.prod(space.shape)))
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            self.spec = ActionSpec("gaussian", (int(np.prod(space.shape)),))
        else:
            raise BadInput(
                f"action space {type(space).__name__} is not supported; use Discrete, "
                "MultiDiscrete, MultiBinary, a Box of real numbers, or a Dict of these"
            )

    def decode(self, action: Array) -> Any:
        """One agent's action; real numbers are clipped here, not in the policy."""
        if isinstance(self.space, spaces.Discrete):
            return int(action[0] + self.start[0])
        shape = self.space.shape or ()
        if isinstance(self.space, spaces.Box):
            action = np.clip(action.reshape(shape), self.space.low, self.space.high)
            return action.astype(self.space.dtype)
        return (action + self.start).reshape(shape).astype(self.space.dtype)

    def decode_batch(self, actions: Array) -> Any:
        """Every agent's action, stacked as a vector environment takes them."""
        return np.stack([np.asarray(self.decode(action)) for action in actions])

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Actions drawn uniformly; standard normal where a real number has no bounds."""
        if isinstance(self.space, spaces.Box):
            low, high = self.space.low.reshape(-1), self.space.high.reshape(-1)
            bounded = np.isfinite(low) & np.isfinite(high)
            span = np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0)
            inside = np.where(bounded, low, 0.0) + span * rng.random((agents, len(low)))
            free = rng.standard_normal((agents, len(low)))
            return np.where(bounded, inside, free).astype(np.float32)
        return rng.integers(0, self.spec.sizes, size=(agents, self.spec.width))


class DictActionCodec:
    """Several spaces under names: the choices of all come first in a row, then the numbers."""

    def __init__(self, space: spaces.Dict) -> None:
        self.codecs = {name: action_codec(entry) for name, entry in space.spaces.items()}
        specs = [codec.spec for codec in self.codecs.values()]
        sizes = tuple(size for spec in specs for size in spec.choices)
        reals = sum(spec.numbers for spec in specs)
        if not sizes and not reals:
            raise BadInput("action space Dict: has nothing to do; add an entry")
        kind: Literal["categorical", "gaussian", "hybrid"] = "gaussian"
        if sizes:
            kind = "hybrid" if reals else "categorical"
        hybrid = kind == "hybrid"
        self.spec = ActionSpec(kind, sizes or (reals,), reals if hybrid else 0)
        self.columns = self._columns()

    def _columns(self) -> dict[str, Array]:
        """Entry → the columns of a row that are its own, in its own order."""
        choice, number, found = 0, len(self.spec.choices), {}
        for name, codec in self.codecs.items():
            choices, numbers = len(codec.spec.choices), codec.spec.numbers
            own = [*range(choice, choice + choices), *range(number, number + numbers)]
            found[name] = np.array(own, dtype=np.int64)
            choice, number = choice + choices, number + numbers
        return found

    def _own(self, name: str, action: Array) -> Array:
        own = action[..., self.columns[name]]
        return own if self.codecs[name].spec.numbers else own.astype(np.int64)

    def decode(self, action: Array) -> dict[str, Any]:
        """One agent's action, name by name."""
        return {n: codec.decode(self._own(n, action)) for n, codec in self.codecs.items()}

    def decode_batch(self, actions: Array) -> dict[str, Any]:
        """Every agent's action, name by name."""
        return {
            n: codec.decode_batch(self._own(n, actions)) for n, codec in self.codecs.items()
        }

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Each space by itself."""
        dtype = np.float32 if self.spec.numbers else np.int64
        rows: Array = np.empty((agents, self.spec.width), dtype)
        for name, codec in self.codecs.items():
            rows[:, self.columns[name]] = codec.uniform(rng, agents)
        return rows


def meanings_of(env: Any, spec: ActionSpec) -> tuple[str, ...]:
    """Names of a single choice: as Gymnasium's Atari tells them, or as MinAtar keeps them."""
    names: Any = None
    if hasattr(env, "get_action_meanings"):
        names = env.get_action_meanings()
    elif hasattr(env, "action_set") and hasattr(env, "game"):
        letters = getattr(getattr(env.game, "env", None), "action_map", None)
        if isinstance(letters, list):
            names = [MINATAR.get(letters[i], letters[i]) for i in env.action_set]
    fits = spec.kind == "categorical" and isinstance(names, list | tuple)
    return tuple(map(str, names)) if fits and spec.sizes == (len(names),) else ()


def uniform_rows(
    codec: Codec,
    rng: np.random.Generator,
    legal: Array | None,
    drawn: tuple[int, slice],
    only: int | None,
) -> Array:
    """Actions of some agents or of one, drawn among what is legal where that is known."""
    if only is not None:
        drawn, legal = (1, slice(None)), None if legal is None else legal[only : only + 1]
    agents, own = drawn
    if legal is None:
        return codec.uniform(rng, agents)[own]
    return uniform_legal(codec, rng, legal, agents, own)


def uniform_legal(
    codec: Codec, rng: np.random.Generator, legal: Array, agents: int, own: slice
) -> Array:
    """Actions drawn uniformly among the legal ones, [A, W]: argmax of noise where it is.

    Noise is drawn for all agents of a run, whichever of them are here.
    """
    rows = codec.uniform(rng, agents)[own]
    noise = np.where(legal, rng.random((agents, legal.shape[1]))[own], -1.0)
    ends = np.cumsum(codec.spec.choices)[:-1]
    for column, group in enumerate(np.split(noise, ends, axis=1)):
        rows[:, column] = group.argmax(axis=1)
    return rows
