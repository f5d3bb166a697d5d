"""Table 5: training times (appendix H), from the wall-clock of figure 10's and 6's runs."""

from dna.experiments.fig06_main import DNA, PPG, PPO
from dna.experiments.fig10_alternatives import ORIG
from dna.experiments.plan import Check, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, not_tested
from dna.experiments.worlds import ATARI_5
from dna.scores import paper_table

ARMS = (DNA, PPO, PPG, ORIG)
#: Arm → its row in the paper's table.
ROWS = {
    "DNA": "DNA",
    "PPO (2x)": "PPO (our settings)",
    "PPG": "PPG",
    "PPO (orig)": "PPO (Schulman et al. 2017 settings)",
}


def hours() -> dict[str, float]:
    """Arm → GPU hours per game, in the paper."""
    printed = {
        row["algorithm"]: float(row["gpu_hours_per_game"])
        for row in paper_table("training_times")
    }
    return {arm: next(v for k, v in printed.items() if k == row) for arm, row in ROWS.items()}


def times(results: Results) -> dict[str, float]:
    """Arm → seconds per million interactions."""
    found = {}
    for arm in ARMS:
        runs = [one for one in results.of("time", arm.name) if one.seconds]
        if runs:
            spent = sum(one.seconds or 0.0 for one in runs)
            done = sum(one.rows[-1]["interactions"] for one in runs)
            found[arm.name] = 1e6 * spent / done
    return found


def ratio(arm: str) -> Check:
    """The time of an arm over DNA's is the paper's, within a quarter."""

    def check(results: Results) -> Finding:
        found = times(results)
        if arm not in found or "DNA" not in found:
            return Finding("not tested", "", "runs are missing")
        ours, theirs = found[arm] / found["DNA"], hours()[arm] / hours()["DNA"]
        good = 0.75 < ours / theirs < 1.33
        effect = f"{ours:.2f} × DNA's time; the paper's {theirs:.2f}"
        return Finding("held" if good else "not held", effect, "on this machine")

    return check


def dna_is_faster(results: Results) -> Finding:
    """DNA takes less time than PPO as first published."""
    found = times(results)
    if "DNA" not in found or ORIG.name not in found:
        return Finding("not tested", "", "runs are missing")
    ratio = found["DNA"] / found[ORIG.name]
    effect = f"{ratio:.2f} × the time of PPO (orig); the paper's 0.53"
    return Finding("held" if ratio < 1 else "not held", effect, "on this machine")


EXPERIMENT = Experiment(
    name="tab05",
    alias="time",
    title="Training times",
    covers=("tab:training_times",),
    studies=(Study("time", ARMS, ATARI_5, seeds=3),),
    checks={
        "C095": not_tested("hours of one kind of GPU; ratios are compared instead"),
        "C096": ratio("PPO (2x)"),
        "C097": ratio("PPG"),
        "C098": ratio("PPO (orig)"),
        "C099": not_tested("a literature value: Rainbow DQN is not part of this package"),
        "C100": dna_is_faster,
        "C101": not_tested("a statement on one machine with four GPUs"),
    },
)
