"""What a forked copy does changes neither this process nor its files."""

import multiprocessing
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from dna.common import forked_copy
from dna.common.forked_copy import OutsideEffect, can_fork, in_forked_copy, refuse_effects

pytestmark = pytest.mark.skipif(not can_fork(), reason="cannot fork here")

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
    assert in_forked_copy(work, 0.5) == sent
    assert here == ["before"]
    assert capfd.readouterr() == ("", "")
    assert len(copies) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(copies[0], 0)  # neither running nor left to be waited for


def test_a_copy_has_some_time_to_start_and_some_to_end():
    def late(send):
        time.sleep(0.6)
        send(b"made")
        time.sleep(0.4)
        send(b", done")

    assert in_forked_copy(late, 0.1, start=20.0) == b"made"
    assert in_forked_copy(late, 20.0, start=0.1) == b""


def test_a_copy_neither_writes_to_open_files_nor_moves_in_them(tmp_path):
    (tmp_path / "read").write_bytes(b"abcdef")
    ours, theirs = socket.socketpair()
    with (
        ours,
        theirs,
        (tmp_path / "read").open("rb", buffering=0) as read,
        (tmp_path / "written").open("wb", buffering=0) as written,
    ):
        read.read(2)

        def work(send):
            send(read.read(2))
            written.write(b"of the copy")
            ours.send(b"of the copy")

        assert in_forked_copy(work, 20.0) == b"cd"
        assert read.read(2) == b"cd"
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
    assert (tmp_path / "written").read_bytes() == b""


SPAWN = multiprocessing.get_context("spawn")
SHARED = multiprocessing.get_context("fork").Value("i", 1)


def test_a_copy_has_shared_memory_for_itself(tmp_path):
    table = np.memmap(tmp_path / "table", mode="w+", shape=5000, dtype=np.float64)
    table[:] = 1

    def work(send):
        with SHARED.get_lock():
            SHARED.value += 1
        table[4999] += 1
        send(f"{SHARED.value} {table[0]:g} {table[4999]:g}".encode())

    assert in_forked_copy(work, 20.0) == b"2 1 2"
    assert SHARED.value == 1
    assert table[4999] == 1
    assert np.fromfile(tmp_path / "table")[4999] == 1


def test_shared_memory_that_is_too_large_ends_a_copy_that_writes(monkeypatch, tmp_path):
    monkeypatch.setattr(forked_copy, "MOST_SHARED", 0)
    table = np.memmap(tmp_path / "table", mode="w+", shape=5000, dtype=np.float64)

    def work(send):
        send(f"{table[0]:g}".encode())
        table[0] = 1
        send(b" written")

    assert in_forked_copy(work, 20.0) == b"0"
    assert table[0] == 0


def test_a_copy_that_the_system_waits_for_is_no_error():
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert in_forked_copy(lambda send: send(b"done"), 20.0) == b"done"
        assert in_forked_copy(_hanging, 0.3) == b"so far"
    finally:
        signal.signal(signal.SIGCHLD, old)


def _nothing():
    pass


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (lambda path: (path / "file").write_text(""), "write {}/file"),
        (lambda path: (path / "there").write_text(""), "write {}/there"),
        (lambda path: os.open(f"{path}/there", os.O_RDWR), "write {}/there"),
        (lambda path: os.remove(f"{path}/there"), "remove {}/there"),
        (lambda path: os.rename(f"{path}/there", f"{path}/b"), "rename {}/there"),
        (lambda path: tempfile.mkdtemp(dir=path), "create {}/"),
        (lambda path: sqlite3.connect(f"{path}/data"), "write {}/data"),
        (lambda path: subprocess.Popen(["sleep", "60"]), "start sleep"),
        (lambda path: os.system("true"), "start true"),
        (lambda path: SPAWN.Process(target=_nothing).start(), "start a process"),
        (lambda path: os.fork(), "start a process"),
        (lambda path: os.kill(os.getppid(), signal.SIGTERM), "send a signal"),
        (lambda path: socket.create_connection(("127.0.0.1", 9)), "open a connection"),
    ],
)
def test_effects_outside_of_a_copy_are_refused_and_named(effect, said, tmp_path):
    (tmp_path / "there").write_text("as before")

    def work(send):
        attempts = refuse_effects()
        try:
            effect(tmp_path)
        except OutsideEffect:
            send(attempts[0].encode())

    assert in_forked_copy(work, 20.0).decode().startswith(said.format(tmp_path))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("there", "as before")
    ]


def test_reading_and_discarding_are_no_effects(tmp_path):
    (tmp_path / "there").write_text("content")

    def work(send):
        attempts = refuse_effects()
        text = (tmp_path / "there").read_text()
        with open(os.devnull, "w") as null:
            print(text, file=null)
        send(f"{text} {attempts}".encode())

    assert in_forked_copy(work, 20.0) == b"content []"


def test_without_a_module_that_a_copy_needs_nothing_is_forked(monkeypatch):
    assert can_fork()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert not can_fork()
