"""Curves as arrays: thinned for drawing, and averaged over seeds. NaN is a gap."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
#: Points of a curve that a page draws at most, and of all the curves of one chart.
MOST, BUDGET, FEWEST = 400, 4000, 60
#: Beyond this nothing can be drawn: it is a gap.
LARGEST = 1e150


@dataclass(frozen=True)
class Curve:
    """x ascending, y with NaN where there is nothing to say."""

    x: Array
    y: Array

    @property
    def empty(self) -> bool:
        """Whether there is no point to draw."""
        return not bool(np.isfinite(self.y).any())

    @property
    def last(self) -> float | None:
        """The last value there is."""
        known = self.y[np.isfinite(self.y)]
        return float(known[-1]) if len(known) else None

    @property
    def first(self) -> float | None:
        """The first value there is."""
        known = self.y[np.isfinite(self.y)]
        return float(known[0]) if len(known) else None


@dataclass(frozen=True)
class Mean:
    """The mean of several curves, and its standard error on both sides."""

    curve: Curve
    low: Array
    high: Array


def curve(x: Array, y: Array, *, log: bool = False) -> Curve:
    """What can be drawn of it: on a logarithmic axis only what is above zero."""
    with np.errstate(invalid="ignore"):
        good = np.isfinite(y) & (np.abs(y) < LARGEST)
        if log:
            good &= y > 1 / LARGEST
    return Curve(x, np.where(good, y, np.nan))


def room(curves: int, most: int = MOST) -> int:
    """Points for each of so many curves in one chart."""
    return max(FEWEST, min(most, BUDGET // max(curves, 1)))


def thin(line: Curve, most: int = MOST) -> Curve:
    """The curve at `places` only."""
    keep = places(line.y, most)
    return Curve(line.x[keep], line.y[keep])


def places(y: Array, most: int = MOST) -> list[int]:
    """At most so many rows: of each stretch its lowest and its highest, so that spikes stay.

    A gap stays where a whole stretch has no value; shorter ones are below what can be seen.
    """
    n = len(y)
    if n <= most:
        return list(range(n))
    edges = np.linspace(1, n - 1, max((most - 2) // 2, 1) + 1).astype(int)
    keep = [0]
    for start, stop in pairwise(edges):
        part = y[start:stop]
        if not np.isfinite(part).any():
            keep.append(int(start))
            continue
        keep += sorted({int(start + np.nanargmin(part)), int(start + np.nanargmax(part))})
    return [*keep, n - 1]


def envelope(low: Array, high: Array, keep: list[int]) -> tuple[Array, Array]:
    """Intervals at the kept rows, each as wide as the widest of those left out before it."""
    if not keep:
        return low, high
    starts = [0, *(row + 1 for row in keep[:-1])]
    return np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts)


def grid_of(curves: list[Curve], most: int = MOST) -> Array:
    """Where curves are averaged: their own places if they share them, else even ones."""
    first = curves[0].x
    if len(first) <= most and all(np.array_equal(first, c.x) for c in curves):
        return first
    start, end = max(c.x[0] for c in curves), min(c.x[-1] for c in curves)
    return np.linspace(start, end, most) if end > start else np.empty(0)


def mean_of(curves: list[Curve], most: int = MOST, *, log: bool = False) -> Mean | None:
    """The mean over seeds where every seed has a value; of logarithms if the axis is."""
    grid = grid_of(curves, most)
    if not len(grid):
        return None
    values = np.stack([np.interp(grid, c.x, c.y) for c in curves])
    values = np.log(values) if log else values
    with np.errstate(invalid="ignore"):
        center = values.mean(axis=0)
        error = values.std(axis=0, ddof=1) / np.sqrt(len(curves))
    low, high = center - error, center + error
    if log:
        center, low, high = np.exp(center), np.exp(low), np.exp(high)
    return Mean(Curve(grid, center), low, high)


def standard_error(values: list[float]) -> float | None:
    """Of a mean; None for a single value."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
