"""Every algorithm learns on every kind of action space, where the optimum is known."""

import json

import pytest
from bandits import BANDITS, LENGTH

from dna.config import SGD, Auxiliary, Config, Distil, Joint, Network, Policy, Returns, Value
from dna.runs.setup import How
from dna.runs.train import train

WALK = SGD(epochs=4, minibatch=64, learning_rate=3e-3)
PHASES = {
    "dna": (Policy(sgd=WALK), Value(sgd=WALK), Distil(sgd=WALK)),
    "ppo": (Joint(sgd=WALK),),
    "ppg": (Policy(sgd=WALK), Value(sgd=WALK), Auxiliary(sgd=WALK, every=4)),
}


def configured(algorithm: str, interactions: int) -> Config:
    """Rollouts of 256 rows; what comes after a step does not depend on it."""
    return Config(
        phases=PHASES[algorithm],
        returns=Returns(gamma=0.5, lambda_pi=0.5, lambda_v=0.5),
        network=Network(encoder="mlp", width=32, depth=1),
        horizon=32,
        agents=8,
        interactions=interactions,
        warm_up=None,
    )


@pytest.mark.parametrize("bandit", BANDITS, ids=lambda bandit: bandit.__name__)
@pytest.mark.parametrize("algorithm", PHASES)
def test_nine_tenths_of_the_optimum_are_learned_from_chance(algorithm, bandit, tmp_path):
    how = How(tensorboard=False, threads=1, compile="off")
    config = configured(algorithm, bandit.interactions)
    train(config, 0, tmp_path / "run", how=how, source=bandit)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    first, last = (json.loads(lines[at])["score"] / LENGTH for at in (0, -1))
    assert first < bandit.chance + 0.15
    assert last > 0.9
