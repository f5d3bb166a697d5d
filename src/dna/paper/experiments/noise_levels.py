"""σ of the phases of a run, at its start and end, with intervals (section 3.2, appendix D).

The mean of what was measured in a window is drawn anew, and so are the games: with one seed,
how far games are apart stands for what other seeds would have told. Nine measurements and three
games hardly know their own spread, so both are Student's (`dna.paper.claims.compare`).
"""

import numpy as np
import numpy.typing as npt

from dna.paper.claims.compare import Sampled, combined, same, sampled_rows
from dna.paper.experiments.results import Outcome, Results

Array = npt.NDArray[np.float64]
STUDY, ARM = "noise", "DNA"
#: Measurements at the end, and at the start, that a level is averaged over.
WINDOW = 10


def measurements(outcome: Outcome, phase: str, form: str = "") -> Array:
    """[n, 2] of 𝒮 and |𝒢|² (algorithm 2's or `_paired`), one row for each measurement.

    |𝒢|² is logged smoothed (algorithm 2). Smoothed values repeat each other, so they are taken
    apart again: new = (now − α · before) / (1 − α).
    """
    s, g2 = (outcome.metric(f"noise/{phase}/{name}{form}")[:, 1] for name in ("s", "g2"))
    settings = outcome.run.config.noise
    alpha = settings.alpha if settings is not None else 0.0
    new = np.concatenate([g2[:1], (g2[1:] - alpha * g2[:-1]) / (1 - alpha)])
    return np.stack([s, new], axis=1)


def sigma(pair: Array) -> Array:
    """√(𝒮 / |𝒢|²) of means […, 2]; infinite where no gradient can be told from zero."""
    s, g2 = np.maximum(pair[..., 0], 0.0), pair[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(g2 > 0, np.sqrt(s / np.where(g2 > 0, g2, 1.0)), np.inf)


def level(
    outcome: Outcome, phase: str, *, start: bool = False, form: str = ""
) -> Sampled | None:
    """σ at the end of a run, or at its start: 𝒮 and |𝒢|² are averaged first, then divided.

    The two never share a measurement. Infinite where noise drowns the gradient: draws then
    bound it from below. None without measurements, or where 𝒮 ≤ 0.
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


def authors_level(outcome: Outcome, phase: str) -> float | None:
    """σ at the end of a run in the authors' form, which has a bias: the paper's numbers are so.

    Mean of what they logged, smoothed and with a floor under |𝒢|²; None where any is missing.
    """
    found, told = (outcome.metric(f"noise/{phase}/{name}") for name in ("s", "sigma_authors"))
    size = min(WINDOW, len(found) // 2)
    times = found[len(found) - size :, 0]
    known = told[np.isin(told[:, 0], times), 1]
    return float(known.mean()) if size and len(known) == size else None


def authors_mean(results: Results, phase: str) -> float | None:
    """The same, averaged over the games; None unless it is known in every one."""
    found = [authors_level(one, phase) for one in results.of(STUDY, ARM)]
    known = [sigma for sigma in found if sigma is not None]
    whole = len(known) == len(results.study(STUDY).world.envs[results.scale])
    return float(np.mean(known)) if whole else None


def levels(results: Results, phase: str, *, start: bool = False) -> dict[str, Sampled]:
    """Game → σ, perhaps infinite; empty unless it was measured in every game.

    Leaving out games in which |𝒢|² cannot be told from zero would leave out the noisiest.
    """
    outcomes = results.of(STUDY, ARM)
    found = {one.run.env: level(one, phase, start=start) for one in outcomes}
    known = {env: sigma for env, sigma in found.items() if sigma is not None}
    return known if len(known) == len(results.study(STUDY).world.envs[results.scale]) else {}


def over_games(found: dict[str, Sampled]) -> Sampled:
    """The mean over games, which are drawn as well: the same ones for every phase.

    Games count by their relative distance from the mean, so that no σ below zero is drawn.
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
