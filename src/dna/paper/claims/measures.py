"""Numbers of an arm with intervals: scores, training times, statistics of curves.

A benchmark's score (section 5, appendices L and M), the time of training (appendix H), and
where a training curve passes a level. They are None where runs are missing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.paper.claims.uncertainty import Sampled, combined, percent, picks, same, sampled_rows
from dna.paper.results import Results, RunResult

Array = npt.NDArray[np.float64]
#: Fewer games than this are not resampled.
FEWEST_GAMES = 8


def score_of(results: Results, study: str, arm: str) -> Sampled | None:
    """Resample the suite's score of an arm; None unless all arms have finished all games.

    Seeds are drawn within each game. Where games have a single seed, games are drawn instead,
    the same for all arms, provided that they have equal weights and are not too few.
    """
    total = results.total(study, arm)
    if total is None or not results.whole(study):
        return None
    suite = results.study(study).suite
    table = results.scores(study, arm)
    if min(map(len, table.values())) < 2:
        return _over_games(results, study, arm, total)
    means = [
        sampled_rows(np.array(found), same, f"{study}/{arm}/{env}")
        for env, found in table.items()
    ]
    return combined(lambda *games: suite.score(dict(zip(table, games, strict=True))), *means)


def _over_games(results: Results, study: str, arm: str, total: float) -> Sampled:
    suite = results.study(study).suite
    found = results.normalized(study, arm)
    if suite.alike is None or len(found) < FEWEST_GAMES:
        return Sampled(total, None, "one seed")
    means = np.array([np.mean(scores) for scores in found.values()])
    stream = f"{study}/games"
    if suite.alike == "mean":
        return sampled_rows(means, same, stream, "games")
    return Sampled(total, np.median(means[picks(len(means), stream)], axis=1), "games")


def scores_of(results: Results, study: str, arms: Sequence[str]) -> dict[str, Sampled] | None:
    """Arm → the suite's score; None where runs are missing."""
    scores = {arm: score_of(results, study, arm) for arm in arms}
    known = {arm: score for arm, score in scores.items() if score is not None}
    return known if len(known) == len(scores) else None


def compared(
    results: Results, study: str, ours: str, theirs: str, other_study: str = ""
) -> Sampled | None:
    """Relative difference of two arms' scores in percent; None where runs are missing."""
    first = score_of(results, study, ours)
    second = score_of(results, other_study or study, theirs)
    if first is None or second is None:
        return None
    return combined(percent, first, second)


def spread_of(results: Results, study: str, arms: Sequence[str]) -> Sampled | None:
    """(highest − lowest) / highest of the arms' scores, in percent."""
    scores = scores_of(results, study, arms)
    return None if scores is None else combined(_spread, *scores.values())


def _spread(*scores: Any) -> Any:
    return -percent(np.min(scores, axis=0), np.max(scores, axis=0))


def time_of(results: Results, study: str, arm: str) -> Sampled | None:
    """Seconds of training per million interactions; None without runs."""

    def seconds(one: RunResult) -> float | None:
        return 1e6 * one.seconds / one.rows[-1]["interactions"] if one.seconds else None

    return paired(results, study, arm, seconds, "time")


def divergence_of(results: Results, study: str, arm: str) -> Sampled | None:
    """KL between policies in a policy phase, averaged over its mini-batches."""

    def moved(one: RunResult) -> float:
        return float(one.metric("policy/approx_kl")[:, 1].mean())

    return paired(results, study, arm, moved, "kl")


def paired(
    results: Results,
    study: str,
    arm: str,
    number: Callable[[RunResult], float | None],
    stream: str,
) -> Sampled | None:
    """Average a number over an arm's runs, without the differences between games.

    All arms play the same games, so a run counts relative to its game's mean over all arms: a
    game that takes long takes long for every arm. None without such runs.
    """
    games: dict[str, list[tuple[str, float]]] = {}
    for one in results.of(study):
        if (value := number(one)) is not None:
            games.setdefault(one.run.env, []).append((one.run.arm, value))
    means = {env: np.mean([value for _, value in found]) for env, found in games.items()}
    shares = [
        value / means[env] for env, found in games.items() for who, value in found if who == arm
    ]
    if not shares:
        return None
    level = float(np.mean(list(means.values())))
    return sampled_rows(level * np.array(shares), same, f"{study}/{arm}/{stream}", "runs")


def curve_of(
    results: Results,
    study: str,
    arm: str,
    statistic: Callable[[Array, Array], Any],
    stream: str = "",
) -> Sampled | None:
    """Resample a statistic of (grid, mean training curve); None where runs are missing."""
    if not results.whole(study):
        return None
    grid, curves = results.total_curve(study, arm)
    return sampled_rows(curves, lambda curve: statistic(grid, curve), stream or arm)


def million_frames(interactions: Array) -> Array:
    """Millions of Atari frames: four per interaction."""
    return 4 * interactions / 1e6


def first_above(x: Array, curves: Array, level: float) -> Array:
    """Where a curve […, grid] first exceeds a level; infinite where it never does."""
    above = curves > level
    return np.where(above.any(axis=-1), x[above.argmax(axis=-1)], np.inf)


def reached(x: Array, curves: Array, share: float) -> Array:
    """Where a curve […, grid] first has a share of its final level (its last tenth)."""
    level = share * curves[..., -max(1, len(x) // 10) :].mean(axis=-1, keepdims=True)
    first: Array = x[(curves >= level).argmax(axis=-1)]
    return first
