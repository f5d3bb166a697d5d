"""Figures 2 and 8: the noise scale of policy, value and distillation (section 3.2, app. D).

The coarse settings of table 1, on the three validation games, one seed; noise of all phases.
Levels and their intervals are `noise_levels`. At the weights of these runs,
what λ does to the noise is measured as well (section 6.2, the lower panels of figure 5).
"""

from collections.abc import Callable
from math import inf

import numpy as np

from dna.paper.claims import proofs
from dna.paper.claims.compare import Sampled, combined, quotient
from dna.paper.claims.verdicts import (
    Finding,
    identity,
    judged,
    judged_all,
    not_tested,
    noted,
    spoken,
    trained,
)
from dna.paper.experiments import published
from dna.paper.experiments.lambda_levels import moves
from dna.paper.experiments.lambda_noise import measure_lambdas
from dna.paper.experiments.noise_levels import (
    ARM,
    STUDY,
    authors_mean,
    levels,
    mean_level,
    over_games,
    variation,
)
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import NOISE_3_VAL

PHASES = ("policy", "value", "distil")
#: As the authors measured: 16 small mini-batches, every second iteration and the first ten.
NOISE = {"every": 2, "first": 10, "samples": 16, "b_small": 32}
#: At small scale there are 19 iterations: all of them, and surer of each.
MORE = {"noise.every": 1, "noise.samples": 64}


def told(judge: Callable[[Results], Finding | None], words: str = "") -> Check:
    """A claim on noise levels, all of which must be known."""

    def known(results: Results) -> Finding | None:
        found = judge(results)
        if found is None and results.whole(STUDY):
            why = "noise cannot be told from zero in every game"
            return Finding("not tested", "", why)
        return found

    return noted(trained(known, STUDY), words)


def at_the_end(check: Check) -> Check:
    """A claim on the end of training: shorter runs have an effect to show, and no verdict."""

    def judge(results: Results) -> Finding:
        found, world = check(results), results.study(STUDY).world
        length = results.limits.interactions or world.interactions[results.scale]
        whole = world.interactions["paper"]
        if length >= whole or not found.effect:
            return found
        why = f"the claim is on the end of {whole:,} interactions, not of {length:,}"
        return Finding("not tested", found.effect, why)

    return judge


def near(phase: str, factor: float = 2.0) -> Check:
    """σ is the paper's, within a factor."""

    def judge(results: Results) -> Finding | None:
        sigma, theirs = mean_level(results, phase), published.NOISE[phase]
        if sigma is None:
            return None
        effect = f"σ {spoken(sigma, '.1f', '')}; the paper's {theirs}"
        effect += _authors(authors_mean(results, phase))
        return judged(sigma, effect, theirs / factor, theirs * factor)

    return told(judge, f"within a factor of {factor:g}")


def _authors(found: float | None) -> str:
    """The paper's numbers come from the authors' form, which is low: ours in the same form."""
    return "" if found is None else f"; in the authors' form, as the paper's, {found:.1f}"


def ratio(least: float, most: float = inf) -> Check:
    """σ_π / σ_V lies in a range."""

    def judge(results: Results) -> Finding | None:
        policy, value = mean_level(results, "policy"), mean_level(results, "value")
        if policy is None or value is None:
            return None
        found = quotient(policy, value)
        parts = f"({spoken(policy, '.1f', '')} / {spoken(value, '.1f', '')})"
        theirs = f"the paper's {published.NOISE_RATIO:g}"
        effect = f"σ_π / σ_V = {spoken(found, '.1f', '')} {parts}; {theirs}"
        two = [authors_mean(results, phase) for phase in PHASES[:2]]
        effect += _authors(two[0] / two[1] if two[0] and two[1] else None)
        return judged(found, effect, least, most)

    return told(judge, f"at least {least:g}" + (f", at most {most:g}" if most < inf else ""))


def change(phase: str, low: float, high: float) -> Check:
    """σ at the end over σ at the start lies in a range, averaged over games."""

    def judge(results: Results) -> Finding | None:
        first, last = levels(results, phase, start=True), levels(results, phase)
        if not first or not last:
            return None
        games = {env: quotient(last[env], first[env]) for env in last}
        found = over_games(games)
        effect = f"σ(end) / σ(start) = {spoken(found, '.2f', '')} over {len(games)} games"
        return judged(found, effect, low, high)

    return told(judge, f"from {low:g} to {high:g}")


def lowest(results: Results) -> Finding | None:
    """σ_D < σ_V < σ_π: the smaller of the two steps is a factor above 1."""
    known = _all_phases(results, mean_level)
    if known is None:
        return None
    policy, value, distil = known.values()
    steps = quotient(policy, value), quotient(value, distil)
    step = combined(lambda p, v, d: np.minimum(p / v, v / d), policy, value, distil, least=0.0)
    words = ", ".join(f"{phase} {spoken(one, '.1f', '')}" for phase, one in known.items())
    effect = f"σ: {words}; smaller step {spoken(step, '.2f', ' ×')}"
    return judged_all(steps, step, effect, 1.0)


def steady(results: Results) -> Finding | None:
    """σ_π and σ_V differ little between games: less than half of their mean."""
    policy, value = variation(results, "policy"), variation(results, "value")
    if policy is None or value is None:
        return None
    words = f"σ_π {spoken(policy, '.2f', '')}, σ_V {spoken(value, '.2f', '')}"
    larger = combined(np.maximum, policy, value)
    return judged(larger, f"coefficient of variation: {words}", high=0.5)


def on_every_game(results: Results) -> Finding | None:
    """σ_π / σ_V is at least 5 in each game."""
    policy, value = levels(results, "policy"), levels(results, "value")
    if not policy or not value:
        return None
    found = {env: quotient(policy[env], value[env]) for env in policy}
    effect = ", ".join(f"{env} {spoken(one, '.1f', '')}" for env, one in found.items())
    least = combined(lambda *games: np.min(games, axis=0), *found.values(), least=0.0)
    return judged_all(list(found.values()), least, effect, 5.0)


def most_varied(results: Results) -> Finding | None:
    """σ_D differs most between games."""
    known = _all_phases(results, variation)
    if known is None:
        return None
    words = ", ".join(f"{phase} {spoken(one, '.2f', '')}" for phase, one in known.items())
    lead = combined(lambda p, v, d: d - np.maximum(p, v), *known.values())
    effect = f"coefficient of variation: {words}; distil ahead by {spoken(lead, '+.2f', '')}"
    *others, distil = known.values()
    return judged_all([combined(np.subtract, distil, o) for o in others], lead, effect)


def _all_phases(
    results: Results, number: Callable[[Results, str], Sampled | None]
) -> dict[str, Sampled] | None:
    found = {phase: number(results, phase) for phase in PHASES}
    known = {phase: one for phase, one in found.items() if one is not None}
    return known if len(known) == len(PHASES) else None


EXPERIMENT = Experiment(
    name="fig02",
    alias="noise",
    title="Noise scale of policy, value and distillation",
    covers=("fig:noise_scale", "fig:distil_noise"),
    studies=(
        Study(
            STUDY,
            (Arm(ARM, "table1.dna", changes={"noise": NOISE}, shortened=MORE),),
            NOISE_3_VAL,
            1,
        ),
    ),
    extra={"lambda_noise": measure_lambdas},
    checks={
        "C003": at_the_end(ratio(10.0)),
        "C011": identity(proofs.noise_estimators),
        "C012": at_the_end(near("policy")),
        "C013": at_the_end(near("value")),
        "C014": at_the_end(ratio(published.NOISE_RATIO / 2, published.NOISE_RATIO * 2)),
        "C015": at_the_end(change("policy", 0.3, 0.75)),
        "C016": at_the_end(change("value", 0.75, 1.33)),
        "C017": at_the_end(told(steady, "less than 0.5")),
        "C018": told(on_every_game, "at least 5"),
        "C025": told(lowest),
        "C053": moves("policy", 1),
        "C054": moves("value", -1),
        "C080": told(lowest),
        "C081": told(most_varied),
        "C082": not_tested(
            "a suggestion; no experiment varies distillation's mini-batch alone"
        ),
        "C138": identity(proofs.smoothing_reduces),
    },
)
