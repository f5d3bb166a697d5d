"""The paper's own numbers, recomputed with `benchmark_scores` from its 57-game tables."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from dna.envs import benchmark_scores

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "scores.md").read_text()
EASY, HARD = (
    benchmark_scores.paper_table("atari57_easy"),
    benchmark_scores.paper_table("atari57_hard"),
)
REFERENCE = benchmark_scores.paper_table("human_random_scores")
PRINTED = {"easy": EASY, "hard": HARD}
#: Settings, algorithm: median of 57 games, Atari-5, Atari-3-Val, Atari-3.
RECOMPUTED = {
    ("easy", "rainbow"): ("231.0", "225.1", "243.5", "210.1"),
    ("easy", "ppo"): ("224.5", "287.3", "350.1", "325.1"),
    ("easy", "dna"): ("311.5", "336.4", "370.4", "326.6"),
    ("hard", "ppo"): ("154.9", "157.7", "185.8", "191.4"),
    ("hard", "dna"): ("208.9", "238.6", "228.1", "234.1"),
}


def column(table, name):
    return {row["game"]: float(row[name]) for row in table}


def all_scores(played, digits=1):
    """The four scores, as printed."""
    subsets = [
        benchmark_scores.subset(name, played) for name in ("Atari-5", "Atari-3-Val", "Atari-3")
    ]
    return tuple(f"{x:.{digits}f}" for x in (benchmark_scores.atari57_median(played), *subsets))


@pytest.mark.parametrize(("settings", "algorithm"), RECOMPUTED)
def test_median_and_subsets_to_the_printed_digit(settings, algorithm):
    played = column(PRINTED[settings], algorithm)
    assert all_scores(played) == RECOMPUTED[settings, algorithm]


def test_a_human_and_a_random_player():
    human, random = column(REFERENCE, "human"), column(REFERENCE, "random")
    assert all_scores(human, 2) == ("100.00", "85.05", "79.38", "93.40")
    assert all_scores(random, 2) == ("0.00",) * 4


def test_medians_are_near_the_printed_ones():
    """The paper averages the median's curve; only averaged scores are in print."""
    for row in benchmark_scores.paper_table("atari57_summary"):
        for settings in ("easy", "hard"):
            if printed := row[f"median_{settings}"]:
                played = column(PRINTED[settings], row["algorithm"].lower())
                near = 8.0 if row["algorithm"] == "Rainbow" else 2.0
                assert benchmark_scores.atari57_median(played) == pytest.approx(
                    int(printed), abs=near
                )


def test_rainbows_printed_median_is_one_game_lower():
    rainbow = {
        g: benchmark_scores.human_normalized(g, s) for g, s in column(EASY, "rainbow").items()
    }
    order = sorted(rainbow, key=rainbow.__getitem__)
    assert order[27:29] == ["Frostbite", "KungFuMaster"]
    assert f"{rainbow['Frostbite']:.1f}" == "223.1"


def test_regressions_of_the_ablation_follow_from_its_scores():
    """score / reference − 1, for some scores that round to the printed ones."""
    rows = benchmark_scores.paper_table("ablation")
    reference = int(rows[0]["atari5_score"])
    assert len(rows) == 5
    for row in rows:
        score, printed = int(row["atari5_score"]), float(row["regression_percent"])
        low = 100 * ((score - 0.5) / (reference + 0.5) - 1)
        high = 100 * ((score + 0.5) / (reference - 0.5) - 1)
        assert low - 0.05 <= printed <= high + 0.05


@pytest.mark.parametrize(
    ("table", "rival", "above", "ties"),
    [(HARD, "ppo", 45, 1), (EASY, "ppo", 35, 3), (EASY, "rainbow", 27, None)],
    ids=["hard-ppo", "easy-ppo", "easy-rainbow"],
)
def test_in_how_many_games_dna_is_above(table, rival, above, ties):
    dna, other = column(table, "dna"), column(table, rival)
    assert sum(dna[game] > other[game] for game in dna) == above
    if ties is not None:
        assert sum(dna[game] == other[game] for game in dna) == ties


def test_there_are_57_games_and_everywhere_the_same():
    names = [row["game"] for row in REFERENCE]
    assert len(names) == len(set(names)) == 57
    assert [row["game"] for row in EASY] == [row["game"] for row in HARD] == names
    assert list(benchmark_scores.games("Atari-57")) == names


@pytest.mark.parametrize("table", [EASY, HARD], ids=["easy", "hard"])
@pytest.mark.parametrize("player", ["random", "human"])
def test_printed_references_are_the_exact_ones_rounded(table, player):
    for printed, exact in zip(table, REFERENCE, strict=True):
        cell = Decimal(printed[player])
        half = Decimal(5).scaleb(int(cell.as_tuple().exponent) - 1)
        assert abs(cell - Decimal(exact[player])) <= half, printed["game"]


def test_rounded_references_would_hardly_move_a_score(monkeypatch):
    rounded = {row["game"]: (float(row["random"]), float(row["human"])) for row in HARD}
    for settings, algorithm in RECOMPUTED:
        played = column(PRINTED[settings], algorithm)
        exact = (
            benchmark_scores.subset("Atari-5", played),
            benchmark_scores.atari57_median(played),
        )
        with monkeypatch.context() as patch:
            patch.setattr(benchmark_scores, "_atari", lambda: rounded)
            moved = (
                benchmark_scores.subset("Atari-5", played),
                benchmark_scores.atari57_median(played),
            )
        assert abs(exact[0] - moved[0]) <= 0.5
        assert abs(exact[1] - moved[1]) <= 0.03


def test_the_subsets_are_those_of_atari_5():
    sizes = {"Atari-5": 5, "Atari-3": 3, "Atari-1": 1}
    for name, size in sizes.items():
        test, validation = benchmark_scores.games(name), benchmark_scores.games(f"{name}-Val")
        assert len(test) == len(validation) == size
        assert not set(validation) & set(benchmark_scores.games("Atari-5"))
        assert set(test) <= set(benchmark_scores.games("Atari-5"))
    weights = [
        float(row["weight"])
        for row in benchmark_scores.paper_table("atari_subsets")
        if row["subset"] == "Atari-5"
    ]
    assert round(sum(weights), 3) == 0.965


def test_the_table_in_the_document_is_the_recomputed_one():
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in TEXT.splitlines()
        if re.match(r"\| (easy|hard) \|", line)
    ]
    summary = {
        row["algorithm"].lower(): row for row in benchmark_scores.paper_table("atari57_summary")
    }
    assert len(rows) == len(RECOMPUTED)
    for settings, algorithm, median, *values in rows:
        assert median == summary[algorithm.lower()][f"median_{settings}"]
        assert tuple(values) == RECOMPUTED[settings, algorithm.lower()]


def test_the_python_of_the_document_runs():
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names = {}
    exec(compile(code, "scores.md", "exec"), names)
    assert round(names["n"], 1) == 115.3
    assert names["game"] == "BattleZone"


def test_every_table_is_explained_beside_it():
    folder = ROOT / "src" / "dna" / "paper" / "data"
    listed = set(re.findall(r"`(\w+\.csv)`", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("*.csv")}
    labels = set(re.findall(r"`(tab:\w+)`", (folder / "README.md").read_text()))
    known = (Path(__file__).parent / "labels.txt").read_text().split()
    assert labels == {label for label in known if label.startswith("tab:")}
