"""`dna show`: tables of the paper, the profile, help on settings; `dna list presets`."""

import json
import subprocess
import sys

import pytest

from dna.cli import main
from dna.config.describe import settings
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


def test_a_phase_that_only_one_side_has_is_shown_with_all_its_settings(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = said(capsys, "show", "minatar.dna", "--diff", "minatar.ppo")
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    distil = PRESETS["minatar.dna"].phases[2]
    assert rows["distil.sgd.minibatch"] == [str(distil.sgd.minibatch), "–"]
    assert rows["distil.beta"] == [str(distil.beta), "–"]
    assert rows["joint.value_weight"] == ["–", "0.5"]
    tree = json.loads(said(capsys, "show", "minatar.dna", "--diff", "minatar.ppo", "--json"))
    assert tree["distil.sgd.minibatch"] == [distil.sgd.minibatch, None]
    keys = {key.removeprefix("distil.") for key in tree if key.startswith("distil.")}
    sgd = {f"sgd.{key}" for key in type(distil.sgd).model_fields}
    assert keys == set(type(distil).model_fields) - {"name", "sgd"} | sgd


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
        (["show"], "dna list presets"),
        (["show", "--help-settings", "epcohs"], "did you mean 'epochs'?"),
        (["show", "--help-settings", "--diff", "as_run"], "--diff"),
        (["train", "ALE/Pong-v5", "xyzzy=1"], "dna show --help-settings"),
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


def test_help_on_settings_describes_every_one_of_them(capsys):
    lines = said(capsys, "show", "--help-settings").splitlines()
    for setting in settings():
        default = (
            setting.default if setting.default == "required" else f"default: {setting.default}"
        )
        line = f"  {setting.path}  {setting.values}  [{default}]"
        assert lines[lines.index(line) + 1].strip() == setting.description
    assert any(line.startswith("Phase distil: ") for line in lines)


def test_help_on_settings_is_filtered_by_a_word(capsys):
    lines = said(capsys, "show", "--help-settings", "GAMMA").splitlines()
    assert lines[1].split()[0] == "returns.gamma"
    assert len(lines) < 20
    tree = json.loads(said(capsys, "show", "--help-settings", "sgd.epochs", "--json"))
    paths = [row["path"] for row in tree if row["path"].endswith(".sgd.epochs")]
    assert {"policy.sgd.epochs", "value.sgd.epochs", "distil.sgd.epochs"} <= set(paths)
    assert set(tree[0]) == {"path", "values", "default", "description"}


def test_help_on_settings_loads_neither_torch_nor_gymnasium():
    code = (
        "import sys; from dna.cli import main\n"
        "assert main(['show', '--help-settings', 'sgd']) == 0\n"
        "assert not {'torch', 'gymnasium', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
