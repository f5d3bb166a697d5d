"""Gradient noise of runs, with intervals, and the claims about it.

σ of each phase at the start and the end of a run (section 3.2, appendix D), and σ against λ
(section 6.2, the lower panels of figure 5). Measurements within a window are resampled, and so
are games: with one seed, the differences between games stand in for those between seeds.
Nine measurements and three games are too few to estimate their spread well, so both use
Student's t (`dna.paper.claims.uncertainty`).
"""

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.algorithm.noise_scale import Estimate, Sizes, Z, pooled
from dna.algorithm.returns import estimate
from dna.common.randomness import generator
from dna.common.storage import read_json, write_json
from dna.config.phases import Returns
from dna.paper import published
from dna.paper.claims.kinds import monotone, trained
from dna.paper.claims.uncertainty import (
    DRAWS,
    Sampled,
    combined,
    quotient,
    same,
    sampled_rows,
)
from dna.paper.claims.verdicts import Verdict, joined, judged, judged_all, lead, spoken
from dna.paper.noise_report import one_estimate, opened
from dna.paper.plan import Check, Scale
from dna.paper.results import Results, RunResult

Array = npt.NDArray[np.float64]
STUDY = "noise"
ARM = "DNA"
PHASES = ("policy", "value", "distil")
#: Measurements at the end, and at the start, that a level is averaged over.
WINDOW = 10


# --- Levels during training ---------------------------------------------------------------


def measurements(outcome: RunResult, phase: str, form: str = "") -> Array:
    """[n, 2] of 𝒮 and |𝒢|² (algorithm 2's or `_paired`), one row for each measurement.

    |𝒢|² is logged smoothed (algorithm 2). Smoothed values are correlated, so the smoothing is
    undone: new = (now − α · before) / (1 − α).
    """
    s = outcome.metric(f"noise/{phase}/s{form}")[:, 1]
    g2 = outcome.metric(f"noise/{phase}/g2{form}")[:, 1]
    settings = outcome.run.config.noise
    alpha = settings.alpha if settings is not None else 0.0
    new = np.concatenate([g2[:1], (g2[1:] - alpha * g2[:-1]) / (1 - alpha)])
    return np.stack([s, new], axis=1)


def sigma(pair: Array) -> Array:
    """√(𝒮 / |𝒢|²) of means […, 2]; infinite where |𝒢|² is not above zero."""
    s, g2 = np.maximum(pair[..., 0], 0.0), pair[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(g2 > 0, np.sqrt(s / np.where(g2 > 0, g2, 1.0)), np.inf)


def level(
    outcome: RunResult, phase: str, *, start: bool = False, form: str = ""
) -> Sampled | None:
    """σ at the end of a run, or at its start: 𝒮 and |𝒢|² are averaged, then divided.

    The two windows never share a measurement. σ is infinite where noise hides the gradient; the
    draws then give a lower bound. None without measurements, or where 𝒮 ≤ 0.
    """
    found = measurements(outcome, phase, form)
    size = min(WINDOW, len(found) // 2)
    rows = found[:size] if start else found[len(found) - size :]
    value = float(sigma(rows.mean(axis=0))) if size else 0.0
    if value == 0.0:
        return None
    if size < 2:
        return Sampled(value, None, "one measurement")
    stream = f"{outcome.run.env}/{outcome.run.seed}/{phase}/{'start' if start else 'end'}"
    return sampled_rows(rows, sigma, stream, "measurements")


def authors_level(outcome: RunResult, phase: str) -> float | None:
    """σ at the end of a run in the authors' form, which is biased but the paper's own.

    The mean of the logged values, smoothed and with a floor under |𝒢|²; None if any is missing.
    """
    found = outcome.metric(f"noise/{phase}/s")
    logged = outcome.metric(f"noise/{phase}/sigma_authors")
    size = min(WINDOW, len(found) // 2)
    times = found[len(found) - size :, 0]
    known = logged[np.isin(logged[:, 0], times), 1]
    return float(known.mean()) if size and len(known) == size else None


def authors_mean(results: Results, phase: str) -> float | None:
    """The authors' form averaged over the games; None unless it is known in all of them."""
    found = [authors_level(one, phase) for one in results.of(STUDY, ARM)]
    known = [sigma for sigma in found if sigma is not None]
    whole = len(known) == len(results.planned_envs(STUDY))
    return float(np.mean(known)) if whole else None


def levels(results: Results, phase: str, *, start: bool = False) -> dict[str, Sampled]:
    """Game → σ, perhaps infinite; empty unless it was measured in every game.

    Leaving out games in which |𝒢|² is not above zero would leave out the noisiest.
    """
    outcomes = results.of(STUDY, ARM)
    found = {one.run.env: level(one, phase, start=start) for one in outcomes}
    known = {env: sigma for env, sigma in found.items() if sigma is not None}
    return known if len(known) == len(results.planned_envs(STUDY)) else {}


def over_games(found: dict[str, Sampled]) -> Sampled:
    """The mean over games, which are resampled too, identically for every phase.

    Games enter by their relative distance from the mean, so that no draw of σ is negative.
    """
    mean = combined(lambda *games: np.mean(games, axis=0), *found.values(), least=0.0)
    if mean.draws is None or len(found) < 2 or not np.isfinite(mean.value):
        return mean
    apart = np.array([one.value for one in found.values()]) / mean.value - 1
    games = sampled_rows(apart, same, "noise games", "games")
    return combined(lambda center, away: center * np.exp(away), mean, games, least=0.0)


def mean_level(results: Results, phase: str) -> Sampled | None:
    """σ at the end of training, averaged over the games."""
    found = levels(results, phase)
    return over_games(found) if found else None


def variation(results: Results, phase: str) -> Sampled | None:
    """Coefficient of variation of σ over games."""
    found = levels(results, phase)
    return combined(_variation, *found.values()) if len(found) > 1 else None


def _variation(*games: Array) -> Array:
    rows = np.stack([np.asarray(one, float) for one in games])
    with np.errstate(invalid="ignore"):
        found = rows.std(axis=0, ddof=1) / rows.mean(axis=0)
    return np.where(np.isnan(found), np.inf, found)


# --- Claims about levels ------------------------------------------------------------------


def on_noise(
    judge: Callable[[Results], Verdict | None], note: str = "", *, at_end: bool = False
) -> Check:
    """A claim about noise levels, all of which must be known.

    `at_end`: it is about the end of training, so shorter runs show an effect but no verdict.
    """

    def known(results: Results) -> Verdict | None:
        found = judge(results)
        if found is None and results.whole(STUDY):
            why = "noise cannot be distinguished from zero in every game"
            return Verdict("not tested", "", why)
        return found

    check = trained(known, STUDY, note=note)

    def at_the_end(results: Results) -> Verdict:
        found = check(results)
        length = results.length(STUDY)
        whole = results.study(STUDY).suite.interactions["paper"]
        if length >= whole or not found.effect:
            return found
        why = (
            f"the claim is about the end of {whole:,} interactions; these runs have {length:,}"
        )
        return Verdict("not tested", found.effect, why)

    return at_the_end if at_end else check


def sigma_near(phase: str, factor: float = 2.0) -> Check:
    """σ at the end of training is the paper's, within a factor."""

    def judge(results: Results) -> Verdict | None:
        found, theirs = mean_level(results, phase), published.NOISE[phase]
        if found is None:
            return None
        effect = f"σ {spoken(found, '.1f', '')}; the paper's {theirs}"
        effect += _in_authors_form(authors_mean(results, phase))
        return judged(found, effect, theirs / factor, theirs * factor)

    return on_noise(judge, f"within a factor of {factor:g}", at_end=True)


def _in_authors_form(found: float | None) -> str:
    """Our number in the authors' form, which is biased low and gave the paper's numbers."""
    return "" if found is None else f"; in the authors' form, as the paper's, {found:.1f}"


def sigma_ratio(least: float, most: float = inf) -> Check:
    """σ_π / σ_V at the end of training is in a range."""

    def judge(results: Results) -> Verdict | None:
        policy, value = mean_level(results, "policy"), mean_level(results, "value")
        if policy is None or value is None:
            return None
        found = quotient(policy, value)
        parts = f"({spoken(policy, '.1f', '')} / {spoken(value, '.1f', '')})"
        theirs = f"the paper's {published.NOISE_RATIO:g}"
        effect = f"σ_π / σ_V = {spoken(found, '.1f', '')} {parts}; {theirs}"
        ours, other = authors_mean(results, "policy"), authors_mean(results, "value")
        effect += _in_authors_form(ours / other if ours and other else None)
        return judged(found, effect, least, most)

    note = f"at least {least:g}" + (f", at most {most:g}" if most < inf else "")
    return on_noise(judge, note, at_end=True)


def sigma_change(phase: str, low: float, high: float) -> Check:
    """σ at the end over σ at the start, averaged over games, is in a range."""

    def judge(results: Results) -> Verdict | None:
        first, last = levels(results, phase, start=True), levels(results, phase)
        if not first or not last:
            return None
        games = {env: quotient(last[env], first[env]) for env in last}
        found = over_games(games)
        effect = f"σ(end) / σ(start) = {spoken(found, '.2f', '')} over {len(games)} games"
        return judged(found, effect, low, high)

    return on_noise(judge, f"from {low:g} to {high:g}", at_end=True)


def distil_is_lowest(results: Results) -> Verdict | None:
    """σ_D < σ_V < σ_π: the smaller of the two ratios is above 1."""
    known = _all_phases(results, mean_level)
    if known is None:
        return None
    policy, value, distil = known.values()
    ratios = quotient(policy, value), quotient(value, distil)
    step = combined(lambda p, v, d: np.minimum(p / v, v / d), policy, value, distil, least=0.0)
    words = ", ".join(f"{phase} {spoken(one, '.1f', '')}" for phase, one in known.items())
    effect = f"σ: {words}; smaller step {spoken(step, '.2f', ' ×')}"
    return judged_all(ratios, step, effect, 1.0)


def games_are_alike(results: Results) -> Verdict | None:
    """σ_π and σ_V vary little between games: by less than half of their mean."""
    policy, value = variation(results, "policy"), variation(results, "value")
    if policy is None or value is None:
        return None
    words = f"σ_π {spoken(policy, '.2f', '')}, σ_V {spoken(value, '.2f', '')}"
    larger = combined(np.maximum, policy, value)
    return judged(larger, f"coefficient of variation: {words}", high=0.5)


def gap_on_every_game(results: Results) -> Verdict | None:
    """σ_π / σ_V is at least 5 in each game."""
    policy, value = levels(results, "policy"), levels(results, "value")
    if not policy or not value:
        return None
    found = {env: quotient(policy[env], value[env]) for env in policy}
    effect = ", ".join(f"{env} {spoken(one, '.1f', '')}" for env, one in found.items())
    least = combined(lambda *games: np.min(games, axis=0), *found.values(), least=0.0)
    return judged_all(list(found.values()), least, effect, 5.0)


def distil_varies_most(results: Results) -> Verdict | None:
    """σ_D varies most between games."""
    known = _all_phases(results, variation)
    if known is None:
        return None
    words = ", ".join(f"{phase} {spoken(one, '.2f', '')}" for phase, one in known.items())
    *others, distil = known.values()
    return lead(
        distil,
        others,
        lambda gap: (
            f"coefficient of variation: {words}; distil ahead by {spoken(gap, '+.2f', '')}"
        ),
    )


def _all_phases(
    results: Results, number: Callable[[Results, str], Sampled | None]
) -> dict[str, Sampled] | None:
    found = {phase: number(results, phase) for phase in PHASES}
    known = {phase: one for phase, one in found.items() if one is not None}
    return known if len(known) == len(PHASES) else None


# --- Measuring noise against λ ------------------------------------------------------------
#
# At the weights of figure 2's trained runs, the returns of the same rollouts are estimated with
# one λ after the other, and the phase that learns from them is measured: σ_π for λ_π, σ_V for
# λ_V. The paper trained a run for each λ instead. Readings of a run are stored beside the
# experiments' folders, so that figures 2 and 5 share them.

LAMBDAS = (0.6, 0.8, 0.9, 0.95, 0.975, 0.9875, 0.99375, 1.0)
#: Phase → its λ; the other one stays at .95.
KEYS = {"policy": "lambda_pi", "value": "lambda_v"}
#: Folder of the readings, beside the experiments' folders.
KEPT = "lambda_noise"
ROLLOUTS: dict[Scale, int] = {"smoke": 1, "small": 3, "paper": 16}
#: Stated with every number, whatever the scale.
METHOD = (
    "at one policy's weights, with returns re-estimated for each λ; the paper trained a run "
    "for each λ"
)
#: A game's reading at one λ: sigma, b_simple, and the interval low to high of the latter.
LambdaReading = dict[str, Any]


def measure_lambdas(
    results: Results, folder: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    """Phase → λ → environment → {sigma, b_simple, low, high}."""
    found: dict[str, Any] = {phase: {str(one): {} for one in LAMBDAS} for phase in KEYS}
    for outcome in results.of(STUDY):
        env = outcome.run.env
        kept = folder.parent / KEPT / f"{outcome.run.digest}-{results.scale}.json"
        if not kept.is_file():
            report(f"noise against λ: {env}")
            write_json(kept, _readings(_measure_run(outcome.folder, results.scale)))
        for phase, by_lambda in read_json(kept).items():
            for value, reading in by_lambda.items():
                found[phase][value][env] = reading
    return found


def _readings(found: dict[tuple[str, float], list[Estimate]]) -> dict[str, Any]:
    """Phase → λ → {sigma, b_simple, low, high} of one run."""
    out: dict[str, Any] = {phase: {} for phase in KEYS}
    for (phase, value), estimates in found.items():
        reading = pooled(estimates)
        low, high = reading.interval
        out[phase][str(value)] = {
            "sigma": reading.sigma,
            "b_simple": reading.b_simple,
            "low": low,
            "high": high,
        }
    return out


def _measure_run(folder: Path, scale: Scale) -> dict[tuple[str, float], list[Estimate]]:
    """(phase, λ) → estimates, one for each rollout."""
    found: dict[tuple[str, float], list[Estimate]] = {}
    sizes = Sizes(8, None, 4) if scale == "smoke" else Sizes(32, None, 64)
    with opened(folder) as run:
        gamma = run.config.returns.gamma
        for number in range(ROLLOUTS[scale]):
            rollout = run.collector.collect(run.iteration + number, run.clock)
            for phase in run.config.phases:
                for value in LAMBDAS if phase.name in KEYS else ():
                    given = {"lambda_pi": 0.95, "lambda_v": 0.95} | {KEYS[phase.name]: value}
                    returns = Returns.model_validate({"gamma": gamma} | given)
                    data, _ = estimate(rollout, run.networks, returns)
                    one = one_estimate(run, phase, data, sizes, number)
                    found.setdefault((phase.name, value), []).append(one)
    return found


# --- Claims about noise against λ ---------------------------------------------------------
#
# σ of a game at a λ is *known* where there is a number, and *resolved* where its interval is
# also bounded above. Means and verdicts are over the games resolved at every λ; the others are
# named.


def lambda_readings(results: Results, phase: str) -> dict[float, dict[str, LambdaReading]]:
    """λ → game → reading, of all games."""
    found = results.extra.get("lambda_noise", {}).get(phase, {})
    return {float(value): dict(readings) for value, readings in found.items()}


def games_measured(results: Results, phase: str) -> list[str]:
    """Every game that was measured at any λ."""
    found = lambda_readings(results, phase).values()
    return list(dict.fromkeys(env for readings in found for env in readings))


def known_sigma(reading: LambdaReading | None) -> float | None:
    """σ, where noise and gradient are both distinguishable from zero."""
    found = reading["sigma"] if reading else None
    return float(found) if found is not None else None


def is_resolved(reading: LambdaReading | None) -> bool:
    """Whether σ is known and B_simple bounded above; zero is a valid lower bound."""
    return (
        reading is not None and known_sigma(reading) is not None and reading["high"] is not None
    )


def resolved(
    results: Results, phase: str
) -> tuple[dict[float, dict[str, LambdaReading]], list[str]]:
    """λ → game → reading, of the games resolved at every λ; and the other games.

    Every λ is thus averaged over the same games.
    """
    found, games = lambda_readings(results, phase), games_measured(results, phase)
    good = [env for env in games if all(is_resolved(one.get(env)) for one in found.values())]
    kept = {value: {env: one[env] for env in good} for value, one in found.items()}
    return kept if good else {}, [env for env in games if env not in good]


def sigmas_by_lambda(results: Results, phase: str) -> tuple[list[float], list[Sampled]] | None:
    """(λ, geometric mean of σ over games), drawn from the intervals of B_simple.

    All λ are measured on the same rollouts but drawn independently, which makes the intervals
    too wide.
    """
    kept, _ = resolved(results, phase)
    if not kept:
        return None
    return list(kept), [_geometric_mean(phase, *pair) for pair in kept.items()]


def _geometric_mean(phase: str, value: float, readings: dict[str, LambdaReading]) -> Sampled:
    noise = generator(0, f"bootstrap/{phase}", round(1e6 * value))
    logs = [_log_sigma(one, noise.normal(size=DRAWS)) for one in readings.values()]
    center = np.exp(np.mean([np.log(one["sigma"]) for one in readings.values()]))
    return Sampled(float(center), np.exp(np.mean(logs, axis=0)), "measurements")


def _log_sigma(one: LambdaReading, normal: Array) -> Array:
    """log σ = ½ log B_simple, drawn so that the interval's ends are Z away from the middle."""
    low, high = one["low"], one["high"]
    if low > 0:
        drawn: Array = np.log(one["sigma"]) + np.log(high / low) / (4 * Z) * normal
        return drawn
    # The logarithm has no lower end: B_simple itself falls linearly to its end, zero.
    below = np.maximum(1 + normal / Z, np.finfo(float).tiny)
    above = (high / one["sigma"] ** 2) ** (np.maximum(normal, 0.0) / Z)
    both: Array = np.log(one["sigma"]) + np.log(np.where(normal < 0, below, above)) / 2
    return both


def moves_with_lambda(phase: str, sign: int) -> Check:
    """σ of a phase grows (sign 1) or falls (−1) with its λ."""
    check = monotone(lambda results: sigmas_by_lambda(results, phase), sign, STUDY)

    def with_games(results: Results) -> Verdict:
        if not games_measured(results, phase):
            return Verdict("not tested", "", "noise was not measured against λ")
        _, lost = resolved(results, phase)
        left_out = f"not resolved at every λ: {', '.join(lost)}" if lost else ""
        means = sigmas_by_lambda(results, phase)
        if means is None:
            return Verdict("not tested", _known_ends(results, phase), joined(left_out, METHOD))
        found = check(results)
        first, last = (f"{means[1][k].value:.1f} at λ={means[0][k]:g}" for k in (0, -1))
        effect = joined(found.effect, f"σ {first} to {last}")
        return Verdict(found.status, effect, joined(found.note, left_out, METHOD))

    return with_games


def _known_ends(results: Results, phase: str) -> str:
    """`known σ at λ=0.6: Assault-v5 12.3, …; at λ=1: none`, where nothing can be judged."""
    found, parts = lambda_readings(results, phase), []
    for value in (min(found), max(found)):
        named = {env: known_sigma(one) for env, one in found[value].items()}
        words = [f"{env} {sigma:.1f}" for env, sigma in named.items() if sigma is not None]
        parts.append(f"at λ={value:g}: {', '.join(words) or 'none'}")
    return f"known σ {'; '.join(parts)}"


def beyond_095(results: Results) -> Verdict | None:
    """σ_V beyond λ_V = .95: half of what the claim needs, hence never a verdict."""
    found = sigmas_by_lambda(results, "value")
    why = "a suggestion; scores with λ_V above .95 are not run"
    if found is None:
        return Verdict("not tested", "", why)
    by_lambda = dict(zip(*found, strict=True))
    words = ", ".join(
        f"{v:g}: {spoken(one, '.1f', '')}" for v, one in by_lambda.items() if v > 0.9
    )
    return Verdict("not tested", f"σ_V at λ_V = {words}", f"{why}; {METHOD}")
