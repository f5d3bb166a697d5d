"""What a reviewer broke, and stays mended."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import gymnasium
import numpy as np
import pytest
import safetensors.numpy

from dna.cli import main
from dna.common import syscalls
from dna.common.errors import BadInput, FolderBusy, NonFinite, Preempted, StorageFailure
from dna.common.lock import check_unlocked, locked
from dna.common.storage import make_folder, read_folder, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from
from dna.config.overrides import digest, tweak
from dna.runs import checkpoint
from dna.runs.extend import lengthened
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import train
from helpers import Stopper, tiny

CONFIG = tiny("dna", "CartPole-v1", interactions=768)
PHASES = ("policy", "value", "distil")
HOW = How(checkpoint_every=64, tensorboard=False, threads=1)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in the middle; tests take copies of it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Preempted):
        train(CONFIG, 3, folder, how=HOW, sinks=[Stopper(6)])
    return folder


@pytest.fixture
def cut(stopped, tmp_path):
    """A run that was stopped in the middle."""
    return shutil.copytree(stopped, tmp_path / "run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same run, never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    resumed(folder)
    return folder


def resumed(folder):
    return train(CONFIG, 3, folder, how=HOW)


def passed_over(folder, why):
    going_on = pytest.warns(RuntimeWarning, match="resuming from")
    with going_on, pytest.warns(RuntimeWarning, match=why):
        return resumed(folder)["interactions"]


def rewritten(folder, change, name=None):
    """The newest checkpoint, or this one, with other content and a manifest that fits it."""
    path = folder / "checkpoints" / (name or checkpoint.names(folder)[-1])
    files = read_folder(path)
    change(files)
    write_folder(path, files, {"digest": digest(CONFIG, 3)})


def test_a_run_whose_checkpoints_are_gone_does_not_start_over_by_itself(cut):
    before = (cut / "metrics.jsonl").read_bytes()
    shutil.rmtree(cut / "checkpoints")
    with pytest.raises(StorageFailure, match="has no checkpoint that can be used"):
        resumed(cut)
    assert (cut / "metrics.jsonl").read_bytes() == before
    train(CONFIG, 3, cut, how=How(tensorboard=False, threads=1, restart=True))


def test_damaged_checkpoints_that_were_put_aside_count_as_checkpoints(cut):
    for name in checkpoint.names(cut):
        (cut / "checkpoints" / name).rename(cut / "checkpoints" / f"damaged-{name}-0")
    with pytest.raises(StorageFailure, match="has no checkpoint that can be used"):
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
        {"hashes": [1]},
        {"hashes": {"metrics.jsonl": 3}},
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


def without(name):
    """What takes a tensor out of a checkpoint's files."""

    def drop(files):
        tensors = tensors_from(files["rank0.safetensors"], "test")
        del tensors[name]
        files["rank0.safetensors"] = tensor_bytes(tensors)

    return drop


@pytest.mark.parametrize("name", ["networks/policy.value_head.bias", "collector/now/elapsed"])
def test_a_checkpoint_that_does_not_fit_is_passed_over_and_the_run_is_exact(cut, name, whole):
    rewritten(cut, without(name))
    assert passed_over(cut, "does not fit this run") == 768
    for file in ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors"):
        assert (cut / file).read_bytes() == (whole / file).read_bytes(), file
    assert RunFolder(cut).machine()["exact"]


def test_checkpoints_of_which_none_fits_are_one_line_and_stay(cut):
    before = checkpoint.names(cut)
    for name in before:
        rewritten(cut, without("networks/policy.value_head.bias"), name)
    with pytest.raises(StorageFailure, match=r"none of its \d+ checkpoints can be used"):
        resumed(cut)
    assert checkpoint.names(cut) == before


def test_a_resumed_run_remembers_how_it_was_begun(tmp_path, capsys):
    out = str(tmp_path / "run")
    words = ["--threads", "2", "--compile", "off", "--interactions", "128", "--quiet"]
    sizes = ["horizon=16", "agents=4", *(f"{phase}.sgd.minibatch=64" for phase in PHASES)]
    assert main(["train", "CartPole-v1", *sizes, "--out", out, *words]) == 0
    (tmp_path / "run" / "done").unlink()
    capsys.readouterr()
    assert main(["resume", out, "--quiet"]) == 0
    assert capsys.readouterr().err == ""  # nothing is inexact
    machine = RunFolder(tmp_path / "run").machine()
    assert (machine["threads"], machine["exact"]) == (2, True)
    assert machine["asked"]["compile"] == "off"


@pytest.mark.parametrize("asked", [3, [], {"threads": 10**9}, {"run": "rm"}, {"device": "a"}])
def test_nonsense_in_the_memory_of_a_run_is_one_line(cut, asked, capsys):
    path = cut / "machine.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"asked": asked}))
    assert main(["resume", str(cut)]) == 6
    assert "machine.json: damaged" in capsys.readouterr().err


class Broken(gymnasium.Env):
    """Its third observation is not a number."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(3, np.nan if self.steps == 3 else 0, np.float32), 1.0, False, False, {}


def test_what_is_not_finite_in_the_warm_up_is_written_down(tmp_path):
    config = tweak(CONFIG, **{"warm_up": {"low": 5, "high": 9}, "env.id": None})
    with pytest.raises(NonFinite, match=r"nonfinite\.safetensors") as caught:
        train(config, 3, tmp_path / "run", how=HOW, source=Broken)
    assert "observation" in str(caught.value)
    dump = safetensors.numpy.load_file(tmp_path / "run" / "nonfinite.safetensors")
    assert any(np.isnan(array).any() for array in dump.values())


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
    words = ["train", "CartPole-v1", "--interactions", "8192", "--out", str(tmp_path / "r")]
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.DEVNULL)
    while not (tmp_path / "r" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 0


def test_peers_that_cannot_do_the_work_are_refused(capsys):
    assert main(["bench", "procgen", "--against", "sb3"]) == 2
    assert "cannot run procgen; available: cleanrl-style" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["inf", "nan"])
def test_a_timeout_without_end_is_refused(seconds, capsys):
    assert main(["train", "CartPole-v1", "--env-timeout", seconds]) == 2


# ── a second reviewer ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("collector/now/elapsed", lambda x: x[:0]),
        ("collector/now/obs", lambda x: x[:1]),
        ("collector/scores/counts", lambda x: x + 64),
        ("collector/scores/counts", lambda x: -x),
        ("collector/reward/running", lambda x: x[0]),
        ("networks/policy.value_head.bias", lambda x: x * float("nan")),
        ("optimizer/policy/0/step", lambda x: x.reshape(1)[:0]),
        ("observation/mean", lambda x: x.float()),
    ],
    ids=lambda x: x if isinstance(x, str) else "changed",
)
def test_a_state_that_cannot_be_of_this_run_is_passed_over(cut, name, change, whole):
    def spoil(files):
        tensors = tensors_from(files["rank0.safetensors"], "test")
        tensors[name] = change(tensors[name]).clone()
        files["rank0.safetensors"] = tensor_bytes(tensors)

    rewritten(cut, spoil)
    assert passed_over(cut, "does not fit this run|moments are not of these") == 768
    for file in ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors"):
        assert (cut / file).read_bytes() == (whole / file).read_bytes(), file


def test_an_empty_lock_is_nobodys(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").touch()
    assert resumed(tmp_path / "run")["interactions"] == 768


def test_an_old_checkpoint_that_talks_nonsense_does_not_end_the_run(cut):
    path = cut / "checkpoints" / checkpoint.names(cut)[0] / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"score": "high"}))
    with pytest.warns(RuntimeWarning, match="is kept: score 'high'"):
        assert resumed(cut)["interactions"] == 768


def test_the_training_command_remembers_too(tmp_path):
    out = str(tmp_path / "run")
    sizes = ["horizon=16", "agents=4", *(f"{phase}.sgd.minibatch=64" for phase in PHASES)]
    words = ["train", "CartPole-v1", *sizes, "--out", out, "--interactions", "128", "--quiet"]
    assert main([*words, "--threads", "2", "--checkpoint-every", "100"]) == 0
    (tmp_path / "run" / "done").unlink()
    assert main([*words, "--resume"]) == 0
    machine = RunFolder(tmp_path / "run").machine()
    assert (machine["threads"], machine["asked"]["checkpoint_every"]) == (2, 100)
    assert machine["exact"]


def test_folders_are_on_the_disk_before_what_is_in_them(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        syscalls, "fsync", lambda fd: seen.append(os.readlink(f"/proc/self/fd/{fd}"))
    )
    make_folder(tmp_path / "a" / "b")
    assert seen == [str(tmp_path), str(tmp_path / "a")]


HANGING = """
import ctypes, signal, sys, time, warnings
from pathlib import Path
import dna.runs.watchdog as watchdog
watchdog.GRACE = {grace}
with watchdog.watching(watchdog.WatchedCalls("it", {seconds}), Path("nowhere")):
    print("ready", flush=True)
    {body}
print("alive", flush=True)
"""


def hanging(body, seconds, grace):
    code = HANGING.format(body=body, seconds=seconds, grace=grace)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True)


def test_a_suspended_process_is_given_its_time(tmp_path):
    child = hanging("time.sleep(4)", 1.0, 1)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGSTOP)
    time.sleep(6)
    child.send_signal(signal.SIGCONT)
    assert child.communicate(timeout=30)[0] == "alive\n"


def test_a_call_that_holds_pythons_lock_is_ended_from_outside(tmp_path):
    child = hanging("ctypes.PyDLL(None).sleep(60)", 1.0, 1)  # PyDLL keeps the lock
    said = child.communicate(timeout=40)
    assert child.returncode == -signal.SIGKILL
    assert "alive" not in said[0]
    assert "most recent call first" in said[1]


class Deleter:
    """Takes the lock file away in the middle of a run; a rival may take the folder."""

    def __init__(self, folder, rival=None):
        self.folder, self.rival = folder, rival

    def start(self):
        pass

    def write(self, row):
        if row.iteration == 2:
            (self.folder / "run.lock").unlink()
            if self.rival is not None:
                self.rival.enter_context(locked(self.folder))

    def close(self):
        pass


def test_a_deleted_lock_file_is_taken_again(tmp_path):
    folder = tmp_path / "run"
    seen = []

    class Looker(Deleter):
        def write(self, row):
            super().write(row)
            if row.iteration == 4:
                with pytest.raises(FolderBusy, match=f"pid {os.getpid()}"):
                    check_unlocked(folder)
                seen.append(row.iteration)

    assert train(CONFIG, 3, folder, how=HOW, sinks=[Looker(folder)])["interactions"] == 768
    assert seen == [4]


def test_a_run_whose_folder_was_taken_from_it_stops_before_it_writes(tmp_path):
    folder = tmp_path / "run"
    with ExitStack() as rival, pytest.raises(FolderBusy, match="in use by"):
        train(CONFIG, 3, folder, how=HOW, sinks=[Deleter(folder, rival)])
    rows = (folder / "metrics.jsonl").read_bytes().splitlines()
    assert [json.loads(row)["iteration"] for row in rows] == [0, 1, 2]


@pytest.mark.parametrize("command", [["eval"], ["resume"], ["show"]], ids=str)
def test_a_configuration_that_is_a_link_is_named(cut, capsys, command):
    (cut / "config.json").rename(cut.parent / "config.json")
    (cut / "config.json").symlink_to(cut.parent / "config.json")
    assert main([*command, str(cut)]) == 2
    assert "config.json: is a link; put the file itself" in capsys.readouterr().err


class Moody(gymnasium.Env):
    """Once it has moved, it holds something that cannot be written down."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.film = 0, None
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.film = iter([1])
        return np.zeros(1, np.float32), float(action), False, self.steps >= 37, {}


def test_environments_that_cannot_be_saved_now_do_not_end_the_run(tmp_path):
    config, run = tweak(CONFIG, **{"env.id": None}), tmp_path / "run"
    with (
        pytest.warns(RuntimeWarning, match="resumed run may not be exact: .*list_iterator"),
        pytest.raises(Preempted),
    ):
        train(config, 3, run, how=HOW, source=Moody, sinks=[Stopper(9)])
    newest = run / "checkpoints" / checkpoint.names(run)[-1] / "rank0.safetensors"
    named = tensors_from(newest.read_bytes(), "test")
    assert not [name for name in named if name.startswith("env/")]
    with pytest.warns(RuntimeWarning, match="not exact from here on: .*restarted"):
        assert train(config, 3, run, how=HOW, source=Moody)["interactions"] == 768
    machine = json.loads((run / "machine.json").read_text())
    assert machine["exact"] is False


def test_a_log_that_was_deleted_is_put_back(whole, tmp_path):
    run = tmp_path / "run"

    class Thief(Deleter):
        def write(self, row):
            if row.iteration == 3:
                (run / "metrics.jsonl").unlink()
                (run / "episodes.csv").unlink()
                (run / "episodes.csv").write_text("nonsense")

    with pytest.warns(RuntimeWarning, match="was deleted or replaced"):
        train(CONFIG, 3, run, how=HOW, sinks=[Thief(run)])
    for name in ("metrics.jsonl", "episodes.csv"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_a_kill_between_two_names_loses_neither(cut, monkeypatch):
    """A checkpoint that is about to be replaced is found again, as if nothing had been."""
    path = cut / "checkpoints" / checkpoint.names(cut)[-1]
    files, rename = read_folder(path), syscalls.rename

    def die(old, new):
        if new == path:
            os._exit(9)
        rename(old, new)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(syscalls, "rename", die)
        write_folder(path, files, {"digest": digest(CONFIG, 3)})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not path.exists()
    assert resumed(cut)["interactions"] == 768
    assert not list((cut / "checkpoints").glob(".*"))
    assert json.loads((cut / "machine.json").read_text())["resumes"] == 1


def test_learning_longer_does_not_clear_what_may_be_lost(cut):
    shutil.rmtree(cut / "checkpoints")
    before = (cut / "metrics.jsonl").read_bytes()
    with pytest.raises(StorageFailure, match="has no checkpoint that can be used"):
        lengthened(RunFolder(cut), 999)
    assert (cut / "metrics.jsonl").read_bytes() == before
