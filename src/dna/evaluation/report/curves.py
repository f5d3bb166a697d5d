"""Sections of the page with charts of the metrics: learning curves, phases, gradient noise."""

from collections.abc import Iterable

import numpy as np

from dna.evaluation.plots import random_score
from dna.evaluation.report.charts import (
    LARGEST,
    MOST,
    Curve,
    Line,
    Look,
    chart,
    curve,
    envelope,
    mean_of,
    places,
    room,
    thin,
)
from dna.evaluation.report.data import Array, Group, RunData
from dna.evaluation.report.markup import Html, PageSection, el, folded, join

#: Points of a curve in a small chart.
SMALL = 200
#: Metrics of a phase that matter only when something is wrong.
FOLDED = ("gradient_norm", "learning_rate")
#: Captions of the metrics.
ABOUT = {
    "score": "mean of the last 100 episodes",
    "length": "of the last 100 episodes, in steps",
    "explained_variance": "of the returns, by V",
    "loss": "what the phase minimizes",
    "approx_kl": "old to new policy",
    "clip_fraction": "ratios clipped",
    "entropy": "of the policy, in nats",
    "value_loss": "of the value estimate",
    "policy_loss": "of the policy",
    "gradient_norm": "before clipping",
    "learning_rate": "of the phase's Adam",
    "kl": "from the policy before the phase",
}


def curve_of(run: RunData, key: str, *, log: bool = False) -> Curve:
    """Return a metric of a run over its interactions."""
    return curve(*run.metrics.when_due(key), log=log)


def lines_of(
    groups: list[Group], key: str, *, log: bool = False, most: int = MOST
) -> list[Line]:
    """Return the lines of a metric: one per seed, and each group's mean and standard error."""
    points = room(sum(len(group.runs) + 3 for group in groups), most)
    return [line for group in groups for line in _lines(group, key, log, points)]


def _lines(group: Group, key: str, log: bool, points: int) -> list[Line]:
    curves = [(run.seed, curve_of(run, key, log=log)) for run in group.runs]
    known = [(seed, one) for seed, one in curves if not one.empty]
    if not known:
        return []
    if len(group.runs) == 1:
        (seed, only), *_ = known
        return [Line(group.name, thin(only, points), group.color, note=f"seed {seed}")]
    seeds = [
        Line(f"{group.name} seed {seed}", thin(one, points), group.color, "seed")
        for seed, one in known
    ]
    mean = mean_of([one for _, one in known], points, log=log) if len(known) > 1 else None
    if mean is None or mean.curve.empty:
        return [Line(line.name, line.curve, line.color) for line in seeds]
    note = f"{'geometric mean' if log else 'mean'} of {len(known)} seeds"
    band = (mean.low, mean.high)
    return [*seeds, Line(group.name, mean.curve, group.color, band=band, note=note)]


def learning(groups: dict[str, list[Group]]) -> PageSection | None:
    """Show the score over interactions, one chart per environment."""
    parts = [_learning(env, found, len(groups) == 1) for env, found in groups.items()]
    body = [part for part in parts if part]
    if not body:
        return None
    several = any(len(g.runs) > 1 for found in groups.values() for g in found)
    note = "Thin lines are seeds, thick lines their means, bands the standard errors."
    lead = el("p", note, class_="lead") if several else ""
    return PageSection("learning", "Learning curves", join([lead, *body]))


def _learning(env: str, groups: list[Group], alone: bool) -> Html:
    lines = lines_of(groups, "score")
    reference = _random([run for group in groups for run in group.runs])
    if reference is not None:
        at = Curve(np.zeros(1), np.full(1, reference))
        lines.append(Line("random agent", at, kind="reference"))
    title = "score" if alone else env
    about = ABOUT["score"] if alone else f"score, {ABOUT['score']}"
    big = chart(lines, Look(title, about, wide=True, x_name="interactions"))
    return join([big, _small(groups, ["length", "returns/explained_variance"])])


def _random(runs: Iterable[RunData]) -> float | None:
    known = (random_score(run.folder) for run in runs)
    return next((score for score in known if score is not None), None)


def _small(groups: list[Group], keys: Iterable[str]) -> Html:
    """Return small charts side by side."""
    charts = []
    for key in keys:
        look = Look(key, ABOUT.get(key.rpartition("/")[2], ""))
        charts.append(chart(lines_of(groups, key, most=SMALL), look))
    shown = [one for one in charts if one]
    return el("div", *shown, class_="grid-of-charts") if shown else Html("")


def phases(groups: dict[str, list[Group]]) -> PageSection | None:
    """Show the loss and the other metrics of every phase."""
    parts: list[Html] = []
    for env, found in groups.items():
        keys = _phase_metrics(found)
        folded_keys = [key for key in keys if key.rpartition("/")[2] in FOLDED]
        often = _small(found, [key for key in keys if key not in folded_keys])
        rest = _small(found, folded_keys)
        if often or rest:
            head = el("h3", env) if len(groups) > 1 else Html("")
            more = folded("Gradient norms and learning rates", rest) if rest else Html("")
            parts += [head, often, more]
    return PageSection("phases", "Phases", join(parts)) if parts else None


def _phase_metrics(groups: list[Group]) -> list[str]:
    """Return the names of all metrics, phase by phase, each loss first."""
    names = dict.fromkeys(p.name for group in groups for p in group.runs[0].config.phases)
    runs = [run for group in groups for run in group.runs]
    found: list[str] = []
    for name in names:
        keys = dict.fromkeys(key for run in runs for key in run.metrics.names(f"{name}/"))
        found += sorted(keys, key=lambda key: not key.endswith("/loss"))
    return found


def noise(groups: dict[str, list[Group]]) -> PageSection | None:
    """Show σ and B_simple of every phase, if `--noise` measured them."""
    parts: list[Html] = []
    for env, found in groups.items():
        for group in found:
            charts = [one for one in (_sigma(group), _b_simple(group)) if one]
            if charts:
                both = len(groups) > 1 or len(found) > 1
                head = [el("h3", f"{group.name} on {env}")] if both else []
                parts += [*head, el("div", *charts, class_="grid-of-charts two")]
    if not parts:
        return None
    note = (
        "σ² = B_simple is the mini-batch size at which noise and gradient are equally large. A "
        "gap is a measurement in which the noise hid the gradient or was too small to measure."
    )
    if any(len(group.runs) == 1 for found in groups.values() for group in found):
        note += " An interval without an upper or lower bound reaches the edge of the chart."
    return PageSection("noise", "Gradient noise", join([el("p", note, class_="lead"), *parts]))


def _sigma(group: Group) -> Html:
    """Chart σ of every phase."""
    names = [phase.name for phase in group.runs[0].config.phases]
    as_phases = [Group(name, i, group.runs) for i, name in enumerate(names)]
    lines = [
        line
        for one in as_phases
        for line in lines_of([one], f"noise/{one.name}/sigma", log=True, most=SMALL)
    ]
    return chart(lines, Look("noise/…/sigma", "noise scale by phase", log=True))


def _b_simple(group: Group) -> Html:
    """Chart B_simple of every phase, for a single run with its interval; dashed: batches."""
    lines: list[Line] = []
    for i, phase in enumerate(group.runs[0].config.phases):
        key = f"noise/{phase.name}/b_simple"
        if len(group.runs) > 1:
            found = lines_of([Group(phase.name, i, group.runs)], key, log=True, most=SMALL)
        else:
            found = _with_interval(phase.name, i, group.runs[0], key)
        batch = Curve(np.zeros(1), np.full(1, float(phase.sgd.minibatch)))
        lines += found
        if found:
            lines.append(Line(f"{phase.name}.sgd.minibatch", batch, i, "reference"))
    about = "mini-batches dashed" + ("; band: 95 % interval" if len(group.runs) == 1 else "")
    return chart(lines, Look("noise/…/b_simple", about, log=True))


def _with_interval(name: str, color: int, run: RunData, key: str) -> list[Line]:
    """Return a single run's curve; its interval may be known even where it has no value."""
    middle = curve_of(run, key, log=True)
    keep = places(middle.y, SMALL)
    band = envelope(*_interval(run, key), keep)
    line = Line(name, Curve(middle.x[keep], middle.y[keep]), color, band=band)
    return [] if line.empty else [line]


def _interval(run: RunData, key: str) -> tuple[Array, Array]:
    """Return an interval's ends: NaN if not measured, 0 or ∞ if unbounded."""
    low = run.metrics.when_due(f"{key}_low")[1]
    high = run.metrics.when_due(f"{key}_high")[1]
    known = low < LARGEST  # NaN is not
    low = np.where(low > 1 / LARGEST, low, 0.0)
    high = np.where(high < LARGEST, high, np.inf)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)
