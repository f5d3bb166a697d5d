"""DNA: Proximal Policy Optimization with a Dual Network Architecture.

Public names are resolved when first used (PEP 562), so that `import dna` and a refused
command cost no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dna.config import Config as Config
    from dna.evaluate import evaluate as evaluate
    from dna.policy import load_policy as load_policy
    from dna.presets import for_environment as for_environment
    from dna.presets import preset as preset
    from dna.returns import advantage as advantage
    from dna.returns import td_lambda as td_lambda
    from dna.setup import How as How
    from dna.train import train as train
    from dna.tweak import digest as digest
    from dna.tweak import tweak as tweak
    from dna.tweak import without as without

_HOME = {
    "Config": "config",
    "How": "setup",
    "advantage": "returns",
    "digest": "tweak",
    "evaluate": "evaluate",
    "for_environment": "presets",
    "load_policy": "policy",
    "preset": "presets",
    "td_lambda": "returns",
    "train": "train",
    "tweak": "tweak",
    "without": "tweak",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dna' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dna.{_HOME[name]}"), name)
