"""The finished runs of an experiment: curves, final scores and logged metrics, by arm.

A failed run only loses its own data point, not the figure: arms are compared over the
environments that they have finished, and whatever is missing is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common import json_lines
from dna.common.errors import StorageFailure
from dna.envs.benchmark_scores import final_average, without_gaps
from dna.paper.plan import (
    SOLVED,
    ArmStudy,
    Experiment,
    Limits,
    PlannedRun,
    Scale,
    relative,
    seeds_of,
)
from dna.runs.folder import RunFolder

Array = npt.NDArray[np.float64]
#: Note on claims that were tested on games other than the paper's.
PROXY = "proxy"
MUJOCO_VERSION = "MuJoCo's tasks are v5, the paper's v2"
#: Points of the grid on which curves are compared.
GRID = 200


@dataclass(frozen=True)
class RunResult:
    """One finished run."""

    run: PlannedRun
    folder: Path
    rows: tuple[dict[str, Any], ...]  # metrics.jsonl
    seconds: float | None  # of training, without compilation

    @cached_property
    def curve(self) -> tuple[Array, Array]:
        """(interactions, score), with gaps filled."""
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
    """What is finished of an experiment, out of what was planned."""

    experiment: Experiment
    scale: Scale
    outcomes: tuple[RunResult, ...]
    missing: int = 0  # runs that are not finished
    limits: Limits = field(default_factory=Limits)
    extra: Mapping[str, Any] = field(default_factory=dict)  # measured after the runs
    damaged: tuple[tuple[PlannedRun, str], ...] = ()  # finished but unreadable, and why

    def study(self, name: str) -> ArmStudy:
        """Return a study by name."""
        return next(study for study in self.experiment.studies if study.name == name)

    def planned_envs(self, study: str) -> tuple[str, ...]:
        """Environments of a study at this scale."""
        return self.study(study).suite.envs[self.scale]

    def length(self, study: str) -> int:
        """Interactions of each run of a study."""
        return self.limits.interactions or self.study(study).suite.interactions[self.scale]

    def of(self, study: str, arm: str | None = None, env: str | None = None) -> list[RunResult]:
        """Finished runs that have a score, of all arms and environments or of one."""
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
        return [
            env
            for env in self.planned_envs(study)
            if all(self.of(study, arm, env) for arm in arms)
        ]

    def any_envs(self, study: str) -> list[str]:
        """Environments in which any arm has finished a run."""
        return [env for env in self.planned_envs(study) if self.of(study, env=env)]

    def whole(self, study: str) -> bool:
        """Return whether every arm has finished every environment."""
        return len(self.envs(study)) == len(self.planned_envs(study))

    def complete_arms(self, study: str) -> list[str]:
        """Arms that have finished every environment, and hence have a benchmark score."""
        names = [arm.name for arm in self.study(study).arms]
        return [name for name in names if self._complete(study, name)]

    def _complete(self, study: str, arm: str) -> bool:
        return all(self.of(study, arm, env) for env in self.planned_envs(study))

    def scores(self, study: str, arm: str) -> dict[str, list[float]]:
        """Environment → final scores, seed by seed, whatever other arms have finished."""
        return {
            env: [one.score for one in found if one.score is not None]
            for env in self.planned_envs(study)
            if (found := self.of(study, arm, env))
        }

    def normalized(self, study: str, arm: str) -> dict[str, list[float]]:
        """Environment → final scores on a scale that games share."""
        table = self.scores(study, arm)
        return {env: [relative(env, score) for score in found] for env, found in table.items()}

    def total(self, study: str, arm: str) -> float | None:
        """The suite's score from means over seeds; None unless every environment is there."""
        if not self._complete(study, arm):
            return None
        means = {env: float(np.mean(found)) for env, found in self.scores(study, arm).items()}
        return float(self.study(study).suite.score(means))

    def curves(self, study: str, arm: str, env: str) -> tuple[Array, Array]:
        """(grid of interactions, scores [seeds, grid]) of an arm in an environment."""
        curves = [one.curve for one in self.of(study, arm, env)]
        if not curves:
            return np.empty(0), np.empty((0, 0))
        grid = np.linspace(max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), GRID)
        return grid, np.stack([np.interp(grid, x, y) for x, y in curves])

    def total_curve(self, study: str, arm: str) -> tuple[Array, Array]:
        """(grid, the suite's score [seeds, grid]): games are aggregated seed by seed."""
        if not self._complete(study, arm):
            return np.empty(0), np.empty((0, 0))
        suite = self.study(study).suite
        parts = {env: self.curves(study, arm, env) for env in self.planned_envs(study)}
        seeds = min(len(scores) for _, scores in parts.values())
        grid = np.linspace(
            max(x[0] for x, _ in parts.values()), min(x[-1] for x, _ in parts.values()), GRID
        )
        out = np.empty((seeds, GRID))
        for seed in range(seeds):
            lines = {e: np.interp(grid, x, y[seed]) for e, (x, y) in parts.items()}
            out[seed] = suite.score(lines)
        return grid, out

    # --- What a reader must be told ---------------------------------------------------------

    def short_of(self, study: str) -> str:
        """Caveats of a claim on a study: a proxy, or what the paper had more of."""
        suite = self.study(study).suite
        if suite.proxy and self.scale != "paper":
            return PROXY
        other = MUJOCO_VERSION if set(suite.envs[self.scale]) & set(SOLVED) else ""
        return "; ".join(filter(None, (self.shortened_in(study), other)))

    def shortened_in(self, study: str) -> str:
        """`shortened: 300,000 of 50,000,000 interactions`; empty for a proxy."""
        one = self.study(study)
        if one.suite.proxy and self.scale != "paper":
            return ""
        length = self.length(study)
        whole_length = one.suite.interactions["paper"]
        envs = len(one.suite.envs[self.scale])
        whole_envs = len(one.suite.envs["paper"])
        parts = []
        if length < whole_length:
            parts.append(f"{length:,} of {whole_length:,} interactions")
        if envs < whole_envs:
            parts.append(f"{envs:,} of {whole_envs:,} environments")
        few, many = self._seeds(one)
        if few < one.seeds:
            count = f"{few}" if few == many else f"{few} to {many}"
            parts.append(f"{count} of {one.seeds} seeds")
        return "shortened: " + ", ".join(parts) if parts else ""

    def _seeds(self, study: ArmStudy) -> tuple[int, int]:
        """Fewest and most finished seeds where there are any; the planned number before."""
        found = [
            len(self.of(study.name, arm.name, env))
            for arm in study.arms
            for env in study.suite.envs[self.scale]
        ]
        planned = self.limits.seeds or seeds_of(study, self.scale)
        counts = [count for count in found if count] or [planned]
        return min(counts), max(counts)

    def unfinished(self, study: str | None = None) -> str:
        """`not finished: PPG (3 of 15 runs), …`; empty where every run is."""
        done = {(o.run.study, o.run.arm, o.run.env, o.run.seed) for o in self.outcomes}
        wanted: dict[tuple[str, str], list[bool]] = {}
        for one in self.experiment.studies:
            seeds = range(self.limits.seeds or seeds_of(one, self.scale))
            for arm in one.arms if study in (None, one.name) else ():
                wanted[one.name, arm.name] = [
                    (one.name, arm.name, env, seed) in done
                    for env in one.suite.envs[self.scale]
                    for seed in seeds
                ]
        several = len({name for name, _ in wanted}) > 1
        words = [
            f"{f'{name}: ' if several else ''}{arm} ({there.count(False)} of {len(there)} runs)"
            for (name, arm), there in wanted.items()
            if not all(there)
        ]
        return f"not finished: {', '.join(words)}" if words else ""


def collect(
    experiment: Experiment,
    scale: Scale,
    runs: Sequence[PlannedRun],
    root: Path,
    limits: Limits | None = None,
) -> Results:
    """Read the finished ones of these runs; an unreadable run is recorded as damaged."""
    found = []
    damaged = {}
    for run in runs:
        try:
            outcome = _read_run(run, root / run.digest)
        except StorageFailure as error:
            damaged[run.digest] = run, str(error)
            continue
        if outcome is not None:
            found.append(outcome)
    missing = {run.digest for run in runs} - {one.run.digest for one in found}
    return Results(
        experiment,
        scale,
        tuple(found),
        len(missing),
        limits or Limits(),
        damaged=tuple(damaged.values()),
    )


def _read_run(run: PlannedRun, path: Path) -> RunResult | None:
    """Read a finished run; None if it is not finished."""
    result = RunFolder(path).result()
    if result is None:
        return None
    metrics = path / "metrics.jsonl"
    found = tuple(json_lines.rows(metrics, "score"))
    if not found:
        raise StorageFailure(f"{metrics}: is empty")
    rate = result.get("interactions_per_second") or 0.0
    seconds = result["interactions"] / rate if rate else None
    return RunResult(run, path, found, seconds)
