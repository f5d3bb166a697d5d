"""One process that fuzzes one target with atheris, and records what it finds as it goes."""

import ctypes
import faulthandler
import hashlib
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

#: Bytes of the longest input.
LONGEST = 2**17
#: Seconds between two writes of the state.
WRITE = 2.0
#: Bytes by which the process may grow.
MEMORY = 2 * 2**30
#: Seconds for making a finding smaller.
SHRINK = 10.0
#: Of 8 mutations, those that keep the structure.
STRUCTURAL = 5
HEAD = struct.Struct("<QQ")  # the number of the case, the length of its input


class Progress:
    """The input in use, in shared memory: the process that watches this one reads it."""

    def __init__(self, path: Path, *, create: bool) -> None:
        if create:
            path.write_bytes(bytes(HEAD.size + LONGEST))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), HEAD.size + LONGEST)

    def begin(self, number: int, data: bytes) -> None:
        """Note the input before it is used."""
        data = data[:LONGEST]
        self.memory[HEAD.size : HEAD.size + len(data)] = data
        self.memory[: HEAD.size] = HEAD.pack(number, len(data))

    def current(self) -> tuple[int, bytes]:
        """Return the number of the case, and its input."""
        number, length = HEAD.unpack(self.memory[: HEAD.size])
        return number, bytes(self.memory[HEAD.size : HEAD.size + length])


class Session:
    """Counts cases and keeps findings; `state.json` and `findings/` survive the process."""

    def __init__(self, folder: Path, use: Callable[[bytes], None]) -> None:
        self.folder = folder
        self.use = use
        self.progress = Progress(folder / "progress", create=True)
        self.state = read_state(folder)
        self.before = peak()
        self.written = time.perf_counter()
        self.cases = 0

    def one(self, data: bytes) -> None:
        """Use one input, and keep it if anything but a refusal comes of it."""
        self.cases += 1
        self.progress.begin(self.cases, data)
        trace = self._failure(data)
        if trace is not None:
            self._keep(data, trace)
        now = time.perf_counter()
        if now - self.written > WRITE:
            self._write(now)

    def _failure(self, data: bytes) -> str | None:
        try:
            self.use(data)
        except BaseException as error:
            if type(error).__name__ == "KeyboardInterrupt":
                raise
            return "".join(traceback.format_exception(error))[-20_000:] + _signature(error)
        return None

    def _keep(self, data: bytes, trace: str) -> None:
        """Save an input that failed in a way not seen before, as small as it can be made."""
        name = hashlib.sha256(trace.splitlines()[-1].encode()).hexdigest()[:12]
        self.state["failing"] += 1
        if name in self.state["findings"]:
            return
        self.state["findings"].append(name)
        save_finding(self.folder, name, data, trace)
        self._write(time.perf_counter())
        small = self._shrunk(data, trace.splitlines()[-1])
        save_finding(self.folder, name, small, trace)

    def _shrunk(self, data: bytes, signature: str) -> bytes:
        """Remove pieces of an input while it fails in the same way."""
        end = time.perf_counter() + SHRINK
        size = len(data) // 2
        while size and time.perf_counter() < end:
            at = 0
            while at < len(data) and time.perf_counter() < end:
                shorter = data[:at] + data[at + size :]
                self.cases += 1
                self.progress.begin(self.cases, shorter)
                trace = self._failure(shorter)
                if trace is not None and trace.splitlines()[-1] == signature:
                    data = shorter
                else:
                    at += size
            size //= 2
        return data

    def _write(self, now: float) -> None:
        self.state["cases"] += self.cases - self.state.pop("counted", 0)
        self.state["seconds"] += now - self.written
        self.state["memory"] = max(self.state["memory"], peak() - self.before)
        write_state(self.folder, self.state)
        self.state["counted"] = self.cases
        self.written = now


def _signature(error: BaseException) -> str:
    """Return a line that names the kind of a failure: the error and the code that raised it."""
    if type(error).__name__ == "Wrong" and error.__cause__ is not None:
        error = error.__cause__
    frames = []
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/dna/" in code.co_filename or "/fuzz/" in code.co_filename:
            frames.append(f"{Path(code.co_filename).name}:{code.co_name}")
        trace = trace.tb_next
    return f"\n{type(error).__name__} in {' '.join(frames[-3:])}"


def peak() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_state(folder: Path) -> dict[str, Any]:
    """Read the figures so far."""
    path = folder / "state.json"
    fresh = {"cases": 0, "seconds": 0.0, "failing": 0, "findings": [], "hangs": 0, "memory": 0}
    return fresh | (json.loads(path.read_text()) if path.exists() else {})


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the figures so far, in one rename."""
    partial = folder / "state.partial"
    partial.write_text(json.dumps({k: v for k, v in state.items() if k != "counted"}, indent=1))
    partial.replace(folder / "state.json")


def save_finding(folder: Path, name: str, data: bytes, text: str) -> None:
    """Save an input and what happened."""
    found = folder / "findings"
    found.mkdir(exist_ok=True)
    (found / f"{name}.input").write_bytes(data)
    (found / f"{name}.txt").write_text(text)


def fuzz(name: str, folder: Path, seconds: float) -> None:
    """Fuzz one target; the process ends when the time is over."""
    import atheris

    _end_with_parent()
    with atheris.instrument_imports(include=["dna"]):
        from fuzz.targets import TARGETS, quiet
    quiet()
    faulthandler.enable()
    target = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        target.use(seed)  # loads what is imported late
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    _limit_memory()
    session = Session(folder, target.use)

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.randrange(8) < STRUCTURAL:
            try:
                changed = target.mutate(data, chance)
            except Exception:  # inputs drift away from the structure that mutations know
                changed = b""
            if 0 < len(changed) <= size:
                return changed
        return bytes(atheris.Mutate(data, size))

    options = [f"-max_total_time={max(int(seconds), 1)}", f"-max_len={LONGEST}"]
    options += ["-rss_limit_mb=0", "-timeout=3600", "-detect_leaks=0", "-verbosity=0"]
    options += [f"-artifact_prefix={folder}/"]
    options += [f"-seed={int.from_bytes(os.urandom(3))}", "-len_control=0", str(corpus)]
    atheris.Setup([sys.argv[0], *options], session.one, custom_mutator=mutate)
    atheris.Fuzz()


def _end_with_parent() -> None:
    """Be killed when the process that watches this one dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _limit_memory() -> None:
    """Let an allocation beyond the limit fail instead of taking the machine down."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY + 2**29, resource.RLIM_INFINITY))
