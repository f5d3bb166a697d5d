"""Benchmark scores: their fixed points, order, clipping, gaps and refusals."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dna.common.errors import BadInput
from dna.envs import benchmark_scores

SUBSETS = ("Atari-5", "Atari-3", "Atari-1", "Atari-5-Val", "Atari-3-Val", "Atari-1-Val")
REFERENCE = {
    row["game"]: (float(row["random"]), float(row["human"]))
    for row in benchmark_scores.paper_table("human_random_scores")
}
RANGES = {
    row["game"]: (float(row["min"]), float(row["max"]))
    for row in benchmark_scores.paper_table("procgen_ranges")
}
HUMAN = {game: human for game, (_, human) in REFERENCE.items()}
RANDOM = {game: random for game, (random, _) in REFERENCE.items()}
NUMBERS = st.floats(-1e6, 1e6)


def test_random_is_0_and_human_100_percent():
    for game in benchmark_scores.games("Atari-57"):
        random, human = REFERENCE[game]
        assert benchmark_scores.human_normalized(game, random) == 0, game
        assert benchmark_scores.human_normalized(game, human) == pytest.approx(100, abs=1e-9), (
            game
        )


def test_a_procgen_range_becomes_0_to_1():
    for game in benchmark_scores.games("Procgen"):
        low, high = RANGES[game]
        assert benchmark_scores.procgen_normalized(game, low) == 0, game
        assert benchmark_scores.procgen_normalized(game, high) == pytest.approx(1), game


@given(st.sampled_from(benchmark_scores.games("Atari-57")), NUMBERS, NUMBERS)
def test_more_points_are_never_worth_less(game, one, other):
    low, high = sorted((one, other))
    assert benchmark_scores.human_normalized(game, low) <= benchmark_scores.human_normalized(
        game, high
    )


@given(st.sampled_from(SUBSETS), st.data())
def test_a_subset_is_its_formula(name, data):
    rows = [
        row for row in benchmark_scores.paper_table("atari_subsets") if row["subset"] == name
    ]
    played = {row["game"]: data.draw(NUMBERS) for row in rows}
    product = 1.0  # Π (1 + max(0, n))^w
    for row in rows:
        random, human = REFERENCE[row["game"]]
        n = 100 * (played[row["game"]] - random) / (human - random)
        product *= (1 + max(0.0, n)) ** float(row["weight"])
    assert benchmark_scores.subset(name, played) == pytest.approx(
        product - 1, rel=1e-9, abs=1e-9
    )


@given(st.sampled_from(SUBSETS), st.data(), st.floats(0, 1e6))
def test_a_subset_never_falls_when_a_game_rises(name, data, gain):
    played = {game: data.draw(NUMBERS) for game in benchmark_scores.games(name)}
    game = data.draw(st.sampled_from(benchmark_scores.games(name)))
    better = played | {game: played[game] + gain}
    before = benchmark_scores.subset(name, played)
    assert benchmark_scores.subset(name, better) >= before - 1e-9 * (1 + before)


@pytest.mark.parametrize("name", SUBSETS)
def test_below_random_is_clipped_only_inside_subsets(name):
    worse = {game: score - 10 for game, score in RANDOM.items()}
    assert benchmark_scores.subset(name, worse) == benchmark_scores.subset(name, RANDOM) == 0
    assert all(
        benchmark_scores.human_normalized(game, score) < 0 for game, score in worse.items()
    )
    assert benchmark_scores.atari57_median(worse) < 0


def test_the_median_is_that_of_the_29th_game():
    percent = {game: 10.0 * rank for rank, game in enumerate(REFERENCE)}
    played = {
        game: random + (human - random) * percent[game] / 100
        for game, (random, human) in REFERENCE.items()
    }
    assert benchmark_scores.atari57_median(played) == pytest.approx(280)
    assert benchmark_scores.atari57_median(HUMAN) == pytest.approx(100)


def test_procgen_is_the_mean_of_16_games():
    played = {game: low for game, (low, _) in RANGES.items()}
    assert benchmark_scores.procgen(played) == 0
    best = played | {"maze": 10.0, "heist": 10.0}
    assert benchmark_scores.procgen(best) == pytest.approx(2 / 16)
    with pytest.raises(BadInput, match=r"^Procgen: no score of maze$"):
        benchmark_scores.procgen(
            {game: score for game, score in played.items() if game != "maze"}
        )


@pytest.mark.parametrize("name", SUBSETS)
def test_other_games_are_left_aside(name):
    own = {game: HUMAN[game] for game in benchmark_scores.games(name)}
    assert benchmark_scores.subset(name, HUMAN | {"Adventure": 1.0}) == benchmark_scores.subset(
        name, own
    )


def test_a_missing_game_is_named_and_never_a_zero():
    played = {"BattleZone": 1.0, "NameThisGame": 1.0, "Qbert": 1.0, "Phoenix": None}
    with pytest.raises(BadInput, match=r"^Atari-5: no score of DoubleDunk, Phoenix$"):
        benchmark_scores.subset("Atari-5", played)
    with pytest.raises(BadInput, match=r"Alien, Amidar, .* and 52 more$"):
        benchmark_scores.atari57_median({})


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda: benchmark_scores.human_normalized("battle_zone", 1),
            "Atari game; did you mean 'Battle",
        ),
        (lambda: benchmark_scores.human_normalized("ALE/Pong-v5", 1), "did you mean 'Pong'"),
        (
            lambda: benchmark_scores.human_normalized("Adventure", 1),
            "'Adventure': no such Atari game",
        ),
        (
            lambda: benchmark_scores.procgen_normalized("coin", 1),
            "Procgen game; did you mean 'coinrun'",
        ),
        (lambda: benchmark_scores.subset("atari5", HUMAN), "did you mean 'Atari-5'"),
        (
            lambda: benchmark_scores.subset("x", HUMAN),
            "known: Atari-5, Atari-3, Atari-1, Atari-5-Val",
        ),
        (lambda: benchmark_scores.games("Atari57"), "did you mean 'Atari-57'"),
        (lambda: benchmark_scores.paper_table("ablations"), "did you mean 'ablation'"),
        (lambda: benchmark_scores.human_normalized("a\nb" * 99, 1), r"'a\nb"),
    ],
)
def test_an_unknown_name_is_one_line_with_the_nearest(call, line):
    with pytest.raises(BadInput) as refusal:
        call()
    text = str(refusal.value)
    assert line in text
    assert text.isprintable()
    assert len(text) < 190


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_refused(score):
    with pytest.raises(BadInput, match="Pong: the score is"):
        benchmark_scores.human_normalized("Pong", score)
    with pytest.raises(BadInput, match="DoubleDunk"):
        benchmark_scores.subset("Atari-5", HUMAN | {"DoubleDunk": score})
    with pytest.raises(BadInput, match="maze"):
        benchmark_scores.procgen_normalized("maze", score)


def test_a_game_is_found_by_its_environments():
    for game in benchmark_scores.games("Atari-57"):
        for env_id in (f"ALE/{game}-v5", f"{game}NoFrameskip-v4", f"{game}-v4", game):
            assert benchmark_scores.atari_game(env_id) == game, env_id


def test_every_game_of_the_benchmark_is_one_of_ales():
    ale_py = pytest.importorskip("ale_py")
    import gymnasium

    gymnasium.register_envs(ale_py)
    known = {
        benchmark_scores.atari_game(env_id) for env_id in gymnasium.registry if "ALE/" in env_id
    }
    assert known - {None} == set(benchmark_scores.games("Atari-57"))


def test_a_procgen_game_is_found_by_its_environment():
    for game in benchmark_scores.games("Procgen"):
        assert (
            benchmark_scores.procgen_game(f"procgen/{game}")
            == benchmark_scores.procgen_game(game)
            == game
        )
        assert benchmark_scores.atari_game(f"procgen/{game}") is None, game


@pytest.mark.parametrize(
    "env_id",
    [
        "ALE/Adventure-v5",
        "MinAtar/Breakout-v1",
        "CartPole-v1",
        "me:Pong-v5",
        "ALE/",
        "",
        "pong",
    ],
)
def test_other_environments_have_no_benchmark(env_id):
    assert benchmark_scores.atari_game(env_id) is None
    assert benchmark_scores.procgen_game(env_id) is None
    assert benchmark_scores.normalized(env_id, 1.0) == {}


def test_the_end_of_a_run_is_its_last_score():
    assert benchmark_scores.at_end([None, 1.0, 3.0]) == 3.0
    assert benchmark_scores.at_end([None]) is None
    assert benchmark_scores.at_end([]) is None


def test_the_final_average_is_over_the_last_rows_rounded_up():
    rows = [float(row) for row in range(100)]
    assert benchmark_scores.final_average(rows) == pytest.approx(97)
    assert benchmark_scores.final_average(rows, 1.0) == pytest.approx(49.5)
    assert benchmark_scores.final_average(rows[:21]) == pytest.approx(19.5)
    assert benchmark_scores.final_average([7.0]) == 7.0
    for fraction in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(BadInput, match="fraction"):
            benchmark_scores.final_average(rows, fraction)


def test_rows_without_a_finished_episode_are_left_out():
    assert benchmark_scores.final_average([None, None, 4.0, 6.0], 1.0) == 5.0
    assert benchmark_scores.final_average([None, None]) is None
    assert benchmark_scores.final_average([]) is None


def test_a_curves_gaps_take_the_runs_minimum_not_zero():
    filled = benchmark_scores.without_gaps([None, None, -18.0, -19.5, 3.0])
    assert filled == [-19.5, -19.5, -18.0, -19.5, 3.0]
    with pytest.raises(BadInput, match="no episode"):
        benchmark_scores.without_gaps([None])


@given(st.lists(st.none() | NUMBERS, min_size=1), st.floats(0.01, 1))
def test_a_final_average_lies_between_the_scores(logged, fraction):
    average = benchmark_scores.final_average(logged, fraction)
    present = [score for score in logged if score is not None]
    if average is not None:
        assert min(present) - 1e-6 <= average <= max(present) + 1e-6
    if logged[-1] is not None:
        assert average is not None


def test_scores_need_neither_torch_nor_numpy():
    code = (
        "import sys, dna.envs.benchmark_scores as s; s.subset('Atari-1', {'NameThisGame': 1});"
        "assert not {'torch', 'numpy', 'gymnasium', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
