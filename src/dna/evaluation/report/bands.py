"""Bands of a chart: intervals around a curve, some of which have no end.

NaN is an interval of which nothing is known. One without an end (∞; 0 on a logarithmic axis)
reaches the edge of the plot: left out, the least certain stretch would look the most certain.
"""

import numpy as np
import numpy.typing as npt

from dna.evaluation.report.scale import Scale
from dna.evaluation.report.series import LARGEST, Array


def known(low: Array, high: Array) -> npt.NDArray[np.bool_]:
    """Where there is an interval."""
    found: npt.NDArray[np.bool_] = ~(np.isnan(low) | np.isnan(high))
    return found


def ends(low: Array, high: Array, tight: Scale) -> tuple[Array, Array]:
    """What a logarithmic axis shows of intervals, beyond the `tight` one that shows the curves.

    One that is nearly unbounded must not flatten the curves, and an end that is open needs no
    room, unless the whole interval lies beyond them: then a little, to be seen at all.
    """
    least = np.maximum(low, np.fmin(high, tight.low) / 3)
    most = np.minimum(high, np.fmax(low, tight.high) * 3)
    below, above = (low <= 0) & ~(high < tight.low), np.isinf(high) & ~(low > tight.high)
    # Nearer to zero than any curve: the axis would have no number for it.
    least = np.where(below | ~(least > 1 / LARGEST), np.nan, least)
    return least, np.where(above | ~(most > 1 / LARGEST), np.nan, most)


def shapes(across: Array, low: Array, high: Array) -> tuple[str, str]:
    """(areas, strokes) as paths; an interval between gaps has no width, so it is a stroke."""
    areas: list[str] = []
    strokes: list[str] = []
    edges = np.flatnonzero(np.diff(known(low, high).astype(int), prepend=0, append=0))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        there = [(across[i], high[i]) for i in range(start, stop)]
        back = [(across[i], low[i]) for i in reversed(range(start, stop))]
        shape = "M" + "L".join(f"{digits(x)} {digits(y)}" for x, y in there + back)
        (strokes if stop - start == 1 else areas).append(shape)
    return "".join(f"{area}Z" for area in areas), "".join(strokes)


def digits(value: float) -> str:
    """A place in the plot, as short as it may be."""
    return f"{value:.1f}".removesuffix(".0")
