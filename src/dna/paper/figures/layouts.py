"""Every experiment's pictures, laid out as the paper's figures are: same panels, same order."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dna.envs.benchmark_scores import atari_game
from dna.evaluation.plots import COLORS
from dna.paper.experiments import finished
from dna.paper.experiments.beside import times
from dna.paper.experiments.fig02_noise_scale import PHASES
from dna.paper.experiments.published import hours, same_games
from dna.paper.experiments.results import Results
from dna.paper.experiments.tab05_training_time import ROWS
from dna.paper.experiments.worlds import axis
from dna.paper.figures import panels
from dna.paper.figures.noise import against_lambda, measured, noise, smoothed

#: Experiment → the panels of its figure, where they are not its studies as they come. The
#: paper prints E_π before E_V and E_D, and the easy settings left of the hard ones.
ORDER = {
    "fig06": ("main",),
    "fig09": ("easy",),
    "fig04": ("policy", "value", "distil"),
    "fig11": ("epochs", "lambda (ppo)"),
    "fig16": ("easy", "hard"),
}
NUMBER = {"tab04": "Figure 7", "tab05": "Table 5", "fig16": "Figure 16"}


def draw(results: Results) -> dict[str, bytes]:
    """Every picture of an experiment that has results: file → PNG."""
    return {name: panels.png(made) for name, made in pictures(results).items()}


def pictures(results: Results) -> dict[str, Any]:
    """File → figure."""
    return _OWN.get(results.experiment.name, _curves)(results)


def title_of(results: Results) -> str:
    """`Figure 6: DNA, PPO and PPG on Atari-5`"""
    name = results.experiment.name
    number = NUMBER.get(name, f"Figure {int(name[3:])}" if name[3:].isdigit() else name)
    return f"{number}: {results.experiment.title}"


def scored(results: Results) -> list[str]:
    """Studies with a run to draw, in the order of the paper's panels."""
    names = ORDER.get(results.experiment.name) or tuple(
        study.name for study in results.experiment.studies
    )
    return [name for name in names if finished.environments(results, name)]


def _curves(results: Results) -> dict[str, Any]:
    """A panel for each study; a picture of the games of each."""
    names = scored(results)
    if not names:
        return {}
    found = {"figure.png": _totals(results, names)}
    for name in names:
        if len(finished.environments(results, name)) > 1:
            found[f"games-{name.replace(' ', '_')}.png"] = _games(results, name)
    return found


def _totals(results: Results, names: Sequence[str]) -> Any:
    made, axes = panels.figure(len(names))
    for panel, name in zip(axes[0], names, strict=True):
        panels.total(panel, results, name)
        if len(names) > 1:
            panel.set_title(name, fontsize=9)
    return panels.mark(made, results, title_of(results))


def _games(results: Results, name: str, columns: int = 4, title: str = "") -> Any:
    envs = finished.environments(results, name)
    columns = min(columns, len(envs))
    rows = -(-len(envs) // columns)
    made, axes = panels.figure(columns, rows, (3.0, 2.4) if len(envs) > 1 else (4.6, 3.2))
    for panel in axes.flat[len(envs) :]:
        panel.set_visible(False)
    for panel, env in zip(axes.flat, envs, strict=False):
        panels.game(panel, results, name, env)
    world = results.study(name).world
    for first in axes[:, 0]:
        plain = not world.total or world.axis == "return"
        first.set_ylabel("return" if plain else "score", fontsize=8)
    panels.legend(made, axes.flat[: len(envs)])
    return panels.mark(made, results, title or f"{title_of(results)}, {name}", name)


def _above_games(results: Results) -> dict[str, Any]:
    """Figures 6 and 9: the benchmark on top, its games in a row below."""
    names = scored(results)
    if not names:
        return {}
    (name,), envs = names, finished.environments(results, names[0])
    made = panels.blank((max(8.0, 2.6 * len(envs)), 6.4))
    grid = made.add_gridspec(2, len(envs), height_ratios=(3, 2))
    panels.total(made.add_subplot(grid[0, :]), results, name)
    below = [made.add_subplot(grid[1, i]) for i in range(len(envs))]
    for panel, env in zip(below, envs, strict=True):
        panels.game(panel, results, name, env)
    panels.legend(made, below, 6)
    return {"figure.png": panels.mark(made, results, title_of(results))}


def _tasks(results: Results) -> dict[str, Any]:
    """Figure 13: a panel for each task, for returns of tasks have no common scale."""
    found = {}
    for name, file in (("mujoco", "figure.png"), ("lambda", "lambda.png")):
        if finished.environments(results, name):
            title = title_of(results) if name == "mujoco" else "DNA with λ_π = 0.8 on Walker2d"
            found[file] = _games(results, name, title=title)
    return found


def _noise(results: Results) -> dict[str, Any]:
    """Figures 2 (policy and value) and 8 (distillation, too); σ against λ; scores."""
    found = {}
    if measured(results):
        title = "noise scale of the two learning objectives"
        found["figure.png"] = noise(results, PHASES[:2], f"Figure 2: {title}")
        found["fig08.png"] = noise(results, PHASES, "Figure 8: noise of the three tasks")
    if "lambda_noise" in results.extra:
        made, axes = panels.figure(2, 1, (4.2, 3.4))
        _noise_against_lambda(axes[0], results)
        found["lambda.png"] = panels.mark(made, results, "Figure 5, below: noise against λ")
    names = scored(results)
    if names:
        found["scores.png"] = _games(results, names[0], title="Scores of the noise runs")
    return found


def _lambda(results: Results) -> dict[str, Any]:
    """Figure 5: scores against λ_π, σ_π against λ_π, σ_V against λ_V."""
    made, axes = panels.figure(3, 1, (4.2, 3.4))
    _against_lambda(axes[0][0], results)
    _noise_against_lambda(axes[0][1:], results)
    found = {"figure.png": panels.mark(made, results, title_of(results))}
    if "lambda" in scored(results):
        found["curves.png"] = _totals(results, ["lambda"])
    return found


def _noise_against_lambda(row: Any, results: Results) -> None:
    """Two panels: σ_π against λ_π, σ_V against λ_V."""
    for panel, phase in zip(row, ("policy", "value"), strict=True):
        against_lambda(panel, phase, results)


def _against_lambda(panel: Any, results: Results) -> None:
    """The final score against λ_π, a line for each λ_V, shaded by the standard error."""
    study, view = results.study("lambda"), finished.complete(results, "lambda")
    points: dict[float, dict[float, tuple[float, float]]] = {}
    for arm in view.study("lambda").arms:
        table = view.table("lambda", arm.name)
        seeds = min(map(len, table.values()))
        totals = [study.world.score({e: s[i] for e, s in table.items()}) for i in range(seeds)]
        error = float(np.std(totals, ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0
        place = points.setdefault(arm.changes["returns.lambda_v"], {})
        place[arm.changes["returns.lambda_pi"]] = float(np.mean(totals)), error
    for color, (value, line) in zip(COLORS, points.items(), strict=False):
        x = sorted(line)
        center, error_of = (np.array([line[at][k] for at in x]) for k in (0, 1))
        panel.plot(x, center, marker="o", color=color, label=f"λ_V = {value:g}")
        panel.fill_between(
            x, center - error_of, center + error_of, color=color, alpha=0.2, lw=0
        )
    panel.set_ylabel(axis(study.world, results.scale), fontsize=8)
    panels.finish(panel, label="λ_π")
    if not points:
        panels.say(panel, "no arm has every game")


def _atari57(results: Results) -> dict[str, Any]:
    """Figure 16: medians, easy left and hard right; 17 and 18: DNA on every game."""
    names = scored(results)
    if not names:
        return {}
    found = {"figure.png": _totals(results, names)}
    for number, name in ((17, "hard"), (18, "easy")):
        if name in names:
            title = f"Figure {number}: DNA on every game, {name} settings"
            found[f"fig{number}.png"] = _single(results, name, title)
    return found


def _single(results: Results, name: str, title: str) -> Any:
    """DNA alone, smoothed bold and as it was faint, with what the paper lists for a game."""
    envs = [e for e in finished.environments(results, name) if results.of(name, "DNA", e)]
    columns = max(1, min(8, len(envs)))
    made, axes = panels.figure(columns, -(-max(1, len(envs)) // columns), (2.2, 1.9))
    for panel in axes.flat[len(envs) :]:
        panel.set_visible(False)
    for panel, env in zip(axes.flat, envs, strict=False):
        grid, curves = results.curves(name, "DNA", env)
        curve = curves.mean(axis=0)
        panel.plot(grid, curve, color=COLORS[0], alpha=panels.FAINT)
        panel.plot(grid, smoothed(curve), color=COLORS[0], label="DNA")
        panels.references(panel, results, name, env)
        panel.set_title(atari_game(env) or env, fontsize=8)
        panels.finish(panel, legend=False, label="")
    panels.legend(made, axes.flat[: len(envs)], 5)
    return panels.mark(made, results, title, name)


def _times(results: Results) -> dict[str, Any]:
    """Table 5 has no figure: times over DNA's, ours as bars, the paper's as diamonds."""
    found, printed = times(results), hours()
    if "DNA" not in found:
        return {}
    made, axes = panels.figure(1, 1, (6.4, 3.2))
    panel, names = axes[0][0], list(found)
    panel.barh(names, [found[arm] / found["DNA"] for arm in names], color=COLORS[0])
    if same_games(results.experiment.studies[0], results.scale):
        theirs = [printed[ROWS[arm]] / printed["DNA"] for arm in names]
        panel.plot(theirs, names, "D", color=COLORS[1], label="paper")
    panels.finish(panel, label="time of training, DNA's = 1")
    return {"figure.png": panels.mark(made, results, title_of(results))}


_OWN: dict[str, Callable[[Results], dict[str, Any]]] = {
    "fig02": _noise,
    "fig05": _lambda,
    "fig06": _above_games,
    "fig09": _above_games,
    "fig13": _tasks,
    "fig16": _atari57,
    "tab05": _times,
}
