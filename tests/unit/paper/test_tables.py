"""Tables on results that were made up: the paper's numbers beside ours, and what lacks."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from dna.common.intervals import iqm
from dna.paper.experiments import EXPERIMENTS, experiment
from dna.paper.plan import Limits
from dna.paper.published import published, rainbow_atari5
from dna.paper.reproduce import write_all
from dna.paper.results import Results
from dna.paper.tables import PROXY_CAPTION, as_csv, caption, head, markdown, tables
from made_up import made


def by(rows, key):
    return {row[key]: row for row in rows}


@pytest.mark.parametrize(
    ("scale", "column"),
    [("paper", "paper"), ("small", "paper: Atari-5, other games than ours")],
)
def test_table_4_stands_beside_ours_and_says_whose_games(scale, column):
    rows = tables(made("ablation", scale))["ablation"]
    assert [row[column] for row in rows] == ["252", "226", "195", "191", "81"]
    lost = [row["paper: against DNA, %"] for row in rows]
    assert lost == ["+0.0", "-10.2", "-22.5", "-24.3", "-67.7"]
    assert rows[0]["against DNA, %"] == "+0.0"


def test_table_5_stands_beside_our_times():
    rows = by(tables(made("time", "small"))["time"], "arm")
    assert rows["DNA"]["paper: GPU hours per Atari game"] == "4"
    assert rows["PPO (orig)"]["paper: × DNA"] == "1.88"
    assert rows["PPG"]["× DNA, here"] == "1.00"
    assert rows["paper: Rainbow DQN"]["paper: GPU hours per Atari game"] == "240"


def test_tables_8_to_10_stand_beside_ours():
    found = tables(made("atari57", "paper"))
    summary = by(found["summary"], "algorithm")
    assert (summary["DNA"]["easy, paper"], summary["DNA"]["hard, paper"]) == ("311", "207")
    assert summary["paper: Rainbow DQN (easy)"]["easy, paper"] == "223"
    assert len(found["hard_games"]) == len(found["easy_games"]) == 57
    alien = by(found["easy_games"], "game")["Alien"]
    assert (alien["human"], alien["Rainbow DQN, paper"]) == ("7128", "9492")
    assert (alien["DNA, paper"], alien["PPO (2x), paper"]) == ("5021", "8525")
    assert alien["DNA"] == "10.00"
    assert "hard_games" not in tables(made("atari57", "small"))  # other games


def test_the_noise_of_section_3_stands_beside_ours():
    rows = tables(made("noise", "small"))["sigma"]
    means = {row["phase"]: row for row in rows if row["game"] == "mean"}
    theirs = "paper: 50 M interactions"
    assert (means["policy"][theirs], means["value"][theirs]) == ("220.5", "17.5")
    assert means["policy / value"][theirs] == "12.6"
    assert (means["policy"]["σ at the end"], means["policy / value"]["σ at the end"]) == (
        "200.0",
        "10.0",
    )
    assert means["policy"]["σ at the end (authors' form)"] == "180.0"
    assert means["policy"]["σ at the end (paired)"] == "100.0"
    assault = next(row for row in rows if row["game"] == "ALE/Assault-v5")
    assert assault["σ at the end (authors' form)"] == "180.0"


def test_rainbow_and_humans_stand_beside_the_papers_games_only():
    rows = by(tables(made("main", "paper"))["main"], "arm")
    assert rows["paper: Rainbow DQN (easy)"]["paper"] == f"{rainbow_atari5().popitem()[1]:.4g}"
    assert rows["paper: human"]["ALE/Qbert-v5"] == "13455"
    assert rows["paper: DNA"]["ALE/Qbert-v5"] == "54706"
    proxy = by(tables(made("main", "small"))["main"], "arm")
    assert "paper: human" not in proxy


def test_procgen_is_printed_as_in_the_paper_and_names_its_unit():
    results = made("procgen", "small")
    rows = by(tables(results)["procgen"], "arm")
    assert rows["DNA"]["score"] == f"{np.mean([10 / 40, (10 - 5) / 5]):.2f}"
    assert rows["DNA"]["paper: 16 games, 100 M interactions"] == "0.65"
    assert "0 to 1" in rows["DNA"]["unit"]
    assert "mean normalized score, 0 to 1 (2 of 16 environments)" in head(results, "procgen")
    assert rows["counts as 1"]["procgen/bigfish"] == "40"
    assert "unit" in next(csv.reader(io.StringIO(as_csv(list(rows.values())))))


def test_returns_of_tasks_are_not_averaged():
    rows = tables(made("mujoco", "small"))["mujoco"]
    assert [row["task"] for row in rows][:2] == ["Ant-v5", "HalfCheetah-v5"]
    assert not any("score" in row for row in rows)
    assert "±" in rows[0]["DNA"]
    assert "–" in rows[0]["DNA 95 %"]
    assert "DNA IQM" not in rows[0]  # of three seeds it is the mean
    more = tables(made("mujoco", "small", limits=Limits(seeds=4)))["mujoco"]
    assert "–" in more[0]["DNA IQM 95 %"]
    said = {row["task"]: row["paper: DNA is"] for row in rows}
    assert (said["Ant-v5"], said["Hopper-v5"]) == ("better", "similar")


@pytest.mark.parametrize("scale", ["small", "smoke"])
def test_returns_of_a_single_task_share_one_unit(scale):
    """Score and IQM of figure 13's λ: returns, not percent of the way to a threshold."""
    assert "IQM" not in tables(made("mujoco", scale, limits=Limits(seeds=3)))["lambda"][0]
    results = made("mujoco", scale, limits=Limits(seeds=4))
    row = tables(results)["lambda"][0]
    seeds = results.scores("lambda", "DNA")
    (scores,) = seeds.values()
    assert float(row["score"]) == pytest.approx(np.mean(scores), abs=0.051)
    assert float(row["IQM"]) == pytest.approx(iqm(np.array(scores)), abs=0.051)
    low, high = (float(end) for end in row["IQM 95 %"].split(" – "))
    assert low <= float(row["IQM"]) <= high
    said = head(results, "lambda")
    assert "Score: return" in said
    assert "IQM: of the same returns." in said


def test_the_toy_problems_table_can_be_read():
    first = {"model": "joint", "sigma_1": 0.1, "seeds": 2}
    errors = {"l_t1": 0.5, "l_t1_se": 0.1, "l_t2": 0.25, "l_t2_se": 0.05}
    results = replace(made("toy", "small"), extra={"toy": {"table": [first | errors]}})
    (row,) = tables(results)["toy"]
    headings = ["model", "σ₁", "seeds", "L_T1", "± s.e. of L_T1", "L_T2", "± s.e. of L_T2"]
    assert list(row) == headings
    assert "test errors" in head(results, "toy")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("noise", "shortened: 300,000 of 50,000,000 interactions"),
        ("procgen", "shortened: 200,000 of 100,000,000 interactions, 2 of 16 environments"),
        ("mujoco", "shortened: 3 of 30 seeds; MuJoCo's tasks are v5, the paper's v2"),
        ("toy", "shortened: 10 of 100 seeds, 7 of 31 values of σ₁"),
        ("main", PROXY_CAPTION),
    ],
)
def test_what_is_shortened_or_a_proxy_is_said_in_tables_and_files(name, said, tmp_path):
    results = made(name, "small")
    if name == "toy":
        results = replace(results, extra={"toy": {"table": [{"model": "joint"}]}})
    assert caption(results) == said
    tree = write_all(replace(results), tmp_path, {})
    assert tree["caption"] == said
    text = (tmp_path / tree["tables"][0]).read_text()
    assert f"**{said[0].upper()}{said[1:]}.**" in text


def test_schedules_that_end_with_shortened_runs_are_said():
    """MuJoCo's learning rates fall to zero; Atari's do not change."""
    words = "schedules are annealed over the shortened length"
    assert words in caption(made("mujoco", "paper", limits=Limits(2, 5000)))
    assert words not in caption(made("mujoco", "paper"))
    assert words not in caption(made("noise", "small"))


def test_other_tasks_than_the_papers_are_said_at_its_size_too():
    assert caption(made("mujoco", "paper")) == "MuJoCo's tasks are v5, the paper's v2"


def test_an_arm_that_is_something_else_on_the_proxy_says_so():
    results = made("ablation", "small")
    assert "the policy's mini-batch is 256 and not 512" in head(results, "ablation")
    assert "mini-batch" not in head(made("ablation", "paper"), "ablation")
    checks = experiment("ablation").checks
    for claim in ("C019", "C076", "C079"):
        assert "half of DNA's (in the paper 512 and not 2,048" in checks[claim](results).note
        assert "proxy" not in checks[claim](made("ablation", "paper")).note
    assert "mini-batch" not in checks["C075"](results).note


def test_only_minatar_is_called_minatar():
    assert "MinAtar" not in caption(made("mujoco", "smoke"))
    assert "other environments than the paper's" in caption(made("mujoco", "smoke"), "lambda")


def test_at_its_size_nothing_is_said():
    assert caption(made("main", "paper")) == ""
    assert caption(made("main", "small", limits=Limits(1, 4096))).endswith(
        "with 1 seed of 4,096 interactions"
    )


def test_an_arm_that_failed_is_named_and_costs_no_other():
    results = made("main", "small", lambda run: run.arm != "PPG")
    rows = by(tables(results)["main"], "arm")
    assert rows["DNA"]["score"]
    assert rows["DNA"]["IQM 95 %"]
    assert (rows["PPG"]["seeds"], rows["PPG"]["score"]) == ("0", "")
    assert results.unfinished() == "not finished: PPG (15 of 15 runs)"
    assert "PPG (15 of 15 runs)" in head(results, "main")


def test_a_game_that_failed_costs_the_arm_its_score_and_no_other_game():
    results = made("main", "small", lambda run: run.arm != "PPG" or "Asterix" not in run.env)
    rows = by(tables(results)["main"], "arm")
    assert rows["DNA"]["score"]
    assert rows["PPG"]["score"] == ""
    assert rows["PPG"]["MinAtar/Asterix-v1"] == ""
    assert "±" in rows["PPG"]["MinAtar/Breakout-v1"]
    assert "±" in rows["DNA"]["MinAtar/Asterix-v1"]


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.alias)
@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_every_table_is_written_with_nothing_finished(one, scale):
    results = Results(one, scale, ())
    for name, rows in tables(results).items():
        assert markdown(rows, ("unit",)).startswith("| ")
        assert as_csv(rows)
        head(results, name)
    for study in one.studies:
        published(one, study.name)
