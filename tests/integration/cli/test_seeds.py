"""`dna train … --seeds N`: each seed as if alone, and nothing lost when stopped."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from dna.cli import main
from dna.cli.progress import each_seed
from dna.cli.train import print_seed_summary, seed_summary
from dna.common.errors import DnaError, FolderBusy
from dna.common.lock import locked
from dna.config.overrides import tweak
from dna.config.presets import for_environment
from dna.runs.folder import RunFolder
from dna.runs.sweeps.pool import Task, check, jobs_for
from helpers import bytes_of

#: In one process: tests copy what the fixture trained.
pytestmark = pytest.mark.xdist_group("seeds")
SMALL = ["CartPole-v1", "--interactions", "3072", "horizon=128", "agents=8"]
FILES = ("metrics.jsonl", "episodes.csv", "config.json", "policy/policy.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Seeds 4 and 5, each in a process; the folder and what the command printed."""
    folder = tmp_path_factory.mktemp("seeds")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["train", *SMALL, "--seeds", "2", "--seed", "4", "--out", str(folder)])
    assert code == 0, err.getvalue()
    return folder, out.getvalue(), err.getvalue()


def test_each_seed_is_the_run_it_would_be_alone(trained, tmp_path):
    together, out, _ = trained
    assert [line.split(":")[0] for line in out.splitlines()[:2]] == ["seed 4", "seed 5"]
    assert "standard error over 2 seeds" in out
    assert main(["train", *SMALL, "--seed", "5", "--out", str(tmp_path), "--quiet"]) == 0
    assert bytes_of(together / "seed5", *FILES) == bytes_of(tmp_path, *FILES)
    other = (together / "seed4/metrics.jsonl").read_bytes()
    assert (tmp_path / "metrics.jsonl").read_bytes() != other


def test_finished_seeds_are_not_run_again(trained, tmp_path, capsys):
    shutil.copytree(trained[0] / "seed4", tmp_path / "seed4")
    words = ["train", *SMALL, "--out", str(tmp_path), "--seed", "4", "--seeds", "2", "--json"]
    stamp = (tmp_path / "seed4/done").stat().st_mtime_ns
    assert main(words) == 2
    assert "seed4: already holds a run" in capsys.readouterr().err
    assert not (tmp_path / "seed5").exists()
    assert main([*words, "--resume"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["seed"] for run in found["runs"]] == [4, 5]
    scores = [run["score"] for run in found["runs"]]
    assert found["mean"] == pytest.approx(sum(scores) / 2)
    assert (tmp_path / "seed4/done").stat().st_mtime_ns == stamp


def test_a_stopped_list_saves_and_goes_on(tmp_path):
    words = [sys.executable, "-m", "dna", "train", "CartPole-v1", "--seeds", "2"]
    words += ["--out", str(tmp_path), "--interactions", "24576"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    begun = [tmp_path / f"seed{s}/metrics.jsonl" for s in (0, 1)]
    while not all(path.exists() and path.stat().st_size for path in begun):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert "with --resume continues" in err
    for s in (0, 1):
        assert list((tmp_path / f"seed{s}/checkpoints").iterdir())
        assert not (tmp_path / f"seed{s}/done").exists()
    assert subprocess.run([*words, "--resume"], capture_output=True).returncode == 0
    assert all((tmp_path / f"seed{s}/done").exists() for s in (0, 1))


def test_a_wrong_setting_leaves_nothing_behind(tmp_path, capsys):
    words = ["train", "CartPole-v1", "--seeds", "2", "--out", str(tmp_path)]
    code = main([*words, "--interactions", "2048", "joint.sgd.epochs=1"])
    assert code == 2, "a wrong setting is refused before anything starts"
    assert not list(tmp_path.iterdir())
    capsys.readouterr()
    code = main([*words, "--interactions", "2048", "env.options.nonsense=1"])
    err = capsys.readouterr().err
    assert code == 2
    assert "2 of 2 runs failed; seed 0: CartPole-v1" in err
    assert "nonsense" in err
    ours = [line for line in err.splitlines() if line.startswith("dna: ")]  # not the progress
    assert len(ours) == 1
    assert not list(tmp_path.glob("*/config.json")), "the right command may use the folders"


def test_seeds_stopped_by_others_are_named_and_finished_ones_told(tmp_path, capsys):
    done = Task(for_environment("CartPole-v1"), 0, tmp_path / "a", state="done")
    cut = Task(done.config, 1, tmp_path / "b", state="stopped", code=75)
    RunFolder(done.folder).finish({"seed": 0, "score": 9.0, "run": "a"})
    print_seed_summary(seed_summary([done, cut]))
    assert "seed 0: score 9.00" in capsys.readouterr().out
    with pytest.raises(DnaError, match=r"1 of 2 runs stopped; seed 1: `dna resume") as raised:
        check([done, cut])
    assert raised.value.exit_code == 75
    check([done])


def test_restarting_does_not_clear_a_run_that_is_training(trained, tmp_path, capsys):
    folder = shutil.copytree(trained[0] / "seed4", tmp_path / "seed4")
    words = ["train", *SMALL, "--seed", "4", "--seeds", "1", "--out", str(tmp_path)]
    before = (folder / "metrics.jsonl").read_bytes()
    with locked(folder):
        assert main([*words, "--restart"]) == 3
    assert "in use by pid" in capsys.readouterr().err
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_no_run_outlives_a_killed_parent(tmp_path):
    words = [sys.executable, "-m", "dna", "train", "CartPole-v1", "--seeds", "2"]
    process = subprocess.Popen([*words, "--out", str(tmp_path), "--interactions", "400000"])
    begun = [tmp_path / f"seed{s}/metrics.jsonl" for s in (0, 1)]
    deadline = time.monotonic() + 60
    while not all(path.exists() and path.stat().st_size for path in begun):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    while True:
        try:
            for s in (0, 1):
                with locked(tmp_path / f"seed{s}"):
                    assert list((tmp_path / f"seed{s}/checkpoints").iterdir()), "saved first"
            break
        except FolderBusy:
            assert time.monotonic() < deadline, "still training"
            time.sleep(0.1)


def test_images_take_all_cores_for_one_run():
    assert jobs_for(for_environment("ALE/Pong-v5")) == 1
    assert jobs_for(for_environment("procgen/coinrun")) == 1
    assert jobs_for(for_environment("CartPole-v1")) == os.cpu_count()


def test_a_dry_run_names_every_seed_and_too_many_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "CartPole-v1", "--seeds", "3", "--seed", "5", "--dry-run"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["seed"] == 5
    assert set(tree["digests"]) == {"5", "6", "7"}
    assert tree["digests"]["5"] == tree["digest"]
    assert len(set(tree["digests"].values())) == 3
    assert main(["train", "CartPole-v1", "--seeds", "2", "--seed", str(2**63 - 1)]) == 2
    assert "--seeds: from --seed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_off_a_terminal_seeds_are_told_in_lines(trained):
    assert "seed 4 done  seed 5 done" in trained[2]


def test_a_seed_whose_last_rollout_exceeds_the_budget_is_at_100_percent(tmp_path):
    config = tweak(for_environment("CartPole-v1"), interactions=2000, horizon=128, agents=8)
    task = Task(config, 3, tmp_path, state="running", interactions=2048, score=9.0)
    assert each_seed([task]) == "seed 3 100% score 9.00"


def test_a_budget_rounded_up_to_whole_rollouts_is_said_once_for_all_seeds(tmp_path, capfd):
    words = ["train", *SMALL, "--seeds", "2", "--out", str(tmp_path), "--interactions", "600"]
    assert main(words) == 0
    note = "600 interactions are rounded up to 1,024, one whole rollout\n"
    shown = capfd.readouterr()
    assert shown.err.count(note) == 1
    assert "are rounded" not in shown.out
    assert "102%" not in shown.err
    assert main([*words, "--resume"]) == 0
    assert "are rounded" not in capfd.readouterr().err
