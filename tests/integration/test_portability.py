"""The core runs without what only POSIX has, which is hidden from a process on Linux."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from dna.runs.setup import How
from dna.runs.train import train
from helpers import bytes_of, tiny

HIDDEN = "import without_posix; without_posix.hide()\n"
HIDDEN_MODULES = "import without_posix; without_posix.hide_modules()\n"
SAME = ("metrics.jsonl", "episodes.csv", "policy/policy.json", "policy/policy.safetensors")

RUN = """
import signal, sys
from pathlib import Path

import numpy as np
import pytest

import dna
from dna.cli import main
from dna.common import syscalls
from dna.common.errors import Preempted, StorageFailure
from dna.common.lock import HAS_FLOCK
from dna.common.storage import read
from dna.runs.setup import How
from dna.runs.train import train
from helpers import tiny

assert not HAS_FLOCK and not hasattr(syscalls.os, "O_NOFOLLOW")
folder = Path(sys.argv[1])


class Stopper:
    def start(self):
        pass

    def write(self, row):
        if row.iteration == 1:
            signal.raise_signal(signal.SIGTERM)

    def close(self):
        pass


how = How(checkpoint_every=64, env_timeout=60.0, threads=1, compile="off")
with pytest.raises(Preempted):
    train(tiny(), 3, folder / "run", how=how, sinks=[Stopper()])
assert main(["resume", str(folder / "run"), "--quiet"]) == 0
assert main(["eval", str(folder / "run"), "--episodes", "2"]) == 0

agent = dna.load(folder / "run")
agent.save(folder / "copy")
agent.save(folder / "copy")  # over the first
seen = np.full(4, 0.1, np.float32)
action, _ = agent.predict(seen)
assert dna.load(folder / "copy").predict(seen)[0] == action
other = dna.PPO("CartPole-v1", preset=tiny("ppo", None), folder=folder / "other")
other.learn(64, progress=False, how=how).learn(128, progress=False, how=how)
assert other.interactions == 192

(folder / "link").symlink_to(folder / "copy" / "config.json")
for call in (lambda: read(folder / "link", 9), lambda: syscalls.append_to(folder / "link")):
    with pytest.raises((OSError, StorageFailure), match="symbolic links"):
        call()
"""

HOLD = """
import sys
from pathlib import Path
from dna.common.lock import locked

with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def python(program: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(folder)]
    pipe = subprocess.PIPE
    places = [str(Path(__file__).parents[1]), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)


def test_a_run_without_posix_writes_the_same_bytes(tmp_path):
    process = python(HIDDEN + RUN, tmp_path)
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "over 2 episodes" in said
    how = How(checkpoint_every=64, threads=1, compile="off", tensorboard=False)
    train(tiny(), 3, tmp_path / "whole", how=how)
    assert bytes_of(tmp_path / "run", *SAME) == bytes_of(tmp_path / "whole", *SAME)
    assert not list(tmp_path.glob("*/run.lock.held"))


@contextmanager
def holding(folder: Path):
    with python(HIDDEN_MODULES + HOLD, folder) as process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_without_flock_a_second_process_is_kept_out_and_told_by_whom(tmp_path):
    with holding(tmp_path) as first:
        second = python(HIDDEN_MODULES + HOLD, tmp_path)
        _, errors = second.communicate(timeout=30)
        assert second.returncode == 1
        owner = f"pid {first.pid} on {socket.gethostname()}"
        assert errors.endswith(f"FolderBusy: {tmp_path}: in use by {owner}\n")


def test_without_flock_no_library_warns(tmp_path):
    process = python("import sys; sys.modules['fcntl'] = None\n" + HOLD, tmp_path)
    said, errors = process.communicate(timeout=30)
    assert (process.returncode, said, errors) == (0, "locked\n", "")


def test_without_flock_the_lock_of_a_killed_process_is_free(tmp_path):
    with holding(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        with holding(tmp_path) as second:
            assert (tmp_path / "run.lock").read_text().startswith(f"pid {second.pid} on ")


@pytest.mark.parametrize("name", ["create", "append_to"])
def test_files_are_opened_in_binary_mode_where_there_is_one(name, tmp_path, monkeypatch):
    import fcntl

    from dna.common import syscalls

    monkeypatch.setattr(os, "O_BINARY", os.O_NOATIME, raising=False)  # a flag that can be seen
    fd = getattr(syscalls, name)(tmp_path / "file")
    try:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NOATIME
    finally:
        os.close(fd)
