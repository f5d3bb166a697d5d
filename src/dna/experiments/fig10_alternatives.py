"""Figure 10: alternative settings of PPO, and tuned PPG (appendix G)."""

import numpy as np

from dna.experiments.fig06_main import PPG, PPO
from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, better, every, similar
from dna.experiments.worlds import ATARI_5

_WIDE = {"network.channels": 2}
E2 = Arm("PPO (E=2)", "tuned.ppo_e2", "ppo", small=_WIDE | {"joint.sgd.epochs": 4})
LAMBDAS = Arm(
    "PPO (λ_V=0.95, λ_π=0.8)",
    "tuned.ppo_lambda",
    "ppo",
    small=_WIDE | {"returns.lambda_v": 0.8},
)
NARROW = Arm("PPO (1x)", "tuned.ppo_1x", "ppo")
#: 8 agents, three epochs of mini-batches of 256, a falling learning rate; on the proxy in
#: proportion to its rollouts.
ORIG = Arm(
    "PPO (orig)",
    "table1.ppo_orig",
    "ppo",
    small={
        "agents": 8,
        "horizon": 128,
        "joint.sgd.epochs": 3,
        "joint.sgd.minibatch": 256,
        "joint.sgd.learning_rate": {"start": 1e-3, "end": 0.0},
        "returns.lambda_pi": 0.95,
    },
)
PPG_TUNED = Arm("PPG (tuned)", "table2.ppg_tuned", "ppg", small={"aux.sgd.epochs": 2})


def early_and_late(results: Results, arm: str) -> Finding:
    """Ahead of the reference in the first fifth of training, behind it at the end."""
    _, ours = results.total_curve("alternatives", arm)
    _, theirs = results.total_curve("alternatives", PPO.name)
    if not ours.size or not theirs.size:
        return Finding("not tested", "", "runs are missing")
    a, b = ours.mean(axis=0), theirs.mean(axis=0)
    fifth = len(a) // 5
    early = float(np.mean(a[:fifth]) / np.mean(b[:fifth]) - 1)
    late = float(a[-1] / b[-1] - 1)
    effect = f"first fifth {100 * early:+.1f} %, end {100 * late:+.1f} %"
    return Finding("held" if early > 0 > late else "not held", effect)


_OTHERS = (E2, LAMBDAS, NARROW, ORIG)
EXPERIMENT = Experiment(
    name="fig10",
    alias="alternatives",
    title="Alternative settings of PPO and PPG",
    covers=("fig:aux_results",),
    studies=(
        Study("alternatives", (PPO, *_OTHERS), ATARI_5, seeds=3),
        Study("ppg", (PPG, PPG_TUNED), ATARI_5, seeds=3),
    ),
    checks={
        "C089": every(*(better("alternatives", PPO.name, arm.name) for arm in _OTHERS)),
        "C090": lambda results: early_and_late(results, E2.name),
        "C091": better("alternatives", PPO.name, LAMBDAS.name),
        "C092": better("alternatives", PPO.name, NARROW.name),
        "C093": lambda results: early_and_late(results, ORIG.name),
        "C094": similar("ppg", PPG_TUNED.name, PPG.name),
        "C109": better("alternatives", PPO.name, ORIG.name),
    },
)
