"""Dict observations and action masks as rows of bytes (`dna.envs.specs.ObservationSpec.pack`).

A mask is `info["action_mask"]` (`dna.envs.masks` puts a method's answer there), or an entry
`"action_mask"` of a Dict observation: one truth for every choice, of several groups
(MultiDiscrete) one behind the other. It travels with its observation, so whatever acts on the
one or learns from it has the other at hand.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from dna.common.errors import BadInput
from dna.envs.spaces import ObservationCodec, check_unmasked
from dna.envs.specs import MASK, ActionSpec, ObservationSpec, Part

Array = npt.NDArray[Any]


def spans(spec: ObservationSpec) -> dict[Part, slice]:
    """Where each part lies in a row."""
    found, start = {}, 0
    for part in spec.parts:
        found[part] = slice(start, start + part.bytes)
        start += part.bytes
    return found


def columns(spec: ObservationSpec) -> dict[str, tuple[Part, slice]]:
    """Entry → where it lies in the numbers that `Unpack` and `numbers` give."""
    found, start = dict[str, tuple[Part, slice]](), 0
    for part in spec.entries:
        found[part.name] = part, slice(start, start + part.elements)
        start += part.elements
    return found


def elements(spec: ObservationSpec) -> int:
    """Numbers in the entries of a row."""
    return sum(part.elements for part in spec.entries)


def divisors(spec: ObservationSpec) -> npt.NDArray[np.float64]:
    """255 where a number is a pixel or another byte, else 1."""
    parts = [np.full(p.elements, 255.0 if p.dtype == "uint8" else 1.0) for p in spec.entries]
    return np.concatenate(parts)


def numbers(spec: ObservationSpec, rows: Array) -> npt.NDArray[np.float32]:
    """Rows of bytes [B, R] as the numbers of their entries [B, E], not yet scaled."""
    parts = []
    for part, span in spans(spec).items():
        if part.kind != "mask":
            piece = np.ascontiguousarray(rows[:, span])
            parts.append(piece.view(np.float32) if part.dtype == "float32" else piece)
    return np.concatenate(parts, axis=1, dtype=np.float32)


def legal(spec: ObservationSpec, rows: Array) -> npt.NDArray[np.bool_] | None:
    """Which choices are legal [B, C]; None: all of them, always."""
    for part, span in spans(spec).items():
        if part.kind == "mask":
            return np.not_equal(rows[:, span], 0)
    return None


#: The only entry of an environment that has a mask, but no Dict space.
ONLY = "observation"


class PackedCodec:
    """One environment's observations, entries and mask, as rows of our spec."""

    def __init__(self, space: spaces.Space[Any], action: ActionSpec, *, in_info: bool) -> None:
        self.choices, self.in_info = action.choices, in_info
        entries = dict(_entries(space)) if isinstance(space, spaces.Dict) else {ONLY: space}
        self.in_obs = bool(self.choices) and MASK in entries and not in_info
        if self.in_obs:
            _check_mask_space(entries.pop(MASK), sum(self.choices))
        if not entries:
            raise BadInput("observation space Dict: has nothing to see; add an entry")
        self.nested = isinstance(space, spaces.Dict)
        self.codecs = {name: _codec(name, entry) for name, entry in entries.items()}
        parts = [_part(name, codec.spec) for name, codec in self.codecs.items()]
        if in_info or self.in_obs:
            parts.append(Part(MASK, "mask", (sum(self.choices),), "bool"))
        self.spec = ObservationSpec.pack(parts)
        self.maskless = bool(self.choices) and not self.spec.masked
        self.spans = spans(self.spec)

    def empty(self, agents: int) -> Array:
        """A buffer for one observation of each agent."""
        return np.zeros((agents, *self.spec.shape), dtype=np.uint8)

    def encode(self, observation: Any, info: Any = None, *, final: bool = False) -> Array:
        """One observation as a row; a final one need not say what is legal after it."""
        row = np.zeros(self.spec.shape, dtype=np.uint8)
        if self.maskless:
            check_unmasked(info)
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
        where, told = ("the observation", observation) if self.in_obs else ("info", info or {})
        found, size = told.get(MASK), sum(self.choices)
        if found is None and not final:
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
        """A vector environment's observations; `over`: rows that nobody will act on."""
        name = next(iter(self.codecs))
        rows = self.empty(len(entry(observations, name) if self.nested else observations))
        masks = (info or {}).get(MASK)
        for i in range(len(rows)):
            own = {} if masks is None or masks[i] is None else {MASK: masks[i]}
            one = row_of(observations, i)
            rows[i] = self.encode(one, own, final=over is not None and bool(over[i]))
        return rows

    def numbers(self, rows: Array) -> Array:
        """What of these rows can fail to be finite."""
        return numbers(self.spec, rows)

    def legal(self, rows: Array) -> npt.NDArray[np.bool_] | None:
        """Which choices are legal; None: all of them, always."""
        return legal(self.spec, rows)


def observer(
    space: spaces.Space[Any], action: ActionSpec, info: Any
) -> ObservationCodec | PackedCodec:
    """What reads an environment; `info` of a reset shows whether it tells masks there."""
    in_info = bool(action.choices) and MASK in (info or {})
    if in_info or isinstance(space, spaces.Dict):
        return PackedCodec(space, action, in_info=in_info)
    return ObservationCodec(space, maskless=bool(action.choices))


def _entries(space: spaces.Dict, start: str = "") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """Every entry of a Dict and of the Dicts in it, `outer/inner`."""
    for name, entry in space.spaces.items():
        if isinstance(entry, spaces.Dict):
            yield from _entries(entry, f"{start}{name}/")
        else:
            yield f"{start}{name}", entry


def _codec(name: str, space: spaces.Space[Any]) -> ObservationCodec:
    try:
        return ObservationCodec(space)
    except BadInput as error:
        raise BadInput(f"'{name}': {error}") from None


def _part(name: str, spec: ObservationSpec) -> Part:
    return Part(name, "image" if spec.kind == "image" else "vector", spec.shape, spec.dtype)


def _check_mask_space(space: spaces.Space[Any], choices: int) -> None:
    size = int(np.prod(space.shape or (0,)))
    if size != choices:
        raise BadInput(f"'{MASK}' has {size} entries, not one for each of {choices} choices")


def entry(observation: Any, path: str) -> Any:
    """`outer/inner` of an observation, or of a batch of them."""
    for name in path.split("/"):
        if not isinstance(observation, Mapping) or name not in observation:
            raise ValueError(f"the observation has no '{path}'")
        observation = observation[name]
    return observation


def row_of(batch: Any, i: int) -> Any:
    """One agent's observation out of a batch, of Dicts too."""
    if isinstance(batch, Mapping):
        return {name: row_of(part, i) for name, part in batch.items()}
    return batch[i]
