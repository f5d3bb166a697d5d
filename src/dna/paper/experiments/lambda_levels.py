"""σ against λ as numbers with intervals, and the claims on it (section 6.2, figure 5).

`lambda_noise` measures. Three words, the same in figure, table and verdict: σ
of a game at a λ is *known* where there is a number, and *told* where its interval is bounded
above, too. Means and verdicts are of the games that are told at every λ; the others are named.
"""

from typing import Any

import numpy as np

from dna.algorithm.noise_scale import Z
from dna.common.randomness import generator
from dna.paper.claims.arms import monotone
from dna.paper.claims.compare import DRAWS, Array, Sampled
from dna.paper.claims.verdicts import Finding, spoken
from dna.paper.experiments.noise_levels import STUDY
from dna.paper.experiments.plan import Check
from dna.paper.experiments.results import Results

#: What a game came to at one λ: sigma, b_simple, and the interval low to high of the latter.
Reading = dict[str, Any]
#: Of every number here, whatever the scale.
METHOD = (
    "at one policy's weights, returns estimated anew for each λ; the paper trained a run for "
    "each λ"
)


def measured(results: Results, phase: str) -> dict[float, dict[str, Reading]]:
    """λ → game → reading, of all games."""
    found = results.extra.get("lambda_noise", {}).get(phase, {})
    return {float(value): dict(readings) for value, readings in found.items()}


def games_of(results: Results, phase: str) -> list[str]:
    """Every game that was measured at any λ."""
    found = measured(results, phase).values()
    return list(dict.fromkeys(env for readings in found for env in readings))


def known(reading: Reading | None) -> float | None:
    """σ, where noise and gradient can both be told from zero."""
    sigma = reading["sigma"] if reading else None
    return float(sigma) if sigma is not None else None


def is_told(reading: Reading | None) -> bool:
    """Whether σ is known and B_simple bounded above; a lower bound of zero is one."""
    return known(reading) is not None and reading is not None and reading["high"] is not None


def told(results: Results, phase: str) -> tuple[dict[float, dict[str, Reading]], list[str]]:
    """λ → game → reading, of the games that are told at every λ; and the other games.

    So every λ is averaged over the same games.
    """
    found, games = measured(results, phase), games_of(results, phase)
    same = [env for env in games if all(is_told(one.get(env)) for one in found.values())]
    kept = {value: {env: one[env] for env in same} for value, one in found.items()}
    return kept if same else {}, [env for env in games if env not in same]


def sigmas(results: Results, phase: str) -> tuple[list[float], list[Sampled]] | None:
    """(λ, geometric mean of σ over games), drawn from the intervals of B_simple.

    Every λ is measured on the same rollouts; drawn as if on others, intervals are too wide.
    """
    kept, _ = told(results, phase)
    return (list(kept), [_over_games(phase, *pair) for pair in kept.items()]) if kept else None


def _over_games(phase: str, value: float, readings: dict[str, Reading]) -> Sampled:
    noise = generator(0, f"bootstrap/{phase}", round(1e6 * value))
    logs = [_logs(one, noise.normal(size=DRAWS)) for one in readings.values()]
    center = np.exp(np.mean([np.log(one["sigma"]) for one in readings.values()]))
    return Sampled(float(center), np.exp(np.mean(logs, axis=0)), "measurements")


def _logs(one: Reading, normal: Array) -> Array:
    """log σ = ½ log B_simple, drawn so that the interval's ends are Z away from the middle."""
    low, high = one["low"], one["high"]
    if low > 0:
        drawn: Array = np.log(one["sigma"]) + np.log(high / low) / (4 * Z) * normal
        return drawn
    # The logarithm has no end below: B_simple itself falls in a line to its end, zero.
    below = np.maximum(1 + normal / Z, np.finfo(float).tiny)
    above = (high / one["sigma"] ** 2) ** (np.maximum(normal, 0.0) / Z)
    both: Array = np.log(one["sigma"]) + np.log(np.where(normal < 0, below, above)) / 2
    return both


def moves(phase: str, sign: int) -> Check:
    """σ of a phase grows or falls with its λ."""
    check = monotone(lambda results: sigmas(results, phase), sign, STUDY)

    def with_games(results: Results) -> Finding:
        if not games_of(results, phase):
            return Finding("not tested", "", "noise was not measured against λ")
        found, (_, lost) = check(results), told(results, phase)
        words = [f"not told at every λ: {', '.join(lost)}"] if lost else []
        ends = sigmas(results, phase)
        if ends is None:
            note = "; ".join([*words, METHOD])
            return Finding("not tested", _ends_of(results, phase), note)
        first, last = (f"{ends[1][k].value:.1f} at λ={ends[0][k]:g}" for k in (0, -1))
        effect = "; ".join(filter(None, [found.effect, f"σ {first} to {last}"]))
        note = "; ".join(filter(None, [found.note, *words, METHOD]))
        return Finding(found.status, effect, note)

    return with_games


def _ends_of(results: Results, phase: str) -> str:
    """`known σ at λ=0.6: Assault-v5 12.3, …; at λ=1: none` where nothing can be judged."""
    found, parts = measured(results, phase), []
    for value in (min(found), max(found)):
        named = {env: known(one) for env, one in found[value].items()}
        words = [f"{env} {sigma:.1f}" for env, sigma in named.items() if sigma is not None]
        parts.append(f"at λ={value:g}: {', '.join(words) or 'none'}")
    return f"known σ {'; '.join(parts)}"


def above(results: Results) -> Finding | None:
    """σ_V beyond λ_V = .95, which is half of what the claim asks for."""
    found = sigmas(results, "value")
    why = "a suggestion; scores with λ_V above .95 are not run"
    if found is None:
        return Finding("not tested", "", why)
    by_lambda = dict(zip(*found, strict=True))
    words = ", ".join(
        f"{v:g}: {spoken(one, '.1f', '')}" for v, one in by_lambda.items() if v > 0.9
    )
    return Finding("not tested", f"σ_V at λ_V = {words}", f"{why}; {METHOD}")
