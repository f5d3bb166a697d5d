"""The paper's own numbers, by experiment, study and arm: what is put beside ours.

Tables 4, 5 and 8 to 10, the noise of section 3.2, Procgen's means of appendix L, and the scores
of Rainbow DQN and humans that tables 9 and 10 print. They belong to the paper's games at the
paper's length: `same_games` says whether a number may share an axis with ours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dna.envs import benchmark_scores
from dna.paper.experiments.plan import Experiment, Scale, Study

#: Section 3.2: σ at the end of training, averaged over the three validation games.
NOISE = {"policy": 220.5, "value": 17.5}
NOISE_RATIO = 12.6
#: Appendix L, mean normalized scores of hard levels; PPG's is from the literature.
PROCGEN = {"DNA": 0.65, "PPO": 0.49}
PROCGEN_PPG = 0.75
#: Appendix K: the tasks on which the paper's DNA is better; on the others it is similar.
MUJOCO_BETTER = ("Ant", "HalfCheetah", "Reacher", "Swimmer", "Walker2d")
RAINBOW = "Rainbow DQN (easy)"  # its scores are of easy settings throughout


@dataclass(frozen=True)
class Published:
    """What the paper prints of one study."""

    totals: Mapping[str, float] = field(default_factory=dict)  # arm → the world's score
    others: Mapping[str, float] = field(default_factory=dict)  # who is no arm of ours → score
    games: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # game → who → score
    origin: str = ""  # which tables


def published(experiment: Experiment, study: str) -> Published:
    """Of a study; empty where the paper prints figures only."""
    found = _KNOWN.get((experiment.name, study))
    return found() if found else Published()


def _ablation() -> Published:
    return Published(totals={arm: row[0] for arm, row in ablation().items()}, origin="table 4")


def _main() -> Published:
    dna = ablation()["DNA"][0]  # table 4's reference is figure 6's DNA
    return Published({"DNA": dna}, rainbow_atari5(), games("hard"), "tables 4, 9 and 10")


def _easy() -> Published:
    return Published({}, rainbow_atari5(), games("easy"), "table 10")


def _procgen() -> Published:
    return Published(PROCGEN, {"PPG (literature)": PROCGEN_PPG}, origin="appendix L")


def _atari57(mode: str) -> Published:
    rows = {
        row["algorithm"]: row[f"median_{mode}"] for row in benchmark_scores.paper_table(SUMMARY)
    }
    totals = {arm: float(rows[name]) for arm, name in MEDIANS.items()}
    others = {RAINBOW: float(rows["Rainbow"])} if rows["Rainbow"] else {}
    table = {"hard": "tables 8 and 9", "easy": "tables 8 and 10"}
    return Published(totals, others, games(mode), table[mode])


SUMMARY, MEDIANS = "atari57_summary", {"DNA": "DNA", "PPO (2x)": "PPO"}
_KNOWN: dict[tuple[str, str], Callable[[], Published]] = {
    ("tab04", "ablation"): _ablation,
    ("fig06", "main"): _main,
    ("fig09", "easy"): _easy,
    ("fig14", "procgen"): _procgen,
    ("fig16", "hard"): lambda: _atari57("hard"),
    ("fig16", "easy"): lambda: _atari57("easy"),
}


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
    """Rainbow DQN's Atari-5 score under easy settings, from table 10's games."""
    found = games("easy")
    given = {game: found[game][RAINBOW] for game in benchmark_scores.games("Atari-5")}
    return {RAINBOW: benchmark_scores.subset("Atari-5", given)}


def games(mode: str) -> dict[str, dict[str, float]]:
    """Game → who → score, tables 9 (hard) and 10 (easy); Rainbow's is of easy settings."""
    theirs = {
        row["game"]: row["rainbow"] for row in benchmark_scores.paper_table("atari57_easy")
    }
    found = {}
    for row in benchmark_scores.paper_table(f"atari57_{mode}"):
        found[row["game"]] = {
            "random": float(row["random"]),
            "human": float(row["human"]),
            RAINBOW: float(theirs[row["game"]]),
            "PPO (2x)": float(row["ppo"]),
            "DNA": float(row["dna"]),
        }
    return found


def hours() -> dict[str, float]:
    """Algorithm → GPU hours per game, table 5, as it is named there."""
    rows = benchmark_scores.paper_table("training_times")
    return {row["algorithm"]: float(row["gpu_hours_per_game"]) for row in rows}


def same_games(study: Study, scale: Scale) -> bool:
    """Whether a study plays all of the paper's games and no others."""
    return set(study.world.envs[scale]) == set(study.world.envs["paper"])


def own_games(study: Study, scale: Scale) -> bool:
    """Whether a study plays games of the paper, some of them or all."""
    return set(study.world.envs[scale]) <= set(study.world.envs["paper"])


def column(study: Study, scale: Scale, length: int) -> str:
    """The heading of the paper's numbers in a table of ours: whose benchmark, what length."""
    if not own_games(study, scale):
        return f"paper: {study.world.name}, other games than ours"
    parts = []
    if not same_games(study, scale):
        parts.append(f"{len(study.world.envs['paper'])} games")
    if length < study.world.interactions["paper"]:
        parts.append(f"{study.world.interactions['paper'] / 1e6:g} M interactions")
    return "paper" + (f": {', '.join(parts)}" if parts else "")
