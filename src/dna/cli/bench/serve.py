"""Our side of a measurement: a process that does one unit of work per line it reads.

`python -m dna.cli.bench.serve FAMILY INDEX` prepares a case; every line on its input is a turn,
answered by one line of JSON. The line `limit` measures the machine instead.
"""

import json
import os
import resource
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from dna.algorithm.returns import estimate
from dna.cli.bench import Case, cases
from dna.cli.bench.limit import env_rate, matmul_rate, operations
from dna.runs.folder import RunFolder
from dna.runs.setup import How, build_environments, tune
from dna.runs.train import Run


class Bench:
    """A case that is measured a turn at a time."""

    def __init__(self, case: Case, folder: Path, compile: Any = "auto") -> None:
        self.case, how = case, How(compile=compile, tensorboard=False)
        env = build_environments(case.config, 0, 0, how, None)
        tune(how, env)
        self.run = Run(case.config, 0, RunFolder(folder), env, how)
        self.run.collector.warm_up()
        if env.observation.kind == "image":
            _clock_preprocessing(self.run)
        self.operations: dict[str, float] | None = None
        self.memory = 0

    def turn(self) -> dict[str, Any]:
        """Some iterations of algorithm 1: how many interactions, in what time, spent where."""
        run = self.run
        run.clock.take()
        start = time.perf_counter()
        for _ in range(self.case.iterations):
            run.iterate()
            run.iteration += 1
        seconds = time.perf_counter() - start
        if not self.memory:  # before the limit's large matrices
            self.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "interactions": self.case.iterations * self.case.config.batch,
            "seconds": seconds,
            "split": run.clock.take(),
            "memory": self.memory,
            "workers": _peak_of_workers(),
        }

    def limit(self) -> dict[str, Any]:
        """Speeds of the machine, and the operations of an interaction."""
        if self.operations is None:
            rollout = self.run.collector.collect(self.run.iteration, self.run.clock)
            data, _ = estimate(rollout, self.run.networks, self.run.config.returns)
            self.operations = operations(self.run, data)
        return {
            "matmul": matmul_rate(),
            "env": env_rate(self.run),
            "operations": self.operations,
        }


def _peak_of_workers() -> int:
    """Bytes that the environments' processes held at their peaks, pages they share counted
    for each."""
    peak = 0
    with suppress(OSError):  # where there is no /proc, they are not counted
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for pid in children:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peak += int(line.split()[1]) * 1024
    return peak


def _clock_preprocessing(run: Run) -> None:
    """Show bytes becoming normalized floats as a part of its own."""
    forward, clock = run.networks.preprocess.forward, run.clock

    def timed(obs: Tensor) -> Tensor:
        with clock("normalize"):
            return forward(obs)

    setattr(run.networks.preprocess, "forward", timed)  # noqa: B010  a method, says mypy


def main() -> None:
    """Serve until the input ends."""
    family, index = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes elsewhere
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(cases(family)[index], Path(folder), *sys.argv[3:4])
        for line in sys.stdin:
            answer = bench.limit() if line.strip() == "limit" else bench.turn()
            print(json.dumps(answer), file=out, flush=True)
        bench.run.collector.env.close()


if __name__ == "__main__":
    main()
