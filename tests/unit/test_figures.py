"""Figures of results that were made up: the paper's panels, its numbers, what must be said."""

import pytest

from dna.experiments import EXPERIMENTS
from dna.experiments.results import Results
from dna.figures.layouts import draw, pictures
from dna.scores import games
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
