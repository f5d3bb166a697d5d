"""The command line as a user meets it: results on stdout, one line per mistake."""

import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from dna.cli import COMMANDS, main
from dna.common.lock import locked
from dna.config.overrides import at
from dna.config.presets import PRESETS

TRAIN = ["train", "CartPole-v1", "--interactions", "600", "--quiet"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One small finished run that many tests look at."""
    path = tmp_path_factory.mktemp("runs") / "cartpole"
    assert main([*TRAIN, "--out", str(path)]) == 0
    return path


def refused(capsys, words, code=2):
    """The one line a refused command prints."""
    assert main(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert len(lines[0]) <= 220
    assert "Traceback" not in lines[0]
    return lines[0]


def test_train_ends_with_one_json_line_and_the_run_is_where_it_says(capsys):
    assert main([*TRAIN, "--json"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    result = json.loads(last)
    assert {"run", "interactions", "episodes", "score", "interactions_per_second"} <= set(
        result
    )
    assert result["interactions"] >= 600
    assert (Path(result["run"]) / "done").is_file()
    assert main(["resume", result["run"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interactions"] == result["interactions"]


def test_progress_is_plain_lines_when_not_on_a_terminal(capsys):
    assert main([w for w in TRAIN if w != "--quiet"]) == 0
    captured = capsys.readouterr()
    assert "interactions  score" in captured.err
    assert "dna eval" in captured.out
    assert "\x1b" not in captured.err


def test_a_budget_rounded_up_to_whole_rollouts_is_said_once(capsys):
    words = ["train", "CartPole-v1", "--interactions", "600", "horizon=64", "agents=8"]
    words += ["--compile", "off"]
    assert main([*words, "--out", "a"]) == 0
    shown = capsys.readouterr()
    note = "600 interactions are rounded up to 1,024, 2 rollouts of 512\n"
    assert shown.err.count(note) == 1
    assert "are rounded" not in shown.out
    for silent in ("--quiet", "--json"):
        assert main([*words, "--out", silent.strip("-"), silent]) == 0
        shown = capsys.readouterr()
        assert "are rounded" not in shown.err + shown.out
    assert main([*words, "--out", "a", "--resume"]) == 0
    assert "are rounded" not in capsys.readouterr().err
    assert main([*words, "--out", "even", "--interactions", "512"]) == 0
    assert "are rounded" not in capsys.readouterr().err


def test_dry_run_prints_the_configuration_and_writes_nothing(capsys, tmp_path):
    assert (
        main(["train", "CartPole-v1", "--dry-run", "policy.sgd.epochs=1", "--seed", "4"]) == 0
    )
    tree = json.loads(capsys.readouterr().out)
    assert tree["seed"] == 4
    assert tree["config"]["phases"][0]["sgd"]["epochs"] == 1
    assert tree["config"]["env"]["id"] == "CartPole-v1"
    assert list(tmp_path.iterdir()) == []


def test_a_config_file_starts_a_run_and_overrides_win(capsys, trained):
    words = ["train", "Acrobot-v1", "--config", str(trained / "config.json"), "--dry-run"]
    assert main([*words, "returns.gamma=0.5"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert config["interactions"] == 600
    assert config["returns"]["gamma"] == 0.5
    assert config["env"]["id"] == "Acrobot-v1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "NoSuchEnv-v0"], "NoSuchEnv-v0: no such environment"),
        (["train", "CartPol-v1"], "did you mean 'CartPole-v"),
        (["train", "CartPole-v1", "policy.sgd.epoch=1"], "did you mean 'epochs'?"),
        (["train", "CartPole-v1", "policy.sgd.learning_rate=-1"], "policy.sgd.learning_rate"),
        (["train", "CartPole-v1", "agents=0"], "agents: given 0"),
        (["train", "CartPole-v1", "returns.lambda_pi=1.5"], "returns.lambda_pi: given 1.5"),
        (["train", "CartPole-v1", "policy.sgd.minibatch=100000"], "larger than the batch"),
        (["train", "CartPole-v1", "policy.sgd.minibatch=100"], "does not divide the batch"),
        (["train", "CartPole-v1", "policy.sgd.epochs"], "expected key=value"),
        (["train", "CartPole-v1", "agents=8", "agents=9"], "given twice"),
        (["train", "CartPole-v1", "--preset", "minatr.dna"], "did you mean 'minatar.dna'?"),
        (["train", "CartPole-v1", "--algo", "ppo", "--preset", "small.dna"], "contradicts"),
        (["train", "CartPole-v1", "--algo", "sac"], "--algo"),
        (["train", "CartPole-v1", "--interactions", "0"], "--interactions"),
        (["train", "CartPole-v1", "--device", "tpu"], "--device"),
        (["train", "CartPole-v1", "--sede", "1"], "--seed"),
        (["train", "Blackjack-v1"], "observation space Tuple is not supported"),
        (["train", "os:system"], "--allow-import"),
        (["train", "CartPole-v1", "--config", "none.json"], "none.json"),
        (["train"], "ENV_ID"),
        (["trian", "CartPole-v1"], "train"),
        (["eval", "nowhere"], "nowhere: no run here"),
        (["record", "nowhere"], "nowhere: no run here"),
        (["resume", "nowhere"], "nowhere: no run here"),
        (["show", "minatar.dan"], "did you mean 'minatar.dna'?"),
        (["list", "everything"], "'what': 'everything' is not one of 'presets'"),
        (["train", "CartPole-v1", "--algo", "dnaa"], "'--algo': 'dnaa' is not one of 'dna'"),
        (["train", "CartPole-v1", "--preset", "foo"], "no such preset; `dna list presets`"),
        (["train", "CartPole-v1", "--seed", "-1"], "'--seed': must be at least 0"),
        (["train", "CartPole-v1", "--seeds", "x"], "'--seeds': must be an integer"),
        (["train", "CartPole-v1", "--env-timeout", "nan"], "nan is not a number of seconds"),
        (["train", "CartPole-v1", "--env-timeout", "0.5"], "must be 1 to 1,000,000 seconds"),
        (["train", "CartPole-v1", "--env-timeout", "inf"], "must be 1 to 1,000,000 seconds"),
        (["train", "CartPole-v1", "--env-timeout", "abc"], "'--env-timeout': must be a number"),
        (["report", "nowhere"], "nowhere: neither a folder nor an experiment; `dna list exp"),
        (["report", "toyy"], "toyy: neither a folder nor an experiment; did you mean 'toy'?"),
        (["report", "a", "no/where"], "a: no run here"),
        (["import-sb3", "no.zip", "CartPole-v1", "--out", "x"], "no.zip: no such file; give"),
        (["import-sb3", ".", "CartPole-v1", "--out", "x"], ".: is a folder; give the zip"),
    ],
)
def test_a_mistake_is_one_line_that_says_how_to_mend_it(words, said, capsys, tmp_path):
    assert said.lower() in refused(capsys, words).lower()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", ["file", "file/run", "file/a/b"])
@pytest.mark.parametrize(
    "words",
    [
        TRAIN,
        [*TRAIN, "--seeds", "2"],
        [*TRAIN, "--restart"],
        ["sweep", *TRAIN[1:], "agents=2,4"],
    ],
)
def test_a_file_in_place_of_a_folder_is_one_line(words, out, capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    line = refused(capsys, [*words, "--out", out])
    assert "file: is a file, but a folder is needed there; choose another" in line
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_folder_in_use_is_said_before_anything_else(capsys, trained):
    with locked(trained):
        for words in (
            [],
            ["--resume"],
            ["--restart"],
            ["--seed", "9"],
            ["--resume", "agents=2"],
        ):
            line = refused(capsys, [*TRAIN, "--out", str(trained), *words], 3)
            assert f"in use by pid {os.getpid()}" in line


def test_an_existing_run_is_not_touched_without_being_told(capsys, trained):
    before = (trained / "metrics.jsonl").read_bytes()
    words = [*TRAIN, "--out", str(trained)]
    assert "--resume or --restart" in refused(capsys, words)
    assert "other settings" in refused(capsys, [*words, "--resume", "--seed", "9"])
    assert (trained / "metrics.jsonl").read_bytes() == before


def test_restart_deletes_the_run_and_nothing_else(capsys, tmp_path):
    words = [*TRAIN, "--out", "run"]
    assert main(words) == 0
    (tmp_path / "run" / "thesis.txt").write_text("do not delete")
    first = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert main([*words, "--restart"]) == 0
    assert (tmp_path / "run" / "thesis.txt").exists()
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == first
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


BAD = {
    int: ["-1", "1.5", '"two"', "true", "null", "[]", "{}", "NaN", "x", "9e99"],
    float: ["-1", '"half"', "true", "null", "[0]", "NaN", "Infinity", "-1e400", "x"],
    str: ["1", "null", "true", "[]", '"no such value"', "{}"],
    bool: ["2", "null"],
    dict: ["1", '"x"', "[]", "true"],
    list: ["1", '"x"', "[]", "[1]", "[{}]", "null"],
}


def test_three_hundred_broken_configurations_are_one_line_each(capsys, tmp_path):
    """Every key of every kind of preset, every wrong type and range, and mistyped keys."""
    rng = random.Random(5)
    seen = set()
    while len(seen) < 300:
        name = rng.choice(list(PRESETS))
        config = PRESETS[name]
        key = rng.choice(_keys(config))
        value = rng.choice(BAD[type(at(config, key))])
        if rng.random() < 0.2:
            key = key[:-1] + rng.choice("xzq_.")
        pair = f"{key}={value}"
        if (name, pair) in seen or _fine(key, value):
            continue
        seen.add((name, pair))
        line = refused(capsys, ["train", _suitable(config), "--preset", name, pair])
        first = key.split(".")[0]
        assert first in line or "phases" in line, (pair, line)
    assert list(tmp_path.iterdir()) == []


def _suitable(config):
    """An id that the preset's environment settings are for."""
    if config.env.atari is not None:
        return "ALE/Pong-v5"
    return "CartPole-v1" if config.env.procgen is None else "procgen/maze"


def _keys(config):
    keys = ["horizon", "agents", "interactions", "returns.gamma", "returns.lambda_v", "phases"]
    keys += ["network.encoder", "network.depth", "network.init", "env.time_limit", "returns"]
    for phase in config.phases:
        inside = ("epochs", "minibatch", "adam_eps")
        keys += [f"{phase.name}.sgd.{key}" for key in inside]
        keys += [f"{phase.name}.{key}" for key in ("name", "sgd", "kind", "trains")]
    return keys


def _fine(key, value):
    """The few mutations that are not mistakes."""
    return key.endswith(".name") and value == "x"


def test_commands_are_refused_without_importing_torch(tmp_path):
    code = (
        "import sys; from dna.cli import main\n"
        "assert main(['train', 'CartPole-v1', 'agents=0']) == 2\n"
        "assert 'torch' not in sys.modules and 'gymnasium' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_is_said_also_if_the_environment_raised_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "breaking.py").write_text(
        "from dna.envs.fake import Identity\n"
        "class Breaking(Identity):\n"
        "    def step(self, action):\n"
        "        raise KeyboardInterrupt\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["train", "breaking:Breaking", "--allow-import", "--out", str(tmp_path / "run")]
    assert main([*words, "--interactions", "1024", "--quiet"]) == 130
    assert capsys.readouterr().err.endswith("dna: interrupted\n")


def test_debug_shows_the_traceback_and_keeps_the_exit_code(capsys):
    assert main(["train", "CartPole-v1", "agents=0", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_the_list_of_commands_has_their_whole_summaries(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "..." not in text.partition(" Commands: ")[2]
    for name, command in COMMANDS.items():
        assert f" {name} {command.__doc__.splitlines()[0]}" in text


def test_the_bare_command_is_help_and_the_version_is_told(capsys):
    assert main([]) == 0
    assert "Commands" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ppo-dna ")


@pytest.mark.parametrize(
    ("pair", "hint"),
    [
        ("gamma=0.9", "returns.gamma"),
        ("lr=0.1", "policy.sgd.learning_rate"),
        ("n_steps=5", "horizon"),
        ("num_envs=5", "agents"),
        ("batch_size=64", "policy.sgd.minibatch"),
        ("ent_coef=0.1", "policy.entropy_bonus"),
    ],
)
def test_names_of_other_libraries_and_of_deeper_keys_are_understood(pair, hint, capsys):
    assert f"did you mean '{hint}'?" in refused(capsys, ["train", "CartPole-v1", pair])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"horizn": 3, "phases": []}', "did you mean 'horizon'?"),
        ('{"config": {}, "seed": true}', "seed"),
        ('{"env": {"id": "\\ud800"}, "phases": []}', "Unicode"),
        ('{"gamma": 1}', "did you mean 'returns.gamma'?"),
        ('{"ab\\ncd": 1}', "no such setting"),
    ],
)
def test_a_bad_config_file_is_bad_input(text, said, capsys, tmp_path, trained):
    if "such" in said or "mean" in said:
        tree = json.loads((trained / "config.json").read_text())["config"]
        text = json.dumps(tree | json.loads(text) | {"phases": tree["phases"]})
    (tmp_path / "c.json").write_text(text)
    line = refused(capsys, ["train", "CartPole-v1", "--config", "c.json"])
    assert said in line
    assert "c.json" in line


def test_files_that_are_not_a_runs_are_never_deleted(capsys, tmp_path):
    """Names that a run uses too: somebody else's checkpoints, a foreign config.json."""
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "model").write_text("precious")
    assert "no run" in refused(capsys, [*TRAIN, "--out", "mine"])
    assert "no run" in refused(capsys, [*TRAIN, "--out", "mine", "--restart"])
    assert (tmp_path / "mine" / "checkpoints" / "model").read_text() == "precious"
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text('{"model": "bert"}')
    assert "no run" in refused(capsys, [*TRAIN, "--out", "theirs", "--restart"])
    assert "--out" in refused(capsys, [*TRAIN, "--out", ""])


@pytest.mark.parametrize(
    "pairs",
    [['phases=[{"name":"p","kind":"policy"}]', "lr=1"], ["policy.sgd=5", "lr=1"]],
)
def test_hints_survive_a_tree_that_an_earlier_override_broke(pairs, capsys):
    assert "lr: no 'lr'" in refused(capsys, ["train", "CartPole-v1", *pairs])


@pytest.mark.parametrize("statement", ["sys.exit()", "raise GeneratorExit"])
def test_a_module_that_exits_while_imported_is_no_success(
    statement, capsys, tmp_path, monkeypatch
):
    (tmp_path / "quitter.py").write_text(f"import sys\n{statement}\n")
    monkeypatch.delitem(sys.modules, "quitter", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    line = refused(capsys, ["train", "quitter:make", "--allow-import"])
    assert "cannot import quitter" in line


def test_control_characters_never_reach_the_terminal(capsys, tmp_path, trained):
    line = refused(capsys, ["resume", "\x1b[31mred\rrun"])
    assert "\\x1b[31mred\\rrun: no run here" in line
    tree = json.loads((trained / "config.json").read_text())["config"]
    tree["env"]["id"] = "Cart\x1b[31mPole"
    (tmp_path / "odd.json").write_text(json.dumps(tree))
    assert "env.id: contains control characters" in refused(capsys, ["show", "odd.json"])
    run = tmp_path / "\x1b[2Jrun"
    shutil.copytree(trained, run)
    assert main(["resume", run.name]) == 0
    assert capsys.readouterr().out == "\\x1b[2Jrun: already finished\n"
    (run / "done").unlink()
    (run / "machine.json").write_text("")
    with warnings.catch_warnings(action="always"):
        assert main(["resume", run.name]) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.err + said.out
    assert "dna: \\x1b[2Jrun/machine.json: empty" in said.err
    assert "run: \\x1b[2Jrun " in said.out


def test_values_with_brackets_are_shown_as_they_are(capsys, tmp_path, trained):
    tree = json.loads((trained / "config.json").read_text())["config"]
    tree["env"]["options"] = {"a": "[/b]", "c": "[red]"}
    (tmp_path / "odd.json").write_text(json.dumps(tree))
    assert main(["show", "odd.json"]) == 0
    assert main(["show", "odd.json", "--diff", "small.ppo"]) == 0
    assert "[/b]" in capsys.readouterr().out
    assert "no such run or preset" in refused(capsys, ["show", "x" * 300])


def test_the_environment_is_named_once(capsys):
    assert "env.id" in refused(capsys, ["train", "CartPole-v1", "env.id=Acrobot-v1"])


@pytest.mark.parametrize("out", ["m[/b]c", "x" * 300])
def test_strange_folder_names_are_no_crash(out, capsys):
    code = main([*TRAIN, "--out", out])
    assert code == (0 if len(out) < 200 else 2)
    if code == 0:
        capsys.readouterr()
        assert main(["show", out]) == 0
        assert out in capsys.readouterr().out


def test_an_evaluation_that_cannot_end_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("dna.evaluation.evaluate.LONGEST", 300)
    (tmp_path / "endless.py").write_text(
        "from dna.envs.fake import Identity\ndef make():\n    return Identity(length=10**9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["train", "endless:make", "--interactions", "1024", "--allow-import"]
    assert main([*words, "--quiet", "--out", "endless"]) == 0
    capsys.readouterr()
    line = refused(capsys, ["eval", "endless", "--episodes", "2", "--allow-import"], 5)
    assert "env.max_episode_steps" in line


@pytest.mark.parametrize("content", ["[]", '{"random": 5}', "nonsense"])
def test_a_damaged_evaluation_or_metrics_file_is_one_line(content, capsys, tmp_path):
    assert main([*TRAIN, "--out", "run"]) == 0
    (tmp_path / "run" / "eval.json").write_text(content)
    assert main(["plot", "run"]) == (6 if content == "nonsense" else 0)
    (tmp_path / "run" / "eval.json").unlink()
    (tmp_path / "run" / "metrics.jsonl").write_text(content)
    capsys.readouterr()
    assert "metrics.jsonl" in refused(capsys, ["plot", "run"], 6)
    (tmp_path / "run" / "policy" / "manifest.json").write_text(content)
    assert "manifest.json" in refused(capsys, ["eval", "run"], 6)


def test_a_user_factory_without_render_mode_is_refused_politely(capsys, tmp_path, monkeypatch):
    (tmp_path / "plain_env.py").write_text(
        "from dna.envs.fake import Identity\ndef make():\n    return Identity()\n"
        "def needs(x):\n    return Identity()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["--interactions", "1024", "--quiet", "--allow-import", "--out", "plain"]
    assert main(["train", "plain_env:make", *words]) == 0
    capsys.readouterr()
    assert "plain_env:make" in refused(capsys, ["record", "plain", "--allow-import"], 2)
    other = ["train", "plain_env:needs", "--allow-import"]
    assert "TypeError" in refused(capsys, other, 5)


def test_eval_scores_whole_episodes_beside_a_random_agent(capsys, trained):
    assert main(["eval", str(trained), "--episodes", "20", "--random", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["policy"]["episodes"] == result["random"]["episodes"] == 20
    assert 10 < result["random"]["mean"] < 40
    assert result["policy"]["low"] <= result["policy"]["mean"] <= result["policy"]["high"]
    assert json.loads((trained / "eval.json").read_text()) == result
    assert main(["eval", str(trained), "--episodes", "5", "--deterministic"]) == 0
    assert "5 episodes" in capsys.readouterr().out.replace("\n", " ")


def test_record_and_plot_write_a_film_and_a_picture(capsys, trained, tmp_path):
    assert main(["record", str(trained)]) == 0
    film = (trained / "episode.mp4").read_bytes()
    assert film[4:8] == b"ftyp"
    import av

    with av.open(str(trained / "episode.mp4")) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) > 5
    assert frames[0].std() > 0
    assert main(["plot", str(trained), "--out", "curve.png"]) == 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert "must end in .mp4" in refused(capsys, ["record", str(trained), "--out", "x.avi"])


def test_a_film_of_minatar_is_large_enough_to_see(tmp_path):
    assert (
        main(
            ["train", "MinAtar/Breakout-v1", "--interactions", "4096", "--quiet", "--out", "m"]
        )
        == 0
    )
    assert main(["record", "m", "--out", "m.mp4"]) == 0
    import av

    with av.open("m.mp4") as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert min(frame.shape[:2]) >= 300


def test_show_prints_presets_runs_and_differences(capsys, trained):
    assert main(["show", "minatar.dna"]) == 0
    assert "distil" in capsys.readouterr().out
    assert main(["show", str(trained), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interactions"] == 600
    assert main(["show", str(trained), "--diff", "cartpole.dna", "--json"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert changed == {"env.id": ["CartPole-v1", None], "interactions": [600, 100_000]}
    assert main(["show", "minatar.dna", "--diff", "minatar.dna"]) == 0
    assert "same settings" in capsys.readouterr().out


def test_list_and_doctor_say_what_there_is(capsys):
    assert main(["list", "presets"]) == 0
    assert "minatar.ppg" in capsys.readouterr().out
    assert main(["list", "envs"]) == 0
    assert "MinAtar/Breakout-v1" in capsys.readouterr().out.splitlines()
    assert main(["doctor"]) == 0
    assert "torch" in capsys.readouterr().out
    assert main(["doctor", "CartPole-v1"]) == 0
    assert "FAIL" not in capsys.readouterr().out
    assert "no such environment" in refused(capsys, ["doctor", "NoSuchThing-v9"])


def test_doctor_finds_what_is_wrong_with_an_environment(capsys, tmp_path, monkeypatch):
    (tmp_path / "my_envs.py").write_text(
        "import itertools, numpy as np\n"
        "from dna.envs.fake import Identity, Countdown\n"
        "ticks = itertools.count()\n"
        "class Restless(Identity):\n"
        "    def _show(self):\n"
        "        return super()._show() + next(ticks)\n"
        "class Deaf(Countdown):\n"
        "    pass\n"
        "class Broken(Countdown):\n"
        "    def step(self, action):\n"
        "        raise RuntimeError('no')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["doctor", "my_envs:Restless", "--allow-import"]) == 5
    assert "same seed" in capsys.readouterr().out
    assert main(["doctor", "my_envs:Deaf", "--allow-import"]) == 0
    assert "seeds change nothing" in capsys.readouterr().out
    assert main(["doctor", "my_envs:Broken", "--allow-import"]) == 5
    assert "RuntimeError: no" in capsys.readouterr().out


def test_doctor_names_what_a_resume_would_lose(capsys, tmp_path, monkeypatch):
    (tmp_path / "lossy_envs.py").write_text(
        "import numpy as np\n"
        "from dna.envs.fake import Identity\n"
        "class Ball:\n"
        "    pass\n"
        "class Growing(Identity):\n"
        "    def reset(self, **how):\n"
        "        self.balls = []\n"
        "        return super().reset(**how)\n"
        "    def step(self, action):\n"
        "        self.balls.append(Ball())\n"
        "        return super().step(action)\n"
        "class Counting(Identity):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Counting.steps += 1\n"
        "        return super().step(action)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["doctor", "lossy_envs:Growing", "--allow-import"]) == 0
    shown = capsys.readouterr().out
    assert "note  cannot be restored as it is after 1 steps" in shown
    assert "lossy_envs.Ball" in shown
    assert main(["doctor", "lossy_envs:Counting", "--allow-import"]) == 0
    assert "note  changes lossy_envs.Counting.steps, which is not" in capsys.readouterr().out


def test_an_environment_of_ones_own_trains_by_module_and_factory(capsys, tmp_path, monkeypatch):
    (tmp_path / "my_task.py").write_text(
        "from dna.envs.fake import Identity\ndef make():\n    return Identity(symbols=3)\n"
    )
    # As the installed command has it: the current folder is not on the path.
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    words = ["train", "my_task:make", "--interactions", "1024", "--quiet", "--out", "own"]
    assert main([*words, "--allow-import"]) == 0
    assert main(["eval", "own", "--episodes", "2", "--allow-import"]) == 0
    capsys.readouterr()
    assert "--allow-import" in refused(capsys, ["eval", "own", "--episodes", "2"])


def test_what_an_environment_leaves_behind_neither_hangs_nor_garbles(tmp_path):
    """A thread that never ends, and an error in `__del__` with an escape sequence."""
    (tmp_path / "leaving.py").write_text(
        "import threading\n"
        "from dna.envs.fake import Identity\n"
        "class Loud:\n"
        "    def __del__(self):\n"
        "        raise ValueError('\\x1b[31mred')\n"
        "class Leaving(Identity):\n"
        "    def step(self, action):\n"
        "        Loud()\n"
        "        return super().step(action)\n"
        "    def close(self):\n"
        "        threading.Thread(target=threading.Event().wait, name='left').start()\n"
    )
    words = ["train", "leaving:Leaving", "--interactions", "1024", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "dna", *words, "--out", "run", "--allow-import"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "done").exists()
    lines = done.stderr.splitlines()
    assert lines[-1] == "dna: ending in spite of threads that are still running: left"
    assert "\x1b" not in done.stderr
    assert "dna: ValueError in Loud.__del__ was ignored: \\x1b[31mred" in lines


@pytest.mark.parametrize("service", ["wandb", "trackio"])
def test_trackers_receive_the_run(service, tmp_path):
    """The real services, offline: W&B's offline folder and trackio's local database."""
    environment = os.environ | {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path),
        "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
    }  # fmt: skip
    words = [sys.executable, "-m", "dna", *TRAIN, "--track", service, "--out", "tracked"]
    done = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = {"wandb": "wandb/offline-run-*/*.wandb", "trackio": "trackio/*.db"}
    assert list(tmp_path.glob(written[service])), list(tmp_path.rglob("*"))[:30]
