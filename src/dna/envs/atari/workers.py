"""Worker processes that step Atari games, beside a board of shared memory.

`ALEInterface.act` holds Python's lock, so threads gain nothing. A worker is a plain child
process: it takes one-byte commands from a socket, answers with one byte, and ends when the
socket closes, which the kernel does even for a parent that was killed.
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

from dna.common.errors import DnaError, EnvironmentFailure
from dna.config.environments import Atari
from dna.envs.atari.shared_memory import Fields, bytes_of, lay_out
from dna.envs.guard import one_line

#: Seconds for a step, and for loading one game, before a worker is taken to be stuck.
STEP, LOAD = 10.0, 5.0


class Worker:
    """One child process and the agents it plays."""

    def __init__(self, name: str, rows: range, task: dict[str, Any], memory: int) -> None:
        self.name = f"{name}, agents {rows.start} to {rows.stop - 1}"
        self.rows = rows
        self.last_words = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        self.line, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = self._start(theirs.fileno(), memory)
            except OSError:
                self.line.close()
                self.last_words.close()
                raise
        with suppress(OSError):  # one that is dead already is found out when it is waited for
            self.line.sendall(json.dumps(task).encode() + b"\n")

    def _start(self, line: int, memory: int) -> subprocess.Popen[bytes]:
        # The package is found where it was found here, whatever changed sys.path; -P keeps the
        # user's folder out of it, where a json.py may lie.
        code = f"import sys; sys.path.append({str(Path(__file__).parents[3])!r}); "
        code += f"from dna.envs.atari.workers import main; main({line}, {memory})"
        return subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=(line, memory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.last_words,
            start_new_session=True,  # Ctrl-C is for the parent, which saves first
        )

    def tell(self, command: bytes) -> None:
        """Start a command."""
        try:
            self.line.sendall(command)
        except OSError:
            raise self._dead() from None

    def wait(self, seconds: float) -> None:
        """Wait for the answer; a dead, stuck or failing worker is an error, never a hang."""
        try:
            answer = self._answer(seconds)
            if answer == b"!":
                raise EnvironmentFailure(f"{self.name}: {self._message()}")
        except OSError:
            raise self._dead() from None
        if answer != b".":
            raise self._dead()

    def _answer(self, seconds: float) -> bytes:
        """One byte. Seconds are counted one by one: a process that was suspended as a whole
        (Ctrl-Z, a machine that slept) has missed only one of them when it goes on."""
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
        self.last_words.seek(0)
        words = self.last_words.read().decode(errors="replace").splitlines()
        if words:
            how += f", {words[-1][:120]}"
        return EnvironmentFailure(f"{self.name}: the worker process died ({how})")

    def close(self) -> None:
        """Hang up; the worker ends by itself, or is made to."""
        self.line.close()
        self.last_words.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Cast:
    """Which games are played, and what they share."""

    rom: str
    settings: Atari
    seeds: Sequence[int]
    layout: Fields


class Crew:
    """All workers of a vector of games."""

    def __init__(self, name: str, cast: Cast, workers: int) -> None:
        self.workers: list[Worker] = []
        self.failure: EnvironmentFailure | None = None
        size = bytes_of(cast.layout)
        fd = _memory(size)
        try:
            self.board = lay_out(mmap.mmap(fd, size), cast.layout)
            for rows in shares(len(cast.seeds), workers):
                self.workers.append(Worker(name, rows, _task(cast, rows), fd))
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
            raise self.failure  # the first one; the others' games are gone with it
        seconds = STEP + (LOAD * len(self.workers[0].rows) if command != b"s" else 0)
        self._all(lambda worker: worker.tell(command))
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
        """Let all workers end."""
        for worker in self.workers:
            worker.close()


def cores() -> int:
    """Processors this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shares(agents: int, workers: int) -> list[range]:
    """The agents in as many runs of nearly one length."""
    ends = [agents * i // workers for i in range(workers + 1)]
    return [range(start, stop) for start, stop in pairwise(ends)]


def _task(cast: Cast, rows: range) -> dict[str, Any]:
    return {
        "rom": cast.rom,
        "settings": cast.settings.model_dump(mode="json"),
        "layout": cast.layout,
        "rows": [rows.start, rows.stop],
        "seeds": [cast.seeds[i] for i in rows],
    }


def _memory(size: int) -> int:
    """A file without a name: nothing is left behind, however the processes end."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("dna-atari")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def main(line_fd: int, memory_fd: int) -> None:
    """The child: load the games, then obey until the parent hangs up."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent decides
    if hasattr(os, "sched_setscheduler"):
        # Workers outnumber the cores: let each finish its games rather than take turns.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with socket.socket(fileno=line_fd) as line, suppress(ConnectionError):
        try:
            _obey(line, memory_fd)
        except ConnectionError:
            return  # nobody is listening any more
        except Exception as error:
            text = str(error) if isinstance(error, DnaError) else one_line(error)
            line.sendall(b"!" + text.encode())


def _obey(line: socket.socket, memory_fd: int) -> None:
    from dna.envs.atari.ale import Games

    with line.makefile("rb", buffering=0) as orders:
        task = json.loads(orders.readline())
        layout: Fields = {name: (kind, shape) for name, (kind, shape) in task["layout"].items()}
        board = lay_out(mmap.mmap(memory_fd, bytes_of(layout)), layout)
        settings = Atari.model_validate_json(json.dumps(task["settings"]))
        games = Games(task["rom"], settings, task["seeds"], range(*task["rows"]), board)
        line.sendall(b".")
        while command := orders.read(1):
            games.do(command)
            line.sendall(b".")
