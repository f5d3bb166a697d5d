"""Worker processes that step Atari games on arrays in shared memory.

`ALEInterface.act` holds the GIL, so threads gain nothing. A worker is a plain
child process: it takes one-byte commands from a socket, answers with one byte, and ends when
the socket closes, which the kernel does even for a parent that was killed. A worker that dies,
hangs or fails is noticed in `Worker.wait`.
"""

import json
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import DnaError, EnvironmentFailure
from dna.config.environments import Atari
from dna.envs.protocol import one_line

#: Array name → its dtype and shape, in memory order.
Layout = dict[str, tuple[str, list[int]]]
Arrays = dict[str, npt.NDArray[Any]]
#: Bytes for an emulator's state: about 14,400 are used, including its random generator.
STATE = 32_768
#: Seconds for a step before a worker counts as stuck, and more for each game it loads.
STEP = 10.0
LOAD = 5.0


@dataclass(frozen=True)
class GamesTask:
    """The games of a vector, one seed per agent, and the layout of the arrays they share."""

    rom: str
    settings: Atari
    seeds: Sequence[int]
    layout: Layout


def shared_layout(agents: int, size: int, screen: tuple[int, int]) -> Layout:
    """The shared arrays, one row per agent."""
    picture = [agents, size, size]
    numbers = [agents]
    return {
        "frame": ("uint8", picture),
        "final": ("uint8", picture),
        "screens": ("uint8", [agents, 2, *screen]),
        "state": ("uint8", [agents, STATE]),
        "length": ("int64", numbers),
        "counters": ("int64", [agents, 6]),
        "action": ("int64", numbers),
        "seed": ("int64", numbers),  # of the next game, plus one; 0: keep the emulator
        "elapsed": ("int64", numbers),
        "last": ("int64", numbers),
        "reward": ("float32", numbers),
        "unseen": ("float32", numbers),
        "active": ("bool", numbers),
        "terminated": ("bool", numbers),
        "done": ("bool", numbers),
        "over": ("bool", numbers),
    }


def bytes_of(layout: Layout) -> int:
    """Size of the shared memory; every array begins at a multiple of 64."""
    return sum(_padded(kind, shape) for kind, shape in layout.values())


def _padded(kind: str, shape: list[int]) -> int:
    return -(-np.dtype(kind).itemsize * int(np.prod(shape)) // 64) * 64


def lay_out(memory: mmap.mmap | bytearray, layout: Layout) -> Arrays:
    """The arrays of a layout in this memory."""
    arrays: Arrays = {}
    start = 0
    for name, (kind, shape) in layout.items():
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(memory, kind, count, start).reshape(shape)
        start += _padded(kind, shape)
    return arrays


class Worker:
    """One worker process and the agents it plays."""

    def __init__(self, name: str, rows: range, task: dict[str, Any], memory: int) -> None:
        self.name = f"{name}, agents {rows.start} to {rows.stop - 1}"
        self.rows = rows
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        self.line, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = self._start(theirs.fileno(), memory)
            except OSError:
                self.line.close()
                self.stderr.close()
                raise
        with suppress(OSError):  # a worker that is dead already is noticed in `wait`
            self.line.sendall(json.dumps(task).encode() + b"\n")

    def _start(self, line: int, memory: int) -> subprocess.Popen[bytes]:
        # The worker imports the package from where this process found it, whatever changed
        # sys.path; -P keeps out the user's folder, which may contain a json.py.
        code = f"import sys; sys.path.append({str(Path(__file__).parents[3])!r}); "
        code += f"from dna.envs.atari.workers import main; main({line}, {memory})"
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=(line, memory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.stderr,
            start_new_session=True,  # Ctrl-C is for the parent, which saves first
        )

    def send(self, command: bytes) -> None:
        """Start a command."""
        try:
            self.line.sendall(command)
        except OSError:
            raise self._dead() from None

    def wait(self, seconds: float) -> None:
        """Wait for the answer; a dead, stuck or failing worker raises instead of hanging."""
        try:
            answer = self._answer(seconds)
            if answer == b"!":
                raise EnvironmentFailure(f"{self.name}: {self._message()}")
        except OSError:
            raise self._dead() from None
        if answer != b".":
            raise self._dead()

    def _answer(self, seconds: float) -> bytes:
        """Read one byte.

        Seconds are counted one by one: a process group that was suspended (Ctrl-Z, a sleeping
        machine) has missed only one of them when it continues.
        """
        self.line.settimeout(1.0)
        for _ in range(math.ceil(seconds)):
            try:
                return self.line.recv(1)
            except TimeoutError:
                continue
        self.process.kill()
        raise EnvironmentFailure(f"{self.name}: no answer for {seconds:.0f} seconds")

    def _message(self) -> str:
        text = b""
        while part := self.line.recv(4096):
            text += part
        return text.decode(errors="replace")

    def _dead(self) -> EnvironmentFailure:
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").splitlines()
        if lines:
            how += f", {lines[-1][:120]}"
        return EnvironmentFailure(f"{self.name}: the worker process died ({how})")

    def close(self) -> None:
        """Close the socket, which ends the worker; kill it if it does not end."""
        self.line.close()
        self.stderr.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class WorkerPool:
    """All worker processes of a vector of games."""

    def __init__(self, name: str, task: GamesTask, workers: int) -> None:
        self.workers: list[Worker] = []
        self.failure: EnvironmentFailure | None = None
        size = bytes_of(task.layout)
        fd = _anonymous_file(size)
        try:
            self.shared = lay_out(mmap.mmap(fd, size), task.layout)
            for rows in shares(len(task.seeds), workers):
                self.workers.append(Worker(name, rows, _message_of(task, rows), fd))
        except OSError as error:
            self.close()
            raise EnvironmentFailure(f"{name}: no worker process ({error})") from error
        finally:
            os.close(fd)
        seconds = 30.0 + LOAD * len(self.workers[0].rows)
        self._all(lambda worker: worker.wait(seconds))

    def run(self, command: bytes) -> None:
        """Have every worker carry out a command for its agents."""
        if self.failure is not None:
            raise self.failure  # the first one: it closed all workers
        seconds = STEP + (LOAD * len(self.workers[0].rows) if command != b"s" else 0)
        self._all(lambda worker: worker.send(command))
        self._all(lambda worker: worker.wait(seconds))

    def _all(self, ask: Callable[[Worker], None]) -> None:
        try:
            for worker in self.workers:
                ask(worker)
        except EnvironmentFailure as failure:
            self.failure = failure
            self.close()
            raise

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.close()


class InProcess:
    """The games of all agents in this process, with the interface of a `WorkerPool`."""

    def __init__(self, task: GamesTask) -> None:
        from dna.envs.atari.game import Games

        self.shared = lay_out(bytearray(bytes_of(task.layout)), task.layout)
        rows = range(len(task.seeds))
        self.games = Games(task.rom, task.settings, task.seeds, rows, self.shared)

    def run(self, command: bytes) -> None:
        """Carry out a command for every agent."""
        self.games.run(command)

    def close(self) -> None:
        """Do nothing: the games hold only memory."""


def shares(agents: int, workers: int) -> list[range]:
    """The agents of each worker: contiguous ranges of nearly equal length."""
    ends = [agents * i // workers for i in range(workers + 1)]
    return [range(start, stop) for start, stop in pairwise(ends)]


def _message_of(task: GamesTask, rows: range) -> dict[str, Any]:
    """A worker's part of the task as JSON."""
    return {
        "rom": task.rom,
        "settings": task.settings.model_dump(mode="json"),
        "layout": task.layout,
        "rows": [rows.start, rows.stop],
        "seeds": [task.seeds[i] for i in rows],
    }


def _anonymous_file(size: int) -> int:
    """A file without a name: nothing is left behind, however the processes end."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("dna-atari")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def main(line_fd: int, memory_fd: int) -> None:
    """Run a worker process: load games, then serve until the parent closes the socket."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent decides
    if hasattr(os, "sched_setscheduler"):
        # Workers outnumber the cores: let each finish its games rather than take turns.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with socket.socket(fileno=line_fd) as line, suppress(ConnectionError):
        try:
            _serve(line, memory_fd)
        except ConnectionError:
            return  # the parent is gone
        except Exception as error:
            text = str(error) if isinstance(error, DnaError) else one_line(error)
            line.sendall(b"!" + text.encode())


def _serve(line: socket.socket, memory_fd: int) -> None:
    from dna.envs.atari.game import Games

    with line.makefile("rb", buffering=0) as incoming:
        task = json.loads(incoming.readline())
        layout: Layout = {name: (kind, shape) for name, (kind, shape) in task["layout"].items()}
        shared = lay_out(mmap.mmap(memory_fd, bytes_of(layout)), layout)
        settings = Atari.model_validate_json(json.dumps(task["settings"]))
        games = Games(task["rom"], settings, task["seeds"], range(*task["rows"]), shared)
        line.sendall(b".")
        while command := incoming.read(1):
            games.run(command)
            line.sendall(b".")
