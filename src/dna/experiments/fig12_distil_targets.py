"""Figure 12: what the policy network is distilled towards (appendix J)."""

from dna.experiments.arms import best, better
from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.verdicts import every
from dna.experiments.worlds import ATARI_3_VAL

ARMS = (
    Arm("none", "targets.value", without="distil"),
    Arm("value", "targets.value"),
    Arm("projection", "targets.projection", changes={"distil.target": "projection"}),
    Arm("features", "targets.features", changes={"distil.target": "features"}),
)
_NAMES = [arm.name for arm in ARMS]

EXPERIMENT = Experiment(
    name="fig12",
    alias="targets",
    title="Distillation targets",
    covers=("fig:distil_target",),
    studies=(Study("targets", ARMS, ATARI_3_VAL, seeds=1, small_seeds=3),),
    checks={
        "C028": best("targets", "value", _NAMES),
        "C110": every(
            better("targets", "value", "none"), better("targets", "projection", "none")
        ),
        "C111": better("targets", "none", "features"),
    },
)
