"""What the machine could do at best: its matrix products and its environments, nothing else.

The limit of an algorithm is the time of its floating-point operations at the speed of a large
matrix product, plus the time of stepping the environments alone.
"""

import os
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from dna.algorithm.phases import freeze, loss
from dna.common.randomness import generator
from dna.config import AnyPhase
from dna.networks.batch import Experience, in_chunks, minibatches
from dna.runs.train import Run

#: Side of the matrices, and rows that operations are counted on.
SIDE, ROWS = 4096, 64
SECONDS = 2.0


def matmul_rate() -> float:
    """Floating-point operations per second of a large product in float32, on all cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        return _product()
    finally:
        torch.set_num_threads(threads)


def _product() -> float:
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        torch.mm(a, b, out=out)
        done += 1
    return done * 2.0 * SIDE**3 / (time.perf_counter() - start)


def env_rate(run: Run) -> float:
    """Interactions per second of the environments alone, under random actions."""
    env, rng = run.collector.env, generator(0, "bench")
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        env.step(env.uniform(rng))
        steps += 1
    return steps * env.agents / (time.perf_counter() - start)


def operations(run: Run, data: Experience) -> dict[str, float]:
    """Floating-point operations per interaction of each part, counted by torch."""
    networks, config = run.networks, run.config
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

    def froze() -> None:
        columns.append(few.with_columns(freeze(phase, run.networks, few)))

    def learned() -> None:
        (mb,) = minibatches(columns[0], ROWS, generator(0, "bench"))
        loss(phase, run.networks, mb, 0.0)[0].backward()  # type: ignore[no-untyped-call]

    frozen, walked = _count(froze), _count(learned)
    run.learner.weights.gradient.zero_()
    return frozen + phase.sgd.epochs * walked


def _count(work: object) -> float:
    with FlopCounterMode(display=False) as counter:
        work()  # type: ignore[operator]
    return float(counter.get_total_flops())
