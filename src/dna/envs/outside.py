"""What lies between an environment and our rows, as plain data: for those who act without us.

How an observation becomes what a policy reads, and how a row of actions becomes what `step`
takes: offsets of choices, bounds of real numbers, shapes and names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from dna.envs import VectorEnv
from dna.envs.actions import ActionCodec, Codec, DictActionCodec
from dna.envs.packing import PackedCodec
from dna.envs.spaces import ObservationCodec


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
class Seen:
    """One entry of an observation before it is ours."""

    space: str  # as Gymnasium prints it
    shape: tuple[int, ...]
    steps: tuple[str, ...]  # what is done to it, in words


@dataclass(frozen=True)
class Outside:
    """Both sides of one environment."""

    actions: tuple[ActionPart, ...]
    seen: dict[str, Seen]  # by entry; the only one of a plain space is called ``
    meanings: tuple[str, ...] = ()  # of the choices, where they have names


def outside(vector: VectorEnv) -> Outside:
    """What these environments look like without us."""
    codec: Codec | None = getattr(vector, "_action", None)
    if codec is None:  # Atari: our own emulators, choices from 0
        choice = ActionPart("", "choices", (0,), (), "int64", (0,))
        return Outside((choice,), {}, _atari_meanings(vector))
    columns = tuple(range(codec.spec.width))
    observed: Any = getattr(vector, "_obs", None)
    return Outside(tuple(_actions(codec, "", columns)), dict(_observations(observed)))


def _actions(codec: Codec, name: str, columns: tuple[int, ...]) -> Iterator[ActionPart]:
    if isinstance(codec, DictActionCodec):
        for entry, inner in codec.codecs.items():
            own = tuple(columns[int(i)] for i in codec.columns[entry])
            yield from _actions(inner, f"{name}/{entry}" if name else entry, own)
    elif isinstance(codec, ActionCodec):
        yield _action(codec, name, columns)


def _action(codec: ActionCodec, name: str, columns: tuple[int, ...]) -> ActionPart:
    space, shape = codec.space, tuple(codec.space.shape or ())
    if isinstance(space, spaces.Box):
        low, high = (tuple(map(float, side.reshape(-1))) for side in (space.low, space.high))
        return ActionPart(name, "reals", columns, shape, str(space.dtype), (), low, high)
    start = np.broadcast_to(codec.start, (len(columns),))
    dtype = "int64" if isinstance(space, spaces.Discrete) else str(space.dtype)
    return ActionPart(name, "choices", columns, shape, dtype, tuple(map(int, start)))


def _observations(codec: ObservationCodec | PackedCodec | None) -> Iterator[tuple[str, Seen]]:
    if isinstance(codec, PackedCodec):
        for name, inner in codec.codecs.items():
            yield name, _seen(inner)
    elif codec is not None:
        yield "", _seen(codec)


def _seen(codec: ObservationCodec) -> Seen:
    text = " ".join(str(codec.space).split())
    return Seen(text[:200], tuple(codec.space.shape or ()), tuple(_steps(codec)))


def _steps(codec: ObservationCodec) -> Iterator[str]:
    space = codec.space
    if codec.one_hot and not isinstance(space, spaces.MultiBinary):
        yield "one-hot: each number, less its start, is the place of a 1; several in a row"
    elif codec.channels_first:
        yield "move the first axis, the channels, to the end"
    elif codec.spec.kind == "vector" and len(space.shape or ()) != 1:
        yield "flatten in C order"
    if codec.spec.dtype == "float32" and space.dtype != np.float32:
        yield "as float32"


def _atari_meanings(vector: Any) -> tuple[str, ...]:
    from ale_py import Action

    from dna.envs.atari.game import actions_of, emulator
    from dna.envs.atari.vector import rom_of

    numbers = actions_of(emulator(rom_of(vector.name)), vector.settings)
    return tuple(str(Action(number).name) for number in numbers)
