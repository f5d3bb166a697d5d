"""Figure 9: Atari-5 with the easy settings of Rainbow DQN (appendix F)."""

import numpy as np

from dna.experiments.fig06_main import games_above_rainbow, rainbow, total_above_rainbow
from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, not_tested
from dna.experiments.worlds import ATARI_5
from dna.scores import games, subset

#: The proxy has no lives, no sticky actions to switch off, no action set to narrow: its runs
#: are those of figure 6.
ARMS = (
    Arm("DNA", "easy.dna"),
    Arm("PPO (2x)", "easy.ppo", "ppo", small={"network.channels": 2}),
)
NO_EASY = "the proxy has no easy settings"


def crossing(results: Results) -> Finding:
    """DNA passes Rainbow's Atari-5 score after about 49 million frames."""
    if results.scale != "paper":
        return Finding("not tested", "", NO_EASY)
    grid, curves = results.total_curve("easy", "DNA")
    theirs = subset("Atari-5", {game: rainbow()[game] for game in games("Atari-5")})
    if not len(grid):
        return Finding("not tested", "", "runs are missing")
    above = np.flatnonzero(curves.mean(axis=0) > theirs)
    if not len(above):
        return Finding("not held", "never")
    frames = 4 * grid[above[0]] / 1e6
    status = "held" if 30 < frames < 70 else "not held"
    return Finding(status, f"after {frames:.0f} M frames")  # type: ignore[arg-type]


EXPERIMENT = Experiment(
    name="fig09",
    alias="easy",
    title="DNA and PPO on Atari-5, easy settings",
    covers=("fig:easy_plot",),
    studies=(Study("easy", ARMS, ATARI_5, seeds=3),),
    checks={
        "C084": not_tested("compares figures 6 and 9, whose games the proxy does not have"),
        "C085": lambda results: games_above_rainbow(results, "easy", 5),
        "C086": crossing,
        "C087": lambda results: total_above_rainbow(results, "easy", "PPO (2x)"),
        "C088": not_tested("reward clipping is no setting of this package"),
    },
)
