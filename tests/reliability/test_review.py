"""What a reviewer broke, and stays mended."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_resume import Stopper

from dna import checkpoint
from dna.cli import main
from dna.errors import BadInput, Preempted, StorageFailure
from dna.folder import RunFolder
from dna.setup import How
from dna.storage import read_folder, tensor_bytes, tensors_from, write_folder
from dna.train import train
from dna.tweak import digest
from helpers import tiny

CONFIG = tiny("dna", "CartPole-v1", interactions=768)
HOW = How(checkpoint_every=64, tensorboard=False, threads=1)


@pytest.fixture
def cut(tmp_path):
    """A run that was stopped in the middle."""
    with pytest.raises(Preempted):
        train(CONFIG, 3, tmp_path / "run", how=HOW, sinks=[Stopper(6)])
    return tmp_path / "run"


def resumed(folder):
    return train(CONFIG, 3, folder, how=HOW)


def passed_over(folder, why):
    going_on = pytest.warns(RuntimeWarning, match="going on from")
    with going_on, pytest.warns(RuntimeWarning, match=why):
        return resumed(folder)["interactions"]


def rewritten(folder, change):
    """The newest checkpoint with other content and a manifest that fits it."""
    newest = folder / "checkpoints" / checkpoint.names(folder)[-1]
    files = read_folder(newest)
    change(files)
    write_folder(newest, files, {"digest": digest(CONFIG, 3)})


def test_a_run_whose_checkpoints_are_gone_does_not_start_over_by_itself(cut):
    before = (cut / "metrics.jsonl").read_bytes()
    shutil.rmtree(cut / "checkpoints")
    with pytest.raises(StorageFailure, match="has no checkpoint that could be used"):
        resumed(cut)
    assert (cut / "metrics.jsonl").read_bytes() == before
    train(CONFIG, 3, cut, how=How(tensorboard=False, threads=1, restart=True))


def test_damaged_checkpoints_that_were_put_aside_count_as_checkpoints(cut):
    for name in checkpoint.names(cut):
        (cut / "checkpoints" / name).rename(cut / "checkpoints" / f"damaged-{name}-0")
    with pytest.raises(StorageFailure, match="has no checkpoint that could be used"):
        resumed(cut)


def test_a_run_that_ended_before_its_first_checkpoint_says_that_it_starts_over(tmp_path):
    how = How(checkpoint_every=512, tensorboard=False, threads=1)
    with pytest.raises(Preempted):
        train(CONFIG, 3, tmp_path / "run", how=how, sinks=[Stopper(1)])
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.warns(RuntimeWarning, match="no checkpoint yet, starting over"):
        train(CONFIG, 3, tmp_path / "run", how=how)


@pytest.mark.parametrize("name", ["000000000384-backup", "0 notes", "12"])
def test_what_lies_beside_checkpoints_is_left_alone(cut, name):
    (cut / "checkpoints" / name).mkdir()
    resumed(cut)
    assert (cut / "checkpoints" / name).is_dir()
    assert len(checkpoint.names(cut)) <= 14


@pytest.mark.parametrize(
    "change",
    [
        {"resumes": "x"},
        {"lengths": [1]},
        {"lengths": {}},
        {"lengths": {"metrics.jsonl": "a"}},
        {"iteration": "abc"},
        {"inexact": "x"},
    ],
    ids=str,
)
def test_a_checkpoint_with_nonsense_is_passed_over(cut, change):
    def spoil(files):
        files["state.json"] = json.dumps(json.loads(files["state.json"]) | change).encode()

    rewritten(cut, spoil)
    assert passed_over(cut, "not used") == 768


def test_a_bottomless_state_is_passed_over(cut):
    rewritten(cut, lambda files: files.update({"state.json": b"[" * 200_000}))
    assert passed_over(cut, "not used") == 768


@pytest.mark.parametrize("name", ["networks/policy.value_head.bias", "collector/now/elapsed"])
def test_a_checkpoint_that_does_not_fit_is_one_line(cut, name):
    def drop(files):
        tensors = tensors_from(files["rank0.safetensors"], "test")
        del tensors[name]
        files["rank0.safetensors"] = tensor_bytes(tensors)

    rewritten(cut, drop)
    with pytest.raises(StorageFailure, match="does not fit this run"):
        resumed(cut)


def test_a_pipe_among_the_files_is_refused_and_not_waited_for(cut):
    newest = cut / "checkpoints" / checkpoint.names(cut)[-1]
    (newest / "state.json").unlink()
    os.mkfifo(newest / "state.json")
    assert passed_over(cut, "not a plain file") == 768


def test_half_a_line_of_a_log_that_was_cut_is_left_out(cut):
    path = cut / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-37])
    with pytest.warns(RuntimeWarning, match=r"not exact from here on: metrics\.jsonl"):
        resumed(cut)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[-1]["interactions"] == 768


def test_an_edited_configuration_is_named(cut):
    path = cut / "config.json"
    tree = json.loads(path.read_text())
    tree["config"]["interactions"] = 4096
    path.write_text(json.dumps(tree))
    with pytest.raises(BadInput, match=r"config\.json: was changed after the run began"):
        RunFolder(cut).read()


@pytest.mark.parametrize("text", ["[]", "{}", "3"])
def test_a_damaged_mark_of_the_end_is_named(cut, text, capsys):
    (cut / "done").write_text(text)
    assert main(["resume", str(cut)]) == 6
    assert re.search(r"done: damaged; delete it", capsys.readouterr().err)


def test_nohup_keeps_a_run_going(tmp_path):
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    code += "import sys; from dna.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["train", "CartPole-v1", "--interactions", "12000", "--out", str(tmp_path / "r")]
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.DEVNULL)
    while not (tmp_path / "r" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 0


def test_peers_that_cannot_do_the_work_are_refused(capsys):
    assert main(["bench", "procgen", "--against", "sb3"]) == 2
    assert "does not do procgen's work; cleanrl-style can" in capsys.readouterr().err


def test_a_timeout_without_end_is_refused(capsys):
    assert main(["train", "CartPole-v1", "--env-timeout", "inf"]) == 2
