"""Figure 13 and table 6: DNA and PPO on eight tasks of MuJoCo (appendix K)."""

from dna.experiments.compare import difference, mean
from dna.experiments.plan import Arm, Experiment, Study, World
from dna.experiments.results import Results
from dna.experiments.verdicts import MARGIN, Finding, better, spoken
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
    score=MUJOCO_8.score,
    axis="return",
)
LOW = Arm("DNA (λ_π=0.8)", "mujoco.dna", changes={"returns.lambda_pi": 0.8})
CLAIMED = ("Ant", "HalfCheetah", "Reacher", "Swimmer", "Walker2d")


def tasks(results: Results) -> dict[str, tuple[float, tuple[float, float] | None]]:
    """Task → DNA's return relative to PPO's, in percent, and its interval."""
    ours, theirs = results.table("mujoco", "DNA"), results.table("mujoco", "PPO")
    return {env: difference(mean, {env: ours[env]}, {env: theirs[env]}) for env in ours}


def better_on_five(results: Results) -> Finding:
    """DNA's mean return is higher, and the interval excludes zero, on five tasks of eight."""
    found = tasks(results)
    if len(found) < 8:
        return Finding("not tested", "", f"{len(found)} of 8 tasks are finished")
    ahead = [env for env, (value, _) in found.items() if value > 0]
    clearly = [env for env, (_, span) in found.items() if span and span[0] > 0]
    words = ", ".join(f"{env.partition('-')[0]} {spoken(*one)}" for env, one in found.items())
    effect = f"higher on {len(ahead)} of 8, clearly on {len(clearly)}: {words}"
    named = [env for env in clearly if env.partition("-")[0] in CLAIMED]
    note = f"{len(named)} of the five that the paper names"
    return Finding("held" if len(clearly) >= 5 else "not held", effect, note)


def similar_elsewhere(results: Results) -> Finding:
    """On the other three tasks the whole interval is within the margin of what is similar."""
    found = {e: one for e, one in tasks(results).items() if e.partition("-")[0] not in CLAIMED}
    if len(found) < 3:
        return Finding("not tested", "", "runs are missing")
    words = ", ".join(f"{e.partition('-')[0]} {spoken(*one)}" for e, one in found.items())
    spans = [span for _, span in found.values() if span is not None]
    note = f"margin ±{MARGIN:.0f} %"
    if len(spans) < 3 or any(low < 0 < high and high - low > 4 * MARGIN for low, high in spans):
        return Finding("not tested", words, f"too few seeds to tell; {note}")
    even = all(low > -MARGIN and high < MARGIN for low, high in spans)
    return Finding("held" if even else "not held", words, note)


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
        "C112": better_on_five,
        "C113": similar_elsewhere,
        "C114": better("lambda", "DNA", LOW.name),
    },
)
