"""The example projects run as they stand, on a small budget."""

import importlib.util
import json
from pathlib import Path

import pytest

from dna.config import Config
from dna.config.overrides import UnknownKey, tweak
from dna.config.phases import BUILT_IN, PHASES
from dna.config.run import rebuild
from helpers import tiny

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(request, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    name = request.param
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    assert list(tmp_path.iterdir()) == []  # no litter


def only(name):
    return pytest.mark.parametrize("example", [name], indirect=True)


@only("masked_board_game")
def test_the_board_game_knows_no_illegal_move(example, capfd):
    won, drawn, lost = example.main(interactions=2048, games=40)
    assert won + drawn + lost == 40
    assert "won, drawn, lost" in capfd.readouterr().out


@only("dict_robot")
def test_the_robot_sees_moves_and_grips(example):
    """The same 60 episodes before and after: one that has learned nothing scores as before."""
    before, after = example.main(interactions=8192, episodes=60)
    assert -5 < before < 0  # at random: it closes its hand on nothing
    assert after > before + 0.7


@only("custom_env")
def test_the_custom_environment_learns_alike_from_python_and_the_command_line(example):
    assert example.main(interactions=1024, compare=True) < 0


@only("custom_phase")
def test_the_phase_learns_and_reaches_settings(example):
    try:
        losses = example.main(interactions=2048)
        assert len(losses) == 2
        phases = [example.Imitate(sgd=tiny("ppo").phases[0].sgd), *tiny("dna").phases]
        tree = [json.loads(phase.model_dump_json()) for phase in phases]
        config = tweak(tiny("dna"), phases=tree)
        assert tweak(config, **{"imitate.coefficient": 0.5}).phases[0].coefficient == 0.5
        with pytest.raises(UnknownKey, match="did you mean 'coefficient'"):
            tweak(config, **{"imitate.coeficient": 0.5})
        assert Config.model_validate_json(config.model_dump_json()) == config
    finally:
        for kind in set(PHASES) - BUILT_IN:
            del PHASES[kind]
        rebuild()


def test_every_example_is_tested_and_named_in_the_documents():
    text = Path(__file__).read_text()
    single = (EXAMPLES.parent / "tests/paper/test_single_file.py").read_text()
    documents = "".join(path.read_text() for path in (EXAMPLES.parent / "docs").glob("*.md"))
    for path in EXAMPLES.glob("*.py"):
        assert f'@only("{path.stem}")' in text or path.name in single, path.name
        assert f"examples/{path.name}" in documents
