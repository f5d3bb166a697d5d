"""Figures 14 and 15 and table 7: DNA and PPO on Procgen (appendix L)."""

from dna.config.presets import preset
from dna.paper.claims.compare import quotient
from dna.paper.claims.measures import score_of, time_of
from dna.paper.claims.verdicts import (
    Finding,
    at_paper_scale,
    identity,
    judged,
    near,
    not_tested,
    noted,
    spoken,
    trained,
)
from dna.paper.experiments.plan import Arm, Check, Experiment, Study
from dna.paper.experiments.published import PROCGEN, PROCGEN_PPG
from dna.paper.experiments.results import Results
from dna.paper.experiments.worlds import PROCGEN_16

DNA, PPO = Arm("DNA", "procgen.dna"), Arm("PPO", "procgen.ppo", "ppo")
STUDY = "procgen"
PUBLISHED = "a statement on published curves, which are not part of this package"
WHOLE = "needs all 16 games at their full length"


def is_papers(arm: str) -> Check:
    """The mean normalized score is the paper's, within 0.1."""

    def judge(results: Results) -> Finding | None:
        total = score_of(results, STUDY, arm)
        return None if total is None else near(total, PROCGEN[arm], 0.1, ".2f")

    return at_paper_scale(WHOLE, judge, STUDY)


def below(arm: str, theirs: float, whose: str) -> Check:
    """The mean normalized score is lower than a published one."""

    def judge(results: Results) -> Finding | None:
        total = score_of(results, STUDY, arm)
        if total is None:
            return None
        effect = f"{arm} {spoken(total, '.2f', '')} against {theirs} of {whose}"
        return judged(total, effect, high=theirs)

    return at_paper_scale(WHOLE, judge, STUDY)


def same_cost(results: Results) -> Finding | None:
    """DNA takes between half and twice the time of PPO."""
    ours, theirs = (time_of(results, STUDY, arm) for arm in ("DNA", "PPO"))
    if ours is None or theirs is None:
        return None
    ratio = quotient(ours, theirs)
    return judged(ratio, f"{spoken(ratio, '.2f', ' ×')} PPO's time", 0.5, 2.0)


def _passes() -> tuple[bool, str]:
    dna = sum(phase.sgd.epochs for phase in preset("procgen.dna").phases)
    ppg = sum(
        phase.sgd.epochs * (2 if phase.trains == "both" else 1)
        for phase in preset("procgen.ppg").phases
    )
    return (dna, ppg) == (4, 14), f"{dna} passes per observation against {ppg}"


def levels(results: Results) -> Finding:
    """Our preset follows the authors' code: that is a choice, and no finding on the paper."""
    settings = preset("procgen.dna").env.procgen
    assert settings is not None
    effect = f"num_levels = {settings.num_levels} (0: unlimited)"
    return Finding("not tested", effect, "the setting of the authors' code, which is ours")


EXPERIMENT = Experiment(
    name="fig14",
    alias="procgen",
    title="DNA and PPO on Procgen",
    covers=("fig:procgen", "fig:procgen_all", "tab:procgen_hps"),
    studies=(Study(STUDY, (DNA, PPO), PROCGEN_16, seeds=1),),
    checks={
        "C115": is_papers("DNA"),
        "C116": is_papers("PPO"),
        "C117": not_tested(PUBLISHED),
        "C118": not_tested(PUBLISHED),
        "C119": below("PPO", 0.58, "the published PPO"),
        "C120": not_tested("a conjecture; no run scales plunder's images by fixed numbers"),
        "C121": not_tested("no experiment varies the epochs on bigfish"),
        "C122": identity(_passes),
        "C123": noted(trained(same_cost, STUDY), "from half to twice; on this machine"),
        "C124": levels,
        "C125": not_tested(PUBLISHED),
        "C126": below("DNA", PROCGEN_PPG, "the published PPG"),
    },
)
