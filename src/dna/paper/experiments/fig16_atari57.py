"""Figures 16 to 18 and tables 8 to 10: DNA and PPO on 57 games, easy and hard (appendix M)."""

import numpy as np

from dna.envs.benchmark_scores import atari_game
from dna.paper.claims import proofs
from dna.paper.claims.arms import WIDE
from dna.paper.claims.compare import Sampled, combined, percent, picks
from dna.paper.claims.measures import Array, first_above, score_of
from dna.paper.claims.verdicts import Finding, at_paper_scale, identity, judged, noted, spoken
from dna.paper.experiments.fig06_main import DNA_SMALL, PPO_WIDE
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.published import RAINBOW, games
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import ATARI_57, relative

PROXY = "needs the 57 games of the paper"
#: Percent within which a median is the paper's; share of scores that are as printed.
WITHIN, MOST = 10.0, 0.75
#: The proxy has one set of settings: at small scale both studies are the same runs.
HARD = (
    Arm("DNA", "tuned.dna", small=DNA_SMALL),
    Arm("PPO (2x)", "tuned.ppo", "ppo", small=PPO_WIDE),
)
EASY = (
    Arm("DNA", "easy.dna", small=DNA_SMALL),
    Arm("PPO (2x)", "easy.ppo", "ppo", small=PPO_WIDE),
)


def median(study: str, arm: str, whose: str = "") -> Check:
    """The median human-normalized score is the paper's (or Rainbow's), within a tenth.

    Compared game by game with the paper's own table: the 57 games are what they are, and two
    equal columns have equal medians whichever games are drawn.
    """

    def judge(results: Results) -> Finding | None:
        total = results.total(study, arm)
        if total is None:
            return None
        ours, theirs = (np.array(column) for column in _beside(results, study, arm, whose))
        chosen = picks(len(ours), f"{study}/games")
        drawn = percent(*(np.median(column[chosen], axis=1) for column in (ours, theirs)))
        gap = Sampled(float(percent(total, np.median(theirs))), drawn, "games")
        effect = f"{total:.0f} against {np.median(theirs):.0f}: {spoken(gap)}"
        return judged(gap, effect, -WITHIN, WITHIN)

    return noted(at_paper_scale(PROXY, judge, study), f"within {WITHIN:.0f} %")


def _beside(
    results: Results, study: str, arm: str, whose: str = ""
) -> tuple[list[float], list[float]]:
    """Human-normalized scores of an arm in every game, and those of the paper's table."""
    table, printed = results.table(study, arm), games(study)
    ours = [relative(env, float(np.mean(found))) for env, found in table.items()]
    names = [str(atari_game(env)) for env in table]
    theirs = [
        relative(env, printed[game][whose or arm])
        for env, game in zip(table, names, strict=True)
    ]
    return ours, theirs


def margin(results: Results) -> Finding | None:
    """DNA's median is above PPO's by a wide margin in both modes."""
    found = {}
    for study in ("easy", "hard"):
        ours, theirs = score_of(results, study, "DNA"), score_of(results, study, "PPO (2x)")
        if ours is None or theirs is None:
            return None
        found[study] = combined(percent, ours, theirs)
    effect = ", ".join(f"{spoken(gap)} {study}" for study, gap in found.items())
    return judged(combined(np.minimum, *found.values()), effect, WIDE)


def crossing(results: Results) -> Finding | None:
    """DNA passes Rainbow's median, 223, after about 85.5 million frames."""
    grid, _ = results.total_curve("easy", "DNA")
    if not len(grid):
        return None
    lines = np.stack([_line(results, env, grid) for env in results.envs("easy")])

    def frames(games: Array) -> float:
        return float(first_above(4 * grid / 1e6, np.median(games, axis=0), 223.0))

    draws = [frames(lines[row]) for row in picks(len(lines), "easy/games")]
    found = Sampled(frames(lines), np.array(draws), "games")
    return judged(found, f"after {spoken(found, '.1f', ' M frames')}", 65.0, 105.0)


def _line(results: Results, env: str, grid: Array) -> Array:
    """The human-normalized curve of DNA in a game, its seeds averaged."""
    x, scores = results.curves("easy", "DNA", env)
    mean: Array = np.asarray(relative(env, scores.mean(axis=0)))
    return np.interp(grid, x, mean)


def as_printed(study: str) -> Check:
    """Most scores are those of the paper's table, within a quarter of it or of a human's."""

    def judge(results: Results) -> Finding | None:
        if not results.whole(study):
            return None
        columns = [np.array(_beside(results, study, arm)) for arm in ("DNA", "PPO (2x)")]
        close = np.array(
            [np.abs(x - y) <= 0.25 * np.maximum(np.abs(y), 100) for x, y in columns]
        ).mean(axis=0)
        drawn = close[picks(len(close), f"{study}/games")].mean(axis=1)
        share = Sampled(float(close.mean()), drawn, "games")
        ahead = [int(np.sum(columns[0][who] > columns[1][who])) for who in (0, 1)]
        effect = f"{spoken(share, '.2f', '')} of the scores; DNA ahead on {ahead[0]} games"
        return judged(share, f"{effect}, in the table on {ahead[1]}", MOST)

    words = f"more than {MOST:g}, each within a quarter of the table's score or of a human's"
    return noted(at_paper_scale(PROXY, judge, study), words)


EXPERIMENT = Experiment(
    name="fig16",
    alias="atari57",
    title="DNA and PPO on 57 Atari games",
    covers=(
        "fig:a57_median_plot",
        "fig:a57_dna_hard",
        "fig:a57_dna_easy",
        "tab:a57_summary",
        "tab:a57_full_hard",
        "tab:a57_full_easy",
    ),
    studies=(
        Study("hard", HARD, ATARI_57, seeds=1, small_seeds=3),
        Study("easy", EASY, ATARI_57, seeds=1, small_seeds=3),
    ),
    checks={
        "C127": median("easy", "DNA"),
        "C128": median("hard", "DNA"),
        "C129": median("easy", "PPO (2x)"),
        "C130": median("hard", "PPO (2x)"),
        "C131": identity(proofs.rainbows_median),
        "C132": noted(at_paper_scale(PROXY, margin, "easy", "hard"), f"more than {WIDE:.0f} %"),
        "C133": noted(at_paper_scale(PROXY, crossing, "easy"), "from 65 to 105 M"),
        "C134": median("easy", "PPO (2x)", RAINBOW),
        "C135": identity(proofs.ppo_against_rainbow),
        "C136": as_printed("hard"),
        "C137": as_printed("easy"),
    },
)
