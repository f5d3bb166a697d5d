"""Figure 12: what the policy network is distilled towards (appendix J)."""

from dna.paper.claims.arms import best, better
from dna.paper.claims.verdicts import every
from dna.paper.experiments.plan import Arm, Experiment, Study
from dna.paper.experiments.worlds import ATARI_3_VAL

#: As in appendix J, on the proxy as well: both λ are .95, and two passes of distillation.
NONE = {"returns.lambda_pi": 0.95}
BASE = NONE | {"distil.sgd.epochs": 2}


def _towards(target: str) -> Arm:
    changes = {} if target == "value" else {"distil.target": target}
    return Arm(target, f"targets.{target}", changes=changes, small=BASE)


ARMS = (
    Arm("none", "targets.value", small=NONE, without="distil"),
    *map(_towards, ("value", "projection", "features")),
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
