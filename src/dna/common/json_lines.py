"""Read `.jsonl` logs: a line at a time, bounded, each line an object of numbers.

Every reader of `metrics.jsonl` and `timings.jsonl` uses this module, so that a damaged or
hostile log is refused in the same way everywhere, and never held in memory as a whole.
"""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dna.common import syscalls
from dna.common.errors import StorageFailure
from dna.common.storage import storage_errors

#: Largest log that is read: a million iterations.
LOG_LIMIT = 2**30
#: Longest line of a log.
LINE_LIMIT = 2**20
#: Bytes read from the end of a log to find its last line.
TAIL = 2**16

Row = dict[str, Any]  # name → int, float or None


def lines(path: Path, start: int = 0) -> Iterator[bytes]:
    """Read the lines of a log from this byte on; the last may lack its newline."""
    with storage_errors(path), os.fdopen(syscalls.open_to_read(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LOG_LIMIT:
            raise StorageFailure(
                f"{path}: has {size:,} bytes, more than any log of a run ({LOG_LIMIT:,})"
            )
        file.seek(start)
        while line := file.readline(LINE_LIMIT + 1):
            if len(line) > LINE_LIMIT:
                raise StorageFailure(
                    f"{path}: has a line of more than {LINE_LIMIT:,} bytes, which no run writes"
                )
            yield line


def rows(path: Path, *names: str, whole: bool = True) -> Iterator[Row]:
    """Read the rows of a log, each of which must have these names.

    `whole=False` stops at the first line that cannot be read, such as one that is still being
    written.
    """
    for number, line in enumerate(lines(path), start=1):
        try:
            row = parse_row(line)
        except ValueError as error:
            if not whole:
                return
            raise StorageFailure(f"{path}: line {number} is not a row of numbers") from error
        for name in names:
            if name not in row:
                raise StorageFailure(f"{path}: line {number} has no {name}")
        yield row


def curve(path: Path, *, whole: bool = True) -> list[tuple[int, float]]:
    """Return (interactions, score) of the rows of `metrics.jsonl` that have a score."""
    return [
        (row["interactions"], row["score"])
        for row in rows(path, "score", whole=whole)
        if row["score"] is not None
    ]


def last_row(path: Path) -> Row | None:
    """Return the last whole row of a log; None if there is none in its last bytes."""
    with storage_errors(path), os.fdopen(syscalls.open_to_read(path), "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - TAIL, 0))
        found = file.read(TAIL).splitlines(keepends=True)
    for line in reversed(found):
        if line.endswith(b"\n"):
            try:
                return parse_row(line)
            except ValueError:
                continue
    return None


def parse_row(line: bytes) -> Row:
    """Parse one line, or raise ValueError.

    `interactions` is a count and `score` finite or null; other numbers may be NaN.
    """
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("nested") from None
    if not isinstance(row, dict) or not all(_is_number(value) for value in row.values()):
        raise ValueError("not an object of numbers")
    count = row.get("interactions")
    if not isinstance(count, int) or not 0 <= count < 2**63:
        raise ValueError("no count of interactions")
    if not math.isfinite(row.get("score") or 0.0):
        raise ValueError("a score that is not finite")
    return row


def _is_number(value: Any) -> bool:
    """Whether a value is null or a number that a float can hold."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 2**1023
    return value is None or (isinstance(value, float) and not math.isinf(value))
