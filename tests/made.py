"""Results of experiments that were made up: curves of a given level for every run."""

import csv
from importlib import resources
from pathlib import Path

from dna.paper.experiments import experiment
from dna.paper.plan import planned
from dna.paper.results import Results, RunResult


def outcome(run, level, seconds=10.0, **metrics):
    """A curve that rises in a line to `level`, 20 rows; metrics are columns of 20."""
    rows = tuple(
        {"interactions": 1000 * (i + 1), "score": level * (i + 1) / 20 + 0.1 * run.seed}
        | {name: column[i] for name, column in metrics.items()}
        for i in range(20)
    )
    return RunResult(run, Path("nowhere"), rows, seconds)


def flat(run, score, seconds=10.0):
    """A run whose score is the same throughout."""
    rows = tuple({"interactions": 1000 * (i + 1), "score": score} for i in range(20))
    return RunResult(run, Path("nowhere"), rows, seconds)


def results_of(name, scale, make, extra=None):
    """Results of an experiment, one outcome for each of its runs; None: it is missing."""
    chosen = experiment(name)
    found = tuple(one for run in planned(chosen, scale) if (one := make(run)) is not None)
    return Results(chosen, scale, found, extra=extra or {})


def table(name):
    """Rows of a table of the paper."""
    text = (resources.files("dna") / "paper" / "data" / f"{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


RANGES = {
    r["game"]: (float(r["random"]), float(r["human"])) for r in table("human_random_scores")
}


def game_of(env):
    """`ALE/Pong-v5` → `Pong`."""
    return env.removeprefix("ALE/").removesuffix("-v5")


def raw(env, percent):
    """The score in a game of Atari that is so much human-normalized."""
    low, high = RANGES[game_of(env)]
    return low + percent / 100 * (high - low)
