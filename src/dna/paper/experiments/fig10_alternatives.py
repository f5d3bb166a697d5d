"""Figure 10: alternative settings of PPO, and tuned PPG (appendix G)."""

from math import inf

from dna.paper.claims.arms import MARGIN, WIDE, better, similar
from dna.paper.claims.compare import combined, percent, quotient, sampled_rows
from dna.paper.claims.measures import reached, time_of
from dna.paper.claims.verdicts import (
    Finding,
    at_paper_scale,
    every,
    judged,
    noted,
    spoken,
    trained,
)
from dna.paper.experiments.fig06_main import PPG, PPO, PPO_SMALL, PPO_WIDE
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.results import GRID, Array, Results
from dna.paper.experiments.worlds import ATARI_5

STUDY = "alternatives"
# On the proxy every arm has the values that its name states, and else those of its PPO (2x).
E2 = Arm("PPO (E=2)", "tuned.ppo_e2", "ppo", small=PPO_WIDE | {"joint.sgd.epochs": 2})
LAMBDAS = Arm(
    "PPO (λ_V=0.95, λ_π=0.8)",
    "tuned.ppo_lambda",
    "ppo",
    small=PPO_WIDE | {"returns.lambda_pi": 0.8},
)
NARROW = Arm("PPO (1x)", "tuned.ppo_1x", "ppo", small=PPO_SMALL)
#: 8 agents, three epochs of mini-batches of 256, everything annealed, of the same start as the
#: reference's. (The paper's has γ = .99 where others have .999: the proxy has .99 throughout.)
ORIG = Arm(
    "PPO (orig)",
    "table1.ppo_orig",
    "ppo",
    small={
        "agents": 8,
        "horizon": 128,
        "joint.sgd.epochs": 3,
        "joint.sgd.minibatch": 256,
        "joint.sgd.learning_rate": {"start": 2e-3, "end": 0.0},
        "joint.epsilon": 0.1,
        "joint.entropy_bonus": {"start": 0.1, "end": 0.0},
        "joint.value_weight": 1.0,
        "returns.lambda_pi": 0.95,
    },
)
PPG_TUNED = Arm(
    "PPG (tuned)",
    "table2.ppg_tuned",
    "ppg",
    small={"policy.sgd.epochs": 2, "aux.sgd.epochs": 2, "returns.lambda_pi": 0.95},
)


def _against_reference(arm: str, part: slice, words: str, low: float, high: float) -> Check:
    """In a part of training the arm's lead on the reference, in percent, is in a range."""

    def judge(results: Results) -> Finding | None:
        found = []
        for name in (arm, PPO.name):
            grid, curves = results.total_curve(STUDY, name)
            if not len(grid):
                return None
            found.append(sampled_rows(curves, lambda c: c[..., part].mean(axis=-1), name))
        gap = combined(percent, *found)
        return judged(gap, f"{words} {spoken(gap)}", low, high)

    return trained(judge, STUDY)


def early_and_late(arm: str, lead: float = 0.0, least: float = 0.0) -> Check:
    """So much ahead of the reference in the first fifth, so much behind it at the end."""
    early = _against_reference(arm, slice(None, GRID // 5), "first fifth", lead, inf)
    return every(early, _against_reference(arm, slice(-GRID // 20, None), "end", -inf, -least))


def less_time(results: Results) -> Finding | None:
    """The reference takes less time than the original settings."""
    ours, theirs = (time_of(results, STUDY, arm) for arm in (PPO.name, ORIG.name))
    if ours is None or theirs is None:
        return None
    ratio = quotient(ours, theirs)
    effect = f"{spoken(ratio, '.2f', ' ×')} the time of {ORIG.name}"
    return judged(ratio, effect, high=1.0)


def levels_off(results: Results) -> Finding | None:
    """In its first 40 million frames, PPO (orig) is at 95 % of its level after about 20."""
    grid, curves = results.total_curve(STUDY, ORIG.name)
    if not len(grid):
        return None
    frames = 4 * grid / 1e6
    part = frames <= 40

    def plateau(c: Array) -> Array:
        return reached(frames[part], c[..., part], 0.95)

    found = sampled_rows(curves, plateau, "plateau")
    return judged(found, f"after {spoken(found, '.0f', ' M frames')}", 10.0, 30.0)


_OTHERS = (E2, LAMBDAS, NARROW, ORIG)
EXPERIMENT = Experiment(
    name="fig10",
    alias="alternatives",
    title="Alternative settings of PPO and PPG",
    covers=("fig:aux_results",),
    studies=(
        Study(STUDY, (PPO, *_OTHERS), ATARI_5, seeds=3),
        Study("ppg", (PPG, PPG_TUNED), ATARI_5, seeds=3),
    ),
    checks={
        "C089": every(*(better(STUDY, PPO.name, arm.name) for arm in _OTHERS)),
        "C090": early_and_late(E2.name),
        "C091": better(STUDY, PPO.name, LAMBDAS.name),
        "C092": better(STUDY, PPO.name, NARROW.name),
        "C093": noted(
            early_and_late(ORIG.name, -MARGIN, WIDE),
            f"well: at most {MARGIN:.0f} % behind; far: more than {WIDE:.0f} %",
        ),
        "C094": similar("ppg", PPG_TUNED.name, PPG.name),
        "C108": noted(
            at_paper_scale("the proxy has no frames of Atari", levels_off, STUDY),
            "from 10 to 30 M; our runs, not those of earlier work",
        ),
        "C109": every(better(STUDY, PPO.name, ORIG.name), trained(less_time, STUDY)),
    },
)
