"""The page's sections that are charts: learning, phases, gradient noise."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dna.evaluation.plots import random_score
from dna.evaluation.report.data import RunData
from dna.evaluation.report.groups import Group, curve_of, lines_of
from dna.evaluation.report.markup import Html, el, folded, join
from dna.evaluation.report.series import LARGEST, Array, Curve, envelope, places
from dna.evaluation.report.svg import Line, Look, chart

#: Points of a curve in a small chart.
SMALL = 200
#: Metrics of a phase that are looked at when something is wrong.
SELDOM = ("gradient_norm", "learning_rate")
#: What metrics mean, for the captions.
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
    "kl": "from the policy before",
}


@dataclass(frozen=True)
class Section:
    """A part of the page; `body` is markup."""

    id: str
    title: str
    body: Html


def learning(groups: dict[str, list[Group]]) -> Section | None:
    """The score over interactions, one chart per environment."""
    parts = [_learning(env, found, len(groups) == 1) for env, found in groups.items()]
    body = [part for part in parts if part]
    if not body:
        return None
    several = any(len(g.runs) > 1 for found in groups.values() for g in found)
    note = "Thin lines are seeds, thick lines their mean, the band its standard error."
    lead = el("p", note, class_="lead") if several else ""
    return Section("learning", "Learning curves", join([lead, *body]))


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
    """Small charts side by side."""
    charts = []
    for key in keys:
        look = Look(key, ABOUT.get(key.rpartition("/")[2], ""))
        charts.append(chart(lines_of(groups, key, most=SMALL), look))
    shown = [one for one in charts if one]
    return el("div", *shown, class_="grid-of-charts") if shown else Html("")


def phases(groups: dict[str, list[Group]]) -> Section | None:
    """Every phase's loss and what it reports beside, phase after phase."""
    parts: list[Html] = []
    for env, found in groups.items():
        keys = _phase_metrics(found)
        seldom = [key for key in keys if key.rpartition("/")[2] in SELDOM]
        often = _small(found, [key for key in keys if key not in seldom])
        rest = _small(found, seldom)
        if often or rest:
            head = el("h3", env) if len(groups) > 1 else Html("")
            more = folded("Gradient norms and learning rates", rest) if rest else Html("")
            parts += [head, often, more]
    return Section("phases", "Phases", join(parts)) if parts else None


def _phase_metrics(groups: list[Group]) -> list[str]:
    """Names of all metrics, in the order of the phases, each loss first."""
    names = dict.fromkeys(p.name for group in groups for p in group.runs[0].config.phases)
    runs = [run for group in groups for run in group.runs]
    found: list[str] = []
    for name in names:
        keys = dict.fromkeys(key for run in runs for key in run.metrics.names(f"{name}/"))
        found += sorted(keys, key=lambda key: not key.endswith("/loss"))
    return found


def noise(groups: dict[str, list[Group]]) -> Section | None:
    """σ and B_simple of every phase, where `--noise` measured them."""
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
        "σ² = B_simple is the mini-batch at which noise and gradient are of one length. A gap "
        "is a measurement in which noise drowned the gradient, or was too small to tell."
    )
    if any(len(group.runs) == 1 for found in groups.values() for group in found):
        note += " An interval without an upper bound, or from zero, reaches the chart's edge."
    return Section("noise", "Gradient noise", join([el("p", note, class_="lead"), *parts]))


def _sigma(group: Group) -> Html:
    """One line per phase; seeds thin."""
    names = [phase.name for phase in group.runs[0].config.phases]
    as_phases = [Group(name, i, group.runs) for i, name in enumerate(names)]
    lines = [
        line
        for one in as_phases
        for line in lines_of([one], f"noise/{one.name}/sigma", log=True, most=SMALL)
    ]
    return chart(lines, Look("noise/…/sigma", "noise scale by phase", log=True))


def _b_simple(group: Group) -> Html:
    """B_simple of every phase, of a single run with its interval; dashed, the mini-batch."""
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
    """A single run's curve; where it has no value, its interval may still say something."""
    middle = curve_of(run, key, log=True)
    keep = places(middle.y, SMALL)
    band = envelope(*_interval(run, key), keep)
    line = Line(name, Curve(middle.x[keep], middle.y[keep]), color, band=band)
    return [] if line.empty else [line]


def _interval(run: RunData, key: str) -> tuple[Array, Array]:
    """Its ends; NaN where none was measured, 0 and ∞ where there is no lower or upper one."""
    low, high = (run.metrics.when_due(f"{key}{end}")[1] for end in ("_low", "_high"))
    known = low < LARGEST  # NaN is not
    low = np.where(low > 1 / LARGEST, low, 0.0)
    high = np.where(high < LARGEST, high, np.inf)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)
