"""The figures of every experiment, laid out as in the paper: same panels, same order."""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dna.common.errors import MissingExtra
from dna.envs.benchmark_scores import atari_game
from dna.evaluation.plots import COLORS
from dna.paper.claims import noise
from dna.paper.claims.noise import PHASES
from dna.paper.plan import ArmStudy, axis
from dna.paper.published import NOISE, TIMED, hours, own_games, published, same_games
from dna.paper.results import Results, RunResult
from dna.paper.tables import caption, times
from dna.paper.toy import Model, ToyResult, mean_and_error

Array = npt.NDArray[np.float64]
#: Opacity of single seeds and of values before smoothing.
FAINT = 0.25
#: Colors of reference scores, which are not arms of ours.
GREY = {"human": "#999999", "random": "#cccccc"}
OTHER = "#555555"
#: Smallest width of a figure in inches, for the sake of its title.
NARROWEST = 4.6
#: Characters of the title per inch, and the height of one of its lines in inches.
LETTERS = 13
LINE = 0.15


def figure(columns: int, rows: int = 1, size: tuple[float, float] = (4.6, 3.6)) -> Any:
    """Return (figure, axes [rows, columns])."""
    made = blank((size[0] * columns, size[1] * rows))
    return made, made.subplots(rows, columns, squeeze=False)


def blank(size: tuple[float, float]) -> Any:
    """Return a figure without panels, wide enough for its title."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plotting", "media") from None
    return Figure(figsize=(max(size[0], NARROWEST), size[1]), layout="constrained")


def png(made: Any) -> bytes:
    """Render as PNG."""
    buffer = io.BytesIO()
    made.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def mark(made: Any, results: Results, title: str, study: str | None = None) -> Any:
    """Add the title and, below it, the caption of the results."""
    return titled(made, title, caption(results, study))


def titled(made: Any, title: str, captions: str) -> Any:
    """Add a title and captions, one line each; the panels keep their height."""
    width = int(LETTERS * made.get_figwidth())
    text = [
        line for part in (title, *captions.split("; ")) for line in textwrap.wrap(part, width)
    ]
    made.suptitle("\n".join(text), fontsize=9)
    made.set_figheight(made.get_figheight() + LINE * (len(text) - 1))
    return made


def say(panel: Any, words: str) -> None:
    """Put text into an empty panel, without axes."""
    panel.text(0.5, 0.5, words, ha="center", va="center", transform=panel.transAxes, fontsize=8)
    panel.set_xticks([])
    panel.set_yticks([])


def finish(panel: Any, legend: bool = True, label: str = "interactions") -> None:
    """Add labels, grid and legend; interactions are shown as 300 k and 50 M."""
    from matplotlib.ticker import EngFormatter

    if label in ("", "interactions"):
        panel.xaxis.set_major_formatter(EngFormatter(sep=" "))
    panel.set_xlabel(label, fontsize=8)
    panel.tick_params(labelsize=7, which="both")
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    if legend and panel.get_legend_handles_labels()[0]:
        panel.legend(frameon=False, fontsize=7)


def band(panel: Any, grid: Array, curves: Array, color: str, label: str) -> None:
    """Draw a mean over seeds with its standard error."""
    center = curves.mean(axis=0)
    panel.plot(grid, center, color=color, label=label)
    if len(curves) > 1:
        error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
        panel.fill_between(grid, center - error, center + error, color=color, alpha=0.2, lw=0)


def colors_of(study: ArmStudy) -> dict[str, str]:
    """Arm → its color, the same in every panel even if arms are missing."""
    return {arm.name: COLORS[i % len(COLORS)] for i, arm in enumerate(study.arms)}


def total(panel: Any, results: Results, name: str) -> None:
    """Draw the benchmark's score of every complete arm, and the paper's."""
    study = results.study(name)
    colors = colors_of(study)
    for arm in results.complete_arms(name):
        grid, curves = results.total_curve(name, arm)
        seeds = f" ({len(curves)} seeds)" if len(curves) > 1 else ""
        band(panel, grid, curves, colors[arm], arm + seeds)
    if not results.complete_arms(name):
        panel.text(0.5, 0.5, "no arm has every game", ha="center", transform=panel.transAxes)
    if same_games(study, results.scale):
        printed = published(results.experiment, name)
        lines(panel, {**printed.totals, **printed.others}, colors, _paper(results, study))
    panel.set_ylabel(axis(study.suite, results.scale), fontsize=8)
    finish(panel)


def _paper(results: Results, study: ArmStudy) -> str:
    """`paper`, or `paper, 50 M` where our runs are shorter."""
    length = study.suite.interactions["paper"]
    shorter = results.length(study.name) < length
    return f"paper, {length / 1e6:g} M" if shorter else "paper"


def lines(panel: Any, values: Mapping[str, float], colors: Mapping[str, str], who: str) -> None:
    """Draw the paper's numbers as dashed lines: in an arm's color, gray for others."""
    for name, value in values.items():
        color = colors.get(name, GREY.get(name, OTHER))
        dashes = "--" if name in colors else ":"
        label = f"{who}: {name} {value:.4g}"
        panel.axhline(value, color=color, linestyle=dashes, lw=1.2, label=label)


def game(panel: Any, results: Results, name: str, env: str) -> None:
    """Draw one environment: every arm that has finished it, and the paper's scores."""
    study = results.study(name)
    colors = colors_of(study)
    for arm in study.arms:
        grid, curves = results.curves(name, arm.name, env)
        if len(grid):
            band(panel, grid, curves, colors[arm.name], arm.name)
    references(panel, results, name, env)
    title = env if env.startswith("procgen") else atari_game(env) or env
    panel.set_title(title, fontsize=8)
    finish(panel, legend=False)


def references(panel: Any, results: Results, name: str, env: str) -> None:
    """Draw human, Rainbow's and the paper's scores of a game, if it is one of the paper's."""
    study = results.study(name)
    if not own_games(study, results.scale):
        return
    known = dict(published(results.experiment, name).games.get(atari_game(env) or "", {}))
    known.pop("random", None)
    colors = colors_of(study)
    for who, value in known.items():
        color = colors.get(who, GREY.get(who, OTHER))
        dashes = "--" if who in colors else ":"
        label = f"{_paper(results, study)}: {who}"
        panel.axhline(value, color=color, linestyle=dashes, lw=1.0, label=label)


def legend(made: Any, panels: Any, columns: int = 4) -> None:
    """Add one legend for many panels, with every line once."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        # A column is as wide as the longest label and its line.
        room = int(LETTERS * made.get_figwidth() / (max(map(len, found)) + 6))
        made.legend(
            list(found.values()), list(found), loc="outside lower center",
            ncols=max(1, min(columns, room)), frameon=False, fontsize=8,
        )  # fmt: skip


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
#: Phase → its color, and the weight of earlier values in the smoothed lines of figures 2 and 8.
PHASE_COLORS = dict(zip(PHASES, COLORS, strict=False))
ALPHA = 0.9
#: How the bold lines of figures 2 and 8 are made.
AVERAGED = (
    f"bold: tr Σ and |G|² averaged exponentially (α = {ALPHA:g}, weights that sum to 1), "
    "then divided; gaps: |G|² or tr Σ is not above zero"
)
#: Panels of figure 1.
TOY_PANELS: tuple[tuple[Literal["l_t1", "l_t2"], str], ...] = (
    ("l_t1", "$L_{T1}$"),
    ("l_t2", "$L_{T2}$"),
)


def draw(results: Results) -> dict[str, bytes]:
    """File → PNG, for every figure of an experiment that has results."""
    return {name: png(made) for name, made in pictures(results).items()}


def pictures(results: Results) -> dict[str, Any]:
    """File → matplotlib figure."""
    return _OWN.get(results.experiment.name, _curves)(results)


def title_of(results: Results) -> str:
    """`Figure 6: DNA, PPO and PPG on Atari-5`"""
    name = results.experiment.name
    number = NUMBER.get(name, f"Figure {int(name[3:])}" if name[3:].isdigit() else name)
    return f"{number}: {results.experiment.title}"


def scored(results: Results) -> list[str]:
    """Studies with a finished run, in the order of the paper's panels."""
    names = ORDER.get(results.experiment.name) or tuple(
        study.name for study in results.experiment.studies
    )
    return [name for name in names if results.any_envs(name)]


def draw_toy(result: ToyResult, captions: str = "") -> bytes:
    """Figure 1: L_T1 and L_T2 of the joint and the dual model, mean and standard error."""
    figure = blank((9.0, 3.4))
    from matplotlib.ticker import LogLocator

    for axes, (task, label) in zip(figure.subplots(1, 2), TOY_PANELS, strict=True):
        _toy_line(axes, result, "joint", task)
        _toy_line(axes, result, "dual", task)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 3.0, 5.0)))
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("$\\sigma_1$, noise of task 1")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, title=f"{result.settings.seeds} seeds")
    title = "Figure 1: two tasks learned by one network or by two"
    return png(titled(figure, title, captions))


def _toy_line(
    axes: Any, result: ToyResult, model: Model, task: Literal["l_t1", "l_t2"]
) -> None:
    cells = result.of(model)
    color = COLORS[0 if model == "dual" else 1]
    sigmas = [outcome.cell.sigma for outcome in cells]
    points = [mean_and_error(getattr(outcome, task)) for outcome in cells]
    axes.plot(sigmas, [mean for mean, _ in points], color=color, marker=".", label=model)
    # A band that reaches 0 does not fit on a logarithmic axis.
    low = [max(mean - error, mean / 100) for mean, error in points]
    high = [mean + error for mean, error in points]
    axes.fill_between(sigmas, low, high, color=color, alpha=0.2, lw=0)


def _curves(results: Results) -> dict[str, Any]:
    """A panel for each study, and a figure of its games."""
    names = scored(results)
    if not names:
        return {}
    found = {"figure.png": _totals(results, names)}
    for name in names:
        if len(results.any_envs(name)) > 1:
            found[f"games-{name.replace(' ', '_')}.png"] = _games(results, name)
    return found


def _totals(results: Results, names: Sequence[str]) -> Any:
    made, axes = figure(len(names))
    for panel, name in zip(axes[0], names, strict=True):
        total(panel, results, name)
        if len(names) > 1:
            panel.set_title(name, fontsize=9)
    return mark(made, results, title_of(results))


def _games(results: Results, name: str, columns: int = 4, title: str = "") -> Any:
    envs = results.any_envs(name)
    columns = min(columns, len(envs))
    rows = -(-len(envs) // columns)
    made, axes = figure(columns, rows, (3.0, 2.4) if len(envs) > 1 else (4.6, 3.2))
    for panel in axes.flat[len(envs) :]:
        panel.set_visible(False)
    for panel, env in zip(axes.flat, envs, strict=False):
        game(panel, results, name, env)
    suite = results.study(name).suite
    for first in axes[:, 0]:
        plain = not suite.total or suite.axis == "return"
        first.set_ylabel("return" if plain else "score", fontsize=8)
    legend(made, axes.flat[: len(envs)])
    return mark(made, results, title or f"{title_of(results)}, {name}", name)


def _above_games(results: Results) -> dict[str, Any]:
    """Figures 6 and 9: the benchmark on top, its games in a row below."""
    names = scored(results)
    if not names:
        return {}
    (name,) = names
    envs = results.any_envs(name)
    made = blank((max(8.0, 2.6 * len(envs)), 6.4))
    grid = made.add_gridspec(2, len(envs), height_ratios=(3, 2))
    total(made.add_subplot(grid[0, :]), results, name)
    below = [made.add_subplot(grid[1, i]) for i in range(len(envs))]
    for panel, env in zip(below, envs, strict=True):
        game(panel, results, name, env)
    legend(made, below, 6)
    return {"figure.png": mark(made, results, title_of(results))}


def _tasks(results: Results) -> dict[str, Any]:
    """Figure 13: a panel for each task, as returns of tasks have no common scale."""
    found = {}
    for name, file in (("mujoco", "figure.png"), ("lambda", "lambda.png")):
        if results.any_envs(name):
            title = title_of(results) if name == "mujoco" else "DNA with λ_π = 0.8 on Walker2d"
            found[file] = _games(results, name, title=title)
    return found


def _noise(results: Results) -> dict[str, Any]:
    """Figures 2 (policy and value) and 8 (distillation too); σ against λ; scores."""
    found = {}
    if _measured(results):
        title = "noise scale of the two learning objectives"
        found["figure.png"] = _sigmas(results, PHASES[:2], f"Figure 2: {title}")
        found["fig08.png"] = _sigmas(results, PHASES, "Figure 8: noise of the three tasks")
    if "lambda_noise" in results.extra:
        made, axes = figure(2, 1, (4.2, 3.4))
        _noise_against_lambda(axes[0], results)
        found["lambda.png"] = mark(made, results, "Figure 5, below: noise against λ")
    names = scored(results)
    if names:
        found["scores.png"] = _games(results, names[0], title="Scores of the noise runs")
    return found


def smoothed(values: Array, alpha: float = ALPHA) -> Array:
    """Σ αᵗ⁻ⁱ xᵢ / Σ αᵗ⁻ⁱ: an exponential average without initialization bias.

    If it started from the first value, that value would have 42 % of the weight in 19
    measurements.
    """
    out = np.empty_like(values)
    total = 0.0
    weight = 0.0
    for index, value in enumerate(values):
        total = alpha * total + value
        weight = alpha * weight + 1.0
        out[index] = total / weight
    return out


def _measured(results: Results) -> list[RunResult]:
    """Runs whose noise was measured, one for each game."""
    return [one for one in results.outcomes if one.metric("noise/policy/s").size]


def _sigmas(results: Results, phases: tuple[str, ...], title: str) -> Any:
    """σ of phases against interactions, a panel for each game."""
    from matplotlib.ticker import LogLocator

    outcomes = _measured(results)
    made, axes = figure(len(outcomes), 1, (4.2, 3.4))
    for panel, outcome in zip(axes[0], outcomes, strict=True):
        for phase in phases:
            _sigma_line(panel, outcome, phase)
        panel.plot([], [], color="black", alpha=FAINT, lw=0.8, label="not smoothed")
        study = results.study(noise.STUDY)
        if same_games(study, results.scale):
            length = study.suite.interactions["paper"] / 1e6
            theirs = {phase: sigma for phase, sigma in NOISE.items() if phase in phases}
            lines(panel, theirs, PHASE_COLORS, f"paper, mean at {length:g} M")
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
        panel.set_title(atari_game(outcome.run.env) or outcome.run.env, fontsize=9)
        panel.set_ylabel("σ = √(tr Σ / |G|²)", fontsize=8)
        finish(panel)
    captions = filter(None, [caption(results, noise.STUDY), AVERAGED])
    return titled(made, title, "; ".join(captions))


def _sigma_line(panel: Any, outcome: RunResult, phase: str) -> None:
    """Draw σ from 𝒮 and |𝒢|² smoothed once; single measurements lighter, with gaps.

    |𝒢|² is logged smoothed, so the smoothing is undone first (`measurements`).
    """
    rows = noise.measurements(outcome, phase)
    if not len(rows):
        return
    x = outcome.metric(f"noise/{phase}/s")[:, 0]
    color = PHASE_COLORS[phase]
    # A marker, because a measurement between two gaps has no line.
    panel.plot(x, _sigma(*rows.T), color=color, alpha=FAINT, lw=0.8, marker=".", ms=2.5)
    panel.plot(x, _sigma(*map(smoothed, rows.T)), color=color, label=phase)


def _sigma(s: Array, g2: Array) -> Array:
    """√(𝒮 / |𝒢|²); NaN, hence a gap, where one of them is not above zero."""
    good = (s > 0) & (g2 > 0)
    return np.sqrt(np.where(good, s, np.nan) / np.where(good, g2, 1.0))


def _sigma_against_lambda(panel: Any, phase: str, results: Results) -> None:
    """Draw σ against λ: each game lighter; mean and interval of games resolved at every λ.

    The other games are named; an empty panel says why.
    """
    symbol = "π" if phase == "policy" else "V"
    drawn = _games_against_lambda(panel, phase, results)
    found = noise.sigmas_by_lambda(results, phase)
    if found is not None:
        x, levels = found
        low, high = np.array([one.span for one in levels]).T
        label = "geometric mean, 95 %"
        color = PHASE_COLORS[phase]
        panel.plot(x, [o.value for o in levels], marker="o", color=color, label=label)
        panel.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
    _, lost = noise.resolved(results, phase)
    if lost:
        names = ", ".join(atari_game(env) or env for env in lost)
        panel.set_title(f"not resolved at every λ: {names}", fontsize=8)
    panel.set_ylabel(f"σ_{symbol}", fontsize=8)
    finish(panel, label=f"λ_{symbol} (one policy, returns re-estimated)")
    if not drawn:
        some = bool(noise.games_measured(results, phase))
        say(panel, "no σ is known at any λ" if some else "noise was not measured against λ")


def _games_against_lambda(panel: Any, phase: str, results: Results) -> bool:
    """Draw a faint line for each game, with gaps where σ is unknown; return whether any."""
    found = noise.lambda_readings(results, phase)
    drawn = False
    if found:
        panel.set_xlim(min(found) - 0.02, max(found) + 0.02)  # so that gaps at the ends show
    for index, env in enumerate(noise.games_measured(results, phase)):
        line = [noise.known_sigma(readings.get(env)) for readings in found.values()]
        if any(sigma is not None for sigma in line):
            y = [np.nan if sigma is None else sigma for sigma in line]
            panel.plot(
                list(found),
                y,
                color=PHASE_COLORS[phase],
                alpha=2 * FAINT,
                lw=0.8,
                marker="osD^v"[index % 5],
                ms=3,
                label=atari_game(env) or env,
            )
            drawn = True
    return drawn


def _lambda(results: Results) -> dict[str, Any]:
    """Figure 5: scores against λ_π, σ_π against λ_π, σ_V against λ_V."""
    made, axes = figure(3, 1, (4.2, 3.4))
    _scores_against_lambda(axes[0][0], results)
    _noise_against_lambda(axes[0][1:], results)
    found = {"figure.png": mark(made, results, title_of(results))}
    if "lambda" in scored(results):
        found["curves.png"] = _totals(results, ["lambda"])
    return found


def _noise_against_lambda(row: Any, results: Results) -> None:
    """Two panels: σ_π against λ_π, σ_V against λ_V."""
    for panel, phase in zip(row, ("policy", "value"), strict=True):
        _sigma_against_lambda(panel, phase, results)


def _scores_against_lambda(panel: Any, results: Results) -> None:
    """The final score against λ_π, a line for each λ_V, shaded by the standard error."""
    study = results.study("lambda")
    complete = results.complete_arms("lambda")
    points: dict[float, dict[float, tuple[float, float]]] = {}
    for arm in (arm for arm in study.arms if arm.name in complete):
        table = results.scores("lambda", arm.name)
        seeds = min(map(len, table.values()))
        totals = [study.suite.score({e: s[i] for e, s in table.items()}) for i in range(seeds)]
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
    panel.set_ylabel(axis(study.suite, results.scale), fontsize=8)
    finish(panel, label="λ_π")
    if not points:
        say(panel, "no arm has every game")


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
    """DNA alone, smoothed in bold and raw in faint lines, with the paper's scores of a game."""
    envs = [e for e in results.any_envs(name) if results.of(name, "DNA", e)]
    columns = max(1, min(8, len(envs)))
    made, axes = figure(columns, -(-max(1, len(envs)) // columns), (2.2, 1.9))
    for panel in axes.flat[len(envs) :]:
        panel.set_visible(False)
    for panel, env in zip(axes.flat, envs, strict=False):
        grid, curves = results.curves(name, "DNA", env)
        curve = curves.mean(axis=0)
        panel.plot(grid, curve, color=COLORS[0], alpha=FAINT)
        panel.plot(grid, smoothed(curve), color=COLORS[0], label="DNA")
        references(panel, results, name, env)
        panel.set_title(atari_game(env) or env, fontsize=8)
        finish(panel, legend=False, label="")
    legend(made, axes.flat[: len(envs)], 5)
    return mark(made, results, title, name)


def _times(results: Results) -> dict[str, Any]:
    """Table 5 as a figure: times relative to DNA's, ours as bars, the paper's as diamonds."""
    found = times(results)
    printed = hours()
    if "DNA" not in found:
        return {}
    made, axes = figure(1, 1, (6.4, 3.2))
    panel = axes[0][0]
    names = list(found)
    panel.barh(names, [found[arm] / found["DNA"] for arm in names], color=COLORS[0])
    if same_games(results.experiment.studies[0], results.scale):
        theirs = [printed[TIMED[arm]] / printed["DNA"] for arm in names]
        panel.plot(theirs, names, "D", color=COLORS[1], label="paper")
    finish(panel, label="time of training, DNA's = 1")
    return {"figure.png": mark(made, results, title_of(results))}


_OWN: dict[str, Callable[[Results], dict[str, Any]]] = {
    "fig02": _noise,
    "fig05": _lambda,
    "fig06": _above_games,
    "fig09": _above_games,
    "fig13": _tasks,
    "fig16": _atari57,
    "tab05": _times,
}
