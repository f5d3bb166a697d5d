"""Random generators of Python and numpy as JSON, and back."""

import random
from typing import Any

import numpy as np

KINDS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")


def is_dice(x: object) -> bool:
    """Whether it is a generator that can be written down."""
    if isinstance(x, np.random.Generator):
        return type(x.bit_generator).__name__ in KINDS
    return isinstance(x, np.random.RandomState) or type(x) is random.Random


def save(dice: Any) -> dict[str, Any]:
    """A generator's state."""
    if isinstance(dice, np.random.Generator):
        return {"numpy": _plain(dice.bit_generator.state)}
    if isinstance(dice, np.random.RandomState):
        return {"legacy": _plain(dice.get_state(legacy=False))}
    version, words, gauss = dice.getstate()
    return {"python": [version, list(words), None if gauss is None else gauss.hex()]}


def load(state: dict[str, Any], present: Any) -> Any:
    """A generator in that state: the present one if it is of the kind, else a new one."""
    if "numpy" in state:
        name = state["numpy"]["bit_generator"]
        if name not in KINDS:
            raise ValueError(f"no generator is called {name}")
        fits = isinstance(present, np.random.Generator)
        if not fits or type(present.bit_generator).__name__ != name:
            present = np.random.Generator(getattr(np.random, name)())
        present.bit_generator.state = _arrays(state["numpy"])
        return present
    if "legacy" in state:
        old = isinstance(present, np.random.RandomState)
        legacy = present if old else np.random.RandomState()
        legacy.set_state(_arrays(state["legacy"]))
        return legacy
    version, words, gauss = state["python"]
    plain = present if type(present) is random.Random else random.Random()
    plain.setstate((version, tuple(words), None if gauss is None else float.fromhex(gauss)))
    return plain


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
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
