"""Random generators of Python and numpy as JSON, and back."""

import random
from typing import Any

import numpy as np

#: Sequences that bits are seeded by, or none (`RandomState` seeds its own in another way).
SEEDS = (np.random.SeedSequence, type(None))
KINDS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")


def is_dice(x: object) -> bool:
    """Whether it is a generator that can be written down; subclasses may hold more."""
    if type(x) is np.random.Generator:
        bits = x.bit_generator
        return type(bits).__name__ in KINDS and type(bits.seed_seq) in SEEDS
    return type(x) in (np.random.RandomState, random.Random)


def memory(dice: Any) -> int:
    """What tells two generators apart: they may draw from the same bits."""
    if isinstance(dice, np.random.Generator):
        return id(dice.bit_generator)
    return id(dice._bit_generator if isinstance(dice, np.random.RandomState) else dice)


def save(dice: Any) -> dict[str, Any]:
    """A generator's state, and what its next children will come from."""
    if isinstance(dice, np.random.Generator):
        bits = dice.bit_generator
        return {"numpy": plain(bits.state), "seeds": _seeds(bits.seed_seq)}
    if isinstance(dice, np.random.RandomState):
        return {"legacy": plain(dice.get_state(legacy=False))}
    version, words, gauss = dice.getstate()
    return {"python": [version, list(words), None if gauss is None else gauss.hex()]}


def load(state: dict[str, Any], present: Any) -> Any:
    """A generator in that state: the present one if it is of the kind, else a new one."""
    if "numpy" in state:
        name, seeds = state["numpy"]["bit_generator"], state["seeds"]
        if name not in KINDS:
            raise ValueError(f"no generator is called {name}")
        if not (is_dice(present) and _alike(present, name, seeds)):
            present = np.random.Generator(getattr(np.random, name)(_sequence(seeds)))
        present.bit_generator.state = _arrays(state["numpy"])
        return present
    if "legacy" in state:
        old = type(present) is np.random.RandomState
        legacy = present if old else np.random.RandomState()
        legacy.set_state(_arrays(state["legacy"]))
        return legacy
    version, words, gauss = state["python"]
    plain = present if type(present) is random.Random else random.Random()
    plain.setstate((version, tuple(words), None if gauss is None else float.fromhex(gauss)))
    return plain


def _alike(present: Any, name: str, seeds: Any) -> bool:
    bits: Any = getattr(present, "bit_generator", None)
    return type(bits).__name__ == name and _seeds(bits.seed_seq) == seeds


def _seeds(sequence: Any) -> dict[str, Any] | None:
    """Where `spawn` takes its children from."""
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
    """A sequence with these seeds; None: of a generator that has none."""
    if seeds is None:
        return None
    return np.random.SeedSequence(**seeds | {"spawn_key": tuple(seeds["spawn_key"])})


def plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"words": [int(word) for word in state], "dtype": state.dtype.str}
    if isinstance(state, float):
        return {"float": state.hex()}
    return state.item() if isinstance(state, np.generic) else state


def _arrays(state: Any) -> Any:
    if isinstance(state, dict) and "words" in state:
        return np.array(state["words"], dtype=state["dtype"])
    if isinstance(state, dict) and "float" in state:
        return float.fromhex(state["float"])
    if isinstance(state, dict):
        return {key: _arrays(value) for key, value in state.items()}
    return state
