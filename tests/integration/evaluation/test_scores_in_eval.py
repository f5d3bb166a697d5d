"""`dna eval` tells a score on its benchmark's scale, decided by the environment's id alone."""

import json

import gymnasium
import pytest

from dna.cli import main
from dna.cli.evaluate import benchmark_score, describe
from dna.config import Atari, EnvConfig, Procgen
from dna.envs.fake import Identity
from dna.evaluation.evaluate import Evaluation


@pytest.fixture
def pong():
    """A small environment under the name of a game with a human score."""
    gymnasium.register("Pong-v77", Identity)
    yield "Pong-v77"
    del gymnasium.registry["Pong-v77"]


def test_a_game_with_a_human_score_is_normalized(pong, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", pong, "--interactions", "1024", "--quiet", "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["eval", "run", "--episodes", "2", "--random", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for player in ("policy", "random"):
        played = result[player]
        percent = 100 * (played["mean"] + 20.71) / (14.6 + 20.71)
        assert played["human_normalized"] == pytest.approx(percent)
    assert json.loads((tmp_path / "run" / "eval.json").read_text()) == result
    assert main(["eval", "run", "--episodes", "2"]) == 0
    assert "human-normalized" in capsys.readouterr().out


def test_an_evaluation_is_told_on_its_benchmarks_scale():
    def told(env, score):
        summary = Evaluation((score, score), (5, 5)).summary()
        summary |= benchmark_score(env, summary["mean"])
        return summary, describe("policy", summary)

    summary, line = told(EnvConfig(id="ALE/Breakout-v5", atari=Atari()), 30.5)
    assert summary["human_normalized"] == pytest.approx(100)
    assert "30.50 ± 0.00, human-normalized 100.0 % over 2 episodes" in line
    summary, line = told(EnvConfig(id="procgen/coinrun", procgen=Procgen()), 7.5)
    assert summary["normalized"] == 0.5
    assert ", normalized 0.500 over" in line
    easy = EnvConfig(id="procgen/coinrun", procgen=Procgen(distribution="easy"))
    plain = EnvConfig(id="ALE/Breakout-v5")  # Gymnasium's own rules: another score
    et = EnvConfig(id="ALE/Et-v5", atari=Atari())
    for env in (easy, plain, et, EnvConfig(id="CartPole-v1"), EnvConfig()):
        summary, line = told(env, 7.5)
        assert not {"normalized", "human_normalized"} & set(summary)
        assert "normalized" not in line
