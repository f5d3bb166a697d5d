"""What the runs of an experiment came to: curves, final scores and logged metrics, by arm."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import StorageFailure
from dna.common.storage import read
from dna.envs.benchmark_scores import final_average, without_gaps
from dna.paper.experiments.plan import Experiment, Limits, Planned, Scale, Study, seeds_of
from dna.paper.experiments.worlds import SOLVED, relative
from dna.runs.folder import RunFolder

Array = npt.NDArray[np.float64]
#: The mark of claims on other games than the paper's.
PROXY = "proxy"
MUJOCO = "MuJoCo's tasks are v5, the paper's v2"
#: Points of a curve that arms are compared on.
GRID = 200


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    run: Planned
    folder: Path
    rows: tuple[dict[str, Any], ...]  # metrics.jsonl
    seconds: float | None  # of training, compiling apart

    @cached_property
    def curve(self) -> tuple[Array, Array]:
        """(interactions, score), with a value everywhere."""
        x = np.array([row["interactions"] for row in self.rows], dtype=np.float64)
        return x, np.array(without_gaps([row["score"] for row in self.rows]))

    @cached_property
    def score(self) -> float | None:
        """Mean of the last twentieth of the logged scores (appendix M)."""
        return final_average([row["score"] for row in self.rows])

    def metric(self, name: str) -> Array:
        """[points, 2] of interactions and a metric, where it was logged."""
        found = [(row["interactions"], row[name]) for row in self.rows if name in row]
        return np.array(found, dtype=np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class Results:
    """All that is finished of an experiment, and what was planned of it."""

    experiment: Experiment
    scale: Scale
    outcomes: tuple[Outcome, ...]
    missing: int = 0  # runs that are not finished
    #: What the user wanted less (or more) of than the scale says.
    limits: Limits = field(default_factory=Limits)
    extra: Mapping[str, Any] = field(default_factory=dict)  # measured after the runs
    damaged: tuple[tuple[Planned, str], ...] = ()  # finished, but not readable, and why

    def study(self, name: str) -> Study:
        """By name."""
        return next(study for study in self.experiment.studies if study.name == name)

    def of(self, study: str, arm: str | None = None, env: str | None = None) -> list[Outcome]:
        """The finished runs of an arm, with a score."""
        return [
            outcome
            for outcome in self.outcomes
            if outcome.run.study == study
            and arm in (None, outcome.run.arm)
            and env in (None, outcome.run.env)
            and outcome.score is not None
        ]

    def envs(self, study: str) -> list[str]:
        """Environments that every arm of the study has finished."""
        arms = [arm.name for arm in self.study(study).arms]
        every = self.study(study).world.envs[self.scale]
        return [env for env in every if all(self.of(study, arm, env) for arm in arms)]

    def table(self, study: str, arm: str) -> dict[str, list[float]]:
        """Environment → scores, seed by seed, of environments that all arms have."""
        return {
            env: [one.score for one in self.of(study, arm, env) if one.score is not None]
            for env in self.envs(study)
        }

    def whole(self, study: str) -> bool:
        """Whether every arm has finished every environment: a benchmark's score needs all."""
        return len(self.envs(study)) == len(self.study(study).world.envs[self.scale])

    def total(self, study: str, arm: str) -> float | None:
        """The world's score of the arm, from its means over seeds; None of a part of it."""
        if not self.whole(study):
            return None
        means = {env: float(np.mean(found)) for env, found in self.table(study, arm).items()}
        return float(self.study(study).world.score(means))

    def short_of(self, study: str) -> str:
        """What must be said of a claim on a study: that it is a proxy, or what it lacks."""
        world = self.study(study).world
        if world.proxy and self.scale != "paper":
            return PROXY
        other = MUJOCO if set(world.envs[self.scale]) & set(SOLVED) else ""
        return "; ".join(filter(None, (self.shortened_in(study), other)))

    def shortened_in(self, study: str) -> str:
        """`shortened: 300,000 of 50,000,000 interactions`; a proxy is called that instead."""
        one = self.study(study)
        if one.world.proxy and self.scale != "paper":
            return ""
        sizes = (
            (
                self.limits.interactions or one.world.interactions[self.scale],
                one.world.interactions["paper"],
                "interactions",
            ),
            (len(one.world.envs[self.scale]), len(one.world.envs["paper"]), "environments"),
        )
        parts = [
            f"{ours:,} of {theirs:,} {what}" for ours, theirs, what in sizes if ours < theirs
        ]
        few, many = self._seeds(one)
        if few < one.seeds:
            count = f"{few}" if few == many else f"{few} to {many}"
            parts.append(f"{count} of {one.seeds} seeds")
        return "shortened: " + ", ".join(parts) if parts else ""

    def _seeds(self, study: Study) -> tuple[int, int]:
        """Fewest and most that arms have finished where they have any; planned ones before."""
        envs = study.world.envs[self.scale]
        found = [len(self.of(study.name, arm.name, env)) for arm in study.arms for env in envs]
        planned = self.limits.seeds or seeds_of(study, self.scale)
        counts = [count for count in found if count] or [planned]
        return min(counts), max(counts)

    def curves(self, study: str, arm: str, env: str) -> tuple[Array, Array]:
        """(grid of interactions, scores [seeds, grid]) of an arm in an environment."""
        return on_grid([one.curve for one in self.of(study, arm, env)])

    def total_curve(self, study: str, arm: str) -> tuple[Array, Array]:
        """(grid, the world's score [seeds, grid]): games put together seed by seed."""
        world, parts = self.study(study).world, {}
        for env in self.envs(study):
            parts[env] = self.curves(study, arm, env)
        if not self.whole(study):
            return np.empty(0), np.empty((0, 0))
        seeds = min(len(scores) for _, scores in parts.values())
        grid = np.linspace(
            max(x[0] for x, _ in parts.values()), min(x[-1] for x, _ in parts.values()), GRID
        )
        out = np.empty((seeds, GRID))
        for seed in range(seeds):
            lines = {e: np.interp(grid, x, y[seed]) for e, (x, y) in parts.items()}
            out[seed] = world.score(lines)
        return grid, out


def on_grid(curves: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Curves of several seeds on one grid of interactions, [seeds, grid]."""
    if not curves:
        return np.empty(0), np.empty((0, 0))
    grid = np.linspace(max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), GRID)
    return grid, np.stack([np.interp(grid, x, y) for x, y in curves])


def normalized_scores(results: Results, study: str, arm: str) -> dict[str, list[float]]:
    """Environment → scores on a scale that games share."""
    table = results.table(study, arm)
    return {env: [relative(env, score) for score in found] for env, found in table.items()}


def collect(
    experiment: Experiment,
    scale: Scale,
    runs: Sequence[Planned],
    root: Path,
    limits: Limits | None = None,
) -> Results:
    """Read what is finished of these runs; one that cannot be read costs its own point only."""
    found, damaged = [], {}
    for run in runs:
        try:
            outcome = outcome_of(run, root / run.digest)
        except StorageFailure as error:
            damaged[run.digest] = run, str(error)
            continue
        found += [outcome] if outcome is not None else []
    missing = {run.digest for run in runs} - {one.run.digest for one in found}
    return Results(
        experiment,
        scale,
        tuple(found),
        len(missing),
        limits or Limits(),
        damaged=tuple(damaged.values()),
    )


def outcome_of(run: Planned, path: Path) -> Outcome | None:
    """A finished run, or None."""
    folder = RunFolder(path)
    result = folder.result()
    if result is None:
        return None
    rows = _rows(path / "metrics.jsonl")
    rate = result.get("interactions_per_second") or 0.0
    seconds = result["interactions"] / rate if rate else None
    return Outcome(run, path, rows, seconds)


def _rows(path: Path) -> tuple[dict[str, Any], ...]:
    try:
        rows = tuple(json.loads(line) for line in read(path).splitlines())
    except ValueError as error:
        raise StorageFailure(f"{path}: a line is damaged") from error
    if not rows:
        raise StorageFailure(f"{path}: is empty")
    return rows
