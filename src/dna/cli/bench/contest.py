"""Contestants taking turns, and what their turns amount to.

Every round each contestant of each case does its unit of work once, one after the other,
nothing beside it. The first round warms up and is dropped. Ratios are taken within a round;
shown are their median, smallest and largest.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from dna.cli.bench import Case, cases, work_of
from dna.common.errors import BadInput, EnvironmentFailure
from dna.common.process import WAITING

#: Where `make bench` puts the peers.
SCRIPTS, INTERPRETER = Path("benchmarks/peers"), Path(".venv-peers/bin/python")


class Contestant:
    """A process that works when told to."""

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str]) -> None:
        self.name = name
        self.words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            text=True,
            env=os.environ | env,
        )

    def ask(self, what: str = "go") -> dict[str, Any]:
        """One turn."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.words.seek(0)
            said = self.words.read().decode(errors="replace").strip().splitlines()
            raise EnvironmentFailure(f"{self.name}: ended ({said[-1] if said else 'no word'})")
        turn: dict[str, Any] = json.loads(answer)
        return turn

    def close(self) -> None:
        """Its input ends, and so does it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.words.close()


@dataclass
class Result:
    """Turns of one case: ours, the peers' and the machine's limit."""

    case: Case
    turns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    limits: list[dict[str, Any]] = field(default_factory=list)

    def rates(self, who: str) -> list[float]:
        """Interactions per second, turn by turn."""
        return [turn["interactions"] / turn["seconds"] for turn in self.turns[who]]

    def bounds(self) -> list[float]:
        """Interactions per second that the machine would allow, round by round."""
        return [
            1 / (sum(one["operations"].values()) / one["matmul"] + 1 / one["env"])
            for one in self.limits
        ]

    def split(self) -> dict[str, float]:
        """Share of the time of each of our parts, over all turns."""
        total: dict[str, float] = {}
        for turn in self.turns["ours"]:
            for part, seconds in turn["split"].items():
                total[part] = total.get(part, 0.0) + seconds
        spent = sum(turn["seconds"] for turn in self.turns["ours"])
        total["other"] = spent - sum(total.values())
        return {part: seconds / spent for part, seconds in total.items()}


def ratios(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Median, smallest and largest ratio within a round."""
    found = [a / b for a, b in zip(ours, theirs, strict=True)]
    return statistics.median(found), min(found), max(found)


def contest(
    family: str,
    against: Sequence[str],
    repeats: int,
    told: Callable[[str], None] = lambda text: None,
) -> list[Result]:
    """Measure every case of a family: all of them take turns, so cases compare as well."""
    if against:
        _check_peers(against)
    results = [Result(case) for case in cases(family)]
    fields: list[dict[str, Contestant]] = []
    try:
        for index, result in enumerate(results):
            told(f"{result.case.name}: starting")
            fields.append(_field(family, index, result.case, against))
        for round_ in range(repeats + 1):
            for result, field_ in zip(results, fields, strict=True):
                _round(result, field_, round_, f"round {round_} of {repeats}", told)
    finally:
        for field_ in fields:
            for contestant in field_.values():
                contestant.close()
    return results


def _field(
    family: str, index: int, case: Case, against: Sequence[str]
) -> dict[str, Contestant]:
    ours = [sys.executable, "-m", "dna.cli.bench.serve", family, str(index)]
    found = {
        "ours": Contestant("ours", ours, {k: os.environ.get(k, v) for k, v in WAITING.items()})
    }
    for name in case.peers:
        if name in against:
            found[name] = _peer(name, case, family)
    return found


def _round(
    result: Result,
    contestants: dict[str, Contestant],
    number: int,
    text: str,
    told: Callable[[str], None],
) -> None:
    for name, contestant in contestants.items():
        told(f"{text}: {result.case.name}, {name}")
        turn = contestant.ask()
        if number:  # the first warms up
            result.turns.setdefault(name, []).append(turn)
    told(f"{text}: {result.case.name}, limit")
    limit = contestants["ours"].ask("limit")
    if number:
        result.limits.append(limit)


def _peer(name: str, case: Case, family: str) -> Contestant:
    small = family in ("mujoco", "minatar")  # their networks are best on one thread, as ours
    work = json.dumps(work_of(case, family, 1 if small else 0))
    script = SCRIPTS / f"run_{name.replace('-', '_')}.py"
    packages = next(INTERPRETER.parent.parent.glob("lib/python*/site-packages"), Path())
    qt = {"LD_LIBRARY_PATH": str((packages / "PyQt5/Qt5/lib").absolute())}
    return Contestant(name, [str(INTERPRETER), str(script), work], qt)


def _check_peers(names: Sequence[str]) -> None:
    if not INTERPRETER.exists() or not SCRIPTS.is_dir():
        raise BadInput(
            f"--against {','.join(names)}: peers are measured in a checkout of the project, "
            "where `make peers` installs them"
        )
