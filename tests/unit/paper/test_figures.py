"""Figures of results that were made up: the paper's panels, its numbers, what must be said."""

from dataclasses import replace

import numpy as np
import pytest

from dna.envs.benchmark_scores import games
from dna.paper.claims.noise import LAMBDAS
from dna.paper.experiments import EXPERIMENTS, experiment
from dna.paper.figures import draw, pictures, smoothed
from dna.paper.results import Results
from dna.paper.tables import head, tables
from made_up import made

MUJOCO = ["Ant-v5", "HalfCheetah-v5", "Hopper-v5", "InvertedDoublePendulum-v5",
          "InvertedPendulum-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"]  # fmt: skip


def titles(figure):
    return [panel.get_title() for panel in figure.axes if panel.get_visible()]


def of_the_paper(figure):
    """Labels of every line that is the paper's."""
    labels = {line.get_label() for panel in figure.axes for line in panel.get_lines()}
    return {label for label in labels if label.startswith("paper")}


@pytest.mark.parametrize(
    ("name", "file", "wanted"),
    [
        ("noise", "figure.png", ["Assault", "MsPacman", "YarsRevenge"]),
        ("noise", "fig08.png", ["Assault", "MsPacman", "YarsRevenge"]),
        ("epochs", "figure.png", ["policy", "value", "distil"]),
        ("lambda", "figure.png", ["", "", ""]),
        ("main", "figure.png", ["", *games("Atari-5")]),
        ("easy", "figure.png", ["", *games("Atari-5")]),
        ("ablation", "figure.png", [""]),
        ("alternatives", "figure.png", ["alternatives", "ppg"]),
        ("ppo-tuning", "figure.png", ["epochs", "lambda (ppo)"]),
        ("targets", "figure.png", [""]),
        ("mujoco", "figure.png", MUJOCO),
        ("procgen", "figure.png", [""]),
        ("procgen", "games-procgen.png", [f"procgen/{game}" for game in games("Procgen")]),
        ("atari57", "figure.png", ["easy", "hard"]),
        ("atari57", "fig17.png", list(games("Atari-57"))),
    ],
)
def test_panels_are_the_papers(name, file, wanted):
    assert titles(pictures(made(name, "paper"))[file]) == wanted


@pytest.mark.parametrize(
    ("name", "scale", "file", "wanted"),
    [
        ("ablation", "paper", "figure.png", {"paper: DNA 252", "paper: PPO (basic) 81"}),
        ("main", "paper", "figure.png", {"paper: DNA 252", "paper: Rainbow DQN (easy) 225.1",
                                         "paper: human", "paper: Rainbow DQN (easy)"}),
        ("procgen", "paper", "figure.png", {"paper: DNA 0.65", "paper: PPO 0.49",
                                            "paper: PPG (literature) 0.75"}),
        ("atari57", "paper", "figure.png", {"paper: DNA 311", "paper: PPO (2x) 155",
                                            "paper: Rainbow DQN (easy) 223"}),
        ("atari57", "paper", "fig18.png", {"paper: DNA", "paper: human"}),
        ("noise", "small", "figure.png", {"paper, mean at 50 M: policy 220.5",
                                          "paper, mean at 50 M: value 17.5"}),
        ("time", "paper", "figure.png", {"paper"}),
    ],
)  # fmt: skip
def test_the_papers_numbers_are_lines(name, scale, file, wanted):
    assert wanted <= of_the_paper(pictures(made(name, scale))[file])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("main", "proxy: MinAtar, not the paper's games"),
        ("ablation", "proxy: MinAtar, not the paper's games"),
        ("atari57", "proxy: MinAtar, not the paper's games"),
        ("noise", "shortened: 300,000 of 50,000,000 interactions"),
        ("mujoco", "shortened: 3 of 30 seeds"),
        ("procgen", "shortened: 200,000 of 100,000,000 interactions, 2 of 16 environments"),
    ],
)
def test_proxies_and_short_runs_are_said_in_the_picture(name, said):
    for figure in pictures(made(name, "small")).values():
        text = figure.get_suptitle().replace("\n", " ")
        assert said in text or name == "mujoco"
        if said.startswith("proxy"):
            assert not of_the_paper(figure)
    figure = pictures(made(name, "small"))["figure.png"]
    assert said in figure.get_suptitle().replace("\n", " ")


def test_two_of_sixteen_games_are_not_measured_against_sixteen():
    assert not of_the_paper(pictures(made("procgen", "small"))["figure.png"])


def test_an_arm_that_failed_is_named_and_the_others_are_drawn():
    lost = made("main", "small", lambda run: run.arm != "PPG" or "Seaquest" not in run.env)
    figure = pictures(lost)["figure.png"]
    assert "not finished: PPG (3 of 15 runs)" in figure.get_suptitle()
    drawn = [[line.get_label() for line in panel.get_lines()] for panel in figure.axes]
    assert drawn[0] == ["DNA (3 seeds)", "PPO (2x) (3 seeds)"]  # no score without all games
    assert ["PPG" in labels for labels in drawn[1:]] == [True, True, True, False, True]


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.alias)
@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_nothing_finished_is_no_error(one, scale):
    for data in draw(Results(one, scale, ())).values():
        assert data.startswith(b"\x89PNG")
    half = made(one.name, scale, lambda run: run.arm.startswith(("DNA", "E", "PPO")))
    for data in draw(half).values():
        assert data.startswith(b"\x89PNG")


def drawn(figure):
    """A figure laid out as it would be saved, and how large it is."""
    agg = pytest.importorskip("matplotlib.backends.backend_agg")
    agg.FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return figure.get_window_extent()


@pytest.mark.parametrize(
    ("name", "scale", "file"),
    [
        ("mujoco", "small", "lambda.png"),
        ("mujoco", "smoke", "figure.png"),
        ("noise", "smoke", "scores.png"),
        ("targets", "small", "figure.png"),
        ("main", "small", "figure.png"),
    ],
)
def test_titles_and_legends_stay_within_the_figure_and_panels_keep_their_room(
    name, scale, file
):
    figure = pictures(made(name, scale))[file]
    page = drawn(figure)
    for artist in (figure._suptitle, *figure.legends):
        box = artist.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= page.width
    for panel in figure.axes:
        assert panel.get_window_extent().height >= 100  # an inch


# --- Noise --------------------------------------------------------------------------------


def reading(sigma, low=None, high=None):
    return {"sigma": sigma, "b_simple": sigma and sigma**2, "low": low, "high": high}


def by_lambda():
    """One game known at some λ, open above at others; one that begins at zero; one unknown."""
    policy = {}
    for i, value in enumerate(LAMBDAS):
        sigma = 10.0 + i
        policy[str(value)] = {
            "a": reading(None if i == 2 else sigma, 50.0, None),
            "b": reading(sigma, 0.0, 2 * sigma**2),
            "c": reading(None, 0.0, None),
        }
    value = {str(one): {"c": reading(None, 0.0, None)} for one in LAMBDAS}
    return {"lambda_noise": {"policy": policy, "value": value}}


def test_every_known_noise_is_drawn_and_the_table_says_the_same():
    results = replace(made("noise", "small"), extra=by_lambda())
    policy, value = pictures(results)["lambda.png"].axes
    found = {line.get_label(): line.get_ydata() for line in policy.get_lines()}
    assert set(found) == {"a", "b", "geometric mean, 95 %"}
    assert np.isnan(found["a"]).tolist() == [i == 2 for i in range(8)]  # a gap
    assert found["b"] == pytest.approx(10.0 + np.arange(8))
    assert found["geometric mean, 95 %"] == pytest.approx(found["b"])  # resolved at every λ
    assert policy.get_title() == "not resolved at every λ: a, c"
    assert policy.get_xlim() == pytest.approx((0.58, 1.02))  # all λ, known or not
    assert [text.get_text() for text in value.texts] == ["no σ is known at any λ"]
    assert not len(value.get_xticks())
    rows = [row for row in tables(results)["lambda_noise"] if row["phase"] == "policy"]
    assert [row["resolved"] for row in rows] == 8 * ["1 of 3 games"]
    assert (rows[0]["a"], rows[2]["a"]) == ("10.0 [7.1, ∞]", "not known")
    assert (rows[0]["b"], rows[0]["c"]) == ("10.0 [0.0, 14.1]", "not known")
    assert rows[0]["geometric mean [95 %]"].startswith("10.0 [")
    said = head(results, "lambda_noise")
    assert "games resolved at every λ" in said
    assert "the paper trained a run for each λ" in said


def test_a_panel_without_any_measurement_says_why():
    for name, file in (("noise", "lambda.png"), ("lambda", "figure.png")):
        results = Results(experiment(name), "small", (), extra={"lambda_noise": {}})
        for panel in pictures(results)[file].axes[-2:]:
            said = [text.get_text() for text in panel.texts]
            assert said == ["noise was not measured against λ"]


def test_an_average_of_few_values_does_not_hang_on_the_first():
    values = np.r_[100.0, np.ones(18)]
    assert smoothed(values)[-1] < 3.0  # begun with the first value: 15.9
    assert smoothed(values)[:2] == pytest.approx([100.0, (90 + 1) / 1.9])
    assert smoothed(np.full(30, 7.0)) == pytest.approx(np.full(30, 7.0))


def test_figure_2_smooths_once_and_leaves_gaps():
    """|𝒢|² is logged smoothed; what was measured is found again, with gaps where it is ≤ 0."""
    results = made("noise", "small")
    g2 = np.r_[np.ones(10), -1.0, np.ones(9)]
    logged = [1.0]
    for new in g2[1:]:
        logged.append(0.9 * logged[-1] + 0.1 * new)
    outcomes = tuple(
        replace(
            one,
            rows=tuple(
                row | {"noise/policy/g2": now, "noise/policy/s": 400.0}
                for row, now in zip(one.rows, logged, strict=True)
            ),
        )
        for one in results.outcomes
    )
    figure = pictures(replace(results, outcomes=outcomes))["figure.png"]
    thin, thick = figure.axes[0].get_lines()[:2]
    assert np.isnan(thin.get_ydata()).tolist() == [i == 10 for i in range(20)]
    assert thin.get_ydata()[0] == pytest.approx(20.0)
    once = np.sqrt(400.0 / smoothed(g2))
    assert thick.get_ydata() == pytest.approx(once)
    labels = [line.get_label() for line in figure.axes[0].get_lines()]
    assert labels.count("not smoothed") == 1
    assert "averaged exponentially (α = 0.9" in figure.get_suptitle().replace("\n", " ")
