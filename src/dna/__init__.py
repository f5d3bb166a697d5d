"""DNA: Proximal Policy Optimization with a Dual Network Architecture.

Public names are resolved when first used (PEP 562), so that `import dna` and a refused
command cost no torch. A name that is also a module's (`train`, `tweak`, `evaluate`) is taken
from there: `from dna.train import train`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dna.agent import DNA as DNA
    from dna.agent import PPG as PPG
    from dna.agent import PPO as PPO
    from dna.agent import Agent as Agent
    from dna.agent import load as load
    from dna.combined import register_encoder as register_encoder
    from dna.config import Config as Config
    from dna.noise_scale import NoiseScale as NoiseScale
    from dna.own_phases import register_phase as register_phase
    from dna.policy import load_policy as load_policy
    from dna.presets import for_environment as for_environment
    from dna.presets import preset as preset
    from dna.returns import advantage as advantage
    from dna.returns import td_lambda as td_lambda
    from dna.setup import How as How
    from dna.tweak import digest as digest
    from dna.tweak import without as without

_HOME = {
    "DNA": "agent",
    "PPG": "agent",
    "PPO": "agent",
    "Agent": "agent",
    "Config": "config",
    "How": "setup",
    "NoiseScale": "noise_scale",
    "advantage": "returns",
    "digest": "tweak",
    "for_environment": "presets",
    "load": "agent",
    "load_policy": "policy",
    "preset": "presets",
    "register_encoder": "combined",
    "register_phase": "own_phases",
    "td_lambda": "returns",
    "without": "tweak",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dna' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dna.{_HOME[name]}"), name)
