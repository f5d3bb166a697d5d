"""Figure 7 and table 4: DNA with one component taken away at a time (appendix C)."""

from dna.experiments.fig06_main import DNA
from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, better, compared
from dna.experiments.worlds import ATARI_5
from dna.scores import paper_table

NO_DISTIL = Arm("DNA (no distil)", "tuned.dna", without="distil")
#: All phases with the value's mini-batch.
MB = Arm(
    "DNA (mb=512)",
    "tuned.dna",
    paper={"policy.sgd.minibatch": 512},
    small={"policy.sgd.minibatch": 256},
)
LAMBDA = Arm("DNA (λ=0.95)", "tuned.dna", changes={"returns.lambda_pi": 0.95})
BASIC = Arm(
    "PPO (basic)",
    "tuned.ppo_basic",
    "ppo",
    small={"joint.sgd.minibatch": 256, "returns.lambda_pi": 0.95},
)
ARMS = (DNA, NO_DISTIL, MB, LAMBDA, BASIC)


def order(results: Results) -> Finding:
    """λ costs most, then the mini-batch, then distillation."""
    lost = {}
    for arm in (LAMBDA, MB, NO_DISTIL):
        found = compared(results, "ablation", arm.name, "DNA")
        if found is None:
            return Finding("not tested", "", "runs are missing")
        lost[arm.name] = found[0]
    effect = ", ".join(f"{arm} {change:+.1f} %" for arm, change in lost.items())
    ordered = list(lost.values()) == sorted(lost.values())
    return Finding("held" if ordered else "not held", effect)


def reference(results: Results) -> Finding:
    """DNA's Atari-5 score is the paper's, within a tenth."""
    total = results.total("ablation", "DNA")
    if results.scale != "paper" or total is None:
        return Finding("not tested", "", "the proxy has no Atari-5 score")
    theirs = float(paper_table("ablation")[0]["atari5_score"])
    good = abs(total - theirs) < 0.1 * theirs
    return Finding("held" if good else "not held", f"{total:.0f} against {theirs:.0f}")


EXPERIMENT = Experiment(
    name="tab04",
    alias="ablation",
    title="Ablation of DNA",
    covers=("fig:abl_results", "tab:abl_results"),
    studies=(Study("ablation", ARMS, ATARI_5, seeds=3),),
    checks={
        "C019": better("ablation", "DNA", MB.name),
        "C074": reference,
        "C075": better("ablation", "DNA", NO_DISTIL.name),
        "C076": better("ablation", "DNA", MB.name),
        "C077": better("ablation", "DNA", LAMBDA.name),
        "C078": better("ablation", "DNA", BASIC.name),
        "C079": order,
    },
)
