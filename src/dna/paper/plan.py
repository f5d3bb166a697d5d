"""What an experiment of the paper consists of, and the runs that it needs at each scale.

`smoke` exercises the wiring in seconds. `small` fits one machine: MinAtar stands in for the
Atari games, and results obtained that way are labeled as a proxy. `paper` is as published. A
run is identified by the digest of its configuration and seed, so a run that two figures share
is trained once and never repeated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dna.config import Config
from dna.config.overrides import digest, tweak, without
from dna.config.presets import family, preset
from dna.envs import benchmark_scores

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
    proxy: bool  # whether `small` plays games other than the paper's
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
    """Return whether games other than the paper's are played."""
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


ONE_MILLION = 1_000_000
#: 200 million frames.
ATARI_LENGTH = 50_000_000
#: MinAtar's five games stand for Atari-5; three of them, two of which the presets were tuned
#: on, for the validation games on which the paper tuned.
MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
VALIDATION = ("Asterix", "Breakout", "SpaceInvaders")
#: Scores that count as 100 %: round numbers near DNA's score after 0.4 million interactions in
#: an early trial. They only give the games a common unit and are not a result.
REFERENCE = {
    "Asterix": 8.0,
    "Breakout": 9.0,
    "Freeway": 36.0,
    "Seaquest": 3.5,
    "SpaceInvaders": 65.0,
}
#: Task → (mean return of uniform actions over at least 20 episodes; return that counts as
#: solved in Gymnasium's registry). Walker2d has no threshold there and uses Hopper's, whose
#: reward is alike.
SOLVED = {
    "Ant-v5": (-50.0, 6000.0),
    "HalfCheetah-v5": (-260.0, 4800.0),
    "Hopper-v5": (18.0, 3800.0),
    "InvertedDoublePendulum-v5": (50.0, 9100.0),
    "InvertedPendulum-v5": (5.0, 950.0),
    "Reacher-v5": (-43.0, -3.75),
    "Swimmer-v5": (0.0, 360.0),
    "Walker2d-v5": (2.0, 3800.0),
}
MUJOCO = tuple(SOLVED)
MUJOCO_AXIS = "return, % of the way from uniform actions to solved"
MINATAR_AXIS = "MinAtar score, % of a reference (proxy)"


def minatar_id(game: str) -> str:
    """`Breakout` → `MinAtar/Breakout-v1`."""
    return f"MinAtar/{game}-v1"


def minatar_game(env_id: str) -> str | None:
    """Return the game of a MinAtar id; None for any other id."""
    game = env_id.removeprefix("MinAtar/").partition("-v")[0]
    return game if env_id.startswith("MinAtar/") and game in REFERENCE else None


def relative(env_id: str, score: Any) -> Any:
    """Normalize a score so that games can be compared.

    Human-normalized in percent (Atari), percent of a reference (MinAtar), percent of the way
    from uniform actions to solved (MuJoCo), from 0 to 1 as in the paper (Procgen).
    """
    if game := minatar_game(env_id):
        return 100 * score / REFERENCE[game]
    if env_id in SOLVED:
        low, high = SOLVED[env_id]
        return 100 * (score - low) / (high - low)
    zero = list(benchmark_scores.normalized(env_id, 0.0).values())
    one = list(benchmark_scores.normalized(env_id, 1.0).values())
    return zero[0] + (one[0] - zero[0]) * score if zero else score  # normalization is linear


def _mean(given: Mapping[str, Any]) -> Any:
    return np.mean([relative(env, score) for env, score in given.items()], axis=0)


def _benchmark(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return the paper's aggregate for its own games, and the mean for any others."""

    def score(given: Mapping[str, Any]) -> Any:
        names = [
            game for env in given if (game := benchmark_scores.atari_game(env)) is not None
        ]
        if len(names) < len(given):
            return _mean(given)
        rows = np.stack([np.asarray(one, float) for one in given.values()], axis=-1)
        each = rows.reshape(-1, len(names)).tolist()
        found = [one(dict(zip(names, row, strict=True))) for row in each]
        return np.reshape(found, rows.shape[:-1])

    def one(games: Mapping[str, float]) -> float:
        if name == benchmark_scores.ATARI57:
            return benchmark_scores.atari57_median(games)
        return benchmark_scores.subset(name, games)

    return score


def _atari(name: str, games: tuple[str, ...]) -> Suite:
    own = tuple(f"ALE/{game}-v5" for game in benchmark_scores.games(name))
    return Suite(
        name=name,
        envs={"paper": own, "small": tuple(map(minatar_id, games)), "smoke": _SMOKE},
        interactions={"paper": ATARI_LENGTH, "small": ONE_MILLION, "smoke": 512},
        proxy=True,
        score=_benchmark(name),
        axis=f"{name} score",
        alike="median" if name == benchmark_scores.ATARI57 else None,
    )


_SMOKE = (minatar_id("Breakout"),)
ATARI_5 = _atari("Atari-5", MINATAR)
ATARI_3_VAL = _atari("Atari-3-Val", VALIDATION)
ATARI_57 = _atari(benchmark_scores.ATARI57, MINATAR)

#: Gradient noise is measured on the paper's own games at every scale but smoke.
NOISE_3_VAL = Suite(
    name="Atari-3-Val",
    envs={
        "paper": ATARI_3_VAL.envs["paper"],
        "small": ATARI_3_VAL.envs["paper"],
        "smoke": _SMOKE,
    },
    interactions={"paper": ATARI_LENGTH, "small": 300_000, "smoke": 512},
    proxy=False,
    score=_benchmark("Atari-3-Val"),
    axis="Atari-3-Val score",
)
MUJOCO_8 = Suite(
    name="MuJoCo",
    envs={"paper": MUJOCO, "small": MUJOCO, "smoke": ("InvertedPendulum-v5",)},
    interactions={"paper": ONE_MILLION, "small": ONE_MILLION, "smoke": 512},
    proxy=False,
    score=_mean,  # a mean of raw returns would be dominated by InvertedDoublePendulum
    axis=MUJOCO_AXIS,
    alike="mean",
    total=False,
)
#: The task on which the paper tuned.
WALKER = Suite(
    name="MuJoCo",
    envs={
        "paper": ("Walker2d-v5",),
        "small": ("Walker2d-v5",),
        "smoke": ("InvertedPendulum-v5",),
    },
    interactions=MUJOCO_8.interactions,
    proxy=False,
    score=lambda given: np.mean(list(given.values()), axis=0),  # of one task: its return
    axis="return",
)
PROCGEN_16 = Suite(
    name="Procgen",
    envs={
        "paper": tuple(
            f"procgen/{game}" for game in benchmark_scores.games(benchmark_scores.PROCGEN)
        ),
        "small": ("procgen/bigfish", "procgen/coinrun"),
        "smoke": ("procgen/coinrun",),
    },
    interactions={"paper": 100 * ONE_MILLION, "small": 200_000, "smoke": 128},
    proxy=False,
    score=_mean,
    axis="mean normalized score, 0 to 1",
    alike="mean",
    digits=2,  # as in the paper
)


def axis(suite: Suite, scale: Scale) -> str:
    """Name the suite's score, and say if it covers only some of the environments."""
    own, whole = suite.envs[scale], suite.envs["paper"]
    if any(minatar_game(env) for env in own):
        return MINATAR_AXIS
    part = f" ({len(own)} of {len(whole)} environments)" if len(own) < len(whole) else ""
    return suite.axis + part
