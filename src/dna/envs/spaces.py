"""Gymnasium's spaces ↔ the package's specs and rows: observations in, actions out.

Observations: a `Box` of three axes with few channels is an image (the channel axis is the first
or the last, whichever is shorter), any other `Box` is flattened to a vector; `Discrete`,
`MultiDiscrete` and `MultiBinary` become one-hot vectors; `Dict`s and action masks are packed
into rows of bytes (`dna.envs.specs`). Actions: `Discrete`, `MultiDiscrete`, `MultiBinary`,
`Box`, and `Dict`s of these; choices and real numbers together are a hybrid action.

A mask is `info["action_mask"]` (`dna.envs.gym` puts the result of `action_masks()` there), or
an entry `"action_mask"` of a Dict observation: one boolean for every choice, with the groups of
a MultiDiscrete concatenated. It is stored in the same row as its observation.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, flatten

from dna.common.errors import BadInput
from dna.envs import specs
from dna.envs.protocol import VectorEnv
from dna.envs.specs import MASK, ActionSpec, Dtype, ObservationSpec, Part

Array = npt.NDArray[Any]
#: A Box of three axes is an image if its channel axis is at most this long.
MOST_CHANNELS = 32
#: Kinds of dtypes whose values are integers, and those whose values are real numbers.
INTEGERS = "biu"
NUMBERS = "biuf"
#: The name of the only entry where there is a mask but no Dict space.
ONLY = "observation"
#: MinAtar's letters for its actions.
MINATAR = {"n": "noop", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}


# --- Observations -------------------------------------------------------------------------


class ObservationCodec:
    """Encodes one environment's observations as rows of its spec."""

    def __init__(self, space: spaces.Space[Any], *, maskless: bool = False) -> None:
        """`maskless`: actions are choices, and the first reset showed no mask for them."""
        self.space = space
        self.maskless = maskless
        self.one_hot = isinstance(
            space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
        )
        self.channels_first = False
        if self.one_hot:
            self.choices, self.start = _choices(space)
            self.spec = ObservationSpec("vector", (flatdim(space),), "float32")
        elif isinstance(space, spaces.Box):
            self.spec = self._box(space)
        else:
            flattens = isinstance(space, spaces.Tuple | spaces.Text | spaces.OneOf)
            wrapper = ", or wrap the environment in FlattenObservation" if flattens else ""
            raise BadInput(
                f"observation space {type(space).__name__} is not supported; use Box, "
                f"Discrete, MultiDiscrete, MultiBinary or a Dict of these{wrapper}"
            )
        # Read here, because properties of a space take longer than what is done with them.
        self.shape = space.shape
        self.dtype = space.dtype
        self.image = self.spec.kind == "image"

    def _box(self, space: spaces.Box) -> ObservationSpec:
        if np.issubdtype(space.dtype, np.complexfloating):
            raise BadInput(f"observations of {space.dtype} are not supported; use real numbers")
        shape = space.shape
        bytes_or_bools: dict[str, Dtype] = {"uint8": "uint8", "bool": "bool"}
        dtype: Dtype = bytes_or_bools.get(str(space.dtype), "float32")
        if len(shape) == 3 and min(shape[0], shape[2]) <= MOST_CHANNELS and min(shape) >= 1:
            # Most images are square: the axis that differs is then the channel axis.
            self.channels_first = shape[0] != shape[1] and (
                shape[1] == shape[2] or shape[0] < shape[2]
            )
            height_width_channels = (*shape[1:], shape[0]) if self.channels_first else shape
            return ObservationSpec("image", height_width_channels, dtype)
        return ObservationSpec("vector", (int(np.prod(shape)),), dtype)

    def empty(self, agents: int) -> Array:
        """A buffer for one observation of each agent."""
        return np.empty((agents, *self.spec.shape), dtype=np.dtype(self.spec.dtype))

    def encode(self, observation: Any, info: Any = None, *, final: bool = False) -> Array:
        """Encode one observation; `info` contributes nothing to it."""
        if self.maskless:
            _refuse_late_mask(info)
        if self.one_hot:
            self._check_choices(observation)
            return np.asarray(flatten(self.space, observation), dtype=np.float32)
        array = np.asarray(observation)
        if array.shape != self.shape:
            raise ValueError(f"observation of shape {array.shape} is not {self.shape}")
        if array.dtype != self.dtype:
            self._check_convertible(array)
        if self.image:
            return np.moveaxis(array, 0, -1) if self.channels_first else array
        return array.reshape(-1)

    def _check_choices(self, observation: Any) -> None:
        """Refuse a choice outside its space, which `flatten` may wrap around."""
        choices = np.asarray(observation)
        if choices.dtype.kind not in NUMBERS or choices.size != self.choices.size:
            inside = False
        else:
            index = choices.reshape(self.choices.shape) - self.start
            inside = bool(((index >= 0) & (index < self.choices) & (index % 1 == 0)).all())
        if not inside:
            raise ValueError(f"observation {choices} is not in {self.space}")

    def _check_convertible(self, array: Array) -> None:
        """Refuse an observation that the dtype of its row cannot hold."""
        dtype = np.dtype(self.spec.dtype)
        if array.dtype.kind not in (NUMBERS if dtype.kind == "f" else INTEGERS):
            raise ValueError(f"observation of {array.dtype} in a space of {self.space.dtype}")
        if dtype.kind != "f":
            wrong = array[array.astype(dtype) != array]
            if wrong.size:
                raise ValueError(f"observation {wrong[0]} in a space of {self.space.dtype}")

    def encode_batch(self, observations: Any, info: Any = None, over: Any = None) -> Array:
        """Encode a vector environment's observations, one row per agent."""
        if self.maskless:
            _refuse_late_mask(info)
        buffer = self.empty(len(observations))
        for row, observation in zip(buffer, observations, strict=True):
            row[...] = self.encode(observation)
        return buffer

    def numbers(self, rows: Array) -> Array:
        """The numbers in these rows that must be finite."""
        return rows

    def legal(self, rows: Array) -> npt.NDArray[np.bool_] | None:
        """None: every choice is always legal."""
        return None


def _choices(space: spaces.Space[Any]) -> tuple[Array, Array]:
    """The number of choices and the first choice of each element of a space."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n]), np.array([space.start])
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec, space.start
    return np.full(space.shape or (), 2), np.zeros(space.shape or (), np.int64)


class PackedCodec:
    """Encodes one environment's Dict entries and action mask as rows of bytes."""

    def __init__(self, space: spaces.Space[Any], action: ActionSpec, *, in_info: bool) -> None:
        self.choices = action.choices
        self.in_info = in_info
        entries = dict(_entries(space)) if isinstance(space, spaces.Dict) else {ONLY: space}
        self.in_obs = bool(self.choices) and MASK in entries and not in_info
        if self.in_obs:
            size = int(np.prod(entries.pop(MASK).shape or (0,)))
            if size != sum(self.choices):
                raise BadInput(
                    f"'{MASK}' has {size} entries, not one for each of "
                    f"{sum(self.choices)} choices"
                )
        if not entries:
            raise BadInput("observation space Dict: has nothing to see; add an entry")
        self.nested = isinstance(space, spaces.Dict)
        self.codecs = {name: _entry_codec(name, entry) for name, entry in entries.items()}
        parts = [
            Part(name, "image" if spec.kind == "image" else "vector", spec.shape, spec.dtype)
            for name, spec in ((name, codec.spec) for name, codec in self.codecs.items())
        ]
        if in_info or self.in_obs:
            parts.append(Part(MASK, "mask", (sum(self.choices),), "bool"))
        self.spec = ObservationSpec.pack(parts)
        self.maskless = bool(self.choices) and not self.spec.masked
        self.spans = specs.spans(self.spec)

    def empty(self, agents: int) -> Array:
        """A buffer for one observation of each agent."""
        return np.zeros((agents, *self.spec.shape), dtype=np.uint8)

    def encode(self, observation: Any, info: Any = None, *, final: bool = False) -> Array:
        """Encode one observation as a row; a final one needs no mask."""
        row = np.zeros(self.spec.shape, dtype=np.uint8)
        if self.maskless:
            _refuse_late_mask(info)
        for part, span in self.spans.items():
            if part.kind == "mask":
                value: Any = self._mask(observation, info, final)
            else:
                found = entry(observation, part.name) if self.nested else observation
                value = self.codecs[part.name].encode(found)
            flat = np.ascontiguousarray(value, dtype=np.dtype(part.dtype)).reshape(-1)
            row[span] = flat.view(np.uint8)
        return row

    def _mask(self, observation: Any, info: Any, final: bool) -> npt.NDArray[np.bool_]:
        size = sum(self.choices)
        found = observation.get(MASK) if self.in_obs else (info or {}).get(MASK)
        if found is None and not final:
            where = "the observation" if self.in_obs else "info"
            raise ValueError(f"{where} has no '{MASK}' this time")
        if found is None:
            return np.ones(size, np.bool_)
        groups = found if isinstance(found, tuple | list) else [found]
        mask = np.concatenate([np.asarray(group).reshape(-1) for group in groups]) != 0
        if mask.shape != (size,):
            raise ValueError(f"{MASK} has {len(mask)} entries, not one for {size} choices")
        ends = np.cumsum(self.choices)[:-1]
        possible = all(group.any() for group in np.split(mask, ends))
        if not possible and not final:
            raise ValueError(f"{MASK} leaves no legal choice")
        return mask if possible else np.ones(size, np.bool_)

    def encode_batch(self, observations: Any, info: Any = None, over: Any = None) -> Array:
        """Encode a vector environment's observations; rows that are `over` need no mask."""
        name = next(iter(self.codecs))
        rows = self.empty(len(entry(observations, name) if self.nested else observations))
        masks = (info or {}).get(MASK)
        for i in range(len(rows)):
            own = {} if masks is None or masks[i] is None else {MASK: masks[i]}
            one = row_of(observations, i)
            rows[i] = self.encode(one, own, final=over is not None and bool(over[i]))
        return rows

    def numbers(self, rows: Array) -> Array:
        """The numbers in these rows that must be finite."""
        return specs.numbers(self.spec, rows)

    def legal(self, rows: Array) -> npt.NDArray[np.bool_] | None:
        """Which choices are legal [B, C]; None: every choice is always legal."""
        return specs.legal(self.spec, rows)


Observer = ObservationCodec | PackedCodec


def observation_codec(space: spaces.Space[Any], action: ActionSpec, info: Any) -> Observer:
    """The codec for a space; the `info` of a reset shows whether `info` carries masks."""
    space = _own(space)
    in_info = bool(action.choices) and MASK in (info or {})
    if in_info or isinstance(space, spaces.Dict):
        return PackedCodec(space, action, in_info=in_info)
    return ObservationCodec(space, maskless=bool(action.choices))


def _own(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """A copy: an environment's space must not look as if the program held it too."""
    try:
        return copy.deepcopy(space)
    except Exception:  # a space of the user's own may hold anything
        return space


def _entries(space: spaces.Dict, start: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """Every entry of a Dict and of the Dicts inside it, as `outer/inner`."""
    for name, inner in space.spaces.items():
        if "/" in name:
            raise BadInput(f"observation space Dict: '{name}': a name must not contain '/'")
        if isinstance(inner, spaces.Dict):
            yield from _entries(inner, f"{start}{name}/")
        else:
            yield f"{start}{name}", inner


def _entry_codec(name: str, space: spaces.Space[Any]) -> ObservationCodec:
    try:
        return ObservationCodec(space)
    except BadInput as error:
        if name == "mission":  # the text of MiniGrid and BabyAI
            raise BadInput(
                f"'{name}': observation space {type(space).__name__} is not supported; wrap "
                "the environment in minigrid.wrappers.ImgObsWrapper or FlatObsWrapper"
            ) from None
        raise BadInput(f"'{name}': {error}; FilterObservation drops it") from None


def _refuse_late_mask(info: Any) -> None:
    """Refuse a mask if the first reset, from which networks are built, showed none."""
    if info and MASK in info:
        raise ValueError(
            f"info has an '{MASK}' now, but had none at the first reset; give it at every "
            "reset and step"
        )


def entry(observation: Any, path: str) -> Any:
    """The entry `outer/inner` of an observation, or of a batch of observations."""
    for name in path.split("/"):
        if not isinstance(observation, Mapping) or name not in observation:
            raise ValueError(f"the observation has no '{path}'")
        observation = observation[name]
    return observation


def row_of(batch: Any, i: int) -> Any:
    """One agent's observation out of a batch, which may be a Dict."""
    if isinstance(batch, Mapping):
        return {name: row_of(part, i) for name, part in batch.items()}
    return batch[i]


# --- Actions ------------------------------------------------------------------------------


class Codec(Protocol):
    """Decodes rows of actions into what an environment's `step` takes."""

    spec: ActionSpec

    def decode(self, action: Array) -> Any:
        """One agent's action."""

    def decode_batch(self, actions: Array) -> Any:
        """Every agent's action, stacked as a vector environment takes them."""

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Actions drawn uniformly; standard normal where a real number has no bounds."""


def action_codec(space: spaces.Space[Any]) -> Codec:
    """The codec for an action space."""
    space = _own(space)
    return DictActionCodec(space) if isinstance(space, spaces.Dict) else ActionCodec(space)


class ActionCodec:
    """The actions of one plain space."""

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
            raise BadInput(_refused_actions(space))
        if not self.spec.width:
            raise BadInput(f"action space Box of shape {space.shape} has nothing to do")
        # Read here, because properties of a space take longer than what is done with them.
        self.shape = space.shape or ()
        self.dtype = space.dtype
        self.first = int(self.start[0]) if isinstance(space, spaces.Discrete) else None

    def decode(self, action: Array) -> Any:
        """One agent's action; real numbers are clipped here, not in the policy."""
        if self.first is not None:
            return int(action[0]) + self.first
        if isinstance(self.space, spaces.Box):
            # Not `clip`, whose call takes longer than what it does for a few numbers.
            action = np.maximum(action.reshape(self.shape), self.space.low)
            return np.minimum(action, self.space.high).astype(self.dtype, copy=False)
        return (action + self.start).reshape(self.shape).astype(self.dtype)

    def decode_batch(self, actions: Array) -> Any:
        """Every agent's action, stacked as a vector environment takes them."""
        return np.stack([np.asarray(self.decode(action)) for action in actions])

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Actions drawn uniformly; standard normal where a real number has no bounds."""
        if isinstance(self.space, spaces.Box):
            low = self.space.low.reshape(-1)
            high = self.space.high.reshape(-1)
            bounded = np.isfinite(low) & np.isfinite(high)
            span = np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0)
            inside = np.where(bounded, low, 0.0) + span * rng.random((agents, len(low)))
            free = rng.standard_normal((agents, len(low)))
            return np.where(bounded, inside, free).astype(np.float32)
        return rng.integers(0, self.spec.sizes, size=(agents, self.spec.width))


def _refused_actions(space: spaces.Space[Any]) -> str:
    """The message for an action space that has no codec."""
    if isinstance(space, spaces.Box):
        instead = "MultiBinary" if space.dtype == np.bool_ else "MultiDiscrete"
        return (
            f"action space Box of {space.dtype} is not supported; use {instead}, or a Box of "
            "float32"
        )
    return (
        f"action space {type(space).__name__} is not supported; use Discrete, MultiDiscrete, "
        "MultiBinary, a Box of real numbers, or a Dict of these"
    )


def _action_entry(name: str, space: spaces.Space[Any]) -> Codec:
    try:
        return action_codec(space)
    except BadInput as error:
        raise BadInput(f"'{name}': {error}") from None


class DictActionCodec:
    """The actions of a Dict: in a row all choices come first, then all real numbers."""

    def __init__(self, space: spaces.Dict) -> None:
        self.codecs = {name: _action_entry(name, s) for name, s in space.spaces.items()}
        specs = [codec.spec for codec in self.codecs.values()]
        sizes = tuple(size for spec in specs for size in spec.choices)
        reals = sum(spec.numbers for spec in specs)
        if sizes and reals:
            self.spec = ActionSpec("hybrid", sizes, reals)
        elif sizes:
            self.spec = ActionSpec("categorical", sizes)
        elif reals:
            self.spec = ActionSpec("gaussian", (reals,))
        else:
            raise BadInput("action space Dict: has nothing to do; add an entry")
        self.columns = self._columns()

    def _columns(self) -> dict[str, Array]:
        """Entry → its columns in a row, in its own order."""
        found = {}
        choice = 0
        number = len(self.spec.choices)
        for name, codec in self.codecs.items():
            choices = len(codec.spec.choices)
            numbers = codec.spec.numbers
            own = [*range(choice, choice + choices), *range(number, number + numbers)]
            found[name] = np.array(own, dtype=np.int64)
            choice += choices
            number += numbers
        return found

    def _own(self, name: str, action: Array) -> Array:
        own = action[..., self.columns[name]]
        return own if self.codecs[name].spec.numbers else own.astype(np.int64)

    def decode(self, action: Array) -> dict[str, Any]:
        """One agent's action, entry by entry."""
        return {n: codec.decode(self._own(n, action)) for n, codec in self.codecs.items()}

    def decode_batch(self, actions: Array) -> dict[str, Any]:
        """Every agent's action, entry by entry."""
        return {
            n: codec.decode_batch(self._own(n, actions)) for n, codec in self.codecs.items()
        }

    def uniform(self, rng: np.random.Generator, agents: int) -> Array:
        """Actions drawn uniformly, each entry by itself."""
        dtype = np.float32 if self.spec.numbers else np.int64
        rows: Array = np.empty((agents, self.spec.width), dtype)
        for name, codec in self.codecs.items():
            rows[:, self.columns[name]] = codec.uniform(rng, agents)
        return rows


def uniform_rows(
    codec: Codec,
    rng: np.random.Generator,
    legal: Array | None,
    *,
    agents: int,
    own: slice = slice(None),
    only: int | None = None,
) -> Array:
    """Actions drawn uniformly among the legal ones [A, W], by the argmax of masked noise.

    Noise is drawn for all agents of a run, whichever of them this process owns; or for agent
    `only` alone.
    """
    if only is not None:
        agents = 1
        own = slice(None)
        legal = None if legal is None else legal[only : only + 1]
    rows = codec.uniform(rng, agents)[own]
    if legal is None:
        return rows
    noise = np.where(legal, rng.random((agents, legal.shape[1]))[own], -1.0)
    ends = np.cumsum(codec.spec.choices)[:-1]
    for column, group in enumerate(np.split(noise, ends, axis=1)):
        rows[:, column] = group.argmax(axis=1)
    return rows


def meanings_of(env: Any, spec: ActionSpec) -> tuple[str, ...]:
    """Names of a single choice, as Gymnasium's Atari or MinAtar has them; else empty."""
    names: Any = None
    if hasattr(env, "get_action_meanings"):
        names = env.get_action_meanings()
    elif hasattr(env, "action_set") and hasattr(env, "game"):
        letters = getattr(getattr(env.game, "env", None), "action_map", None)
        if isinstance(letters, list):
            names = [MINATAR.get(letters[i], letters[i]) for i in env.action_set]
    fits = spec.kind == "categorical" and isinstance(names, list | tuple)
    return tuple(map(str, names)) if fits and spec.sizes == (len(names),) else ()


# --- Descriptions of the environment's own spaces, for policies exported to other programs ----


@dataclass(frozen=True)
class ActionPart:
    """One entry of an action, or all of it: which columns of a row it is made of."""

    name: str  # `outer/inner` in a Dict, else empty
    kind: Literal["choices", "reals"]
    columns: tuple[int, ...]
    shape: tuple[int, ...]  # what `step` takes; () is a single number
    dtype: str
    start: tuple[int, ...] = ()  # added to each choice
    low: tuple[float, ...] = ()  # bounds of each real number
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class RawObservation:
    """One entry of an observation as the environment gives it."""

    space: str  # as Gymnasium prints it
    shape: tuple[int, ...]
    steps: tuple[str, ...]  # the conversion into a row's entry, in words


@dataclass(frozen=True)
class SpaceDescription:
    """The spaces of one environment as plain data."""

    actions: tuple[ActionPart, ...]
    observations: dict[str, RawObservation]  # by entry; a plain space has the one entry ``
    meanings: tuple[str, ...] = ()  # names of the choices, where they have any


def describe_spaces(vector: VectorEnv) -> SpaceDescription:
    """Describe what these environments give and take, without this package's rows."""
    codec: Codec | None = getattr(vector, "_action", None)
    if codec is None:  # Atari: our own emulators, choices from 0
        choice = ActionPart("", "choices", (0,), (), "int64", (0,))
        meanings = tuple(name.upper() for name in vector.meanings())  # as the emulator has them
        return SpaceDescription((choice,), {}, meanings)
    columns = tuple(range(codec.spec.width))
    observer: Observer | None = getattr(vector, "_obs", None)
    actions = tuple(_describe_actions(codec, "", columns))
    return SpaceDescription(actions, _describe_observations(observer))


def _describe_actions(
    codec: Codec, name: str, columns: tuple[int, ...]
) -> Iterator[ActionPart]:
    if isinstance(codec, DictActionCodec):
        for inner_name, inner in codec.codecs.items():
            own = tuple(columns[int(i)] for i in codec.columns[inner_name])
            path = f"{name}/{inner_name}" if name else inner_name
            yield from _describe_actions(inner, path, own)
    elif isinstance(codec, ActionCodec):
        yield _describe_action(codec, name, columns)


def _describe_action(codec: ActionCodec, name: str, columns: tuple[int, ...]) -> ActionPart:
    space = codec.space
    shape = tuple(space.shape or ())
    if isinstance(space, spaces.Box):
        low = tuple(map(float, space.low.reshape(-1)))
        high = tuple(map(float, space.high.reshape(-1)))
        return ActionPart(name, "reals", columns, shape, str(space.dtype), (), low, high)
    start = np.broadcast_to(codec.start, (len(columns),))
    dtype = "int64" if isinstance(space, spaces.Discrete) else str(space.dtype)
    return ActionPart(name, "choices", columns, shape, dtype, tuple(map(int, start)))


def _describe_observations(codec: Observer | None) -> dict[str, RawObservation]:
    if codec is None:
        return {}
    codecs = codec.codecs if isinstance(codec, PackedCodec) else {"": codec}
    found = {}
    for name, inner in codecs.items():
        text = " ".join(str(inner.space).split())
        shape = tuple(inner.space.shape or ())
        found[name] = RawObservation(text[:200], shape, tuple(_conversion(inner)))
    return found


def _conversion(codec: ObservationCodec) -> Iterator[str]:
    """The steps from an observation to its entry in a row, in words."""
    space = codec.space
    if codec.one_hot and not isinstance(space, spaces.MultiBinary):
        yield "one-hot: each number minus its start is the index of a 1; several are joined"
    elif codec.channels_first:
        yield "move the first axis, the channels, to the end"
    elif codec.spec.kind == "vector" and len(space.shape or ()) != 1:
        yield "flatten in C order"
    if codec.spec.dtype == "float32" and space.dtype != np.float32:
        yield "as float32"
