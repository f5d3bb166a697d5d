"""Figure 13 and table 6: DNA and PPO on eight tasks of MuJoCo (appendix K)."""

from dataclasses import replace

import numpy as np

from dna.paper.claims.arms import MARGIN, better
from dna.paper.claims.compare import Sampled, combined, percent, same, sampled_rows
from dna.paper.claims.verdicts import Finding, all_of, how_many, judged, noted, spoken, trained
from dna.paper.experiments.plan import Arm, Experiment, Study, World
from dna.paper.experiments.published import MUJOCO_BETTER
from dna.paper.experiments.results import Results, normalized_scores
from dna.paper.experiments.worlds import MUJOCO, MUJOCO_8

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
    score=lambda given: np.mean(list(given.values()), axis=0),  # of one task: its return
    axis="return",
)
LOW = Arm("DNA (λ_π=0.8)", "mujoco.dna", changes={"returns.lambda_pi": 0.8})


def task_of(env: str) -> str:
    """`Ant-v5` → `Ant`"""
    return env.partition("-v")[0]


def tasks(results: Results) -> dict[str, Sampled]:
    """Task → DNA's return relative to PPO's, both counted from uniform actions, in percent."""
    found: dict[str, list[Sampled]] = {}
    for arm in ("DNA", "PPO"):
        for env, scores in normalized_scores(results, "mujoco", arm).items():
            one = sampled_rows(np.array(scores), same, f"{arm}/{env}")
            found.setdefault(task_of(env), []).append(one)
    return {env: combined(percent, *both) for env, both in found.items()}


def better_on_five(results: Results) -> Finding | None:
    """DNA's mean return is higher on at least five tasks of eight.

    A task whose runs are missing may go either way.
    """
    found = tasks(results)
    if not found:
        return None
    count = how_many(list(found.values()), len(MUJOCO))
    theirs = sum(found[env].value > 0 for env in MUJOCO_BETTER if env in found)
    words = f"higher on {spoken(count, '.0f', ' of 8')}, {theirs} of them the paper's five"
    one = judged(count, f"{words}: {_words(found)}", 4.5)
    sure = [env for env, gap in found.items() if gap.span and gap.span[0] > 0]
    lower = [env for env, gap in found.items() if gap.span and gap.span[1] < 0]
    named = len(set(sure) & set(MUJOCO_BETTER))
    said = f"surely higher each by itself: {', '.join(sure) or 'none'}"
    said += f" ({named} of the five that the paper names)" if sure else ""
    said += f", surely lower: {', '.join(lower)}" if lower else ""
    return replace(one, note="; ".join(filter(None, (one.note, said))))


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
