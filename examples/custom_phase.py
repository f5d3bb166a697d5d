"""A custom phase: DNA with self-imitation, L = −c · Ê[max(Â, 0) · log π(a|s)].

A phase is a settings model and two functions (docs/add-a-phase.md). Optimizers, schedules,
checkpoints, metrics and settings (`imitate__coefficient=0.2`) then work with it unchanged.

    python examples/custom_phase.py
    python examples/custom_phase.py --interactions 100000
"""

import argparse
from typing import Literal

from torch import Tensor

import dna
from dna.algorithm.returns import normalized
from dna.config.phases import SGD, Name, NonNegative, Phase
from dna.networks.batch import Batch, Experience
from dna.networks.networks import Networks
from dna.phases import Metrics, freeze, loss, mean


@dna.register_phase
class Imitate(Phase):
    """Self-imitation on θ_π: actions better than expected become more likely."""

    kind: Literal["imitate"] = "imitate"
    name: Name = "imitate"
    trains: Literal["policy"] = "policy"
    reads: Literal["rollout"] = "rollout"
    every: Literal[1] = 1
    sgd: SGD
    coefficient: NonNegative = 0.1


@freeze.register
def _(phase: Imitate, networks: Networks, data: Experience) -> Batch:
    return {"gain": data.over_all(normalized, "advantage", "weight").clamp(min=0)}


@loss.register
def _(phase: Imitate, networks: Networks, mb: Batch, progress: float) -> tuple[Tensor, Metrics]:
    pi = networks.pi(mb["obs"]).pi
    log_prob = networks.distribution.log_prob(pi, mb["action"]).sum(-1)
    total = -phase.coefficient * mean(mb["gain"] * log_prob, mb["weight"])
    return total, {"loss": total}


def main(interactions: int = 30_000) -> list[float]:
    """Learn with the phase between policy and value; return its loss in every iteration."""
    policy, *others = dna.for_environment("CartPole-v1").phases
    imitate = Imitate(sgd=SGD(epochs=1, minibatch=256))
    agent = dna.Agent("CartPole-v1", phases=[policy, imitate, *others])
    print([phase.name for phase in agent.config.phases])
    agent.learn(interactions)
    losses = [row["imitate/loss"] for row in agent.history]
    print("score:", agent.score, "| imitate/loss:", losses[0], "→", losses[-1])
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interactions", type=int, default=30_000)
    main(**vars(parser.parse_args()))
