"""Figure 13 and table 6: DNA and PPO on eight tasks of MuJoCo (appendix K)."""

from dataclasses import replace
from statistics import fmean

import numpy as np

from dna.experiments.arms import MARGIN, better
from dna.experiments.compare import Sampled, combined, percent, same, sampled_rows
from dna.experiments.plan import Arm, Experiment, Study, World
from dna.experiments.published import MUJOCO_BETTER
from dna.experiments.results import Results, normalized_scores
from dna.experiments.verdicts import (
    Finding,
    Interval,
    all_of,
    judged,
    noted,
    spoken,
    trained,
)
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


def tasks(results: Results) -> dict[str, Sampled]:
    """Task → DNA's return relative to PPO's, both counted from uniform actions, in percent."""
    found: dict[str, list[Sampled]] = {}
    for arm in ("DNA", "PPO"):
        for env, scores in normalized_scores(results, "mujoco", arm).items():
            one = sampled_rows(np.array(scores), same, f"{arm}/{env}")
            found.setdefault(env.partition("-")[0], []).append(one)
    return {env: combined(percent, *both) for env, both in found.items()}


def better_on_five(results: Results) -> Finding | None:
    """DNA's mean return is higher on five tasks of eight.

    Between the tasks whose interval is above zero and those whose interval reaches above it.
    """
    found = tasks(results)
    if len(found) < 8:
        return Finding("not tested", "", f"{len(found)} of 8 tasks are finished")
    spans = {env: one.span for env, one in found.items() if one.span is not None}
    sure = [env for env, (low, _) in spans.items() if low > 0]
    perhaps = [env for env, (_, high) in spans.items() if high > 0]
    ends = (float(len(sure)), float(len(perhaps))) if len(spans) == len(found) else None
    count = Interval(
        sum(one.value > 0 for one in found.values()), ends, "seeds" if ends else "one seed"
    )
    effect = f"higher on {spoken(count, '.0f', ' of 8')}: {_words(found)}"
    one = judged(count, effect, 4.5)
    named = f"{len(set(sure) & set(MUJOCO_BETTER))} of the five that the paper names"
    return replace(one, note="; ".join(filter(None, (one.note, named))))


def _words(found: dict[str, Sampled]) -> str:
    return ", ".join(f"{env} {spoken(one)}" for env, one in found.items())


def similar_elsewhere(results: Results) -> Finding | None:
    """On each of the other three tasks DNA is within the margin of what is similar."""
    found = {env: one for env, one in tasks(results).items() if env not in MUJOCO_BETTER}
    if len(found) < 3:
        return None
    return all_of(
        [judged(one, f"{env} {spoken(one)}", -MARGIN, MARGIN) for env, one in found.items()]
    )


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
        "C113": noted(trained(similar_elsewhere, "mujoco"), f"margin ±{MARGIN:.0f} %"),
        "C114": better("lambda", "DNA", LOW.name),
    },
)
