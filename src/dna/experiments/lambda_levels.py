"""σ against λ as numbers with intervals, and the claims on it (section 6.2, figure 5).

`dna.experiments.lambda_noise` measures; games that cannot be told at every λ are left out of
all of them, and named.
"""

from typing import Any

import numpy as np

from dna.experiments.arms import monotone
from dna.experiments.compare import DRAWS, Sampled
from dna.experiments.noise_levels import STUDY
from dna.experiments.plan import Check
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, spoken
from dna.noise_reading import Z
from dna.randomness import generator


def told(results: Results, phase: str) -> tuple[dict[float, dict[str, Any]], list[str]]:
    """λ → game → reading, of the games that can be told at every λ; and of the others.

    So every λ is averaged over the same games.
    """
    found = results.extra.get("lambda_noise", {}).get(phase, {})
    games = dict.fromkeys(env for readings in found.values() for env in readings)
    same = [
        env for env in games if all(_is_told(readings.get(env)) for readings in found.values())
    ]
    kept = {float(v): {env: one[env] for env in same} for v, one in found.items()}
    return kept if same else {}, [env for env in games if env not in same]


def _is_told(reading: dict[str, Any] | None) -> bool:
    """Whether B_simple is bounded on both sides."""
    return bool(reading and reading["sigma"] and reading["low"] and reading["high"])


def sigmas(results: Results, phase: str) -> tuple[list[float], list[Sampled]] | None:
    """(λ, geometric mean of σ over games), drawn from the intervals of B_simple.

    Every λ is measured on the same rollouts; drawn as if on others, intervals are too wide.
    """
    kept, _ = told(results, phase)
    return (list(kept), [_over_games(phase, *pair) for pair in kept.items()]) if kept else None


def _over_games(phase: str, value: float, readings: dict[str, Any]) -> Sampled:
    logs, noise = [], generator(0, f"bootstrap/{phase}", round(1e6 * value))
    for one in readings.values():
        error = np.log(one["high"] / one["low"]) / (2 * Z)  # of log B_simple = 2 log σ
        logs.append(np.log(one["sigma"]) + error / 2 * noise.normal(size=DRAWS))
    center = np.exp(np.mean([np.log(one["sigma"]) for one in readings.values()]))
    return Sampled(float(center), np.exp(np.mean(logs, axis=0)), "measurements")


def moves(phase: str, sign: int) -> Check:
    """σ of a phase grows or falls with its λ."""
    check = monotone(lambda results: sigmas(results, phase), sign, STUDY)

    def with_games(results: Results) -> Finding:
        found, (kept, lost) = check(results), told(results, phase)
        if not results.extra.get("lambda_noise", {}).get(phase):
            return Finding("not tested", "", "noise was not measured against λ")
        words = [f"not told at every λ: {', '.join(lost)}"] if lost else []
        ends = sigmas(results, phase)
        if ends is None:
            return Finding("not tested", "", "; ".join(words) or "runs are missing")
        size = f"σ {ends[1][0].value:.1f} at λ={min(kept):g} to {ends[1][-1].value:.1f}"
        effect = f"{found.effect}; {size} at λ={max(kept):g}"
        return Finding(found.status, effect, "; ".join(filter(None, [found.note, *words])))

    return with_games


def above(results: Results) -> Finding | None:
    """σ_V beyond λ_V = .95, which is half of what the claim asks for."""
    found = sigmas(results, "value")
    why = "a suggestion; scores with λ_V above .95 are not run"
    if found is None:
        return Finding("not tested", "", why)
    known = dict(zip(*found, strict=True))
    words = ", ".join(f"{v:g}: {spoken(one, '.1f', '')}" for v, one in known.items() if v > 0.9)
    return Finding("not tested", f"σ_V at λ_V = {words}", why)
