"""What an experiment of the paper consists of, and the runs that it needs at each scale.

`smoke` exercises the wiring in seconds. `small` fits one machine: MinAtar stands in for the
Atari games, and results obtained that way are labelled as a proxy. `paper` is as published. A
run is identified by the digest of its configuration and seed, so a run that two figures share
is trained once and never repeated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dna.config import Config
from dna.config.overrides import digest, tweak, without
from dna.config.presets import family, preset

if TYPE_CHECKING:
    from dna.paper.claims.verdicts import Verdict
    from dna.paper.results import Results

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "small", "paper")
#: Settings that a family reduces in short runs: 256 agents of Procgen fill rollouts of 65,536.
SMALLER: dict[str, dict[str, Any]] = {"procgen": {"agents": 32}}
#: Size of a rollout in a smoke run.
SMOKE_HORIZON = 16
SMOKE_AGENTS = 8


@dataclass(frozen=True)
class Arm:
    """One line of a figure: a preset of the paper with changes, and its proxy."""

    name: str
    preset: str  # `family.name`, at the paper's size
    algo: str = "dna"  # which preset of the proxy's family to start from
    changes: Mapping[str, Any] = field(default_factory=dict)  # at every scale
    paper: Mapping[str, Any] = field(default_factory=dict)  # on the paper's games only
    small: Mapping[str, Any] = field(default_factory=dict)  # on the proxy only
    shortened: Mapping[str, Any] = field(default_factory=dict)  # at small scale, any games
    proxy_note: str = ""  # caption needed where the proxy trains something else
    without: str | None = None  # a phase to leave out


@dataclass(frozen=True)
class Suite:
    """A set of environments at each scale, and how their scores are aggregated."""

    name: str
    envs: Mapping[Scale, tuple[str, ...]]
    interactions: Mapping[Scale, int]
    proxy: bool  # whether `small` plays other games than the paper
    #: Environment → score, aggregated; works on numbers and, element by element, on arrays.
    score: Callable[[Mapping[str, Any]], Any]
    axis: str  # name of the aggregated score at the paper's size
    #: How games of equal weight are aggregated, so that games can be resampled; None: each game
    #: has its own weight.
    alike: Literal["mean", "median"] | None = None
    digits: int = 1  # decimals of a printed score
    total: bool = True  # whether one number for all environments is shown


@dataclass(frozen=True)
class ArmStudy:
    """Arms compared on the same environments with the same seeds: one panel of a figure."""

    name: str
    arms: tuple[Arm, ...]
    suite: Suite
    seeds: int  # in the paper
    small_seeds: int | None = None  # None: three, or as many as the paper if it has fewer


#: Judges one claim on the results of its experiment.
Check = Callable[["Results"], "Verdict"]
#: (results, the experiment's folder, progress callback) → a JSON value measured after the runs.
Extra = Callable[["Results", Path, Callable[[str], None]], Any]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper, or several that share their runs."""

    name: str
    alias: str
    title: str
    covers: tuple[str, ...]  # labels of the paper's figures and tables
    studies: tuple[ArmStudy, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)  # claim → its test
    extra: Mapping[str, Extra] = field(default_factory=dict)  # measured after the runs


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment."""

    study: str
    arm: str
    env: str
    seed: int
    config: Config

    @property
    def digest(self) -> str:
        """Name of the run's folder."""
        return digest(self.config, self.seed)


@dataclass(frozen=True)
class Limits:
    """Seeds and interactions requested by the user; None: as the scale says."""

    seeds: int | None = None
    interactions: int | None = None

    def __str__(self) -> str:
        """Suffix of folder names; empty without limits."""
        seeds = f"-{self.seeds}seeds" if self.seeds else ""
        return seeds + (f"-{self.interactions}" if self.interactions else "")

    @property
    def words(self) -> str:
        """Text for notes and captions."""
        parts = [f"{self.seeds} seed{'s' * (self.seeds > 1)}"] if self.seeds else []
        parts += [f"{self.interactions:,} interactions"] if self.interactions else []
        return "with " + " of ".join(parts) if parts else ""


def cut(experiment: Experiment, scale: Scale, limits: Limits) -> Limits:
    """Drop limits that only repeat what the scale has anyway."""
    sizes = [(seeds_of(s, scale), s.suite.interactions[scale]) for s in experiment.studies]
    usual = sizes and all(
        limits.seeds in (None, seeds) and limits.interactions in (None, length)
        for seeds, length in sizes
    )
    return Limits() if usual else limits


def planned(
    experiment: Experiment, scale: Scale, limits: Limits | None = None
) -> list[PlannedRun]:
    """Return all runs of an experiment, seed by seed.

    An experiment that is stopped early thus has all arms, with fewer seeds.
    """
    limits = limits or Limits()
    found: list[PlannedRun] = []
    for study in experiment.studies:
        length = limits.interactions or study.suite.interactions[scale]
        for seed in range(limits.seeds or seeds_of(study, scale)):
            for env in study.suite.envs[scale]:
                for arm in study.arms:
                    config = configure(arm, env, scale, length)
                    found.append(PlannedRun(study.name, arm.name, env, seed, config))
    return sorted(found, key=lambda run: run.seed)


def seeds_of(study: ArmStudy, scale: Scale) -> int:
    """Return the number of seeds at a scale."""
    small = study.small_seeds or min(3, study.seeds)
    return {"smoke": 1, "small": small}.get(scale, study.seeds)


def is_proxy(experiment: Experiment, scale: Scale) -> bool:
    """Return whether other games than the paper's are played."""
    return scale != "paper" and any(study.suite.proxy for study in experiment.studies)


def configure(arm: Arm, env: str, scale: Scale, interactions: int) -> Config:
    """Build the configuration of an arm for one environment."""
    name = family(env)
    proxy = name.startswith("minatar")
    changes: dict[str, Any] = dict(arm.changes) | dict(arm.small if proxy else arm.paper)
    # On the paper's games an arm is the paper's preset, on the proxy that of its algorithm.
    config = preset(f"{name}.{arm.algo}" if proxy else arm.preset)
    if arm.without is not None:
        config = without(config, arm.without)
    if scale == "small":
        changes = SMALLER.get(name, {}) | changes | dict(arm.shortened)
    if scale == "smoke":
        config = _shrunk(tweak(config, **changes))
        changes = {}
    return tweak(config, **changes | {"env.id": env, "interactions": interactions})


def _shrunk(config: Config) -> Config:
    """Shrink rollouts to about a hundred rows, with mini-batches in proportion."""
    agents = min(SMOKE_AGENTS, config.agents)
    horizon = min(SMOKE_HORIZON, config.horizon)
    if config.agents == 1:
        horizon = SMOKE_HORIZON * SMOKE_AGENTS
    batch = horizon * agents
    changes: dict[str, Any] = {"horizon": horizon, "agents": agents, "warm_up": None}
    for phase in config.phases:
        wanted = max(2, phase.sgd.minibatch * batch // config.batch)
        fitting = [n for n in range(2, wanted + 1) if batch % n == 0]
        changes[f"{phase.name}.sgd.minibatch"] = max(fitting)
        if phase.reads == "replay":
            changes[f"{phase.name}.every"] = 2
    if config.noise is not None:
        changes["noise.b_small"] = 8
        changes["noise.samples"] = 4
        changes["noise.every"] = 1
        changes["noise.b_big"] = None
    return tweak(config, **changes)
