"""Stop signals at random moments: saved, exit code 75, exact resume, no orphans."""

import os
import shutil
import signal
import time
from pathlib import Path
from uuid import uuid4

from dna.common.errors import Preempted
from torture.ground import (
    Child,
    Outcome,
    Work,
    dice,
    fingerprint,
    intact,
    reference,
    timed,
)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
WORKS = (Work("dna", "toy"), Work("ppg", "CartPole-v1"), Work("ppo", "ALE/Qbert-v5"))
#: Seconds from the signal to the end of the process; an iteration takes about 0.1 s here.
LIMIT = 5.2


def preemption(root: Path, count: int, limit: float = LIMIT) -> Outcome:
    """Stop each run at random moments until it is done; each stop must respect the limit."""
    with timed("signal to stop at a random moment") as outcome:
        known = {work: reference(work, root / f"whole{n}") for n, work in enumerate(WORKS)}
        number = 0
        while outcome.tried < count:
            work = WORKS[number % len(WORKS)]
            _one(root / f"cut{number}", work, *known[work], outcome, number, limit)
            number += 1
    return outcome


def _one(
    folder: Path,
    work: Work,
    expected: dict[str, str],
    seconds: float,
    outcome: Outcome,
    number: int,
    limit: float,
) -> None:
    chance, marks, stops = dice(f"signal{number}"), {"DNA_TORTURE": uuid4().hex}, 0
    while True:
        child = Child(lambda: work.train(folder), folder.with_suffix(".log"), marks=marks)
        asked = chance.choice(SIGNALS)
        if stops < 12:
            # Before its handlers are installed, a signal would end the process: wait for them.
            time.sleep(0.05 + chance.uniform(0, seconds / 2))
            child.kill(asked)
        start = time.perf_counter()
        code = child.wait(30)
        took, newest = time.perf_counter() - start, child.newest()
        if code == 0:
            break
        stops += 1
        good = code == Preempted.exit_code and took < limit and intact(work, folder, newest)
        left = orphans(marks["DNA_TORTURE"])
        outcome.count(
            good and not left,
            f"{work} {asked.name}: exit {code} in {took:.1f} s, orphans {left}, "
            f"{child.said()[-200:]}",
        )
        if code not in (Preempted.exit_code, -asked):
            return
    if fingerprint(folder) != expected:
        outcome.differing += 1
        outcome.notes.append(f"{work}: differs from the run that was never stopped")
    shutil.rmtree(folder)


def orphans(mark: str) -> list[int]:
    """Return the processes with this mark that are still alive after a moment."""
    for _ in range(50):
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    zombie = ") Z" in (entry / "stat").read_text()
                    if not zombie and mark.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        if not found:
            return []
        time.sleep(0.1)
    return found
