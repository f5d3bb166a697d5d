"""Parts shared by the panels of all figures: bands, curves, the paper's own numbers.

A number of the paper is drawn as a dashed line, and only where its own games are played: a
proxy never shares an axis with it (`dna.paper.published.same_games`).
"""

import io
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import MissingExtra
from dna.envs.benchmark_scores import atari_game
from dna.evaluation.plots import COLORS
from dna.paper.plan import ArmStudy
from dna.paper.published import own_games, published, same_games
from dna.paper.results import Results
from dna.paper.suites import axis
from dna.paper.tables import caption

Array = npt.NDArray[np.float64]
#: Opacity of single seeds and of values before smoothing.
FAINT = 0.25
#: Colors of those that are not arms of ours.
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
    """Draw the paper's numbers as dashed lines: in an arm's color, grey for others."""
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
