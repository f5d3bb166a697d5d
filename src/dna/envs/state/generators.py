"""Save and load the random generators of Python and numpy; detect draws from global ones.

`np.random` and `random` are never seeded here and are not part of a snapshot: a run that
depends on them is not a function of its seed, and resuming it is not exact.
"""

import ctypes
import functools
import random
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

#: What a bit generator is seeded by; `RandomState` has no sequence.
SEEDS = (np.random.SeedSequence, type(None))
KINDS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")
#: Number of calls for which all global states are compared; later ones get a cheaper check.
CALLS = 100


def is_generator(x: object) -> bool:
    """Whether x is a generator that can be recorded; subclasses may hold more state."""
    if type(x) is np.random.Generator:
        bits = x.bit_generator
        return type(bits).__name__ in KINDS and type(bits.seed_seq) in SEEDS
    return type(x) in (np.random.RandomState, random.Random)


def parts_of(rng: Any) -> list[object]:
    """The parts of a generator that another one may share: its bits and its seeds."""
    if isinstance(rng, np.random.Generator):
        bits = rng.bit_generator
        return [bits, *([] if bits.seed_seq is None else [bits.seed_seq])]
    return [rng._bit_generator if isinstance(rng, np.random.RandomState) else rng]


def save(rng: Any) -> dict[str, Any]:
    """A generator's state, and the seed sequence that it spawns children from."""
    if isinstance(rng, np.random.Generator):
        bits = rng.bit_generator
        return {"numpy": _plain(bits.state), "seeds": _seeds(bits.seed_seq)}
    if isinstance(rng, np.random.RandomState):
        return {"legacy": _plain(rng.get_state(legacy=False))}
    version, words, gauss = rng.getstate()
    return {"python": [version, list(words), None if gauss is None else gauss.hex()]}


def load(state: dict[str, Any], present: Any) -> Any:
    """A generator in that state: the present one if it is of the same kind, else a new one."""
    if "numpy" in state:
        name = state["numpy"]["bit_generator"]
        if name not in KINDS:
            raise ValueError(f"no generator is called {name}")
        if not (is_generator(present) and _alike(present, name, state["seeds"])):
            bits = getattr(np.random, name)(_sequence(state["seeds"]))
            present = np.random.Generator(bits)
        present.bit_generator.state = _arrays(state["numpy"])
        return present
    if "legacy" in state:
        old = type(present) is np.random.RandomState
        legacy = present if old else np.random.RandomState()
        legacy.set_state(_arrays(state["legacy"]))
        return legacy
    version, words, gauss = state["python"]
    python = present if type(present) is random.Random else random.Random()
    python.setstate((version, tuple(words), None if gauss is None else float.fromhex(gauss)))
    return python


def _alike(present: Any, name: str, seeds: Any) -> bool:
    bits: Any = getattr(present, "bit_generator", None)
    return type(bits).__name__ == name and _seeds(bits.seed_seq) == seeds


def _seeds(sequence: Any) -> dict[str, Any] | None:
    """The arguments of a seed sequence, from which `spawn` takes children."""
    if not isinstance(sequence, np.random.SeedSequence):
        return None
    entropy = sequence.entropy
    words = entropy if entropy is None or isinstance(entropy, int) else [*map(int, entropy)]
    return {
        "entropy": words,
        "spawn_key": [int(word) for word in sequence.spawn_key],
        "pool_size": sequence.pool_size,
        "n_children_spawned": sequence.n_children_spawned,
    }


def _sequence(seeds: Any) -> Any:
    """The inverse of `_seeds`."""
    if seeds is None:
        return None
    return np.random.SeedSequence(**seeds | {"spawn_key": tuple(seeds["spawn_key"])})


def _plain(state: Any) -> Any:
    """A bit generator's state as plain JSON values."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"words": [int(word) for word in state], "dtype": state.dtype.str}
    if isinstance(state, float):
        return {"float": state.hex()}
    return state.item() if isinstance(state, np.generic) else state


def _arrays(state: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(state, dict) and "words" in state:
        return np.array(state["words"], dtype=state["dtype"])
    if isinstance(state, dict) and "float" in state:
        return float.fromhex(state["float"])
    if isinstance(state, dict):
        return {key: _arrays(value) for key, value in state.items()}
    return state


class GlobalDraws:
    """Detects an environment that draws from the process's global generators."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left = CALLS
        self.drawn: str | None = None  # the generator that was drawn from

    def watched(self) -> "_WatchedCall":
        """Watch one call; after the first `CALLS`, compare only the generators' positions."""
        return _WatchedCall(self)

    @property
    def inexact(self) -> str | None:
        """Why the environments cannot be saved, if global draws are the reason."""
        return f"{self.name}: the state of {self.drawn} cannot be saved" if self.drawn else None


class _WatchedCall:
    """A call during which the global generators should not move.

    A class, because a generator would cost more than the comparison.
    """

    __slots__ = ("before", "draws", "look")

    def __init__(self, draws: GlobalDraws) -> None:
        self.draws = draws

    def __enter__(self) -> None:
        if self.draws.drawn is None:
            self.look: Callable[[], Mapping[str, Any]]
            self.look = _global_states if self.draws.left else _global_positions
            self.before = self.look()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        draws = self.draws
        if error is not None or draws.drawn is not None:
            return
        draws.left = max(draws.left - 1, 0)
        moved = [name for name, state in self.look().items() if state != self.before[name]]
        if moved:
            draws.drawn = moved[0]
            text = (
                f"{draws.name} draws from {draws.drawn}, which no seed reaches: runs of the "
                "same seed differ, and resuming is not exact; draw from self.np_random"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _global_states() -> dict[str, Any]:
    """The states of the global generators; torch's only if something has loaded torch."""
    states = {
        "np.random": _plain(np.random.get_state(legacy=False)),  # noqa: NPY002 the one to watch
        "random": random.getstate(),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch's generator"] = torch.get_rng_state().numpy().tobytes()
    return states


def _global_positions() -> dict[str, int]:
    """Where the global generators are in their states, read from memory.

    Copying the states would take longer than a step of many environments.
    """
    return {name: place.value for name, (place, _) in _places().items()}


@functools.cache
def _places() -> dict[str, tuple[ctypes.c_int, object]]:
    """Positions of the global Mersenne Twisters, if found where expected, and their owners."""
    bits = np.random.mtrand._rand._bit_generator
    places: dict[str, tuple[ctypes.c_int, object]] = {}
    if type(bits) is np.random.MT19937:  # a struct of 624 words and the position
        place = ctypes.c_int.from_address(bits.ctypes.state_address + 624 * 4)
        if place.value == bits.state["state"]["pos"]:
            places["np.random"] = (place, bits)
    own = getattr(random, "_inst", None)
    if sys.implementation.name == "cpython" and type(own) is random.Random:
        place = ctypes.c_int.from_address(id(own) + object.__basicsize__)
        if place.value == own.getstate()[1][-1]:
            places["random"] = (place, own)
    return places
