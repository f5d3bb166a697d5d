"""Environments of every library behind one protocol (`dna.envs.protocol`).

Whatever makes, steps, describes or snapshots environments is here, and nothing that learns
from them. The names below are resolved when first used (PEP 562), so that `dna.envs.specs` and
`dna.envs.benchmark_scores` load neither numpy nor Gymnasium, and Atari's workers no Gymnasium.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dna.envs.protocol import ALL as ALL
    from dna.envs.protocol import Array as Array
    from dna.envs.protocol import Factory as Factory
    from dna.envs.protocol import Making as Making
    from dna.envs.protocol import Source as Source
    from dna.envs.protocol import State as State
    from dna.envs.protocol import Step as Step
    from dna.envs.protocol import VectorEnv as VectorEnv
    from dna.envs.protocol import make as make

__all__ = ["ALL", "Array", "Factory", "Making", "Source", "State", "Step", "VectorEnv", "make"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dna.envs' has no attribute {name!r}")
    return getattr(importlib.import_module("dna.envs.protocol"), name)
