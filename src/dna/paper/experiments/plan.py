"""What an experiment of the paper is: arms over games and seeds, at one of three scales.

`smoke` shows that the wiring holds, in seconds. `small` is for one machine: MinAtar stands for
the Atari games (a proxy, and said to be one wherever it is shown). `paper` is as published. A
run is named by the digest of its configuration and seed, so a run that two figures need is
trained once, and whatever is finished stays finished.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dna.config import Config
from dna.config.overrides import digest

if TYPE_CHECKING:
    from dna.paper.claims.verdicts import Finding
    from dna.paper.experiments.results import Results

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "small", "paper")


@dataclass(frozen=True)
class Arm:
    """One line of a figure: a preset of the paper with changes, and what stands for it."""

    name: str
    preset: str  # `family.name`, at the paper's size
    algo: str = "dna"  # of the proxy's family
    changes: Mapping[str, Any] = field(default_factory=dict)  # at every scale
    paper: Mapping[str, Any] = field(default_factory=dict)  # at the paper's size only
    small: Mapping[str, Any] = field(default_factory=dict)  # of the proxy only
    shortened: Mapping[str, Any] = field(default_factory=dict)  # at small scale, any games
    proxy_note: str = ""  # what must be said where something else is trained under this name
    without: str | None = None  # a phase that is left out


@dataclass(frozen=True)
class World:
    """A set of environments, and what stands for it at smaller scales."""

    name: str
    envs: Mapping[Scale, tuple[str, ...]]
    interactions: Mapping[Scale, int]
    proxy: bool  # whether `small` plays other games than the paper
    #: Environment → score, put together; of numbers, or of arrays element by element.
    score: Callable[[Mapping[str, Any]], Any]
    axis: str  # what that number is called at the paper's size
    # How games are put together where each counts the same, so that games can be drawn anew;
    # None: each has its own weight.
    alike: Literal["mean", "median"] | None = None
    digits: int = 1  # of a score after the point
    total: bool = True  # whether one number for all environments is shown


@dataclass(frozen=True)
class Study:
    """Arms on the same environments with the same seeds: a panel of a figure."""

    name: str
    arms: tuple[Arm, ...]
    world: World
    seeds: int  # of the paper
    small_seeds: int | None = None  # None: three, or as many as the paper has


#: Results → (status, effect, note) of one claim.
Check = Callable[["Results"], "Finding"]


#: Results, the experiment's folder, where to say what is going on → a JSON value.
Extra = Callable[["Results", Path, Callable[[str], None]], Any]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper, or several that share their runs."""

    name: str
    alias: str
    title: str
    covers: tuple[str, ...]  # labels of the paper's figures and tables
    studies: tuple[Study, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)  # claim → how it is tested
    extra: Mapping[str, Extra] = field(default_factory=dict)  # measured after the runs


@dataclass(frozen=True)
class Planned:
    """One run of an experiment."""

    study: str
    arm: str
    env: str
    seed: int
    config: Config

    @property
    def digest(self) -> str:
        """Its name."""
        return digest(self.config, self.seed)


@dataclass(frozen=True)
class Limits:
    """What the user wants less, or more, of than the scale says; None: as it says."""

    seeds: int | None = None
    interactions: int | None = None

    def __str__(self) -> str:
        """For names of folders: empty where nothing is cut."""
        seeds = f"-{self.seeds}seeds" if self.seeds else ""
        return seeds + (f"-{self.interactions}" if self.interactions else "")

    @property
    def words(self) -> str:
        """For notes."""
        parts = [f"{self.seeds} seed{'s' * (self.seeds > 1)}"] if self.seeds else []
        parts += [f"{self.interactions:,} interactions"] if self.interactions else []
        return "with " + " of ".join(parts) if parts else ""


def cut(experiment: Experiment, scale: Scale, limits: Limits) -> Limits:
    """What is asked for, if it is anything else than the scale has."""
    sizes = [(seeds_of(s, scale), s.world.interactions[scale]) for s in experiment.studies]
    usual = sizes and all(
        limits.seeds in (None, seeds) and limits.interactions in (None, length)
        for seeds, length in sizes
    )
    return Limits() if usual else limits


def planned(
    experiment: Experiment, scale: Scale, limits: Limits | None = None
) -> list[Planned]:
    """Every run of an experiment, in the order in which it is best trained: seed by seed.

    So an experiment that is stopped early has all arms, with fewer seeds.
    """
    from dna.paper.experiments.sizes import configure

    limits = limits or Limits()
    found: list[Planned] = []
    for study in experiment.studies:
        length = limits.interactions or study.world.interactions[scale]
        for seed in range(limits.seeds or seeds_of(study, scale)):
            for env in study.world.envs[scale]:
                for arm in study.arms:
                    config = configure(arm, env, scale, length)
                    found.append(Planned(study.name, arm.name, env, seed, config))
    return sorted(found, key=lambda run: run.seed)


def seeds_of(study: Study, scale: Scale) -> int:
    """How many seeds a study has."""
    small = study.small_seeds or min(3, study.seeds)
    return {"smoke": 1, "small": small}.get(scale, study.seeds)


def is_proxy(experiment: Experiment, scale: Scale) -> bool:
    """Whether other games than the paper's are played."""
    return scale != "paper" and any(study.world.proxy for study in experiment.studies)
