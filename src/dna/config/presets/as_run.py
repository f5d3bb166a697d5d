"""The profile `as_run`: the authors' code where it departs from their paper.

Each row names a setting, the paper's value and the code's. A row applies where a configuration
has the paper's value, so that the profile fits every preset and keeps settings that were
changed already. docs/fidelity.md explains each row.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dna.common.errors import UnknownKey
from dna.config import Config
from dna.config.overrides import at, tweak

_ANYWHERE: Mapping[str, Any] = MappingProxyType({})
#: Of the paper's benchmarks only MuJoCo has vector observations, and real-valued actions.
_MUJOCO: Mapping[str, Any] = MappingProxyType({"network.encoder": "mlp"})


class Departure(NamedTuple):
    """A setting with the paper's value and the code's; applies where `where` holds."""

    key: str
    paper: Any
    code: Any
    reason: str
    where: Mapping[str, Any] = _ANYWHERE


_BONUS = "for Gaussian policies the code leaves the entropy bonus out"
_SURROGATE = "one ratio per action dimension, then their mean"
DEPARTURES = (
    Departure("env.time_limit", "bootstrap", "terminal", "the truncation flag is never read"),
    Departure(
        "distil.constraint", "kl", "logit_mse",
        "squared difference of raw logits; no reported Atari run used the KL",
    ),
    Departure(
        "distil.constraint", "mean_mse", "mean_mse_scaled",
        "the distance of the means is divided by the variance",
    ),
    Departure("distil.weight", 1.0, 0.5, "squared losses carry a factor of one half"),
    Departure("distil.first", "run", "skip", "the first iteration does not distil"),
    Departure("value.weight", 1.0, 0.5, "squared losses carry a factor of one half"),
    Departure(
        "aux.variant", "cobbe", "authors",
        "no halves, and the KL's arguments the other way round",
    ),
    Departure(
        "normalize_observation.gain", 1.0, 3.0, "multiplied by 3 after the clip",
        MappingProxyType({"normalize_observation.clip": 3.0}),
    ),
    Departure("normalize_observation.clip", 3.0, 5.0, "the code clips at 5"),
    Departure("normalize_reward.clip", 5.0, 10.0, "the code clips at 10"),
    Departure(
        "normalize_reward.episode_end", "reset", "carry_last",
        "an episode's last reward leaks into the next one's running return",
    ),
    Departure(
        "warm_up", {"low": 1, "high": 1000, "actions": "uniform"}, None,
        "the code's warm-up supports discrete actions only", _MUJOCO,
    ),
    Departure("warm_up.low", 1, 0, "lengths are drawn from 0 on"),
    Departure("warm_up.actions", "uniform", "policy", "the untrained policy acts"),
    Departure("policy.entropy_bonus", 0.01, 0.0, _BONUS, _MUJOCO),
    Departure("joint.entropy_bonus", 0.01, 0.0, _BONUS, _MUJOCO),
    Departure("policy.surrogate", "joint", "per_dimension", _SURROGATE, _MUJOCO),
    Departure("joint.surrogate", "joint", "per_dimension", _SURROGATE, _MUJOCO),
    # Values that only PPO (orig) of table 1 has.
    Departure(
        "joint.epsilon", 0.1, {"start": 0.1, "end": 0.0},
        "PPO (orig) was run with an annealed ε",
    ),
    Departure(
        "joint.entropy_bonus", {"start": 0.01, "end": 0.0}, 0.01,
        "PPO (orig) was run with a fixed entropy bonus",
    ),
    Departure(
        "joint.value_weight", 1.0, 2.0,
        "meant to offset a half that the code's joint loss does not have",
    ),
)  # fmt: skip


def departures(config: Config) -> list[Departure]:
    """Return the rows that change something in this configuration."""
    used = []
    for row in DEPARTURES:
        wanted = {row.key: row.paper, **row.where}
        if all(_has(config, key, value) for key, value in wanted.items()):
            config = tweak(config, **{row.key: row.code})
            used.append(row)
    return used


def as_run(config: Config) -> Config:
    """Return the configuration as the authors' code would run it."""
    return tweak(config, **{row.key: row.code for row in departures(config)})


def _has(config: Config, key: str, value: Any) -> bool:
    try:
        found: bool = at(config, key) == value
    except UnknownKey:  # another algorithm's phase, or a section that is off
        return False
    return found
