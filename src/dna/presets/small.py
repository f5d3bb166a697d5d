"""Everything that has no preset of its own: vectors or small images, any action space.

A middle of the road between the paper's MuJoCo settings (appendix K) and classic control:
sixteen environments, both kinds of normalization, learning rates annealed.
"""

from dna.config import (
    SGD,
    Auxiliary,
    Config,
    Distil,
    Joint,
    Linear,
    Network,
    Policy,
    Returns,
    Value,
    WarmUp,
)

_RATE = Linear(start=1e-3, end=0.0)
_POLICY = SGD(epochs=8, minibatch=256, learning_rate=_RATE)

DNA = Config(
    phases=(
        Policy(sgd=_POLICY, entropy_bonus=0.0),
        Value(sgd=_POLICY),
        Distil(sgd=SGD(epochs=4, minibatch=256, learning_rate=_RATE)),
    ),
    returns=Returns(gamma=0.99, lambda_pi=0.9, lambda_v=0.95),
    horizon=64,
    agents=16,
    interactions=500_000,
    network=Network(),
    warm_up=WarmUp(low=1, high=100),
)

PPO = Config(
    phases=(Joint(sgd=_POLICY, entropy_bonus=0.0),),
    returns=Returns(gamma=0.99, lambda_pi=0.95, lambda_v=0.95),
    **{name: getattr(DNA, name) for name in ("horizon", "agents", "interactions", "warm_up")},
)

PPG = Config(
    phases=(
        Policy(sgd=_POLICY, entropy_bonus=0.0),
        Value(sgd=_POLICY),
        Auxiliary(every=8, sgd=SGD(epochs=4, minibatch=256, learning_rate=_RATE)),
    ),
    returns=DNA.returns,
    **{name: getattr(DNA, name) for name in ("horizon", "agents", "interactions", "warm_up")},
)
