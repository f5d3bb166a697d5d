"""Twenty processes compete for one folder: exactly one may train in it."""

import shutil
import signal
import time
from pathlib import Path

from torture.ground import Child, Outcome, Work, fingerprint, finish, timed


def races(root: Path, rounds: int, racers: int = 20) -> Outcome:
    """Start all at once in every round; in every other round, kill the one that trains."""
    work = Work("dna", "toy", interactions=1536)
    with timed(f"{racers} processes race for one folder") as outcome:
        trouble = finish(work, root / "whole")
        assert not trouble, trouble
        expected = fingerprint(root / "whole")
        for number in range(rounds):
            _round(root / f"race{number}", work, racers, expected, outcome, bool(number % 2))
    return outcome


def _round(
    folder: Path,
    work: Work,
    racers: int,
    expected: dict[str, str],
    outcome: Outcome,
    kill: bool,
) -> None:
    gate = folder.with_suffix(".gate")

    def race() -> None:
        while not gate.exists():
            time.sleep(0.001)
        work.train(folder)

    children = [Child(race, folder.with_name(f"{folder.name}-{n}.log")) for n in range(racers)]
    time.sleep(0.1)
    gate.touch()
    if kill:
        _kill_the_holder(folder, children)
    codes = [child.wait(60) for child in children]
    trained = sum(child.newest() > 0 for child in children)
    # The others find the folder busy or, if they are late, the run finished. After a kill,
    # one that is still starting may take over.
    fair = set(codes) <= {0, 3, -9} and codes.count(-9) == kill
    fair = fair and (trained <= 2 if kill else trained == 1)
    trouble = finish(work, folder)  # no stale lock
    same = not trouble and fingerprint(folder) == expected
    said = " | ".join(child.said()[-80:] for child in children[:2])
    outcome.differing += not same
    outcome.count(fair and same, f"codes {sorted(codes)}, same {same}: {trouble or said}")
    shutil.rmtree(folder, ignore_errors=True)


def _kill_the_holder(folder: Path, children: list[Child]) -> None:
    lock, end = folder / "run.lock", time.perf_counter() + 20
    while time.perf_counter() < end:
        words = lock.read_text().split() if lock.exists() else []
        if len(words) > 1:
            for child in children:
                if child.pid == int(words[1]):
                    child.kill(signal.SIGKILL)
            return
        time.sleep(0.001)
