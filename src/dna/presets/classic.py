"""Classic control: CartPole, Acrobot, Pendulum and LunarLander. Settings of our own."""

from typing import Any

from dna.config import Config
from dna.presets import small
from dna.tweak import tweak

_CARTPOLE: dict[str, Any] = {
    "returns.gamma": 0.98,
    "returns.lambda_pi": 0.8,
    "returns.lambda_v": 0.95,
    "horizon": 32,
    "agents": 8,
    "interactions": 100_000,
}


def _three(changes: dict[str, Any]) -> tuple[Config, Config, Config]:
    return (
        tweak(small.DNA, **changes),
        tweak(small.PPO, **changes),
        tweak(small.PPG, **changes),
    )


CARTPOLE_DNA, CARTPOLE_PPO, CARTPOLE_PPG = _three(_CARTPOLE)
ACROBOT_DNA, ACROBOT_PPO, ACROBOT_PPG = _three({"interactions": 300_000})
PENDULUM_DNA, PENDULUM_PPO, PENDULUM_PPG = _three(
    {"returns.gamma": 0.9, "interactions": 300_000}
)
LANDER_DNA, LANDER_PPO, LANDER_PPG = _three({"returns.gamma": 0.999, "interactions": 1_000_000})
