"""Numbers of an arm with what they come to when its runs are drawn again.

A benchmark's score (section 5, appendices L and M), the time of training (appendix H), and
where a training curve passes a level.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dna.paper.claims.compare import Sampled, combined, picks, same, sampled_rows
from dna.paper.experiments.results import Outcome, Results, normalized_scores

Array = npt.NDArray[np.float64]
#: Games below which drawing among them says nothing.
FEWEST_GAMES = 8


def score_of(results: Results, study: str, arm: str) -> Sampled | None:
    """The world's score of an arm, its runs drawn anew; None where runs are missing.

    Seeds are drawn within each game, or, where a game has but one, the games: all arms the
    same ones, and only if games count alike and are not too few.
    """
    total = results.total(study, arm)
    if total is None:
        return None
    world, table = results.study(study).world, results.table(study, arm)
    if min(map(len, table.values())) < 2:
        return _over_games(results, study, arm, total)
    means = [
        sampled_rows(np.array(found), same, f"{study}/{arm}/{env}")
        for env, found in table.items()
    ]
    return combined(lambda *games: world.score(dict(zip(table, games, strict=True))), *means)


def _over_games(results: Results, study: str, arm: str, total: float) -> Sampled:
    world, found = results.study(study).world, normalized_scores(results, study, arm)
    if world.alike is None or len(found) < FEWEST_GAMES:
        return Sampled(total, None, "one seed")
    means, stream = np.array([np.mean(x) for x in found.values()]), f"{study}/games"
    if world.alike == "mean":
        return sampled_rows(means, same, stream, "games")
    drawn = np.median(means[picks(len(means), stream)], axis=1)
    return Sampled(total, drawn, "games")


def time_of(results: Results, study: str, arm: str) -> Sampled | None:
    """Seconds of training per million interactions, runs drawn anew; None without any."""

    def seconds(one: Outcome) -> float | None:
        return 1e6 * one.seconds / one.rows[-1]["interactions"] if one.seconds else None

    return paired(results, study, arm, seconds, "time")


def paired(
    results: Results,
    study: str,
    arm: str,
    number: Callable[[Outcome], float | None],
    stream: str,
) -> Sampled | None:
    """The mean of a number over an arm's runs, without the differences between games.

    Every arm plays the same games, so a run counts by its share of its game's mean over all
    arms: games that take long take long for all. None without such runs.
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


def first_above(x: Array, curves: Array, level: float) -> Array:
    """Where a curve […, grid] first exceeds a level; infinite where it never does."""
    above = curves > level
    return np.where(above.any(axis=-1), x[above.argmax(axis=-1)], np.inf)


def reached(x: Array, curves: Array, share: float) -> Array:
    """Where a curve […, grid] first has a share of its level at the end (its last tenth)."""
    level = share * curves[..., -max(1, len(x) // 10) :].mean(axis=-1, keepdims=True)
    first: Array = x[(curves >= level).argmax(axis=-1)]
    return first
