"""Threads of torch that leave the cores to the environments."""

import os
import subprocess
import sys

import pytest

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
