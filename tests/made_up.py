"""Results of experiments that nobody ran, for tests of tables and figures."""

from pathlib import Path

from dna.paper.experiments import experiment
from dna.paper.plan import Limits, planned
from dna.paper.results import Results, RunResult

NOISE = {"policy": 200.0, "value": 20.0, "distil": 5.0}


def outcome(run, level=10.0):
    noise = {}
    for phase, sigma in NOISE.items() if run.study == "noise" else ():
        noise |= {f"noise/{phase}/s": sigma**2, f"noise/{phase}/g2": 1.0}
        noise |= {f"noise/{phase}/s_paired": sigma**2, f"noise/{phase}/g2_paired": 4.0}
        noise |= {f"noise/{phase}/sigma_authors": 0.9 * sigma}
    rows = tuple(
        {"interactions": 1000 * (i + 1), "score": level * (i + 1) / 20 + 0.1 * run.seed} | noise
        for i in range(20)
    )
    return RunResult(run, Path("nowhere"), rows, 10.0)


def made(name, scale, keep=lambda run: True, limits=None):
    chosen = experiment(name)
    runs = planned(chosen, scale, limits)
    found = tuple(outcome(run) for run in runs if keep(run))
    lost = len(runs) - len(found)
    return Results(chosen, scale, found, lost, limits or Limits())
