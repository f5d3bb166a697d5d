"""Figures 2 and 8, the noise of the gradients during training; what λ does to it (fig. 5)."""

from typing import Any

import numpy as np

from dna.envs.benchmark_scores import atari_game
from dna.evaluation.plots import COLORS
from dna.paper.experiments.caption import caption
from dna.paper.experiments.fig02_noise_scale import PHASES
from dna.paper.experiments.lambda_levels import games_of, known, sigmas, told
from dna.paper.experiments.lambda_levels import measured as measured_by_lambda
from dna.paper.experiments.noise_levels import STUDY, measurements
from dna.paper.experiments.published import NOISE, same_games
from dna.paper.experiments.results import Outcome, Results
from dna.paper.figures.panels import FAINT, Array, figure, finish, lines, say, titled

COLOR = dict(zip(PHASES, COLORS, strict=False))
ALPHA = 0.9
#: How the bold lines of figures 2 and 8 are made.
AVERAGED = (
    f"bold: tr Σ and |G|² averaged exponentially (α = {ALPHA:g}, weights that sum to 1), "
    "then divided; gaps: |G|² or tr Σ is not above zero"
)


def smoothed(values: Array, alpha: float = ALPHA) -> Array:
    """Σ αᵗ⁻ⁱ xᵢ / Σ αᵗ⁻ⁱ: an exponential average that is one of all values while they are few.

    Begun with the first value, it would give that one 42 % of the weight in 19 measurements.
    """
    out, total, weight = np.empty_like(values), 0.0, 0.0
    for index, value in enumerate(values):
        total, weight = alpha * total + value, alpha * weight + 1.0
        out[index] = total / weight
    return out


def measured(results: Results) -> list[Outcome]:
    """Runs whose noise was measured, one for each game."""
    return [one for one in results.outcomes if one.metric("noise/policy/s").size]


def noise(results: Results, phases: tuple[str, ...], title: str) -> Any:
    """σ of phases against interactions, a panel for each game."""
    from matplotlib.ticker import LogLocator

    outcomes = measured(results)
    made, axes = figure(len(outcomes), 1, (4.2, 3.4))
    for panel, outcome in zip(axes[0], outcomes, strict=True):
        for phase in phases:
            _line(panel, outcome, phase)
        panel.plot([], [], color="black", alpha=FAINT, lw=0.8, label="not smoothed")
        study = results.study(STUDY)
        if same_games(study, results.scale):
            length = study.world.interactions["paper"] / 1e6
            theirs = {phase: sigma for phase, sigma in NOISE.items() if phase in phases}
            lines(panel, theirs, COLOR, f"paper, mean at {length:g} M")
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
        panel.set_title(atari_game(outcome.run.env) or outcome.run.env, fontsize=9)
        panel.set_ylabel("σ = √(tr Σ / |G|²)", fontsize=8)
        finish(panel)
    return titled(made, title, "; ".join(filter(None, [caption(results, STUDY), AVERAGED])))


def _line(panel: Any, outcome: Outcome, phase: str) -> None:
    """𝒮 and |𝒢|² smoothed once, then divided; single measurements lighter, with their gaps.

    From what was measured: |𝒢|² is logged smoothed, and would be smoothed twice.
    """
    rows = measurements(outcome, phase)
    if not len(rows):
        return
    x, color = outcome.metric(f"noise/{phase}/s")[:, 0], COLOR[phase]
    # A measurement between two gaps is a point and no line.
    panel.plot(x, _sigma(*rows.T), color=color, alpha=FAINT, lw=0.8, marker=".", ms=2.5)
    panel.plot(x, _sigma(*map(smoothed, rows.T)), color=color, label=phase)


def _sigma(s: Array, g2: Array) -> Array:
    """√(𝒮 / |𝒢|²); not a number, hence a gap, where one of them is not above zero."""
    good = (s > 0) & (g2 > 0)
    return np.sqrt(np.where(good, s, np.nan) / np.where(good, g2, 1.0))


def against_lambda(panel: Any, phase: str, results: Results) -> None:
    """σ against λ: every known one lighter; of the games told at every λ, mean and interval.

    Games without are named; a panel without any σ says why.
    """
    symbol = "π" if phase == "policy" else "V"
    drawn, found = _games(panel, phase, results), sigmas(results, phase)
    if found is not None:
        x, levels = found
        low, high = np.array([one.span for one in levels]).T
        label = "geometric mean, 95 %"
        panel.plot(x, [o.value for o in levels], marker="o", color=COLOR[phase], label=label)
        panel.fill_between(x, low, high, color=COLOR[phase], alpha=0.2, lw=0)
    lost = told(results, phase)[1]
    if lost:
        names = ", ".join(atari_game(env) or env for env in lost)
        panel.set_title(f"not told at every λ: {names}", fontsize=8)
    panel.set_ylabel(f"σ_{symbol}", fontsize=8)
    finish(panel, label=f"λ_{symbol} (one policy, returns estimated anew)")
    if not drawn:
        some = bool(games_of(results, phase))
        say(panel, "no σ is known at any λ" if some else "noise was not measured against λ")


def _games(panel: Any, phase: str, results: Results) -> bool:
    """A faint line for each game, with gaps where σ is not known; whether there is any."""
    found, drawn = measured_by_lambda(results, phase), False
    if found:
        panel.set_xlim(min(found) - 0.02, max(found) + 0.02)  # gaps at its ends show, too
    for index, env in enumerate(games_of(results, phase)):
        line = [known(readings.get(env)) for readings in found.values()]
        if any(sigma is not None for sigma in line):
            y = [np.nan if sigma is None else sigma for sigma in line]
            marker, name = "osD^v"[index % 5], atari_game(env) or env
            panel.plot(
                list(found), y, color=COLOR[phase], alpha=2 * FAINT, lw=0.8, marker=marker,
                ms=3, label=name,
            )  # fmt: skip
            drawn = True
    return drawn
