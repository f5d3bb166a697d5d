"""Plot learning curves of run folders with matplotlib."""

import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common import json_lines
from dna.common.errors import BadInput, MissingExtra
from dna.common.storage import read_json
from dna.runs.folder import RunFolder

Array = npt.NDArray[np.float64]
#: Colors that color-blind readers can tell apart (Okabe & Ito).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def curve(run: RunFolder) -> tuple[Array, Array]:
    """Return (interactions, score of the last 100 episodes) of one run."""
    points = json_lines.curve(run.path / "metrics.jsonl")
    if not points:
        raise BadInput(f"{run.path}: no episode has ended yet, nothing to plot")
    x, y = np.array(points, dtype=np.float64).T
    return x, y


def random_score(run: RunFolder) -> float | None:
    """Return the random agent's mean score, if `dna eval --random` has measured it."""
    path = run.path / "eval.json"
    if not path.is_file():
        return None
    try:
        return float(read_json(path)["random"]["mean"])
    except (KeyError, TypeError, ValueError):
        return None


def learning_curves(runs: list[RunFolder], reference: float | None = None) -> bytes:
    """Return the plot of `curves_figure` as PNG."""
    buffer = io.BytesIO()
    curves_figure(runs, reference).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def curves_figure(runs: list[RunFolder], reference: float | None = None) -> Any:
    """Plot the mean over seeds of each algorithm, with its standard error."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plotting", "media") from None
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    groups: dict[str, list[tuple[Array, Array]]] = defaultdict(list)
    environments: set[str] = set()
    for run in runs:
        config, _ = run.read()
        environments.add(config.env.id or "own environment")
        groups[config.algorithm.upper()].append(curve(run))
    for color, (name, curves) in zip(COLORS * len(groups), groups.items(), strict=False):
        _draw(axes, name, curves, color)
    if reference is not None:
        axes.axhline(reference, color="#888888", linestyle="--", label="random agent")
    axes.set_xlabel("interactions")
    axes.set_ylabel("score (mean of the last 100 episodes)")
    axes.set_title(", ".join(sorted(environments)))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def _draw(axes: Any, name: str, curves: list[tuple[Array, Array]], color: str) -> None:
    start = max(x[0] for x, _ in curves)
    end = min(x[-1] for x, _ in curves)
    grid = np.linspace(start, end, 400)
    scores = np.stack([np.interp(grid, x, y) for x, y in curves])
    center = scores.mean(axis=0)
    seeds = f" ({len(curves)} seeds)" if len(curves) > 1 else ""
    axes.plot(grid, center, color=color, label=name + seeds)
    if len(curves) > 1:
        error = scores.std(axis=0, ddof=1) / np.sqrt(len(curves))
        axes.fill_between(grid, center - error, center + error, color=color, alpha=0.2, lw=0)


def default_plot(run: RunFolder) -> Path:
    """Return the path where `dna plot` writes by default for a single run."""
    return run.path / "curve.png"
