"""Presets of MuJoCo, table 6 (tab:mujoco_hps): PPO and DNA, close to Schulman et al. 2017.

Appendix K replaces the KL of the distillation with the squared distance between the Gaussian
means and keeps λ_π at .95. Network: two layers of 64, tanh, as in Schulman et al.; the rest
follows appendix A. The warm-up is kept although a single agent needs no decorrelation: it
initializes the normalization statistics.
"""

from typing import Any

from dna.config import (
    SGD,
    Auxiliary,
    Config,
    Distil,
    Joint,
    Linear,
    Network,
    ObservationNorm,
    Policy,
    Returns,
    RewardNorm,
    Value,
    WarmUp,
)

_RATE = Linear(start=3e-4, end=0.0)
_TEN = SGD(epochs=10, minibatch=64, learning_rate=_RATE)
_SHARED: dict[str, Any] = {
    "returns": Returns(gamma=0.99, lambda_pi=0.95, lambda_v=0.95),
    "horizon": 2048,
    "agents": 1,
    "interactions": 1_000_000,
    "network": Network(encoder="mlp", width=64, depth=2, activation="tanh", init="authors"),
    "normalize_observation": ObservationNorm(clip=3.0),
    "normalize_reward": RewardNorm(clip=5.0),
    "warm_up": WarmUp(low=1, high=1000),
    "repeat_penalty": None,
}
_POLICY = Policy(sgd=_TEN, epsilon=0.2, entropy_bonus=0.01)

#: The paper has no PPG on MuJoCo; this one is ours: DNA's policy and value phases with the
#: auxiliary epochs and period of table 2, never tuned.
_AUXILIARY = SGD(epochs=6, minibatch=64, learning_rate=_RATE)

MUJOCO = {
    "dna": Config(
        phases=(
            _POLICY,
            Value(sgd=_TEN),
            Distil(sgd=_TEN, beta=1.0, constraint="mean_mse"),
        ),
        **_SHARED,
    ),
    "ppo": Config(phases=(Joint(sgd=_TEN, epsilon=0.2, entropy_bonus=0.01),), **_SHARED),
    "ppg": Config(
        phases=(_POLICY, Value(sgd=_TEN), Auxiliary(every=32, sgd=_AUXILIARY, beta=1.0)),
        **_SHARED,
    ),
}
