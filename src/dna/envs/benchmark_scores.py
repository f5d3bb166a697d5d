"""Scores of the paper's benchmarks from raw game scores (section 5, appendices L and M).

Human-normalized scores, Atari-5 and the other subsets, the median over 57 games, Procgen's
mean; and the single score of a run from its log. Pure functions of the standard library; the
constants are the tables in `dna/paper/data`, whose README names their origin and license.
"""

import csv
import difflib
import math
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TypeVar

from dna.common.errors import BadInput

_T = TypeVar("_T")
ATARI57, PROCGEN = "Atari-57", "Procgen"
#: `ALE/Pong-v5`, `PongNoFrameskip-v4`, `Pong`.
_ATARI_ID = re.compile(r"(?:ALE/)?(\w+?)(?:NoFrameskip|Deterministic)?(?:-ram)?(?:-v\d+)?")
#: `procgen/coinrun`, `coinrun`.
_PROCGEN_ID = re.compile(r"(?:procgen/)?(\w+)(?:-v\d+)?")


# --- One game ---------------------------------------------------------------------------


def human_normalized(game: str, score: float) -> float:
    """n = 100 (score − random) / (human − random): 0 % is random, 100 % human."""
    random, human = _known(game, _atari(), "Atari game")
    return 100 * (_finite(game, score) - random) / (human - random)


def procgen_normalized(game: str, score: float) -> float:
    """(score − min) / (max − min), with the ranges of hard levels."""
    low, high = _known(game, _procgen(), "Procgen game")
    return (_finite(game, score) - low) / (high - low)


def normalized(env_id: str, score: float) -> dict[str, float]:
    """The score normalized as its benchmark does; empty for other environments.

    `{"human_normalized": percent}` for the 57 Atari games, `{"normalized": …}` for Procgen's
    16 games on hard levels.
    """
    if game := atari_game(env_id):
        return {"human_normalized": human_normalized(game, score)}
    if game := procgen_game(env_id):
        return {"normalized": procgen_normalized(game, score)}
    return {}


def atari_game(env_id: str) -> str | None:
    """`ALE/BattleZone-v5` → `BattleZone`; None where no human score is known."""
    return _named(env_id, _ATARI_ID, _atari())


def procgen_game(env_id: str) -> str | None:
    """`procgen/coinrun` → `coinrun`; None for anything else."""
    return _named(env_id, _PROCGEN_ID, _procgen())


# --- A benchmark: game → score, None where no episode finished ---------------------------


def games(benchmark: str) -> tuple[str, ...]:
    """The games of `Atari-5`, `Atari-3-Val`, …, `Atari-57` or `Procgen`."""
    members: dict[str, Collection[str]] = {**_subsets(), ATARI57: _atari(), PROCGEN: _procgen()}
    return tuple(_known(benchmark, members, "benchmark"))


def subset(name: str, scores: Mapping[str, float | None]) -> float:
    """10^(Σ_g w_g log10(1 + max(0, n_g))) − 1, n_g the human-normalized score in percent.

    Regressed on the median over 57 games, hence in percent as well. The weights of a subset
    do not sum to 1 and there is no intercept. Scores of other games are ignored.
    """
    weights = _known(name, _subsets(), "subset")
    percent = {
        game: human_normalized(game, score)
        for game, score in _complete(name, weights, scores).items()
    }
    exponent = sum(w * math.log10(1 + max(0.0, percent[game])) for game, w in weights.items())
    return float(10**exponent - 1)


def atari57_median(scores: Mapping[str, float | None]) -> float:
    """median_g n_g over all 57 games, in percent."""
    given = _complete(ATARI57, _atari(), scores)
    return statistics.median(human_normalized(game, score) for game, score in given.items())


def procgen(scores: Mapping[str, float | None]) -> float:
    """1/16 Σ_g (score_g − min_g) / (max_g − min_g)"""
    given = _complete(PROCGEN, _procgen(), scores)
    return statistics.fmean(procgen_normalized(game, score) for game, score in given.items())


# --- A run: its logged scores, each the mean of the last 100 episodes ---------------------


def at_end(scores: Sequence[float | None]) -> float | None:
    """A run's score: the last one logged (section 5). None where no episode finished."""
    return scores[-1] if scores else None


def final_average(scores: Sequence[float | None], fraction: float = 0.05) -> float | None:
    """1/k Σ of the last k = ⌈fraction · rows⌉ scores, as in the 57-game tables (app. M).

    Rows from before the first finished episode hold None and are left out; None where all do.
    """
    if not 0 < fraction <= 1:
        raise BadInput(f"fraction: given {fraction}, must be above 0 and at most 1")
    rows = math.ceil(len(scores) * fraction)
    kept = [score for score in scores[len(scores) - rows :] if score is not None]
    return statistics.fmean(kept) if kept else None


def without_gaps(scores: Sequence[float | None]) -> list[float]:
    """A curve without gaps: rows before the first episode take the run's minimum.

    The authors log 0 there, better than any first score of DoubleDunk, and correct that game
    alone in this way; here None is logged and every game is treated alike.
    """
    finished = [score for score in scores if score is not None]
    if not finished:
        raise BadInput("scores: no episode has finished, there is no curve")
    lowest = min(finished)
    return [lowest if score is None else score for score in scores]


# --- Constants ------------------------------------------------------------------------------


@cache
def paper_table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of `dna/paper/data/<name>.csv`, cells as text."""
    folder = resources.files("dna") / "paper" / "data"
    files = {f.name[:-4]: f for f in folder.iterdir() if f.name.endswith(".csv")}
    text = _known(name, files, "table of the paper").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@cache
def _atari() -> dict[str, tuple[float, float]]:
    """Game → (random, human)."""
    rows = paper_table("human_random_scores")
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in rows}


@cache
def _procgen() -> dict[str, tuple[float, float]]:
    """Game → (min, max), hard levels."""
    rows = paper_table("procgen_ranges")
    return {row["game"]: (float(row["min"]), float(row["max"])) for row in rows}


@cache
def _subsets() -> dict[str, dict[str, float]]:
    """Subset → game → weight."""
    weights: dict[str, dict[str, float]] = {}
    for row in paper_table("atari_subsets"):
        weights.setdefault(row["subset"], {})[row["game"]] = float(row["weight"])
    return weights


# --- Checks ---------------------------------------------------------------------------------


def _named(env_id: str, pattern: re.Pattern[str], known: Collection[str]) -> str | None:
    match = pattern.fullmatch(env_id)
    return match[1] if match and match[1] in known else None


def _known(name: str, known: Mapping[str, _T], what: str) -> _T:
    if name not in known:
        raise BadInput(f"{name!r:.60}: no such {what}{_nearest(name, known)}")
    return known[name]


def _nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'BattleZone'?`, ignoring case, prefix and version."""
    words = {word.lower(): word for word in known}
    bare = name.rpartition("/")[2].partition("-v")[0]
    for attempt in (name.lower(), bare.lower()):
        if close := difflib.get_close_matches(attempt, words, n=1):
            return f"; did you mean '{words[close[0]]}'?"
    return f"; known: {', '.join(words.values())}" if len(words) <= 12 else ""


def _finite(game: str, score: float) -> float:
    if not math.isfinite(score):
        raise BadInput(f"{game}: the score is {score}, must be a finite number")
    return score


def _complete(
    benchmark: str, members: Iterable[str], scores: Mapping[str, float | None]
) -> dict[str, float]:
    """The members' scores; refuses a mapping without a score for each of them."""
    given = {game: score for game in members if (score := scores.get(game)) is not None}
    missing = [game for game in members if game not in given]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise BadInput(f"{benchmark}: no score of {', '.join(missing[:5])}{more}")
    return given
