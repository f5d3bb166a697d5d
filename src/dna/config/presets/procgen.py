"""Presets of Procgen, table 7 (tab:procgen_hps): PPO, DNA and PPG, close to Cobbe et al. 2021.

Unlimited hard levels, as in the curves that the paper compares with; the 200 levels of
appendix L's first sentence are `env.procgen.num_levels=200`. Encoder: IMPALA, as in Cobbe
et al. Both normalizations and the warm-up follow appendix A. There is no penalty and no time
bar.
"""

from typing import Any

from dna.config import (
    SGD,
    Auxiliary,
    Config,
    Distil,
    EnvConfig,
    Joint,
    Network,
    ObservationNorm,
    Policy,
    Procgen,
    Returns,
    RewardNorm,
    Value,
    WarmUp,
)

_RATE = 5e-4
_SHARED: dict[str, Any] = {
    "env": EnvConfig(procgen=Procgen(distribution="hard", num_levels=0)),
    "returns": Returns(gamma=0.999, lambda_pi=0.95, lambda_v=0.95),
    "horizon": 256,
    "agents": 256,
    "interactions": 100_000_000,
    "network": Network(encoder="impala", init="authors"),
    "normalize_observation": ObservationNorm(clip=3.0),
    "normalize_reward": RewardNorm(clip=5.0),
    "warm_up": WarmUp(low=1, high=1000),
    "repeat_penalty": None,
}


def _sgd(epochs: int, minibatch: int, clip: float | None = 5.0) -> SGD:
    return SGD(epochs=epochs, minibatch=minibatch, learning_rate=_RATE, max_gradient_norm=clip)


PROCGEN = {
    "dna": Config(
        phases=(
            Policy(sgd=_sgd(1, 8192), epsilon=0.2, entropy_bonus=0.01),
            Value(sgd=_sgd(1, 2048)),
            Distil(sgd=_sgd(2, 512), beta=1.0),
        ),
        **_SHARED,
    ),
    "ppo": Config(
        phases=(Joint(sgd=_sgd(3, 8192), epsilon=0.2, entropy_bonus=0.01),), **_SHARED
    ),
    # Without gradient clipping. The paper quotes Cobbe et al. instead of running PPG. The
    # replay buffer holds 32 rollouts of 65,536 states: 26 GB.
    "ppg": Config(
        phases=(
            Policy(sgd=_sgd(1, 8192, None), epsilon=0.2, entropy_bonus=0.01),
            Value(sgd=_sgd(1, 8192, None)),
            Auxiliary(every=32, sgd=_sgd(6, 4096, None), beta=1.0),
        ),
        **_SHARED,
    ),
}
