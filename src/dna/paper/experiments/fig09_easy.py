"""Figure 9: Atari-5 with the easy settings of Rainbow DQN (appendix F)."""

from dna.paper.claims.compare import combined, percent, sampled_rows
from dna.paper.claims.measures import first_above, score_of
from dna.paper.claims.verdicts import (
    Finding,
    at_paper_scale,
    every,
    judged,
    not_tested,
    noted,
    spoken,
)
from dna.paper.experiments.fig06_main import DNA as HARD_DNA
from dna.paper.experiments.fig06_main import (
    DNA_SMALL,
    PPO_WIDE,
    games_above_rainbow,
    total_above_rainbow,
)
from dna.paper.experiments.fig06_main import PPO as HARD_PPO
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.published import RAINBOW, rainbow_atari5
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import ATARI_5

#: The proxy has no lives, no sticky actions to switch off, no action set to narrow: its runs
#: are those of figure 6.
ARMS = (
    Arm("DNA", "easy.dna", small=DNA_SMALL),
    Arm("PPO (2x)", "easy.ppo", "ppo", small=PPO_WIDE),
)
NO_EASY = "the proxy has no easy settings"


def crossing(results: Results) -> Finding | None:
    """DNA passes Rainbow's Atari-5 score after about 49 million frames."""
    grid, curves = results.total_curve("easy", "DNA")
    if not len(grid):
        return None
    theirs = rainbow_atari5()[RAINBOW]
    frames = sampled_rows(curves, lambda c: first_above(4 * grid / 1e6, c, theirs), "easy")
    return judged(frames, f"after {spoken(frames, '.0f', ' M frames')}", 30.0, 70.0)


def modest_gain(arm: str) -> Check:
    """Easy settings add something to the score, and no more than it was."""

    def judge(results: Results) -> Finding | None:
        easy, hard = (score_of(results, study, arm) for study in ("easy", "hard"))
        if easy is None or hard is None:
            return None
        gain = combined(percent, easy, hard)
        return judged(gain, f"{arm}, easy against hard: {spoken(gain)}", 0.0, 100.0)

    return at_paper_scale(NO_EASY, judge, "easy", "hard")


EXPERIMENT = Experiment(
    name="fig09",
    alias="easy",
    title="DNA and PPO on Atari-5, easy settings",
    covers=("fig:easy_plot",),
    studies=(
        Study("easy", ARMS, ATARI_5, seeds=3),
        Study("hard", (HARD_DNA, HARD_PPO), ATARI_5, seeds=3),  # figure 6's runs
    ),
    checks={
        "C084": noted(
            every(*(modest_gain(arm.name) for arm in ARMS)), "modest: up to twice the score"
        ),
        "C085": games_above_rainbow("easy", 5),
        "C086": noted(at_paper_scale(NO_EASY, crossing, "easy"), "from 30 to 70 M"),
        "C087": total_above_rainbow("easy", "PPO (2x)"),
        "C088": not_tested("no run clips rewards without normalizing them: no setting for it"),
    },
)
