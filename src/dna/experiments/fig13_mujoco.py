"""Figure 13 and table 6: DNA and PPO on eight tasks of MuJoCo (appendix K)."""

from statistics import fmean

import numpy as np

from dna.experiments.arms import MARGIN, better
from dna.experiments.compare import Sampled, combined, percent, same, sampled_rows
from dna.experiments.plan import Arm, Experiment, Study, World
from dna.experiments.results import Results, normalized_scores
from dna.experiments.verdicts import Finding, spoken, trained
from dna.experiments.worlds import MUJOCO_8

DNA, PPO = Arm("DNA", "mujoco.dna"), Arm("PPO", "mujoco.ppo", "ppo")
#: The task that the paper tuned on.
WALKER = World(
    name="MuJoCo",
    envs={
        "paper": ("Walker2d-v5",),
        "small": ("Walker2d-v5",),
        "smoke": ("InvertedPendulum-v5",),
    },
    interactions=MUJOCO_8.interactions,
    proxy=False,
    score=lambda given: fmean(given.values()),  # of one task: its return as it is
    axis="return",
)
LOW = Arm("DNA (λ_π=0.8)", "mujoco.dna", changes={"returns.lambda_pi": 0.8})
CLAIMED = ("Ant", "HalfCheetah", "Reacher", "Swimmer", "Walker2d")


def tasks(results: Results) -> dict[str, Sampled]:
    """Task → DNA's return relative to PPO's, both counted from uniform actions, in percent."""
    found: dict[str, list[Sampled]] = {}
    for arm in ("DNA", "PPO"):
        for env, scores in normalized_scores(results, "mujoco", arm).items():
            one = sampled_rows(np.array(scores), same, f"{arm}/{env}")
            found.setdefault(env.partition("-")[0], []).append(one)
    return {env: combined(percent, *both) for env, both in found.items()}


def better_on_five(results: Results) -> Finding | None:
    """DNA's mean return is higher, and the interval excludes zero, on five tasks of eight."""
    found = tasks(results)
    if len(found) < 8:
        return Finding("not tested", "", f"{len(found)} of 8 tasks are finished")
    clearly = [env for env, one in found.items() if one.span and one.span[0] > 0]
    ahead = combined(lambda *gaps: sum(np.asarray(gap) > 0 for gap in gaps), *found.values())
    count = f"higher on {spoken(ahead, '.0f', ' of 8')}, clearly on {len(clearly)}"
    named = [env for env in clearly if env in CLAIMED]
    note = f"{len(named)} of the five that the paper names"
    effect = f"{count}: {_words(found)}"
    return Finding("held" if len(clearly) >= 5 else "not held", effect, note)


def _words(found: dict[str, Sampled]) -> str:
    return ", ".join(f"{env} {spoken(one)}" for env, one in found.items())


def similar_elsewhere(results: Results) -> Finding | None:
    """On the other three tasks the whole interval is within the margin of what is similar."""
    found = {env: one for env, one in tasks(results).items() if env not in CLAIMED}
    if len(found) < 3:
        return None
    spans = [one.span for one in found.values() if one.span is not None]
    note = f"margin ±{MARGIN:.0f} %"
    if len(spans) < 3 or any(low < 0 < high and high - low > 4 * MARGIN for low, high in spans):
        return Finding("not tested", _words(found), f"too few seeds to tell; {note}")
    even = all(low > -MARGIN and high < MARGIN for low, high in spans)
    return Finding("held" if even else "not held", _words(found), note)


EXPERIMENT = Experiment(
    name="fig13",
    alias="mujoco",
    title="DNA and PPO on MuJoCo",
    covers=("fig:mujoco", "tab:mujoco_hps"),
    studies=(
        Study("mujoco", (DNA, PPO), MUJOCO_8, seeds=30),
        Study("lambda", (DNA, LOW), WALKER, seeds=30),
    ),
    checks={
        "C112": trained(better_on_five, "mujoco"),
        "C113": trained(similar_elsewhere, "mujoco"),
        "C114": better("lambda", "DNA", LOW.name),
    },
)
