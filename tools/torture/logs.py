"""Damaged logs: the resumed run continues, names the file and is no longer exact."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dna.runs.train
from dna.runs import checkpoint
from dna.runs.setup import How
from helpers import Stopper
from torture.ground import SEED, Child, Outcome, Work, dice, fingerprint, shared_out, timed

FILES = ("metrics.jsonl", "episodes.csv", "timings.jsonl", "tensorboard/*")
SECTOR = 512
#: Number of the iteration after which the run is stopped: one of twelve is left.
LAST = 10
#: Bytes after the end that the checkpoint knows are truncated; nothing is lost.
MORE = "longer than at the checkpoint"
Damage = Callable[[bytearray, random.Random], bytes | None]


def _flip(data: bytearray, chance: random.Random) -> bytes:
    bit = chance.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def _cut(data: bytearray, chance: random.Random) -> bytes:
    return bytes(data[: chance.randrange(len(data))])


def _cut_in_the_middle(data: bytearray, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) - 1)
    return bytes(data[:start] + data[start + chance.randint(1, len(data) - start) :])


def _zero(data: bytearray, chance: random.Random) -> bytes:
    start = chance.randrange(len(data)) // SECTOR * SECTOR
    data[start : start + SECTOR] = bytes(len(data[start : start + SECTOR]))
    return bytes(data)


def _swap_sectors(data: bytearray, chance: random.Random) -> bytes:
    size = min(SECTOR, len(data) // 2)
    other = chance.randint(size, len(data) - size)
    data[:size], data[other : other + size] = data[other : other + size], data[:size]
    return bytes(data)


def _swap_lines(data: bytearray, chance: random.Random) -> bytes:
    lines = bytes(data).splitlines(keepends=True)
    if len(lines) < 3:
        return _swap_sectors(data, chance)
    at = chance.randrange(1, len(lines) - 1)
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    return b"".join(lines)


def _repeat_line(data: bytearray, chance: random.Random) -> bytes:
    lines = bytes(data).splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return b"".join([*lines[:at], lines[at], *lines[at:]])


def _insert(data: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return bytes(data[:at] + b" " + data[at:])


def _other_digit(data: bytearray, chance: random.Random) -> bytes:
    """Change one digit: every line can still be parsed."""
    digits = [at for at, byte in enumerate(data) if chr(byte).isdigit()]
    if not digits:
        return _flip(data, chance)
    at = chance.choice(digits)
    data[at] = ord("0") + (data[at] - ord("0") + 1) % 10
    return bytes(data)


def _delete(data: bytearray, chance: random.Random) -> None:
    return None


#: Name → damage; those listed twice are tried twice as often.
DAMAGES: list[tuple[str, Damage]] = [
    ("bit flipped", _flip),
    ("bit flipped", _flip),
    ("bit flipped", _flip),
    ("bit flipped", _flip),
    ("cut", _cut),
    ("cut in the middle", _cut_in_the_middle),
    ("sector zeroed", _zero),
    ("sectors swapped", _swap_sectors),
    ("lines swapped", _swap_lines),
    ("line repeated", _repeat_line),
    ("byte inserted", _insert),
    ("digit changed", _other_digit),
    ("emptied", lambda data, chance: b""),
    ("deleted", _delete),
]


def logs(root: Path, each: int) -> Outcome:
    """Damage each log `each` times, within the length that the checkpoint records."""
    work = Work("dna", "CartPole-v1")
    with timed("damaged log") as outcome:
        half = root / "half"
        trouble = _train(work, half, 75, sinks=[Stopper(LAST)])
        shutil.copytree(half, root / "whole")
        trouble = trouble or _train(work, root / "whole", 0)
        assert not trouble, trouble
        assert json.loads((root / "whole/machine.json").read_text())["exact"]
        expected = _computed(root / "whole")
        saved = checkpoint.latest(half, work.digest)
        assert saved is not None
        cases = [(name, n) for name in FILES for n in range(each)]
        cases += [(name, -1) for name in FILES]  # bytes after the checkpoint do no harm

        def one(case: tuple[str, int], part: Outcome) -> None:
            pattern, number = case
            folder = shutil.copytree(half, root / f"{FILES.index(pattern)}-{number}")
            (path,) = [found for found in folder.glob(pattern) if found.is_file()]
            name = str(path.relative_to(folder))
            assert saved is not None
            length = saved.lengths[name]
            what = _damage(path, length, number)
            if what:
                _judge(work, folder, name, what, expected, part)
            shutil.rmtree(folder, ignore_errors=True)

        shared_out(outcome, cases, one)
    return outcome


def _train(work: Work, folder: Path, code: int, **more: Any) -> str:
    """Train with event files; return an empty string, or how the process ended instead."""
    how = How(threads=1, checkpoint_every=64, tensorboard=True)

    def live() -> None:
        dna.runs.train.train(work.config, SEED, folder, how=how, **more)

    child = Child(live, folder.with_suffix(".log"))
    ended = child.wait(120)
    child.newest()
    return "" if ended == code else f"exit {ended}: {child.said()[-300:]}"


def _damage(path: Path, length: int, number: int) -> str:
    """Damage a log; return what was done, or nothing if that left it as it was."""
    whole = path.read_bytes()
    if number < 0:
        path.write_bytes(whole + b"half a line")
        return MORE
    what, damage = DAMAGES[number % len(DAMAGES)]
    data = damage(bytearray(whole[:length]), dice(f"log {path.name} {number}"))
    if data is None:
        os.unlink(path)
    else:
        path.write_bytes(data + whole[length:])
    return what if data != whole[:length] else ""


def _judge(
    work: Work, folder: Path, name: str, what: str, expected: dict[str, str], outcome: Outcome
) -> None:
    """Check that the run continues and says what happened to the log."""
    trouble = _train(work, folder, 0)
    same = not trouble and _computed(folder) == expected
    outcome.differing += not trouble and not same
    machine = {} if trouble else json.loads((folder / "machine.json").read_text())
    reasons = machine.get("why_not_exact", [])
    if what == MORE:
        noticed = machine.get("exact") is True
    else:
        noticed = machine.get("exact") is False and any(name in text for text in reasons)
        noticed &= name in folder.with_suffix(".log").read_text()
    outcome.count(
        noticed and same, f"{name} {what}: same {same}, {trouble or reasons or 'unnoticed'}"
    )


def _computed(folder: Path) -> dict[str, str]:
    """Return the hashes of a finished run without its logs, which may be damaged."""
    return {n: text for n, text in fingerprint(folder).items() if n not in FILES}
