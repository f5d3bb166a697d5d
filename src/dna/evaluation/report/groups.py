"""Runs that belong together: the seeds of one configuration, under a name and a color."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dna.config.overrides import differences, digest
from dna.evaluation.report.data import RunData
from dna.evaluation.report.series import (
    MOST,
    Curve,
    Mean,
    curve,
    mean_of,
    room,
    standard_error,
    thin,
)
from dna.evaluation.report.svg import Line


@dataclass(frozen=True)
class Group:
    """Seeds of one configuration, or an arm of an experiment."""

    name: str
    color: int
    runs: tuple[RunData, ...]

    @property
    def scores(self) -> list[float]:
        """Each seed's, where an episode has ended."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def mean_score(self) -> tuple[float | None, float | None]:
        """(mean over seeds, its standard error)."""
        found = self.scores
        return (sum(found) / len(found) if found else None), standard_error(found)


def by_environment(runs: Iterable[RunData]) -> dict[str, list[Group]]:
    """Groups of each environment; a name keeps its color throughout the page."""
    found: dict[str, dict[str, list[RunData]]] = {}
    for run in runs:
        same = found.setdefault(run.environment, {})
        same.setdefault(digest(run.config), []).append(run)
    colors: dict[str, int] = {}
    groups: dict[str, list[Group]] = {}
    for environment, same in found.items():
        for name, members in zip(_names(list(same.values())), same.values(), strict=True):
            color = colors.setdefault(name, len(colors))
            members.sort(key=lambda run: run.seed)
            groups.setdefault(environment, []).append(Group(name, color, tuple(members)))
    return groups


def _names(groups: list[list[RunData]]) -> list[str]:
    """The algorithm; where two share it, also what sets them apart."""
    configs = [members[0].config for members in groups]
    names = [config.algorithm.upper() for config in configs]
    return [
        name if names.count(name) == 1 else f"{name} {_apart(configs, i)}"
        for i, name in enumerate(names)
    ]


def _apart(configs: list[Any], index: int) -> str:
    """`policy.sgd.epochs=1`, if that is short; else the configuration's digest."""
    own = configs[index]
    rivals = [c for i, c in enumerate(configs) if i != index and c.algorithm == own.algorithm]
    keys = {key: pair[0] for rival in rivals for key, pair in differences(own, rival).items()}
    text = " ".join(f"{key}={value}" for key, value in keys.items())
    return text if 0 < len(text) <= 60 else digest(own)


def curve_of(run: RunData, key: str, *, log: bool = False) -> Curve:
    """A metric of a run over its interactions."""
    return curve(*run.metrics.when_due(key), log=log)


def lines_of(
    groups: list[Group], key: str, *, log: bool = False, most: int = MOST
) -> list[Line]:
    """A metric of several groups: a thin line per seed, the mean with its standard error."""
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
    return [*seeds, _mean_line(group, mean, len(known), log)]


def _mean_line(group: Group, mean: Mean, seeds: int, log: bool) -> Line:
    kind = "geometric mean" if log else "mean"
    note = f"{kind} of {seeds} seeds"
    return Line(group.name, mean.curve, group.color, band=(mean.low, mean.high), note=note)
