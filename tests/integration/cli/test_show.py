"""`dna show` of the paper's tables and of the profile; `dna list presets`; `--profile`."""

import json

import pytest

from dna.cli import main
from dna.config.presets import FAMILIES, PRESETS
from dna.config.presets.tables import TABLES


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def said(capsys, *words, code=0):
    """What a command prints, on the side that its exit code says."""
    assert main(list(words)) == code
    captured = capsys.readouterr()
    wrong, right = (captured.err, captured.out) if code == 0 else (captured.out, captured.err)
    assert wrong == ""
    return right


def refused(capsys, *words):
    line = said(capsys, *words, code=2)
    assert len(line.splitlines()) == 1
    assert len(line) <= 220
    return line


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_shown_by_number_and_by_label(name, capsys):
    text = said(capsys, "show", name)
    assert said(capsys, "show", TABLES[name].label) == text
    for row in TABLES[name].cells():
        line = next(line for line in text.splitlines() if row["setting"] in line)
        assert [cell or "–" for cell in list(row.values())[1:]] == line.replace(
            row["setting"], ""
        ).split()


def test_a_table_as_json_is_its_rows(capsys):
    rows = json.loads(said(capsys, "show", "tab:ppg_hps", "--json"))
    assert rows[2] == {"setting": "Distil epochs (E_D)", "ppg": "0", "ppg_tuned": "0"}


def test_the_profile_is_shown_with_reasons(capsys):
    text = said(capsys, "show", "tuned.dna", "--diff", "as_run")
    assert text.split()[:4] == ["setting", "tuned.dna", "as_run", "why"]
    assert "logit_mse" in text
    tree = json.loads(said(capsys, "show", "tuned.dna", "--diff", "as_run", "--json"))
    assert tree["distil.weight"][:2] == [1.0, 0.5]
    assert all(len(row) == 3 for row in tree.values())


def test_a_preset_of_atari_shows_its_games_settings(capsys):
    text = said(capsys, "show", "easy.ppo")
    assert "env.atari" in text
    assert "life_loss terminal" in " ".join(text.split())
    assert "0.00025 → 0.0" in said(capsys, "show", "table1.ppo_orig")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["show", "tabel1"], "did you mean 'table1'?"),
        (["show", "tuned.dna", "--diff", "as_rnu"], "did you mean 'as_run'?"),
        (["show", "table1", "--diff", "as_run"], "--diff"),
        (["train", "ALE/Pong-v5", "--profile", "asrun"], "did you mean 'as_run'?"),
        (["train", "ALE/Pong-v5", "--profile", "pr"], "known: as_run"),
        (["train", "ALE/Pong-v5", "--profile", "as_run", "--config", "c.json"], "--config"),
        (["train", "CartPole-v1", "--preset", "tuned.dna"], "--preset tuned.dna: env.atari"),
        (["train", "CartPole-v1", "--preset", "procgen.dna"], "begin with procgen/"),
    ],
)
def test_a_mistake_is_one_line(words, hint, capsys):
    assert hint in refused(capsys, *words)


def test_a_profile_lies_over_the_preset_and_under_overrides(capsys):
    words = ["train", "ALE/Pong-v5", "--dry-run", "--profile", "as_run"]
    tree = json.loads(said(capsys, *words, "normalize_reward.clip=7.0"))["config"]
    assert tree["normalize_reward"] == {"clip": 7.0, "episode_end": "carry_last"}
    assert tree["normalize_observation"] == {"clip": 5.0, "gain": 3.0}
    assert tree["phases"][2]["constraint"] == "logit_mse"
    plain = json.loads(said(capsys, *words[:3]))["config"]
    assert plain["phases"][2]["constraint"] == "kl"


def test_presets_are_listed_by_family(capsys):
    lines = said(capsys, "list", "presets").splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(PRESETS)
    assert all(len(line.rstrip()) <= 80 for line in lines)
    for family in FAMILIES.values():
        assert any(line.startswith(family.about) for line in lines)
