"""Figures 14 and 15 and table 7: DNA and PPO on Procgen (appendix L)."""

from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, identity, not_tested
from dna.experiments.worlds import PROCGEN_16
from dna.presets import table7_procgen

DNA, PPO = Arm("DNA", "procgen.dna"), Arm("PPO", "procgen.ppo", "ppo")
PUBLISHED = "a statement on published curves, which are not part of this package"


def near(results: Results, arm: str, theirs: float) -> Finding:
    """The mean normalized score is the paper's, within 0.1."""
    total = results.total("procgen", arm)
    if results.scale != "paper" or total is None:
        return Finding("not tested", "", "needs all 16 games at their full length")
    status = "held" if abs(total - theirs) < 0.1 else "not held"
    return Finding(status, f"{total:.2f} against {theirs}")  # type: ignore[arg-type]


def same_cost(results: Results) -> Finding:
    """DNA takes between half and twice the time of PPO."""
    spent = {}
    for arm in ("DNA", "PPO"):
        times = [one.seconds for one in results.of("procgen", arm) if one.seconds]
        if not times:
            return Finding("not tested", "", "runs are missing")
        spent[arm] = sum(times) / len(times)
    ratio = spent["DNA"] / spent["PPO"]
    return Finding("held" if 0.5 < ratio < 2 else "not held", f"{ratio:.2f} × PPO's time")


def _passes() -> tuple[bool, str]:
    dna = sum(phase.sgd.epochs for phase in table7_procgen.DNA.phases)
    ppg = sum(
        phase.sgd.epochs * (2 if phase.trains == "both" else 1)
        for phase in table7_procgen.PPG.phases
    )
    return (dna, ppg) == (4, 14), f"{dna} passes per observation against {ppg}"


def _levels() -> tuple[bool, str]:
    settings = table7_procgen.DNA.env.procgen
    assert settings is not None
    levels = settings.num_levels
    return levels == 200, f"num_levels = {levels} (0: unlimited, as the authors' code has it)"


EXPERIMENT = Experiment(
    name="fig14",
    alias="procgen",
    title="DNA and PPO on Procgen",
    covers=("fig:procgen", "fig:procgen_all", "tab:procgen_hps"),
    studies=(Study("procgen", (DNA, PPO), PROCGEN_16, seeds=1),),
    checks={
        "C115": lambda results: near(results, "DNA", 0.65),
        "C116": lambda results: near(results, "PPO", 0.49),
        "C117": not_tested(PUBLISHED),
        "C118": not_tested(PUBLISHED),
        "C119": not_tested(PUBLISHED),
        "C120": not_tested("a conjecture; fixed scaling of images is not run on plunder"),
        "C121": not_tested("epochs are not swept on bigfish"),
        "C122": identity(_passes),
        "C123": same_cost,
        "C124": identity(_levels),
        "C125": not_tested(PUBLISHED),
        "C126": not_tested(PUBLISHED),
    },
)
