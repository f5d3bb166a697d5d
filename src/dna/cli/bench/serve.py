"""This package's contestant in `dna bench`: a process that does one unit of work per line.

`python -m dna.cli.bench.serve FAMILY INDEX` prepares a case; every line on its input is a turn,
answered by one line of JSON. The line `limit` measures the machine instead: the limit of an
algorithm is the time of its floating-point operations at the speed of a large matrix product,
plus the time of stepping the environments alone.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from dna.algorithm.phases import freeze, loss
from dna.algorithm.returns import estimate
from dna.cli.bench import Case, cases
from dna.common.randomness import generator
from dna.config import AnyPhase
from dna.networks.batch import Experience, in_chunks, minibatches
from dna.runs.folder import RunFolder
from dna.runs.setup import How, build_environments, tune
from dna.runs.train import Run

#: Side of the square matrices whose product is timed.
MATRIX_SIDE = 4096
#: Rows on which operations are counted.
ROWS = 64
#: Seconds for which each limit is measured.
SECONDS = 2.0


class Bench:
    """A case, prepared to be measured a turn at a time."""

    def __init__(self, case: Case, folder: Path, compile: Any = "auto") -> None:
        self.case = case
        how = How(compile=compile, tensorboard=False)
        env = build_environments(case.config, 0, 0, how, None)
        tune(how, case.config, env)
        self.run = Run(case.config, 0, RunFolder(folder), env, how)
        self.run.collector.warm_up()
        self.operations: dict[str, float] | None = None
        self.memory = 0

    def turn(self) -> dict[str, Any]:
        """Run the iterations of one turn; return interactions, seconds and time per part."""
        run = self.run
        run.clock.take()
        start = time.perf_counter()
        for _ in range(self.case.iterations):
            run.iterate()
            run.iteration += 1
        seconds = time.perf_counter() - start
        if not self.memory:  # before `limit` allocates large matrices
            self.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "interactions": self.case.iterations * self.case.config.batch,
            "seconds": seconds,
            "split": run.clock.take(),
            "memory": self.memory,
            "workers": _peak_of_workers(),
        }

    def limit(self) -> dict[str, Any]:
        """Measure the speeds of the machine; count the operations of an interaction."""
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
    """Sum the peak memory of the environments' processes; shared pages count in each."""
    peak = 0
    with suppress(OSError):  # 0 where there is no /proc
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for pid in children:
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peak += int(line.split()[1]) * 1024
    return peak


def matmul_rate() -> float:
    """Measure floating-point operations per second of a large float32 product on all cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        a = torch.rand(MATRIX_SIDE, MATRIX_SIDE)
        b = torch.rand(MATRIX_SIDE, MATRIX_SIDE)
        out = torch.empty(MATRIX_SIDE, MATRIX_SIDE)
        products = 0
        start = time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            torch.mm(a, b, out=out)
            products += 1
        return products * 2.0 * MATRIX_SIDE**3 / (time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)


def env_rate(run: Run) -> float:
    """Measure interactions per second of the environments alone, under random actions."""
    env = run.collector.env
    rng = generator(0, "bench")
    steps = 0
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        env.step(env.uniform(rng))
        steps += 1
    return steps * env.agents / (time.perf_counter() - start)


def operations(run: Run, data: Experience) -> dict[str, float]:
    """Count floating-point operations per interaction of each part."""
    networks = run.networks
    config = run.config
    few = Experience(data.obs[:ROWS], {k: v[:ROWS] for k, v in data.columns.items()})
    passes = 1 / config.horizon + (config.returns.values is None)
    counted = {
        "inference": _count(lambda: in_chunks(lambda obs: networks.pi(obs).pi, few.obs)),
        "returns": _count(lambda: in_chunks(networks.v, few.obs)) * passes,
    }
    for phase in config.phases:
        counted[phase.name] = _of_phase(run, phase, few)
    return {part: count / ROWS for part, count in counted.items()}


def _of_phase(run: Run, phase: AnyPhase, few: Experience) -> float:
    columns: list[Experience] = []

    def frozen_columns() -> None:
        columns.append(few.with_columns(freeze(phase, run.networks, few)))

    def gradient() -> None:
        (mb,) = minibatches(columns[0], ROWS, generator(0, "bench"))
        loss(phase, run.networks, mb.gather(), 0.0)[0].backward()  # type: ignore[no-untyped-call]

    once = _count(frozen_columns)
    each_epoch = _count(gradient)
    run.learner.weights.gradient.zero_()
    return once + phase.sgd.epochs * each_epoch


def _count(work: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops())


def main() -> None:
    """Answer requests until the input ends."""
    family, index = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to stderr
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(cases(family)[index], Path(folder), *sys.argv[3:4])
        for line in sys.stdin:
            answer = bench.limit() if line.strip() == "limit" else bench.turn()
            print(json.dumps(answer), file=out, flush=True)
        bench.run.collector.env.close()


if __name__ == "__main__":
    main()
