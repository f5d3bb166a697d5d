"""Figures of experiments: learning curves with bands, sweeps, noise; laid out as in print."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.errors import MissingExtra
from dna.experiments.plan import is_proxy
from dna.experiments.results import Outcome, Results
from dna.experiments.worlds import axis
from dna.plots import COLORS

Array = npt.NDArray[np.float64]
#: Lighter than a line: single seeds, and values before smoothing.
FAINT = 0.25


def figure(columns: int, rows: int = 1, size: tuple[float, float] = (4.6, 3.6)) -> Any:
    """(figure, axes [rows, columns])."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plotting", "media") from None
    made = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False)


def png(made: Any) -> bytes:
    """The picture."""
    buffer = io.BytesIO()
    made.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def draw(results: Results) -> dict[str, bytes]:
    """Every picture of an experiment that has results: file → PNG."""
    pictures: dict[str, bytes] = {}
    scored = [study for study in results.experiment.studies if results.envs(study.name)]
    if scored:
        pictures["figure.png"] = png(_totals(results, [study.name for study in scored]))
    for study in scored:
        if len(results.envs(study.name)) > 1:
            name = f"games-{study.name.replace(' ', '_')}.png"
            pictures[name] = png(_games(results, study.name))
    if any(one.metric("noise/policy/s").size for one in results.outcomes):
        pictures["noise.png"] = png(_noise(results))
    if "lambda_noise" in results.extra:
        pictures["lambda_noise.png"] = png(_lambda(results.extra["lambda_noise"]))
    return pictures


def band(axes: Any, grid: Array, curves: Array, color: str, label: str) -> None:
    """A mean over seeds with its standard error."""
    center = curves.mean(axis=0)
    axes.plot(grid, center, color=color, label=label)
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        axes.fill_between(grid, center - error, center + error, color=color, alpha=0.2, lw=0)


def _totals(results: Results, studies: Sequence[str]) -> Any:
    made, axes = figure(len(studies))
    for panel, name in zip(axes[0], studies, strict=True):
        study = results.study(name)
        for index, arm in enumerate(study.arms):
            grid, curves = results.total_curve(name, arm.name)
            if len(grid):
                seeds = f" ({len(curves)})" if len(curves) > 1 else ""
                band(panel, grid, curves, COLORS[index % len(COLORS)], arm.name + seeds)
        panel.set_title(name)
        panel.set_ylabel(axis(study.world, results.scale))
        _finish(panel)
    _mark(made, results)
    return made


def _games(results: Results, study: str) -> Any:
    envs = results.envs(study)
    columns = min(4, len(envs))
    rows = -(-len(envs) // columns)
    made, axes = figure(columns, rows, (3.4, 2.7))
    for panel in axes.flat[len(envs) :]:
        panel.set_visible(False)
    for panel, env in zip(axes.flat, envs, strict=False):
        for index, arm in enumerate(results.study(study).arms):
            grid, curves = results.curves(study, arm.name, env)
            band(panel, grid, curves, COLORS[index % len(COLORS)], arm.name)
        panel.set_title(env, fontsize=9)
        _finish(panel, legend=False)
    lines, labels = axes.flat[0].get_legend_handles_labels()
    made.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False)
    _mark(made, results)
    return made


def _finish(panel: Any, legend: bool = True) -> None:
    panel.set_xlabel("interactions")
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    if legend:
        panel.legend(frameon=False, fontsize=8)


def _mark(made: Any, results: Results) -> None:
    title = results.experiment.title
    if is_proxy(results.experiment, results.scale):
        title += " — proxy: MinAtar, not the paper's games"
    elif results.scale != "paper":
        title += f" — {results.scale} scale"
    made.suptitle(title, fontsize=10)


def smoothed(values: Array, alpha: float = 0.9) -> Array:
    """An exponential average, as the paper's plots have it."""
    out, average = np.empty_like(values), values[0] if len(values) else 0.0
    for index, value in enumerate(values):
        average = alpha * average + (1 - alpha) * value
        out[index] = average
    return out


def _noise(results: Results) -> Any:
    """σ of every phase against interactions, a panel for each environment."""
    outcomes = [one for one in results.outcomes if one.metric("noise/policy/s").size]
    made, axes = figure(len(outcomes), 1, (4.2, 3.4))
    for panel, outcome in zip(axes[0], outcomes, strict=True):
        for color, phase in zip(COLORS, ("policy", "value", "distil"), strict=False):
            _noise_line(panel, outcome, phase, color)
        panel.set_yscale("log")
        panel.set_title(outcome.run.env, fontsize=9)
        panel.set_ylabel("σ = √(tr Σ / |G|²)")
        _finish(panel)
    _mark(made, results)
    return made


def _noise_line(panel: Any, outcome: Outcome, phase: str, color: str) -> None:
    """𝒮 and |𝒢|² smoothed, then divided; single values lighter; gaps where |𝒢|² ≤ 0."""
    s, g2 = (outcome.metric(f"noise/{phase}/{name}") for name in ("s", "g2"))
    if not len(s):
        return
    single = outcome.metric(f"noise/{phase}/sigma")
    panel.plot(single[:, 0], single[:, 1], color=color, alpha=FAINT, lw=0.8)
    ratio = smoothed(s[:, 1]) / np.where(smoothed(g2[:, 1]) > 0, smoothed(g2[:, 1]), np.nan)
    panel.plot(s[:, 0], np.sqrt(np.maximum(ratio, 0)), color=color, label=phase)


def _lambda(found: dict[str, Any]) -> Any:
    """σ_π against λ_π and σ_V against λ_V, a line per environment."""
    made, axes = figure(len(found), 1, (4.4, 3.4))
    for panel, (phase, by_lambda) in zip(axes[0], found.items(), strict=True):
        envs = dict.fromkeys(env for games in by_lambda.values() for env in games)
        for color, env in zip(COLORS * len(envs), envs, strict=False):
            x = [float(value) for value, games in by_lambda.items() if env in games]
            y = [games[env]["sigma"] for games in by_lambda.values() if env in games]
            clean = [np.nan if one is None else one for one in y]
            panel.plot(x, clean, marker="o", color=color, label=env)
        symbol = "π" if phase == "policy" else "V"
        panel.set_xlabel(f"λ_{symbol}")
        panel.set_ylabel(f"σ_{symbol}")
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize=8)
    made.suptitle("Noise at one policy, returns estimated anew with each λ", fontsize=10)
    return made
