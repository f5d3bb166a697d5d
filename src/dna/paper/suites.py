"""The suites of environments in the paper's experiments, with MinAtar as their proxy."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dna.envs import benchmark_scores
from dna.paper.plan import Scale, Suite

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
