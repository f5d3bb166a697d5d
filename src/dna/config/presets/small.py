"""Everything that has no preset of its own: vectors or small images, any action space.

Settings of ours, between the paper's MuJoCo table and classic control: sixteen environments,
learning rates annealed to zero, both kinds of normalization. Observations are clipped at ±10,
not at the paper's ±3: with few dimensions a clipped one hides where the agent is.
"""

from typing import Any

from dna.config import (
    SGD,
    Auxiliary,
    Config,
    Distil,
    Joint,
    Linear,
    ObservationNorm,
    Policy,
    Returns,
    Value,
    WarmUp,
)

_RATE = Linear(start=1e-3, end=0.0)
_EIGHT = SGD(epochs=8, minibatch=256, learning_rate=_RATE)
_FOUR = SGD(epochs=4, minibatch=256, learning_rate=_RATE)
_SHARED: dict[str, Any] = {
    "horizon": 64,
    "agents": 16,
    "interactions": 500_000,
    "normalize_observation": ObservationNorm(clip=10.0),
    "warm_up": WarmUp(low=1, high=100),
}

DNA = Config(
    phases=(Policy(sgd=_EIGHT, entropy_bonus=0.0), Value(sgd=_EIGHT), Distil(sgd=_FOUR)),
    returns=Returns(gamma=0.99, lambda_pi=0.9, lambda_v=0.95),
    **_SHARED,
)

PPO = Config(
    phases=(Joint(sgd=_EIGHT, entropy_bonus=0.0),),
    returns=Returns(gamma=0.99, lambda_pi=0.95, lambda_v=0.95),
    **_SHARED,
)

PPG = Config(
    phases=(
        Policy(sgd=_EIGHT, entropy_bonus=0.0),
        Value(sgd=_EIGHT),
        Auxiliary(every=8, sgd=_FOUR),
    ),
    returns=DNA.returns,
    **_SHARED,
)
