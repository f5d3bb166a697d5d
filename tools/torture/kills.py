"""SIGKILL at random moments until the run is done; the result must not change."""

import shutil
import signal
import time
from pathlib import Path

from torture.ground import (
    ALGORITHMS,
    ENVS,
    Child,
    Outcome,
    Work,
    dice,
    fingerprint,
    intact,
    reference,
    timed,
)


def kills(root: Path, count: int, envs: tuple[str, ...] = ENVS) -> Outcome:
    """Train all algorithms on all environments, and kill each run until it is done."""
    works = [Work(algorithm, env) for env in envs for algorithm in ALGORITHMS]
    with timed("SIGKILL at a random moment") as outcome:
        known: dict[Work, tuple[dict[str, str], float]] = {}
        runs = 0
        while outcome.tried < count:
            work = works[runs % len(works)]
            if work not in known:
                known[work] = reference(work, root / f"whole{runs}")
            _one(root / f"cut{runs}", work, *known[work], outcome, runs)
            runs += 1
        outcome.notes.insert(0, f"{runs} runs of {min(runs, len(works))} kinds")
    return outcome


def _one(
    folder: Path,
    work: Work,
    expected: dict[str, str],
    seconds: float,
    outcome: Outcome,
    number: int,
) -> None:
    chance, newest, killed = dice(f"kill{number}"), 0, 0
    while True:
        child = Child(lambda: work.train(folder), folder.with_suffix(".log"))
        if killed < 60:
            time.sleep(chance.uniform(0, seconds / 2))
            child.kill(signal.SIGKILL)
        code = child.wait(120)
        newest = max(newest, child.newest())
        if code == 0:
            break
        if code != -signal.SIGKILL:
            outcome.count(False, f"{work}: exit {code}: {child.said()[-200:]}")
            return
        killed += 1
        if not intact(work, folder, newest):
            outcome.lost += 1
    same = fingerprint(folder) == expected
    outcome.add(killed, killed if same else 0)
    if not same:
        outcome.differing += 1
        outcome.notes.append(f"{work}: differs from the run that was never killed")
    shutil.rmtree(folder)
