"""Figure 5: DNA with other λ_π and λ_V, and what λ does to the noise (section 6.2).

Scores: λ_π over five values, with λ_V = .95 and, again, with .8. Noise: at the weights of
figure 2's runs, the returns are estimated anew with each λ (at the paper's size, too, one
training run per game serves them all; the paper trained one for each λ).
"""

import statistics

from dna.experiments import fig02_noise_scale
from dna.experiments.lambda_noise import measure_lambdas
from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import (
    Finding,
    best,
    better,
    every,
    monotone,
    not_tested,
    spread_of,
)
from dna.experiments.worlds import ATARI_3_VAL

GRID = (0.6, 0.8, 0.9, 0.95, 0.975)


def _arm(pi: float, v: float) -> Arm:
    changes = {"returns.lambda_pi": pi, "returns.lambda_v": v}
    return Arm(f"λ_π={pi:g} λ_V={v:g}", "tuned.dna", changes=changes)


HIGH = [_arm(pi, 0.95) for pi in GRID]
LOW = [_arm(pi, 0.8) for pi in GRID]
_HIGH = [arm.name for arm in HIGH]
MIXED, BOTH_LOW, BOTH_HIGH = "λ_π=0.8 λ_V=0.95", "λ_π=0.8 λ_V=0.8", "λ_π=0.95 λ_V=0.95"


def large_spread(results: Results) -> Finding:
    """λ_π moves the score by more than a quarter."""
    spread = spread_of(results, "lambda", _HIGH)
    if spread is None:
        return Finding("not tested", "", "runs are missing")
    return Finding("held" if spread > 25 else "not held", f"spread {spread:.1f} %", "over 25 %")


def sigmas(results: Results, phase: str) -> tuple[list[float], list[float]] | None:
    """(λ, σ averaged over the games in which it could be told)."""
    found = results.extra.get("lambda_noise", {}).get(phase, {})
    seen = {}
    for value, games in found.items():
        known = [one["sigma"] for one in games.values() if one["sigma"] is not None]
        if known:
            seen[float(value)] = statistics.fmean(known)
    return (list(seen), list(seen.values())) if seen else None


EXPERIMENT = Experiment(
    name="fig05",
    alias="lambda",
    title="DNA with other λ_π and λ_V",
    covers=("fig:dna_lambda",),
    studies=(
        Study("lambda", (*HIGH, *LOW), ATARI_3_VAL, seeds=5),
        *fig02_noise_scale.EXPERIMENT.studies,
    ),
    extra={"lambda_noise": measure_lambdas},
    checks={
        "C023": every(better("lambda", MIXED, BOTH_HIGH), better("lambda", MIXED, BOTH_LOW)),
        "C048": large_spread,
        "C049": best("lambda", MIXED, _HIGH),
        "C050": better("lambda", MIXED, BOTH_LOW),
        "C051": better("lambda", MIXED, BOTH_LOW),
        "C052": better("lambda", MIXED, BOTH_HIGH),
        "C053": monotone(lambda results: sigmas(results, "policy"), 1),
        "C054": monotone(lambda results: sigmas(results, "value"), -1),
        "C061": not_tested("a suggestion of the discussion; λ_V above .95 is not swept"),
    },
)
