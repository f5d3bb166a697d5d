"""Figure 1: the errors of both tasks of the toy problem against the noise of the first."""

from typing import Any, Literal

from dna.evaluation.plots import COLORS
from dna.paper.figures.panels import blank, png, titled
from dna.paper.toy import Model, ToyResult, mean_and_error

PANELS: tuple[tuple[Literal["l_t1", "l_t2"], str], ...] = (
    ("l_t1", "$L_{T1}$"),
    ("l_t2", "$L_{T2}$"),
)


def draw_toy(result: ToyResult, said: str = "") -> bytes:
    """L_T1 and L_T2 of the joint and the dual model, mean and standard error over seeds.

    `said`: what must be known of the size of the experiment.
    """
    figure = blank((9.0, 3.4))
    from matplotlib.ticker import LogLocator

    for axes, (task, label) in zip(figure.subplots(1, 2), PANELS, strict=True):
        _line(axes, result, "joint", task)
        _line(axes, result, "dual", task)
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
    return png(titled(figure, "Figure 1: two tasks learned by one network or by two", said))


def _line(axes: Any, result: ToyResult, model: Model, task: Literal["l_t1", "l_t2"]) -> None:
    cells = result.of(model)
    color = COLORS[0 if model == "dual" else 1]
    sigmas = [outcome.cell.sigma for outcome in cells]
    points = [mean_and_error(getattr(outcome, task)) for outcome in cells]
    axes.plot(sigmas, [mean for mean, _ in points], color=color, marker=".", label=model)
    # A logarithmic axis has no place for a band that reaches 0.
    low = [max(mean - error, mean / 100) for mean, error in points]
    high = [mean + error for mean, error in points]
    axes.fill_between(sigmas, low, high, color=color, alpha=0.2, lw=0)
