"""Figures 16 to 18 and tables 8 to 10: DNA and PPO on 57 games, easy and hard (appendix M)."""

import numpy as np

from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, not_tested
from dna.experiments.worlds import ATARI_57
from dna.scores import atari_game, paper_table

PROXY = "needs the 57 games of the paper"
#: The proxy has one set of settings: at small scale both studies are the same runs.
HARD = (
    Arm("DNA", "tuned.dna"),
    Arm("PPO (2x)", "tuned.ppo", "ppo", small={"network.channels": 2}),
)
EASY = (
    Arm("DNA", "easy.dna"),
    Arm("PPO (2x)", "easy.ppo", "ppo", small={"network.channels": 2}),
)


def median(results: Results, study: str, arm: str, theirs: float) -> Finding:
    """The median human-normalized score is the paper's, within a tenth."""
    total = results.total(study, arm)
    if results.scale != "paper" or total is None:
        return Finding("not tested", "", PROXY)
    good = abs(total - theirs) < 0.1 * theirs
    return Finding("held" if good else "not held", f"{total:.0f} against {theirs:.0f}")


def margin(results: Results) -> Finding:
    """DNA's median is above PPO's in both modes."""
    if results.scale != "paper":
        return Finding("not tested", "", PROXY)
    found = []
    for study in ("easy", "hard"):
        ours, theirs = results.total(study, "DNA"), results.total(study, "PPO (2x)")
        if ours is None or theirs is None:
            return Finding("not tested", "", "runs are missing")
        found.append(ours - theirs)
    effect = f"{found[0]:+.0f} easy, {found[1]:+.0f} hard"
    return Finding("held" if min(found) > 0 else "not held", effect)


def crossing(results: Results) -> Finding:
    """DNA passes Rainbow's median, 223, after about 85.5 million frames."""
    if results.scale != "paper":
        return Finding("not tested", "", PROXY)
    grid, curves = results.total_curve("easy", "DNA")
    if not len(grid):
        return Finding("not tested", "", "runs are missing")
    above = np.flatnonzero(curves.mean(axis=0) > 223)
    if not len(above):
        return Finding("not held", "never")
    frames = 4 * grid[int(above[0])] / 1e6
    good = 65 < frames < 105
    return Finding("held" if good else "not held", f"after {frames:.1f} M frames")


def games_ahead(results: Results, study: str, least: int) -> Finding:
    """DNA's score is above PPO's on about as many games as in the paper."""
    if results.scale != "paper" or not results.whole(study):
        return Finding("not tested", "", PROXY)
    ours, theirs = results.table(study, "DNA"), results.table(study, "PPO (2x)")
    ahead = sum(np.mean(ours[env]) > np.mean(theirs[env]) for env in ours)
    good = abs(int(ahead) - least) <= 6
    return Finding("held" if good else "not held", f"{ahead} of {len(ours)}; in print {least}")


def beside_the_paper(results: Results, study: str) -> dict[str, dict[str, float]]:
    """Game → ours and the paper's scores, for the full tables."""
    rows = {row["game"]: row for row in paper_table(f"atari57_{study}")}
    found: dict[str, dict[str, float]] = {}
    for arm, column in (("DNA", "dna"), ("PPO (2x)", "ppo")):
        for env, scores in results.table(study, arm).items():
            game = atari_game(env)
            if game is not None:
                found.setdefault(game, {})[arm] = float(np.mean(scores))
                found[game][f"{arm}, paper"] = float(rows[game][column])
    return found


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
        "C127": lambda results: median(results, "easy", "DNA", 311),
        "C128": lambda results: median(results, "hard", "DNA", 207),
        "C129": lambda results: median(results, "easy", "PPO (2x)", 224),
        "C130": lambda results: median(results, "hard", "PPO (2x)", 155),
        "C131": not_tested("a literature value: Rainbow DQN is not part of this package"),
        "C132": margin,
        "C133": crossing,
        "C134": lambda results: median(results, "easy", "PPO (2x)", 223),
        "C135": not_tested("compares GPU hours with a literature value"),
        "C136": lambda results: games_ahead(results, "hard", 45),
        "C137": lambda results: games_ahead(results, "easy", 35),
    },
)
