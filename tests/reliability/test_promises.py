"""What docs/reliability.md promises, where it once was not true."""

import errno
import fcntl
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from dna.cli import main
from dna.cli.train import start_options
from dna.common.errors import FolderBusy, Preempted, StorageFailure
from dna.common.lock import check_unlocked, locked
from dna.config.overrides import tweak
from dna.runs import reproducibility
from dna.runs.extend import copy_run, lengthened
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.text_progress import OneLine, PlainLines
from dna.runs.trackers import STEM, TensorBoard
from dna.runs.train import train
from helpers import Stopper, bytes_of, tiny

CONFIG = tiny("dna", "CartPole-v1", interactions=768)
HOW = How(checkpoint_every=64, tensorboard=False, threads=1, verify=False)
WITH_EVENTS = replace(HOW, tensorboard=True)
PHASES = ("policy", "value", "distil")
LOGS = ("metrics.jsonl", "episodes.csv")
EVENTS = f"tensorboard/{STEM}0000000000.dna"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(CONFIG, 3, folder, how=HOW)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A run that is over."""
    return shutil.copytree(finished, tmp_path / "run")


class At:
    """Does something when an iteration is over."""

    def __init__(self, iteration, work):
        self.iteration, self.work = iteration, work

    def start(self):
        pass

    def write(self, row):
        if row.iteration == self.iteration:
            self.work()

    def close(self):
        pass


# ── work is never thrown away by itself ───────────────────────────────────────────────────


@pytest.mark.parametrize("every", [64, 100_000])
@pytest.mark.parametrize("gone", [("done",), ("done", "policy"), ("done", "metrics.jsonl")])
def test_a_run_that_was_over_is_not_begun_again_by_itself(run, every, gone):
    for name in (*gone, "checkpoints"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    left = [name for name in (*LOGS, "policy/policy.safetensors") if (run / name).exists()]
    before = bytes_of(run, *left)
    with pytest.raises(StorageFailure, match="has no checkpoint that can be used"):
        train(
            CONFIG,
            3,
            run,
            how=How(checkpoint_every=every, tensorboard=False, threads=1, verify=False),
        )
    assert bytes_of(run, *left) == before


# ── nobody listens ────────────────────────────────────────────────────────────────────────

SIZES = ["horizon=16", "agents=4", *(f"{phase}.sgd.minibatch=64" for phase in PHASES)]


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&1 | head -1", "2>&-", "2>&1 >&- | true"])
def test_a_run_that_nobody_can_hear_goes_on(tmp_path, where):
    run = tmp_path / "run"
    words = [sys.executable, "-m", "dna", "train", "CartPole-v1", *SIZES, "--out", str(run)]
    line = f"{shlex.join([*words, '--interactions', '256'])} {where}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert (done.returncode, (run / "done").is_file()) == (0, True), done.stderr
    assert "warming" not in done.stdout or "head" in where


def test_lines_of_progress_that_cannot_be_written_do_not_end_learning(tmp_path, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    for show in (PlainLines(), OneLine()):
        show.every = 0.0
        path = tmp_path / type(show).__name__
        assert train(CONFIG, 3, path, how=HOW, sinks=[show])["interactions"] == 768


# ── how a run was asked for ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_that_was_stopped_in_its_warm_up_remembers_how_it_was_begun(tmp_path, restart):
    config = tweak(CONFIG, warm_up={"low": 5, "high": 9})
    how = How(checkpoint_every=256, threads=2, compile="off", restart=restart)

    class Impatient(At):
        def start(self):
            os.kill(os.getpid(), signal.SIGTERM)

    for again in (False, True):  # the second time it starts over
        with pytest.raises(Preempted):
            train(config, 3, tmp_path / "run", how=how, sinks=[Impatient(-1, None)])
        assert RunFolder(tmp_path / "run").machine() == {"asked": how.asked()}, again
        assert start_options(tmp_path / "run")["threads"] == 2


def test_starting_over_never_forgets_what_the_run_is(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    folder.begin(CONFIG, 3, HOW.asked())
    monkeypatch.setattr(RunFolder, "begin", lambda *words: (_ for _ in ()).throw(Stop))
    with pytest.raises(Stop):
        train(CONFIG, 3, folder.path, how=HOW)
    assert folder.read() == (CONFIG, 3)
    assert folder.machine() == {"asked": HOW.asked()}


class Stop(Exception):
    """Where the process would have been killed."""


# ── logs that others have their hands on ──────────────────────────────────────────────────


@pytest.mark.parametrize("keep", [0, 700])
def test_a_log_that_is_cut_while_it_is_written_is_said(tmp_path, keep):
    run = tmp_path / "run"
    cut = At(3, lambda: os.truncate(run / "metrics.jsonl", keep))
    with pytest.warns(RuntimeWarning, match=r"metrics\.jsonl was cut or written to"):
        train(CONFIG, 3, run, how=HOW, sinks=[cut])
    machine = RunFolder(run).machine()
    assert machine["exact"] is False
    assert machine["why_not_exact"] == ["metrics.jsonl was cut or written to by somebody else"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["iteration"] == 11
    assert len(rows) < 12


def board(folder, lengths, step):
    """An event file more; the lengths a checkpoint would remember."""
    found = TensorBoard(folder, CONFIG, 3, lengths, step)
    found._add(step, summary=found.scalar("x", 1.0))
    lengths = found.sync()
    found.close()
    return found, lengths


@pytest.mark.parametrize("number", [0, 1])
def test_event_files_are_never_written_over(tmp_path, number):
    lengths = {}
    for step in range(3):
        _, lengths = board(tmp_path, lengths, step)
    names = sorted(lengths)
    (tmp_path / names[number]).unlink()
    os.truncate(tmp_path / names[2], 20)
    found, lengths = board(tmp_path, lengths, 4)
    assert found.damaged() == [f"{names[number]} was cut short", f"{names[2]} was cut short"]
    assert found.name not in names
    assert (tmp_path / names[2]).stat().st_size == 20
    assert set(lengths) == {*names, found.name} - {names[number]}
    assert board(tmp_path, lengths, 5)[0].damaged() == []


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run with all its logs that was stopped in the middle."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Preempted):
        train(CONFIG, 3, folder, how=WITH_EVENTS, sinks=[Stopper(6)])
    return folder


def flip_one_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", [*LOGS, "timings.jsonl", EVENTS])
def test_one_flipped_bit_in_a_log_is_said_once_and_recorded(stopped, tmp_path, name):
    run = shutil.copytree(stopped, tmp_path / "run")
    flip_one_bit(run / name)
    reason = f"{name} was changed after the checkpoint"
    with pytest.raises(Preempted), pytest.warns(RuntimeWarning, match=re.escape(reason)):
        train(CONFIG, 3, run, how=WITH_EVENTS, sinks=[Stopper(8)])
    train(CONFIG, 3, run, how=WITH_EVENTS)  # its checkpoints know the log as it is now
    machine = RunFolder(run).machine()
    assert (machine["exact"], machine["why_not_exact"]) == (False, [reason])


def test_a_flipped_bit_beyond_the_checkpoint_is_cut_away(stopped, tmp_path):
    run = shutil.copytree(stopped, tmp_path / "run")
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"{half a line")
    train(CONFIG, 3, run, how=WITH_EVENTS)
    assert RunFolder(run).machine()["exact"]


@pytest.mark.parametrize("change", ["extend", "copy"])
def test_a_flipped_bit_is_found_in_a_run_that_was_extended_or_copied(run, tmp_path, change):
    flip_one_bit(run / "episodes.csv")
    if change == "copy":
        copy_run(RunFolder(run), tmp_path / "copy")
        run = tmp_path / "copy"
    config = lengthened(RunFolder(run), 64)
    with pytest.warns(RuntimeWarning, match="not exact from here on: episodes.csv was changed"):
        train(config, 3, run, how=HOW)
    reasons = ["episodes.csv was changed after the checkpoint"]
    assert RunFolder(run).machine()["why_not_exact"] == reasons


@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_bit_in_a_log_of_a_finished_run_is_said(run, name):
    flip_one_bit(run / name)
    with pytest.warns(RuntimeWarning, match=f"{name} was changed after the run had finished"):
        assert train(CONFIG, 3, run, how=HOW)["seed"] == 3


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("change", ["other", "cut", "gone", "longer", "huge"])
def test_the_command_too_says_that_a_log_of_a_finished_run_was_changed(run, capsys, change):
    path = run / "metrics.jsonl"
    if change == "other":
        flip_one_bit(path)
    elif change == "cut":
        os.truncate(path, 100)
    elif change == "longer":
        with path.open("a") as file:
            file.write("{}\n")
    elif change == "huge":
        os.truncate(path, 2**33)  # a hole, which takes no space
    else:
        path.unlink()
    assert main(["resume", str(run), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["seed"] == 3
    assert said.err == f"dna: {run}: metrics.jsonl was changed after the run had finished\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda newest: (newest / "state.json").unlink(), "No such file"),
        (lambda newest: flip_one_bit(newest / "state.json"), "damaged"),
    ],
    ids=["no state", "damaged"],
)
def test_logs_of_a_finished_run_that_cannot_be_checked_are_said(run, change, reason):
    change(max((run / "checkpoints").iterdir()))
    with pytest.warns(RuntimeWarning, match=f"its logs cannot be checked.*{reason}"):
        assert train(CONFIG, 3, run, how=HOW)["seed"] == 3


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_a_finished_run_is_refused_if_a_log_is_not_a_plain_file(run, tmp_path, kind):
    path = run / "metrics.jsonl"
    path.rename(tmp_path / "whole")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "whole")
    words = [sys.executable, "-m", "dna", "resume", str(run)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == (2 if kind == "link" else 6)
    assert done.stderr.startswith(f"dna: {path}: ")
    assert done.stderr.count("\n") == 1


def forge_state(run, change):
    """Change the state of the newest checkpoint, and its hash in the manifest."""
    newest = max((run / "checkpoints").iterdir())
    manifest = json.loads((newest / "manifest.json").read_text())
    data = json.dumps(change(json.loads((newest / "state.json").read_text()))).encode()
    (newest / "state.json").write_bytes(data)
    listed = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"]["state.json"] = listed
    (newest / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: [1],
        lambda state: {},
        lambda state: state | {"hashes": 7},
        lambda state: state | {"hashes": {"metrics.jsonl": None}},
        lambda state: state | {"lengths": None},
        lambda state: state | {"lengths": {"metrics.jsonl": "x"}},
        lambda state: state | {"lengths": {"metrics.jsonl": -1}},
    ],
)
def test_a_finished_run_with_a_state_that_no_run_writes_is_refused(run, change):
    forge_state(run, change)
    with pytest.raises(StorageFailure, match="not a checkpoint of this version"):
        train(CONFIG, 3, run, how=HOW)


DAMAGES = {
    "deleted": lambda path: path.unlink(),
    "another key": lambda path: path.write_text(path.read_text().replace("resumes", "sesumes")),
    "another value": lambda path: path.write_text(path.read_text().replace("true", "false")),
    "no hash": lambda path: path.write_text(path.read_text().replace("sha256", "sha257")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_reasons_that_only_the_machines_record_had_are_not_lost_in_silence(
    stopped, tmp_path, damage
):
    run = shutil.copytree(stopped, tmp_path / "run")
    DAMAGES[damage](run / "machine.json")
    with pytest.warns(RuntimeWarning, match=r"machine\.json was lost or changed"):
        train(CONFIG, 3, run, how=WITH_EVENTS)
    assert not RunFolder(run).machine()["exact"]


# ── locks and children ────────────────────────────────────────────────────────────────────


def test_two_processes_may_check_a_folder_at_once(run):
    with (run / "run.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # what `check_unlocked` holds for an instant
        check_unlocked(run)
        with pytest.raises(FolderBusy), locked(run):
            pass
    with locked(run), pytest.raises(FolderBusy):
        check_unlocked(run)


def test_a_child_of_the_environment_does_not_hold_the_run(tmp_path):
    ours, theirs = os.pipe()
    alive, says = os.pipe()
    with locked(tmp_path / "run"):
        if (child := os.fork()) == 0:
            os.close(theirs)
            os.write(says, b".")
            os.read(ours, 1)  # until the parent lets it go
            os._exit(0)
        os.read(alive, 1)
        with pytest.raises(FolderBusy):  # forking has not let go of it
            check_unlocked(tmp_path / "run")
    check_unlocked(tmp_path / "run")
    for fd in (theirs, ours, alive, says):
        os.close(fd)
    os.waitpid(child, 0)


def test_a_lock_whose_holder_is_gone_is_told_apart(tmp_path):
    (gone := subprocess.Popen(["true"])).wait()
    with locked(tmp_path):
        text = f"pid {gone.pid} on {socket.gethostname()}\n"
        (tmp_path / "run.lock").write_text(text)
        with pytest.raises(FolderBusy, match=f"in use by a child of pid {gone.pid} on"):
            check_unlocked(tmp_path)


# ── an environment that goes elsewhere ────────────────────────────────────────────────────


class Wanderer(gymnasium.Env):
    """Changes the working directory."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 40:
            os.chdir("/")
        return np.zeros(1, np.float32), float(action), self.steps % 9 == 0, False, {}


def test_a_run_stays_where_it_was_begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tweak(CONFIG, **{"env.id": None})
    how = replace(HOW, tensorboard=True)
    result = train(config, 3, Path("here"), how=how, source=Wanderer)
    assert result["run"] == "here"
    assert RunFolder(tmp_path / "here").result() == result
    assert len((tmp_path / "here" / "metrics.jsonl").read_text().splitlines()) == 12
    assert not Path("/here").exists()


# ── PPG in its last iteration ─────────────────────────────────────────────────────────────


def test_a_stop_in_the_last_iteration_leaves_no_replay_behind(tmp_path):
    config = tiny("ppg", "CartPole-v1", interactions=192)  # three iterations, replay of two
    train(config, 3, tmp_path / "whole", how=HOW)
    with pytest.raises(Preempted):
        train(config, 3, tmp_path / "cut", how=HOW, sinks=[Stopper(2)])
    train(config, 3, tmp_path / "cut", how=HOW)
    name = f"checkpoints/{192:012d}/rank0.safetensors"
    assert bytes_of(tmp_path / "cut", name) == bytes_of(tmp_path / "whole", name)


# ── files that are empty ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["", "{"])
def test_an_empty_mark_of_the_end_says_what_to_do(run, text, capsys):
    (run / "done").write_text(text)
    assert main(["resume", str(run)]) == 6
    assert "done: damaged; delete it, then `dna resume`" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_an_empty_description_of_the_machine_does_not_stop_a_resume(run, capsys):
    (run / "done").unlink()
    (run / "machine.json").write_bytes(b"")
    assert main(["resume", str(run), "--quiet"]) == 0
    assert "machine.json: empty" in capsys.readouterr().err
    (run / "done").unlink()
    (run / "machine.json").write_text("{")
    assert main(["resume", str(run), "--quiet"]) == 6
    assert "machine.json: damaged; delete it" in capsys.readouterr().err


# ── versions of the environment's own package ─────────────────────────────────────────────


def test_another_version_of_the_environments_package_is_said(tmp_path, monkeypatch):
    (tmp_path / "my_worlds-1.0.dist-info").mkdir()
    about = tmp_path / "my_worlds-1.0.dist-info" / "METADATA"
    about.write_text("Metadata-Version: 2.1\nName: my-worlds\nVersion: 1.0\n")
    (about.parent / "RECORD").write_text("my_worlds.py,,\n")
    (about.parent / "top_level.txt").write_text("my_worlds\n")
    code = "import gymnasium\nclass World(gymnasium.Wrapper):\n    def __init__(self):\n"
    (tmp_path / "my_worlds.py").write_text(
        code + "        super().__init__(gymnasium.make('CartPole-v1'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    how = replace(HOW, allow_import=True)
    config = tweak(CONFIG, **{"env.id": "my_worlds:World"})
    with pytest.raises(Preempted):
        train(config, 3, tmp_path / "run", how=how, sinks=[Stopper(2)])
    assert RunFolder(tmp_path / "run").machine()["versions"]["my-worlds"] == "1.0"
    about.write_text(about.read_text().replace("1.0", "1.1"))
    reproducibility._version.cache_clear()  # as in the process that resumes
    with pytest.warns(RuntimeWarning, match=r"my-worlds was 1\.0, now 1\.1"):
        train(config, 3, tmp_path / "run", how=how)


# ── hints that can be pasted ──────────────────────────────────────────────────────────────


def test_paths_in_hints_are_quoted(tmp_path, capsys):
    run = tmp_path / "a b" / "rün 1"
    with pytest.raises(Preempted) as caught:
        train(CONFIG, 3, run, how=HOW, sinks=[Stopper(2)])
    assert f"`dna resume '{run}'` continues it" in str(caught.value)
    assert main(["eval", str(run)]) == 2
    assert f"`dna resume '{run}'` continues it" in capsys.readouterr().err
    assert main(["resume", str(run)]) == 0
    assert f"dna eval '{run}' | dna plot '{run}'" in capsys.readouterr().out
