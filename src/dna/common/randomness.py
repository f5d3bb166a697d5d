"""Counter-based random streams: one generator per purpose, keyed by what it is for.

A generator is a pure function of (seed, stream, index…), so a run is a function of its
configuration and seed, two seeds share no stream, and resuming needs no generator state.
"""

import hashlib
import json
import operator

import numpy as np

from dna.common.errors import BadInput


def _hash(seed: int, stream: str, *index: int) -> bytes:
    return hashlib.sha256(json.dumps([int(seed), stream, *map(int, index)]).encode()).digest()


def generator(seed: int, stream: str, *index: int) -> np.random.Generator:
    """Return a new Philox generator for this purpose; the index is usually the iteration."""
    key = np.frombuffer(_hash(seed, stream, *index)[:16], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def integer(seed: int, stream: str, *index: int) -> int:
    """Return a seed in [0, 2³¹) for libraries that take one: environments, torch."""
    return int.from_bytes(_hash(seed, stream, *index)[:4], "big") >> 1


def whole_seed(seed: int) -> int:
    """Check a seed and return it as a plain integer, which is hashed and saved."""
    try:
        number = operator.index(seed)
    except TypeError:
        raise BadInput(f"seed: given {seed!r}, must be an integer") from None
    if number < 0:
        raise BadInput(f"seed: given {number}, must be at least 0")
    return number
