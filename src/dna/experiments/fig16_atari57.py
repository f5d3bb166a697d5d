"""Figures 16 to 18 and tables 8 to 10: DNA and PPO on 57 games, easy and hard (appendix M)."""

import numpy as np

from dna.experiments import proofs
from dna.experiments.arms import WIDE
from dna.experiments.compare import Sampled, combined, percent, picks
from dna.experiments.fig06_main import PPO_WIDE
from dna.experiments.measures import Array, first_above, score_of
from dna.experiments.plan import Arm, Check, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import (
    Finding,
    at_paper_scale,
    identity,
    judged,
    near,
    noted,
    spoken,
)
from dna.experiments.worlds import ATARI_57, relative

PROXY = "needs the 57 games of the paper"
#: The proxy has one set of settings: at small scale both studies are the same runs.
HARD = (
    Arm("DNA", "tuned.dna"),
    Arm("PPO (2x)", "tuned.ppo", "ppo", small=PPO_WIDE),
)
EASY = (
    Arm("DNA", "easy.dna"),
    Arm("PPO (2x)", "easy.ppo", "ppo", small=PPO_WIDE),
)


def median(study: str, arm: str, theirs: float) -> Check:
    """The median human-normalized score is the paper's, within a tenth."""

    def judge(results: Results) -> Finding | None:
        total = score_of(results, study, arm)
        return None if total is None else near(total, theirs, 0.1 * theirs)

    return at_paper_scale(PROXY, judge, study)


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
    mean = [relative(env, score) for score in scores.mean(axis=0)]
    return np.interp(grid, x, mean)


def games_ahead(study: str, least: int) -> Check:
    """DNA's score is above PPO's on about as many games as in the paper."""

    def judge(results: Results) -> Finding | None:
        if not results.whole(study):
            return None
        ours, theirs = results.table(study, "DNA"), results.table(study, "PPO (2x)")
        ahead = np.array([np.mean(ours[env]) > np.mean(theirs[env]) for env in ours])
        draws = ahead[picks(len(ahead), f"{study}/games")].sum(axis=1)
        count = Sampled(float(ahead.sum()), draws.astype(float), "games")
        return near(count, least, 6.0)

    return at_paper_scale(PROXY, judge, study)


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
        "C127": median("easy", "DNA", 311),
        "C128": median("hard", "DNA", 207),
        "C129": median("easy", "PPO (2x)", 224),
        "C130": median("hard", "PPO (2x)", 155),
        "C131": identity(proofs.rainbows_median),
        "C132": noted(at_paper_scale(PROXY, margin, "easy", "hard"), f"more than {WIDE:.0f} %"),
        "C133": noted(at_paper_scale(PROXY, crossing, "easy"), "from 65 to 105 M"),
        "C134": median("easy", "PPO (2x)", 223),
        "C135": identity(proofs.ppo_against_rainbow),
        "C136": games_ahead("hard", 45),
        "C137": games_ahead("easy", 35),
    },
)
