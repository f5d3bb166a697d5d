"""Figure 5: DNA with other λ_π and λ_V, and what λ does to the noise (section 6.2).

Scores: λ_π over five values, with λ_V = .95 and, again, with .8. Noise: at the weights of
figure 2's runs, the returns are estimated anew with each λ (at the paper's size, too, one
training run per game serves them all; the paper trained one for each λ). It is measured once,
and the claims on it are figure 2's.
"""

from dna.paper.claims.arms import best, better, spread
from dna.paper.claims.verdicts import every, trained
from dna.paper.experiments import fig02_noise_scale
from dna.paper.experiments.fig06_main import DNA_SMALL
from dna.paper.experiments.lambda_levels import above
from dna.paper.experiments.noise_levels import STUDY
from dna.paper.experiments.plan import Arm, Experiment, Study
from dna.paper.experiments.worlds import ATARI_3_VAL

GRID = (0.6, 0.8, 0.9, 0.95, 0.975)


def _arm(pi: float, v: float) -> Arm:
    changes = {"returns.lambda_pi": pi, "returns.lambda_v": v}
    return Arm(f"λ_π={pi:g} λ_V={v:g}", "tuned.dna", changes=changes, small=DNA_SMALL)


HIGH = [_arm(pi, 0.95) for pi in GRID]
LOW = [_arm(pi, 0.8) for pi in GRID]
_HIGH = [arm.name for arm in HIGH]
MIXED, BOTH_LOW, BOTH_HIGH = "λ_π=0.8 λ_V=0.95", "λ_π=0.8 λ_V=0.8", "λ_π=0.95 λ_V=0.95"


EXPERIMENT = Experiment(
    name="fig05",
    alias="lambda",
    title="DNA with other λ_π and λ_V",
    covers=("fig:dna_lambda",),
    studies=(
        Study("lambda", (*HIGH, *LOW), ATARI_3_VAL, seeds=5),
        *fig02_noise_scale.EXPERIMENT.studies,
    ),
    extra=fig02_noise_scale.EXPERIMENT.extra,
    checks={
        "C023": every(better("lambda", MIXED, BOTH_HIGH), better("lambda", MIXED, BOTH_LOW)),
        "C048": spread("lambda", _HIGH, low=25.0),
        "C049": best("lambda", MIXED, _HIGH),
        "C050": better("lambda", MIXED, BOTH_LOW),
        "C051": better("lambda", MIXED, BOTH_LOW),
        "C052": better("lambda", MIXED, BOTH_HIGH),
        "C061": trained(above, STUDY),
    },
)
