"""Environments that keep their state in unusual ways, interrupted and resumed.

Every pattern of `torture.patterns` is trained without interruption, and twice with one: stopped
after an iteration, and killed in the middle of a later one. The interrupted runs are resumed in
another process, with other string hashes and addresses. Their files must be identical to those
of the uninterrupted run, or `machine.json` must say that the run is not exact.

`PYTHONPATH=tools:tests python -m torture.zoo NAME…` prints the results of these patterns.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torture import ground
from torture.ground import Outcome, timed
from torture.patterns import PATTERNS
from torture.patterns.base import Hidden

#: Files that an exact run determines to the byte.
FILES = ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors")
#: Interactions of two agents in one iteration.
ROLLOUT = 32
#: Seconds after which a run is killed.
LIMIT = 60.0
#: Patterns for which it is not worth starting processes on another core.
FEW = 20
#: Option of this module's command under which it runs the jobs of another process.
SERVE = "--serve"

#: Identical; said not to be, as soon as the run began to save or only when it was resumed;
#: said not to be without need.
EXACT, SAID, SAID_LATE, CAUTIOUS = "exact", "said", "said on resume", "said though identical"
#: Different without a word, or the resumed run fails.
SILENT, FAILED = "SILENT", "FAILED"
#: Two uninterrupted runs differ, so that no promise is made.
UNSEEDED = "not a function of the seed"


@dataclass(frozen=True)
class Result:
    """What became of one pattern."""

    name: str
    verdict: str
    detail: str = ""

    def __str__(self) -> str:
        what = PATTERNS[self.name].what
        return f"{self.verdict}: {self.name} ({what}) {self.detail}".rstrip()


def zoo(root: Path, names: Sequence[str] = (), *, stops: bool = True) -> Outcome:
    """Try these patterns, or all; a difference that the run does not report is trouble.

    `stops`: whether runs are stopped as well as killed.
    """
    with timed("environment that keeps its state in an unusual way") as outcome:
        verdicts: Counter[str] = Counter()
        for result in results(root, names or list(PATTERNS), stops=stops):
            outcome.count(result.verdict not in (SILENT, FAILED), str(result))
            outcome.differing += result.verdict == SILENT
            verdicts[result.verdict] += 1
        outcome.notes.append(", ".join(f"{n} {verdict}" for verdict, n in verdicts.items()))
    return outcome


def results(root: Path, names: Sequence[str], *, stops: bool = True) -> Iterator[Result]:
    """Try the patterns, one per core at a time, and yield the results in order."""
    cores = min(os.cpu_count() or 1, -(-len(names) // FEW))
    pairs: queue.SimpleQueue[tuple[ForkServer, ForkServer]] = queue.SimpleQueue()
    made = [(ForkServer(1), ForkServer(2)) for _ in range(cores)]
    for pair in made:
        pairs.put(pair)

    def attempt(name: str) -> Result:
        pair = pairs.get()
        try:
            return Trial(root / name, name, *pair).result(stops=stops)
        finally:
            pairs.put(pair)

    try:
        with ThreadPoolExecutor(cores) as pool:
            yield from pool.map(attempt, names)
    finally:
        for pair in made:
            for server in pair:
                server.close()


class ForkServer:
    """A process that has loaded everything and forks a child for each job."""

    def __init__(self, hash_seed: int) -> None:
        own = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONHASHSEED": str(hash_seed),
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torture.zoo", SERVE],
            env=os.environ | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.jobs: IO[str] = self.process.stdin
        self.codes: IO[str] = self.process.stdout

    def run(self, job: dict[str, Any]) -> int:
        """Run one job in a new child and return its exit code."""
        self.jobs.write(json.dumps(job) + "\n")
        self.jobs.flush()
        return int(self.codes.readline())

    def close(self) -> None:
        """End the process."""
        self.jobs.close()
        self.codes.close()
        self.process.wait()


@dataclass(frozen=True)
class Trial:
    """The runs of one pattern: started by the first server, resumed by the second."""

    root: Path
    name: str
    first: ForkServer
    second: ForkServer

    def result(self, *, stops: bool) -> Result:
        """Interrupt and resume runs, and compare them with an uninterrupted one."""
        self.root.mkdir(parents=True)
        chance = zlib.crc32(self.name.encode())
        later = PATTERNS[self.name].iterations - Hidden.iterations
        kinds = [("killed", 5 + chance // 2 % 3 + later)]
        if stops:
            kinds.append(("stopped", 2 + chance % 2 + later))
        if self._train(self.first, "whole"):
            return Result(self.name, FAILED, f"uninterrupted: {self._last_line('whole')}")
        early = self._reasons("whole")
        said = list(early)
        differing = 0
        silent: list[str] = []
        for kind, iteration in kinds:
            self._train(self.first, kind, **{kind: iteration})
            if self._train(self.second, kind):
                return Result(self.name, FAILED, f"{kind}: {self._last_line(kind)}")
            said += self._reasons(kind)
            differing += self._differs(kind)
            if self._differs(kind) and not self._reasons(kind):
                silent.append(f"{kind} in iteration {iteration}")
        if not said and not silent:
            return Result(self.name, EXACT)
        why = "; ".join(sorted(set(said)))
        self._train(self.second, "again")
        if self._differs("again"):
            return Result(self.name, UNSEEDED, f"said: {why}" if said else "not said")
        if silent:
            return Result(self.name, SILENT, ", ".join(silent))
        if not differing:
            return Result(self.name, CAUTIOUS, why)
        return Result(self.name, SAID if early else SAID_LATE, why)

    def _train(self, server: ForkServer, run: str, **interruption: int) -> int:
        job = {"name": self.name, "folder": str(self.root / run), **interruption}
        return server.run(job)

    def _differs(self, run: str) -> bool:
        whole, other = self.root / "whole", self.root / run
        return any((whole / f).read_bytes() != (other / f).read_bytes() for f in FILES)

    def _reasons(self, run: str) -> list[str]:
        machine = json.loads((self.root / run / "machine.json").read_text())
        return [] if machine["exact"] else list(machine["why_not_exact"])

    def _last_line(self, run: str) -> str:
        lines = (self.root / f"{run}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"


# ── In the processes that are forked from ─────────────────────────────────────────────────


def serve(jobs: IO[str], codes: IO[str]) -> None:
    """Load everything, then run each job in a child and write its exit code."""
    ground.warm_up()
    for line in jobs:
        pid = os.fork()
        if pid == 0:
            _child(**json.loads(line))
        timer = threading.Timer(LIMIT, os.kill, (pid, signal.SIGKILL))
        timer.start()
        _, status = os.waitpid(pid, 0)
        timer.cancel()
        codes.write(f"{os.waitstatus_to_exitcode(status)}\n")
        codes.flush()


def _child(name: str, folder: str, **interruption: int) -> None:
    """Train or resume as a job says, with all output in a log; does not return."""
    code = 1
    try:
        log = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["ZOO_FILES"] = f"{folder}.files"  # for environments that write files
        Path(os.environ["ZOO_FILES"]).mkdir(exist_ok=True)
        learn(name, Path(folder), Interruption(**interruption))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Interruption:
    """Stop a run after so many iterations, or end its process in the middle of one."""

    stopped: int | None = None
    killed: int | None = None

    def on_rollout_end(self, state: Any) -> None:
        if state.iteration == self.killed:
            os._exit(9)

    def on_iteration_end(self, state: Any, row: Any) -> bool:
        return self.stopped is None or state.iteration + 1 < self.stopped


def learn(name: str, folder: Path, interruption: Interruption) -> None:
    """Train or resume the run of one pattern, with a small network."""
    import dna
    from dna.runs.setup import How

    pattern = PATTERNS[name]
    dual = zlib.crc32(name.encode()) % 4 == 0
    phases = ("policy", "value", "distil") if dual else ("joint",)
    settings: dict[str, Any] = {
        "agents": 2,
        "horizon": ROLLOUT // 2,
        "interactions": pattern.iterations * ROLLOUT,
        "warm_up": None,
        "network.width": 8,
        "network.depth": 1,
    }
    for phase in phases:
        settings[f"{phase}.sgd.epochs"] = 1
        settings[f"{phase}.sgd.minibatch"] = ROLLOUT
    algorithm = dna.DNA if dual else dna.PPO
    agent = algorithm(pattern.build(), folder=folder, seed=3, **settings)
    how = How(threads=1, compile="off", tensorboard=False, checkpoint_every=2 * ROLLOUT)
    agent.learn(progress=False, how=how, callback=interruption)


def main() -> None:
    """Serve, or print the results of the patterns named, or of all."""
    if sys.argv[1:] == [SERVE]:
        serve(sys.stdin, sys.stdout)
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for result in results(Path(folder), sys.argv[1:] or list(PATTERNS)):
            print(result, flush=True)


if __name__ == "__main__":
    main()
