"""Figure 6: DNA, PPO (2x) and PPG on Atari-5, hard settings (section 6.3)."""

from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding, better
from dna.experiments.worlds import ATARI_5
from dna.scores import atari_game, games, paper_table, subset

DNA = Arm("DNA", "tuned.dna")
PPO = Arm("PPO (2x)", "tuned.ppo", "ppo", small={"network.channels": 2})
PPG = Arm("PPG", "tuned.ppg", "ppg")


def rainbow() -> dict[str, float]:
    """Game → Rainbow DQN's score under easy settings, from the paper's table."""
    return {row["game"]: float(row["rainbow"]) for row in paper_table("atari57_easy")}


def games_above_rainbow(results: Results, study: str, least: int) -> Finding:
    """DNA's mean is above Rainbow's on so many of the five games."""
    if results.scale != "paper":
        return Finding("not tested", "", "Rainbow has no score on the proxy's games")
    known, above = rainbow(), []
    table = results.table(study, "DNA")
    for env, found in table.items():
        game = atari_game(env)
        if game is not None and sum(found) / len(found) > known[game]:
            above.append(game)
    if len(table) < 5:
        return Finding("not tested", "", "runs are missing")
    effect = f"{len(above)} of 5: {', '.join(above)}"
    return Finding("held" if len(above) >= least else "not held", effect)


def total_above_rainbow(results: Results, study: str, arm: str) -> Finding:
    """The Atari-5 score is above Rainbow's."""
    total = results.total(study, arm)
    if results.scale != "paper" or total is None:
        return Finding("not tested", "", "Rainbow has no score on the proxy's games")
    theirs = subset("Atari-5", {game: rainbow()[game] for game in games("Atari-5")})
    status = "held" if total > theirs else "not held"
    return Finding(status, f"{total:.0f} against {theirs:.0f}")  # type: ignore[arg-type]


EXPERIMENT = Experiment(
    name="fig06",
    alias="main",
    title="DNA, PPO and PPG on Atari-5",
    covers=("fig:final_plot",),
    studies=(Study("main", (DNA, PPO, PPG), ATARI_5, seeds=3),),
    checks={
        "C001": better("main", "DNA", "PPO (2x)"),
        "C002": lambda results: games_above_rainbow(results, "main", 4),
        "C055": better("main", "DNA", "PPO (2x)"),
        "C056": better("main", "DNA", "PPG"),
        "C057": lambda results: total_above_rainbow(results, "main", "DNA"),
    },
)
