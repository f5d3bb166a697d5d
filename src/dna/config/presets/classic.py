"""Classic control: CartPole, Acrobot, Pendulum and LunarLander. Settings of ours.

What differs from `small`, for all three algorithms alike; budgets are what we solved the task
with (docs/results.md).
"""

from typing import Any

from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets import small


def _three(changes: dict[str, Any]) -> tuple[Config, Config, Config]:
    return (
        tweak(small.DNA, **changes),
        tweak(small.PPO, **changes),
        tweak(small.PPG, **changes),
    )


def _walks(config: Config, epochs: int, minibatch: int) -> Config:
    """So many epochs in the phases that learn from returns, half in the third."""
    changes: dict[str, Any] = {}
    for phase in config.phases:
        third = phase.kind in ("distil", "auxiliary")
        changes[f"{phase.name}.sgd.epochs"] = epochs // 2 if third else epochs
        changes[f"{phase.name}.sgd.minibatch"] = minibatch
    return tweak(config, **changes)


# A score over the last 100 episodes spans half of 100,000 interactions: CartPole must be
# solved early, hence many passes over each rollout. Rollouts of 256 rows instead of 1024 made
# one seed in five forget again.
CARTPOLE_DNA, CARTPOLE_PPO, CARTPOLE_PPG = (
    tweak(_walks(config, 10, 128), horizon=128, agents=8, interactions=100_000)
    for config in _three(
        {"returns.gamma": 0.98, "returns.lambda_pi": 0.8, "returns.lambda_v": 0.95}
    )
)
CARTPOLE_PPG = tweak(
    CARTPOLE_PPG, **{"aux.every": 4, "aux.sgd.epochs": 4, "aux.sgd.minibatch": 256}
)
ACROBOT_DNA, ACROBOT_PPO, ACROBOT_PPG = _three({"interactions": 300_000})
# The reward speaks of the present angle: a short horizon is enough, and far easier to learn.
PENDULUM_DNA, PENDULUM_PPO, PENDULUM_PPG = _three(
    {"returns.gamma": 0.9, "interactions": 300_000}
)
LANDER_DNA, LANDER_PPO, LANDER_PPG = _three({"returns.gamma": 0.999, "interactions": 1_000_000})
