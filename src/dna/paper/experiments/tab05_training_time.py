"""Table 5: training times (appendix H), from the wall-clock of figure 10's and 6's runs."""

from dna.paper.claims.compare import Sampled, combined, quotient
from dna.paper.claims.measures import time_of
from dna.paper.claims.verdicts import (
    Finding,
    at_paper_scale,
    judged,
    not_tested,
    noted,
    spoken,
    trained,
)
from dna.paper.experiments import published
from dna.paper.experiments.fig06_main import DNA, PPG, PPO
from dna.paper.experiments.fig10_alternatives import ORIG
from dna.paper.experiments.plan import Check, Experiment, Study
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import ATARI_5

ARMS = (DNA, PPO, PPG, ORIG)
PROXY = "needs the paper's networks and games"
#: Arm → its row in the paper's table.
ROWS = {
    "DNA": "DNA",
    "PPO (2x)": "PPO (our settings)",
    "PPG": "PPG",
    "PPO (orig)": "PPO (Schulman et al. 2017 settings)",
}


def hours() -> dict[str, float]:
    """Arm → GPU hours per game, in the paper."""
    printed = published.hours()
    return {arm: printed[row] for arm, row in ROWS.items()}


def against(results: Results, arm: str, other: str) -> Sampled | None:
    """The time of an arm over that of another."""
    ours, theirs = time_of(results, "time", arm), time_of(results, "time", other)
    return quotient(ours, theirs) if ours is not None and theirs is not None else None


def ratio(arm: str) -> Check:
    """The time of an arm over DNA's is the paper's, within a quarter."""

    def judge(results: Results) -> Finding | None:
        found, theirs = against(results, arm, "DNA"), hours()[arm] / hours()["DNA"]
        if found is None:
            return None
        effect = f"{spoken(found, '.2f', ' ×')} DNA's time; the paper's {theirs:.2f}"
        return judged(found, effect, 0.75 * theirs, 1.33 * theirs)

    return noted(at_paper_scale(PROXY, judge, "time"), "within a quarter; on this machine")


def dna_is_faster(results: Results) -> Finding | None:
    """DNA takes less time than PPO as first published."""
    found = against(results, "DNA", ORIG.name)
    if found is None:
        return None
    effect = f"{spoken(found, '.2f', ' ×')} the time of PPO (orig); the paper's 0.53"
    return judged(found, effect, high=1.0)


def hours_here(results: Results) -> Finding | None:
    """What a run of the paper's length takes here; the paper's hours are of another machine."""
    found = time_of(results, "time", "DNA")
    if found is None:
        return None
    here = combined(lambda seconds: 50 * seconds / 3600, found)
    effect = f"{spoken(here, '.1f', ' hours')} per 50 million interactions; the paper's 4"
    return Finding(
        "not tested", effect, "hours of one kind of GPU: C096 to C098 compare ratios"
    )


EXPERIMENT = Experiment(
    name="tab05",
    alias="time",
    title="Training times",
    covers=("tab:training_times",),
    studies=(Study("time", ARMS, ATARI_5, seeds=3),),
    checks={
        "C095": trained(hours_here, "time"),
        "C096": ratio("PPO (2x)"),
        "C097": ratio("PPG"),
        "C098": ratio("PPO (orig)"),
        "C099": not_tested(
            "a literature value of other hardware; Rainbow DQN is not part of this package"
        ),
        "C100": noted(at_paper_scale(PROXY, dna_is_faster, "time"), "on this machine"),
        "C101": not_tested("needs that machine: 24 cores and four GPUs of one kind"),
    },
)
