"""Figure 6: DNA, PPO (2x) and PPG on Atari-5, hard settings (section 6.3)."""

import numpy as np

from dna.envs.benchmark_scores import atari_game
from dna.paper.claims.arms import WIDE, better
from dna.paper.claims.compare import combined, percent, same, sampled_rows
from dna.paper.claims.measures import score_of
from dna.paper.claims.verdicts import Finding, at_paper_scale, how_many, judged, spoken
from dna.paper.experiments import published
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.published import RAINBOW, rainbow_atari5
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import ATARI_5

#: Tuned DNA distils twice; the proxy's preset, once.
DNA_SMALL = {"distil.sgd.epochs": 2}
DNA = Arm("DNA", "tuned.dna", small=DNA_SMALL)
#: Tuned PPO as in the paper: one epoch, both λ the same. The proxy's preset has DNA's instead.
PPO_SMALL = {"joint.sgd.epochs": 1, "returns.lambda_pi": 0.95}
PPO_WIDE = PPO_SMALL | {"network.channels": 2}
PPO = Arm("PPO (2x)", "tuned.ppo", "ppo", small=PPO_WIDE)
PPG = Arm(
    "PPG",
    "tuned.ppg",
    "ppg",
    small={"policy.sgd.epochs": 1, "aux.sgd.epochs": 6, "returns.lambda_pi": 0.95},
)


NO_RAINBOW = "Rainbow has no score on the proxy's games"


def games_above_rainbow(study: str, least: int) -> Check:
    """DNA's mean is above Rainbow's on so many of the five games."""

    def judge(results: Results) -> Finding | None:
        if not results.whole(study):
            return None
        known, means = published.games("easy"), {}
        for env, found in results.table(study, "DNA").items():
            game = str(atari_game(env))
            means[game] = combined(
                lambda score, game=game: score - known[game][RAINBOW],
                sampled_rows(np.array(found), same, f"{study}/{env}"),
            )
        count = how_many(list(means.values()), len(means))
        above = ", ".join(game for game, gap in means.items() if gap.value > 0)
        effect = f"{spoken(count, '.0f', ' of 5')}: {above}"
        return judged(count, effect, least - 0.5)

    return at_paper_scale(NO_RAINBOW, judge, study)


def total_above_rainbow(study: str, arm: str) -> Check:
    """The Atari-5 score is above Rainbow's."""

    def judge(results: Results) -> Finding | None:
        total, theirs = score_of(results, study, arm), rainbow_atari5()[RAINBOW]
        if total is None:
            return None
        found = combined(lambda ours: percent(ours, theirs), total)
        effect = f"{total.value:.0f} against {theirs:.0f}: {spoken(found)}"
        return judged(found, effect, 0.0)

    return at_paper_scale(NO_RAINBOW, judge, study)


EXPERIMENT = Experiment(
    name="fig06",
    alias="main",
    title="DNA, PPO and PPG on Atari-5",
    covers=("fig:final_plot",),
    studies=(Study("main", (DNA, PPO, PPG), ATARI_5, seeds=3),),
    checks={
        "C001": better("main", "DNA", "PPO (2x)"),
        "C002": games_above_rainbow("main", 4),
        "C055": better("main", "DNA", "PPO (2x)", WIDE),
        "C056": better("main", "DNA", "PPG", WIDE),
        "C057": total_above_rainbow("main", "DNA"),
    },
)
