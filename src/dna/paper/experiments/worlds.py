"""The environments of the paper's experiments, and MinAtar in their place."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dna.envs import benchmark_scores
from dna.paper.experiments.plan import Scale, World

ONE_MILLION, HALF = 1_000_000, 50_000_000
#: MinAtar's five games stand for Atari-5; three of them, two of which the presets were tuned
#: on, for the validation games on which the paper tuned.
MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
VALIDATION = ("Asterix", "Breakout", "SpaceInvaders")
#: What counts as 100: fixed numbers near what DNA scores after 0.4 million interactions in a
#: first, coarse trial. A unit that games share, no result.
REFERENCE = {
    "Asterix": 8.0,
    "Breakout": 9.0,
    "Freeway": 36.0,
    "Seaquest": 3.5,
    "SpaceInvaders": 65.0,
}
#: Task → (return of uniform actions, mean of at least 20 episodes; return that counts as
#: solved in Gymnasium's registry). Walker2d has none there: Hopper's, which is rewarded alike.
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
    """The inverse; None for anything else."""
    game = env_id.removeprefix("MinAtar/").partition("-v")[0]
    return game if env_id.startswith("MinAtar/") and game in REFERENCE else None


def relative(env_id: str, score: Any) -> Any:
    """A score made comparable between games.

    Human-normalized in percent (Atari), percent of a reference (MinAtar), percent of the way
    from uniform actions to solved (MuJoCo), from 0 to 1 as in the paper (Procgen).
    """
    if game := minatar_game(env_id):
        return 100 * score / REFERENCE[game]
    if env_id in SOLVED:
        low, high = SOLVED[env_id]
        return 100 * (score - low) / (high - low)
    zero, one = (list(benchmark_scores.normalized(env_id, at).values()) for at in (0.0, 1.0))
    return zero[0] + (one[0] - zero[0]) * score if zero else score  # all are linear


def _mean(given: Mapping[str, Any]) -> Any:
    return np.mean([relative(env, score) for env, score in given.items()], axis=0)


def _benchmark(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The paper's score of its games; where other games are played, their mean."""

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


def _atari(name: str, games: tuple[str, ...]) -> World:
    own = tuple(f"ALE/{game}-v5" for game in benchmark_scores.games(name))
    return World(
        name=name,
        envs={"paper": own, "small": tuple(map(minatar_id, games)), "smoke": _SMOKE},
        interactions={"paper": HALF, "small": ONE_MILLION, "smoke": 512},
        proxy=True,
        score=_benchmark(name),
        axis=f"{name} score",
        alike="median" if name == benchmark_scores.ATARI57 else None,
    )


_SMOKE = (minatar_id("Breakout"),)
ATARI_5 = _atari("Atari-5", MINATAR)
ATARI_3_VAL = _atari("Atari-3-Val", VALIDATION)
ATARI_57 = _atari(benchmark_scores.ATARI57, MINATAR)

#: The noise of the gradients is measured on the paper's own games at every scale but smoke.
NOISE_3_VAL = World(
    name="Atari-3-Val",
    envs={
        "paper": ATARI_3_VAL.envs["paper"],
        "small": ATARI_3_VAL.envs["paper"],
        "smoke": _SMOKE,
    },
    interactions={"paper": HALF, "small": 300_000, "smoke": 512},
    proxy=False,
    score=_benchmark("Atari-3-Val"),
    axis="Atari-3-Val score",
)
MUJOCO_8 = World(
    name="MuJoCo",
    envs={"paper": MUJOCO, "small": MUJOCO, "smoke": ("InvertedPendulum-v5",)},
    interactions={"paper": ONE_MILLION, "small": ONE_MILLION, "smoke": 512},
    proxy=False,
    score=_mean,  # of raw returns, InvertedDoublePendulum's thousands would be all of it
    axis=MUJOCO_AXIS,
    alike="mean",
    total=False,
)
PROCGEN_16 = World(
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
WORLDS = (ATARI_5, ATARI_3_VAL, ATARI_57, NOISE_3_VAL, MUJOCO_8, PROCGEN_16)


def axis(world: World, scale: Scale) -> str:
    """What a score of this world is called, and whether it is of some of its games only."""
    own, whole = world.envs[scale], world.envs["paper"]
    if any(minatar_game(env) for env in own):
        return MINATAR_AXIS
    part = f" ({len(own)} of {len(whole)} environments)" if len(own) < len(whole) else ""
    return world.axis + part
