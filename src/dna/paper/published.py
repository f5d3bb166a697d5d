"""The paper's printed numbers, by experiment, study and arm, for comparison with ours.

Tables 4, 5 and 8 to 10, the noise of section 3.2, Procgen's means of appendix L, and the scores
of Rainbow DQN and humans in tables 9 and 10. They were obtained on the paper's games at the
paper's length: `same_games` tells whether a number may share an axis with ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dna.envs import benchmark_scores
from dna.paper.plan import ArmStudy, Experiment, Scale

#: Section 3.2: σ at the end of training, averaged over the three validation games.
NOISE = {"policy": 220.5, "value": 17.5}
NOISE_RATIO = 12.6
#: Appendix L, mean normalized scores on hard levels; PPG's is from the literature.
PROCGEN = {"DNA": 0.65, "PPO": 0.49}
PROCGEN_PPG = 0.75
#: Appendix K: the tasks on which the paper's DNA is better; on the others it is similar.
MUJOCO_BETTER = ("Ant", "HalfCheetah", "Reacher", "Swimmer", "Walker2d")
RAINBOW = "Rainbow DQN (easy)"  # its scores were obtained with easy settings throughout
#: Arm → its row in table 5.
TIMED = {
    "DNA": "DNA",
    "PPO (2x)": "PPO (our settings)",
    "PPG": "PPG",
    "PPO (orig)": "PPO (Schulman et al. 2017 settings)",
}


@dataclass(frozen=True)
class Published:
    """What the paper prints for one study."""

    totals: Mapping[str, float] = field(default_factory=dict)  # arm → the suite's score
    others: Mapping[str, float] = field(default_factory=dict)  # algorithms we do not run
    games: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # game → who → score
    origin: str = ""  # which tables


def published(experiment: Experiment, study: str) -> Published:
    """Return the paper's numbers for a study; empty where it only has figures."""
    match experiment.name, study:
        case "tab04", "ablation":
            totals = {arm: row[0] for arm, row in ablation().items()}
            return Published(totals, origin="table 4")
        case "fig06", "main":
            dna = ablation()["DNA"][0]  # table 4's reference is figure 6's DNA
            return Published(
                {"DNA": dna}, rainbow_atari5(), games("hard"), "tables 4, 9 and 10"
            )
        case "fig09", "easy":
            return Published({}, rainbow_atari5(), games("easy"), "table 10")
        case "fig14", "procgen":
            return Published(PROCGEN, {"PPG (literature)": PROCGEN_PPG}, origin="appendix L")
        case "fig16", _:
            return _atari57(study)
    return Published()


def _atari57(mode: str) -> Published:
    rows = {
        row["algorithm"]: row[f"median_{mode}"]
        for row in benchmark_scores.paper_table("atari57_summary")
    }
    totals = {"DNA": float(rows["DNA"]), "PPO (2x)": float(rows["PPO"])}
    others = {RAINBOW: float(rows["Rainbow"])} if rows["Rainbow"] else {}
    table = {"hard": "tables 8 and 9", "easy": "tables 8 and 10"}
    return Published(totals, others, games(mode), table[mode])


def ablation() -> dict[str, tuple[float, float]]:
    """Arm → (Atari-5 score, regression in percent), table 4."""
    names = {"DNA (ref)": "DNA", "DNA (lambda_V=lambda_pi=0.95)": "DNA (λ=0.95)"}
    return {
        names.get(row["run"], row["run"]): (
            float(row["atari5_score"]),
            float(row["regression_percent"]),
        )
        for row in benchmark_scores.paper_table("ablation")
    }


def rainbow_atari5() -> dict[str, float]:
    """Rainbow DQN's Atari-5 score with easy settings, from the games of table 10."""
    found = games("easy")
    given = {game: found[game][RAINBOW] for game in benchmark_scores.games("Atari-5")}
    return {RAINBOW: benchmark_scores.subset("Atari-5", given)}


def games(mode: str) -> dict[str, dict[str, float]]:
    """Game → who → score, tables 9 (hard) and 10 (easy); Rainbow's are always easy."""
    rainbow = {
        row["game"]: row["rainbow"] for row in benchmark_scores.paper_table("atari57_easy")
    }
    found = {}
    for row in benchmark_scores.paper_table(f"atari57_{mode}"):
        found[row["game"]] = {
            "random": float(row["random"]),
            "human": float(row["human"]),
            RAINBOW: float(rainbow[row["game"]]),
            "PPO (2x)": float(row["ppo"]),
            "DNA": float(row["dna"]),
        }
    return found


def hours() -> dict[str, float]:
    """Algorithm → GPU hours per game, with the names of table 5."""
    rows = benchmark_scores.paper_table("training_times")
    return {row["algorithm"]: float(row["gpu_hours_per_game"]) for row in rows}


def same_games(study: ArmStudy, scale: Scale) -> bool:
    """Return whether a study plays exactly the paper's games."""
    return set(study.suite.envs[scale]) == set(study.suite.envs["paper"])


def own_games(study: ArmStudy, scale: Scale) -> bool:
    """Return whether a study plays only games of the paper, some of them or all."""
    return set(study.suite.envs[scale]) <= set(study.suite.envs["paper"])


def column(study: ArmStudy, scale: Scale, length: int) -> str:
    """Heading for the paper's numbers in a table: which games and what length they have."""
    if not own_games(study, scale):
        return f"paper: {study.suite.name}, other games than ours"
    parts = []
    if not same_games(study, scale):
        parts.append(f"{len(study.suite.envs['paper'])} games")
    if length < study.suite.interactions["paper"]:
        parts.append(f"{study.suite.interactions['paper'] / 1e6:g} M interactions")
    return "paper" + (f": {', '.join(parts)}" if parts else "")
