"""A run's `.jsonl` files as columns of numbers, read on from where they were left."""

import json
import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from dna.common.errors import StorageFailure
from dna.common.storage import storage_errors
from dna.evaluation.report.series import Array

#: More names than this are not a run's metrics.
MOST_NAMES = 2000


class Columns:
    """One line is one row; a name that a line lacks, or null, is NaN.

    A last line without its end is still being written and is left for the next time. Any other
    line that cannot be read is an error that names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.rows = self.read = 0  # rows, and bytes, so far
        self.columns: dict[str, array[float]] = {}

    def refresh(self) -> None:
        """Read what has come since; a file that was cut back is read anew."""
        if not self.path.is_file():
            self._forget()
            return
        with storage_errors(self.path):
            if self.path.stat().st_size < self.read:
                self._forget()
            continued = self.read > 0
            try:
                self._go_on()
            except StorageFailure:
                if not continued:
                    raise
                self._forget()  # cut back, and grown beyond where we were
                self._go_on()

    def _go_on(self) -> None:
        with self.path.open("rb") as file:
            file.seek(self.read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                row = self._parse(line)
                if self.rows and row["interactions"] < self.columns["interactions"][-1]:
                    raise self._damaged("goes back in interactions")
                self._add(row)
                self.read += len(line)

    def _parse(self, line: bytes) -> dict[str, float]:
        try:
            row: Any = json.loads(line)
            found = {key: _value(value) for key, value in row.items()}
            if not math.isfinite(found["interactions"]):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._damaged("is not one of a run's") from error
        return found

    def _damaged(self, what: str) -> StorageFailure:
        return StorageFailure(f"{self.path}: line {self.rows + 1} {what}")

    def _add(self, row: dict[str, float]) -> None:
        for key in row:
            if key not in self.columns:
                self.columns[key] = array("d", [math.nan]) * self.rows
        if len(self.columns) > MOST_NAMES:
            raise self._damaged(f"is of more than {MOST_NAMES} names")
        for key, column in self.columns.items():
            column.append(row.get(key, math.nan))
        self.rows += 1

    def __contains__(self, key: str) -> bool:
        return key in self.columns

    def __getitem__(self, key: str) -> Array:
        """A whole column; NaN everywhere if there is none of that name."""
        if key not in self.columns:
            return np.full(self.rows, math.nan)
        return np.array(self.columns[key], dtype=np.float64)

    def last(self, key: str) -> float | None:
        """The newest value that is a number."""
        known = self[key]
        known = known[np.isfinite(known)]
        return float(known[-1]) if len(known) else None

    def names(self, prefix: str = "") -> list[str]:
        """Names that begin so, in the order of their first line."""
        return [key for key in self.columns if key.startswith(prefix)]

    def when_due(self, key: str) -> tuple[Array, Array]:
        """(interactions, values) of the rows on which the key's group was measured at all.

        A phase that runs every 32nd iteration, or noise measured every tenth, is not full of
        gaps; a value that is missing beside its siblings is one.
        """
        group = key.rpartition("/")[0]
        siblings = self.names(f"{group}/") if group else [key]
        due = np.zeros(self.rows, dtype=bool)
        for name in siblings or [key]:
            due |= ~np.isnan(self[name])
        if not group:
            due[:] = True
        return self["interactions"][due], self[key][due]


def _value(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    try:
        return float(value)
    except OverflowError:
        raise ValueError from None
