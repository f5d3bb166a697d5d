"""Settings of a run as frozen pydantic models, and the presets that carry the paper's tables.

Nothing here imports torch or an environment library, so that a bad setting is refused at once.
"""

from dna.config.environments import Atari, EnvConfig, Procgen, RepeatPenalty
from dna.config.phases import (
    SGD,
    AnyPhase,
    Auxiliary,
    Distil,
    Joint,
    Linear,
    Noise,
    Policy,
    Returns,
    Value,
    resolve,
)
from dna.config.run import Config, Network, ObservationNorm, RewardNorm, WarmUp, json_tree

__all__ = [
    "SGD",
    "AnyPhase",
    "Atari",
    "Auxiliary",
    "Config",
    "Distil",
    "EnvConfig",
    "Joint",
    "Linear",
    "Network",
    "Noise",
    "ObservationNorm",
    "Policy",
    "Procgen",
    "RepeatPenalty",
    "Returns",
    "RewardNorm",
    "Value",
    "WarmUp",
    "json_tree",
    "resolve",
]
