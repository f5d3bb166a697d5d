"""Figures 2 and 8: the noise scale of policy, value and distillation (section 3.2, app. D).

The coarse settings of table 1, on the three validation games, one seed; noise of all phases.
"""

import statistics
from collections.abc import Callable

import numpy as np

from dna.experiments import proofs
from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Outcome, Results
from dna.experiments.verdicts import Finding, identity, not_tested
from dna.experiments.worlds import NOISE_3_VAL

STUDY, ARM = "noise", "DNA"
PHASES = ("policy", "value", "distil")
#: What the paper found at the end of training, averaged over the three games.
PAPER = {"policy": 220.5, "value": 17.5}
#: As the authors measured: 16 small mini-batches, every second iteration.
NOISE = {"every": 2, "samples": 16, "b_small": 32}


#: Measurements at the end, and at the start, that a level is averaged over.
WINDOW = 10


def level(outcome: Outcome, phase: str, *, start: bool = False) -> float | None:
    """σ at the end of a run, or at its start: 𝒮 and |𝒢|² are averaged first, then divided.

    The two never share a measurement.
    """
    s, g2 = (outcome.metric(f"noise/{phase}/{name}")[:, 1] for name in ("s", "g2"))
    size = min(WINDOW, len(s) // 2)
    if not size:
        return None
    part = slice(0, size) if start else slice(-size, None)
    if np.mean(g2[part]) <= 0 or np.mean(s[part]) <= 0:
        return None
    return float(np.sqrt(np.mean(s[part]) / np.mean(g2[part])))


def levels(results: Results, phase: str) -> dict[str, float]:
    """Game → σ at the end of training; empty unless it can be told in every game.

    Leaving out games in which |𝒢|² cannot be told from zero would leave out the noisiest.
    """
    found = {one.run.env: level(one, phase) for one in results.of(STUDY, ARM)}
    known = {env: sigma for env, sigma in found.items() if sigma is not None}
    return known if len(known) == len(NOISE_3_VAL.envs[results.scale]) else {}


def _mean(results: Results, phase: str) -> float | None:
    found = levels(results, phase)
    return statistics.fmean(found.values()) if found else None


def _untold(results: Results) -> Finding:
    run = results.whole(STUDY)
    why = "noise cannot be told from zero in every game" if run else "runs are missing"
    return Finding("not tested", "", why)


def near(phase: str, factor: float = 2.0) -> Callable[[Results], Finding]:
    """σ is the paper's, within a factor."""

    def check(results: Results) -> Finding:
        sigma = _mean(results, phase)
        if sigma is None:
            return _untold(results)
        good = PAPER[phase] / factor < sigma < PAPER[phase] * factor
        effect = f"σ {sigma:.1f}; the paper's {PAPER[phase]}"
        return Finding("held" if good else "not held", effect, f"within a factor of {factor:g}")

    return check


def ratio(least: float, most: float = float("inf")) -> Callable[[Results], Finding]:
    """σ_π / σ_V lies in a range."""

    def check(results: Results) -> Finding:
        policy, value = _mean(results, "policy"), _mean(results, "value")
        if policy is None or value is None:
            return _untold(results)
        found = policy / value
        effect = f"σ_π / σ_V = {found:.1f} ({policy:.1f} / {value:.1f}); the paper's 12.6"
        return Finding("held" if least <= found <= most else "not held", effect)

    return check


def change(phase: str, low: float, high: float) -> Callable[[Results], Finding]:
    """σ at the end over σ at the start lies in a range, averaged over games."""

    def check(results: Results) -> Finding:
        found = []
        for one in results.of(STUDY, ARM):
            first, last = level(one, phase, start=True), level(one, phase)
            if first is not None and last is not None:
                found.append(last / first)
        if len(found) < len(NOISE_3_VAL.envs[results.scale]):
            return _untold(results)
        ratio = statistics.fmean(found)
        effect = f"σ(end) / σ(start) = {ratio:.2f} over {len(found)} games"
        return Finding("held" if low <= ratio <= high else "not held", effect)

    return check


def lowest(results: Results) -> Finding:
    """σ_D < σ_V < σ_π."""
    found = {phase: _mean(results, phase) for phase in PHASES}
    known = {phase: sigma for phase, sigma in found.items() if sigma is not None}
    if len(known) < len(PHASES):
        return _untold(results)
    effect = ", ".join(f"{phase} {sigma:.1f}" for phase, sigma in known.items())
    order = known["distil"] < known["value"] < known["policy"]
    return Finding("held" if order else "not held", f"σ: {effect}")


def variation(results: Results, phase: str) -> float | None:
    """Coefficient of variation of σ over games."""
    found = list(levels(results, phase).values())
    return statistics.stdev(found) / statistics.fmean(found) if len(found) > 1 else None


def steady(results: Results) -> Finding:
    """σ_π and σ_V differ little between games: less than half of their mean."""
    found = [variation(results, phase) for phase in ("policy", "value")]
    known = [one for one in found if one is not None]
    if len(known) < 2:
        return _untold(results)
    effect = f"coefficient of variation: σ_π {known[0]:.2f}, σ_V {known[1]:.2f}"
    return Finding("held" if max(known) < 0.5 else "not held", effect, "less than 0.5")


def on_every_game(results: Results) -> Finding:
    """σ_π / σ_V is at least 5 in each game."""
    policy, value = levels(results, "policy"), levels(results, "value")
    found = {env: policy[env] / value[env] for env in policy if env in value}
    if not found:
        return _untold(results)
    effect = ", ".join(f"{env} {ratio:.1f}" for env, ratio in found.items())
    return Finding("held" if min(found.values()) >= 5 else "not held", effect, "at least 5")


def most_varied(results: Results) -> Finding:
    """σ_D differs most between games."""
    found = {phase: variation(results, phase) for phase in PHASES}
    known = {phase: one for phase, one in found.items() if one is not None}
    if len(known) < 3:
        return _untold(results)
    effect = ", ".join(f"{phase} {one:.2f}" for phase, one in known.items())
    most = max(known, key=lambda phase: known[phase]) == "distil"
    return Finding("held" if most else "not held", f"coefficient of variation: {effect}")


EXPERIMENT = Experiment(
    name="fig02",
    alias="noise",
    title="Noise scale of policy, value and distillation",
    covers=("fig:noise_scale", "fig:distil_noise"),
    studies=(
        Study(STUDY, (Arm(ARM, "table1.dna", changes={"noise": NOISE}),), NOISE_3_VAL, 1),
    ),
    checks={
        "C003": ratio(10.0),
        "C011": identity(proofs.noise_estimators),
        "C012": near("policy"),
        "C013": near("value"),
        "C014": ratio(12.6 / 2, 12.6 * 2),
        "C015": change("policy", 0.3, 0.75),
        "C016": change("value", 0.75, 1.33),
        "C017": steady,
        "C018": on_every_game,
        "C025": lowest,
        "C080": lowest,
        "C081": most_varied,
        "C082": not_tested("a suggestion; smaller distillation mini-batches are not swept"),
        "C138": identity(proofs.smoothing_reduces),
    },
)
