"""Environments that die, hang, raise, misbehave or return invalid values.

Each is run as on the command line, in a process of its own, and then resumed without the
fault: the result must be that of a run which never met it.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import dna.cli
from dna.common.storage import write_json
from dna.config import json_tree
from torture import faults
from torture.faults import FAULTS, SPACES, Fault, factory_of
from torture.ground import SEED, Child, Outcome, Work, fingerprint, finish, shared_out, timed

WORKER = {"worker killed": signal.SIGKILL, "worker frozen": signal.SIGSTOP}
#: Seconds until the process must end; a frozen worker may be saving a game, which is slow.
SECONDS, FROZEN = 15.0, 45.0
#: Lines that a run with a fault may print: warnings and one error.
LINES = 6


def environment_faults(root: Path, every: int = 1, workers: int = 20) -> Outcome:
    """Inject every `every`-th fault in the process; kill and freeze workers of Atari games."""
    with timed("environment that fails") as outcome:
        works = {space: Work("dna", factory_of(space)) for space in SPACES}
        chosen = list(FAULTS)[::every]
        expected = {}
        for space in {FAULTS[name].space for name in chosen}:
            folder = root / f"whole-{space}"
            trouble = finish(works[space], folder, allow_import=True)
            assert not trouble, trouble
            expected[space] = fingerprint(folder)

        def one(name: str, part: Outcome) -> None:
            fault = FAULTS[name]
            folder = root / "".join(c if c.isalnum() else "-" for c in name)
            work = works[fault.space]
            child = _started(folder, work, fault)
            codes = (fault.codes, SECONDS)
            _judge(folder, work, child, codes, name, expected[fault.space], part)

        shared_out(outcome, chosen, one)
        if workers:
            game = Work("dna", "ALE/Qbert-v5")
            trouble = finish(game, root / "game")
            assert not trouble, trouble
            for number in range(workers):
                name = list(WORKER)[number % 10 == 9]  # a frozen one takes ten seconds
                _outside(root / "hit", game, name, fingerprint(root / "game"), outcome, number)
    return outcome


def _started(folder: Path, work: Work, fault: Fault) -> Child:
    """Start `dna train` on an environment with this fault."""
    settings = folder.with_suffix(".json")
    write_json(settings, json_tree(work.config))
    words = ["train", work.env, "--config", str(settings), "--out", str(folder)]
    words += ["--seed", str(SEED), "--checkpoint-every", "64", "--threads", "1", "--quiet"]
    words += ["--allow-import", "--env-timeout", "2"]

    def before() -> None:
        faults.fault = fault
        faults.folder = folder

    def live() -> None:
        # The descriptors, unlike sys.stdout and sys.stderr, may be closed by the environment.
        code = dna.cli.main(words)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)

    return Child(live, folder.with_suffix(".log"), before)


def _outside(
    folder: Path,
    work: Work,
    name: str,
    expected: dict[str, str],
    outcome: Outcome,
    number: int,
) -> None:
    child = Child(lambda: work.train(folder), folder.with_suffix(".log"))
    workers, patience = list[int](), time.perf_counter() + 60
    # Wait until a worker exists and the run has started.
    while not (workers and (folder / "metrics.jsonl").is_file()):
        assert time.perf_counter() < patience, "no worker has begun"
        time.sleep(0.01)
        workers = _workers(child.pid)
    time.sleep(0.05 * number)
    os.kill(workers[number % len(workers)], WORKER[name])
    limit = FROZEN if name == "worker frozen" else SECONDS
    _judge(folder, work, child, ((5,), limit), name, expected, outcome)


def _judge(
    folder: Path,
    work: Work,
    child: Child,
    allowed: tuple[tuple[int, ...], float],
    name: str,
    expected: dict[str, str],
    outcome: Outcome,
) -> None:
    start = time.perf_counter()
    code = child.wait(60)
    took, said = time.perf_counter() - start, child.said()
    child.newest()
    plain = "Traceback" not in said and "\x1b" not in said and len(said.splitlines()) <= LINES
    codes, limit = allowed
    trouble = finish(work, folder, allow_import=True)
    same = not trouble and fingerprint(folder) == expected
    outcome.differing += not same
    outcome.count(
        code in codes and took < limit and plain and same,
        f"{name}: exit {code} in {took:.1f} s, same {same}, {trouble or said[-200:]!r}",
    )
    shutil.rmtree(folder, ignore_errors=True)


def _workers(pid: int) -> list[int]:
    """Return the Atari workers of a process, which may briefly have other children."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"dna.envs.atari.workers" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found
