"""Figure 7 and table 4: DNA with one component taken away at a time (appendix C)."""

import numpy as np

from dna.envs.benchmark_scores import paper_table
from dna.paper.claims.arms import WIDE, better, compared
from dna.paper.claims.compare import combined
from dna.paper.claims.measures import score_of
from dna.paper.claims.verdicts import (
    Finding,
    at_paper_scale,
    every,
    judged_all,
    near,
    noted,
    spoken,
    trained,
)
from dna.paper.experiments.fig06_main import DNA, DNA_SMALL
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import ATARI_5

NO_DISTIL = Arm("DNA (no distil)", "tuned.dna", without="distil")
#: All phases with the value's mini-batch.
MB = Arm(
    "DNA (mb=512)",
    "tuned.dna",
    paper={"policy.sgd.minibatch": 512},
    small=DNA_SMALL | {"policy.sgd.minibatch": 256},
    proxy_note="DNA (mb=512) on the proxy: the policy's mini-batch is 256 and not 512, half of "
    "DNA's (in the paper 512 and not 2,048, a quarter); that of PPO (basic) alike",
)
LAMBDA = Arm("DNA (λ=0.95)", "tuned.dna", changes={"returns.lambda_pi": 0.95}, small=DNA_SMALL)
BASIC = Arm(
    "PPO (basic)",
    "tuned.ppo_basic",
    "ppo",
    small={"joint.sgd.minibatch": 256, "returns.lambda_pi": 0.95},
)
ARMS = (DNA, NO_DISTIL, MB, LAMBDA, BASIC)


def halved(check: Check) -> Check:
    """A claim on mini-batches: how far apart they are on the proxy is said."""

    def more(results: Results) -> Finding:
        words = MB.proxy_note if results.scale != "paper" else ""
        return noted(check, words)(results)

    return more


def order(results: Results) -> Finding | None:
    """Without λ or the mini-batch, more is lost than without distillation."""
    lost = {}
    for arm in (LAMBDA, MB, NO_DISTIL):
        found = compared(results, "ablation", arm.name, "DNA")
        if found is None:
            return None
        lost[arm.name] = found
    words = ", ".join(f"{arm} {spoken(change)}" for arm, change in lost.items())
    gap = combined(lambda two, mb, distil: distil - np.maximum(two, mb), *lost.values())
    effect = f"{words}; distillation matters less by {spoken(gap, unit=' points')}"
    *others, distil = lost.values()
    return judged_all([combined(np.subtract, distil, o) for o in others], gap, effect)


def reference(results: Results) -> Finding | None:
    """DNA's Atari-5 score is the paper's, within a tenth."""
    total = score_of(results, "ablation", "DNA")
    theirs = float(paper_table("ablation")[0]["atari5_score"])
    return None if total is None else near(total, theirs, 0.1 * theirs)


EXPERIMENT = Experiment(
    name="tab04",
    alias="ablation",
    title="Ablation of DNA",
    covers=("fig:abl_results", "tab:abl_results"),
    studies=(Study("ablation", ARMS, ATARI_5, seeds=3),),
    checks={
        "C019": halved(better("ablation", "DNA", MB.name)),
        "C074": at_paper_scale("the proxy has no Atari-5 score", reference, "ablation"),
        "C075": better("ablation", "DNA", NO_DISTIL.name),
        "C076": halved(better("ablation", "DNA", MB.name)),
        "C077": better("ablation", "DNA", LAMBDA.name),
        "C078": better("ablation", "DNA", BASIC.name, WIDE),
        "C079": halved(
            every(trained(order, "ablation"), better("ablation", "DNA", NO_DISTIL.name))
        ),
    },
)
