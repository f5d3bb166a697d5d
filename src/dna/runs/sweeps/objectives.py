"""What a search looks for, from a run's files: the last score, the area, or how soon.

score               mean of the last 100 episodes at the end of the run
area                mean of the score over the run (area under the curve, by its length)
interactions-to=V   interactions until the score first is V or more; less is better
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from dna.common.errors import BadInput, StorageFailure
from dna.common.messages import quoted
from dna.common.storage import read

#: (interactions, score) of a run's iterations, those before its first episode left out.
Curve = list[tuple[int, float]]
Average = Literal["mean", "median"]


@dataclass(frozen=True)
class Objective:
    """How a run is judged; `goal` is that of `interactions-to`."""

    kind: Literal["score", "area", "interactions-to"]
    goal: float = 0.0

    @property
    def name(self) -> str:
        """As it is written on the command line."""
        return f"{self.kind}={self.goal:g}" if self.kind == "interactions-to" else self.kind

    @property
    def minimize(self) -> bool:
        """Whether less is better."""
        return self.kind == "interactions-to"

    def value(self, curve: Curve, total: int) -> float | None:
        """Of one run of `total` interactions; None if no episode has ended."""
        if self.kind == "interactions-to":
            return self._soon(curve, total)
        if not curve:
            return None
        return curve[-1][1] if self.kind == "score" else _area(curve)

    def _soon(self, curve: Curve, total: int) -> float:
        """Never: between once and twice the run's length, by how much of the goal is missing.

        So a search can tell a run that nearly got there from one that learned nothing.
        """
        for interactions, score in curve:
            if score >= self.goal:
                return float(interactions)
        if not curve:
            return 2.0 * total
        best = max(score for _, score in curve)
        return total * (1 + (self.goal - best) / (abs(self.goal) + abs(best)))


def _area(curve: Curve) -> float:
    """Trapezoids over the length; before its first episode a run had its first score."""
    area = curve[0][0] * curve[0][1]
    for (x0, y0), (x1, y1) in pairwise(curve):
        area += (x1 - x0) * (y0 + y1) / 2
    return area / curve[-1][0]


def objective(text: str) -> Objective:
    """`score`, `area` or `interactions-to=475`."""
    kind, equals, goal = text.partition("=")
    if kind in ("score", "area") and not equals:
        return Objective("score" if kind == "score" else "area")
    try:
        if kind == "interactions-to" and math.isfinite(float(goal)):
            return Objective("interactions-to", float(goal))
    except ValueError:
        pass
    known = "score, area or interactions-to=NUMBER"
    raise BadInput(f"--objective: given {quoted(text)}, must be {known}")


def read_curve(folder: Path, *, whole: bool = True) -> Curve:
    """A run's curve; of one that still trains (not `whole`) up to a line half written."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return []
    curve: Curve = []
    for line in read(path).splitlines():
        try:
            row = json.loads(line)
            if row["score"] is not None:
                curve.append((row["interactions"], row["score"]))
        except (ValueError, KeyError, TypeError) as error:
            if not whole:
                break
            raise StorageFailure(f"{path}: not a run's metrics") from error
    return curve


def average(values: Sequence[float], how: Average) -> float:
    """Over seeds."""
    found = statistics.fmean(values) if how == "mean" else statistics.median(values)
    return float(found)


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean; None of fewer than two."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
