"""Threads of torch that leave the cores to the environments, and forked copies."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dna.common import process
from dna.common.process import WAITING, wait_briefly

NAME = "GOMP_SPINCOUNT"


def test_threads_wait_briefly_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    wait_briefly()
    assert os.environ[NAME] == WAITING[NAME]
    monkeypatch.setenv(NAME, "7")
    wait_briefly()
    assert os.environ[NAME] == "7"


def test_a_command_says_so_before_torch_is_loaded() -> None:
    code = (
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch':\n"
        f"            print('seen', os.environ.get({NAME!r}))\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from dna.cli import main\n"
        "main(['train', 'CartPole-v1', '--interactions', '0'])\n"
        "main(['train', 'NoSuch-v1'])\n"
    )
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"seen {WAITING[NAME]}" in words.stdout
    assert "seen None" not in words.stdout


# ── forked copies ─────────────────────────────────────────────────────────────────────────

here = ["before"]


def _changing(send):
    here.append("in the copy")
    print("nobody reads this")
    send(",".join(here).encode())


def _crashing(send):
    send(b"so far")
    os.kill(os.getpid(), signal.SIGKILL)


def _hanging(send):
    send(b"so far")
    while True:
        time.sleep(1)


def _raising(send):
    raise ValueError("of the copy")


@pytest.mark.skipif(not process.can_fork(), reason="cannot fork here")
@pytest.mark.parametrize(
    ("work", "sent"),
    [
        (_changing, b"before,in the copy"),
        (lambda send: send(b"x" * 300_000), b"x" * 300_000),
        (_crashing, b"so far"),
        (_hanging, b"so far"),
        (_raising, b""),
        (lambda send: sys.exit(3), b""),
    ],
)
def test_nothing_that_a_forked_copy_does_changes_this_process(work, sent, capfd, monkeypatch):
    copies = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: copies.append(fork()) or copies[-1])
    assert process.in_forked_copy(work, 0.5) == sent
    assert here == ["before"]
    assert capfd.readouterr() == ("", "")
    assert len(copies) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(copies[0], 0)  # neither running nor left to be waited for
