"""Figures 2 and 8, the noise of the gradients during training; what λ does to it (fig. 5)."""

from typing import Any

import numpy as np

from dna.experiments.fig02_noise_scale import PHASES
from dna.experiments.lambda_levels import sigmas, told
from dna.experiments.noise_levels import STUDY
from dna.experiments.published import NOISE, same_games
from dna.experiments.results import Outcome, Results
from dna.figures.panels import FAINT, Array, figure, finish, lines, mark
from dna.plots import COLORS
from dna.scores import atari_game

COLOR = dict(zip(PHASES, COLORS, strict=False))


def smoothed(values: Array, alpha: float = 0.9) -> Array:
    """An exponential average, as the paper's plots have it."""
    out, average = np.empty_like(values), values[0] if len(values) else 0.0
    for index, value in enumerate(values):
        average = alpha * average + (1 - alpha) * value
        out[index] = average
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
    return mark(made, results, title, STUDY)


def _line(panel: Any, outcome: Outcome, phase: str) -> None:
    """𝒮 and |𝒢|² smoothed, then divided; single values lighter; gaps where |𝒢|² ≤ 0."""
    s, g2 = (outcome.metric(f"noise/{phase}/{name}") for name in ("s", "g2"))
    if not len(s):
        return
    single = outcome.metric(f"noise/{phase}/sigma")
    panel.plot(single[:, 0], single[:, 1], color=COLOR[phase], alpha=FAINT, lw=0.8)
    ratio = smoothed(s[:, 1]) / np.where(smoothed(g2[:, 1]) > 0, smoothed(g2[:, 1]), np.nan)
    panel.plot(s[:, 0], np.sqrt(np.maximum(ratio, 0)), color=COLOR[phase], label=phase)


def against_lambda(panel: Any, phase: str, results: Results) -> None:
    """σ against λ: geometric mean over games with its interval, and every game lighter.

    Only of games that can be told at every λ; the others are named.
    """
    games, lost = told(results, phase)
    symbol = "π" if phase == "policy" else "V"
    for env in next(iter(games.values()), {}):
        line = [readings[env]["sigma"] for readings in games.values()]
        panel.plot(list(games), line, color=COLOR[phase], alpha=FAINT, lw=0.8)
    found = sigmas(results, phase)
    if found is not None:
        x, levels = found
        low, high = np.array([one.span for one in levels]).T
        panel.plot(x, [one.value for one in levels], marker="o", color=COLOR[phase])
        panel.fill_between(x, low, high, color=COLOR[phase], alpha=0.2, lw=0)
    if lost:
        names = ", ".join(atari_game(env) or env for env in lost)
        panel.set_title(f"not told at every λ: {names}", fontsize=8)
    panel.set_ylabel(f"σ_{symbol}", fontsize=8)
    finish(panel, label=f"λ_{symbol} (one policy, returns estimated anew)")
