"""DNA: Proximal Policy Optimization with a Dual Network Architecture.

Public names are resolved when first used (PEP 562), so that `import dna` and a refused
command load no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dna.agents.agent import DNA as DNA
    from dna.agents.agent import PPG as PPG
    from dna.agents.agent import PPO as PPO
    from dna.agents.agent import Agent as Agent
    from dna.agents.agent import load as load
    from dna.algorithm.noise_scale import NoiseScale as NoiseScale
    from dna.algorithm.returns import advantage as advantage
    from dna.algorithm.returns import td_lambda as td_lambda
    from dna.common.errors import EnvironmentTimeout as EnvironmentTimeout
    from dna.config import Config as Config
    from dna.config.overrides import digest as digest
    from dna.config.overrides import tweak as tweak
    from dna.config.overrides import without as without
    from dna.config.presets import for_environment as for_environment
    from dna.config.presets import preset as preset
    from dna.config.run import register_phase as register_phase
    from dna.evaluation.evaluate import evaluate as evaluate
    from dna.networks.encoders import register_encoder as register_encoder
    from dna.runs.policy import load_policy as load_policy
    from dna.runs.setup import How as How
    from dna.runs.train import train as train

_HOME = {
    "Agent": "agents.agent",
    "Config": "config",
    "DNA": "agents.agent",
    "EnvironmentTimeout": "common.errors",
    "How": "runs.setup",
    "NoiseScale": "algorithm.noise_scale",
    "PPG": "agents.agent",
    "PPO": "agents.agent",
    "advantage": "algorithm.returns",
    "digest": "config.overrides",
    "evaluate": "evaluation.evaluate",
    "for_environment": "config.presets",
    "load": "agents.agent",
    "load_policy": "runs.policy",
    "preset": "config.presets",
    "register_encoder": "networks.encoders",
    "register_phase": "config.run",
    "td_lambda": "algorithm.returns",
    "train": "runs.train",
    "tweak": "config.overrides",
    "without": "config.overrides",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dna' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dna.{_HOME[name]}"), name)
