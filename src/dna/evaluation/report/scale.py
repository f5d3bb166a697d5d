"""An axis: from values to the plot's height or width, and where its ticks stand."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dna.evaluation.report.formats import log_label, tick_labels
from dna.evaluation.report.series import Array

#: The steps between ticks that people count in.
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """What an axis covers."""

    low: float
    high: float
    log: bool = False

    def __call__(self, values: Array) -> Array:
        """0 at the low end, 1 at the high end."""
        if self.log:
            bottom, top = math.log10(self.low), math.log10(self.high)
            return (np.log10(values) - bottom) / (top - bottom)
        return (values - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """(place between 0 and 1, label), at most about so many."""
        values = log_ticks(self.low, self.high, most) if self.log else None
        if values is None or len(values) < 2:
            values = nice_ticks(self.low, self.high, most)
            labels = tick_labels(values)
        else:
            labels = [log_label(value) for value in values]
        places = self(np.array(values, dtype=np.float64))
        return [(float(p), text) for p, text in zip(places, labels, strict=True)]

    @property
    def written(self) -> str:
        """For the page's script: low, high, and 1 if logarithmic."""
        return f"{self.low:.10g} {self.high:.10g} {int(self.log)}"


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten, at most `most` + 1 of them."""
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * nice for nice in NICE if power * nice >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, or 1-2-5 of each where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        found = [
            part * 10.0**power
            for power in range(first, last + 1)
            for part in parts
            if low * (1 - 1e-9) <= part * 10.0**power <= high * (1 + 1e-9)
        ]
        if len(found) <= most:
            return found
    stride = math.ceil(len(found) / most)
    return found[::stride]


def covering(values: Iterable[Array], *, log: bool = False, pad: float = 0.05) -> Scale:
    """A scale that shows every value, with a little room around."""
    known = [part[np.isfinite(part)] for part in values]
    known = [part[part > 0] if log else part for part in known]
    flat = np.concatenate([*known, np.empty(0)])
    if not len(flat):
        return Scale(1.0, 10.0, True) if log else Scale(0.0, 1.0)
    low, high = float(flat.min()), float(flat.max())
    if log:
        return _log_scale(low, high, pad)
    span = high - low
    if span <= 1e-9 * max(abs(low), abs(high), 1e-200):
        room = 0.1 * abs(high) or 1.0
        return Scale(low - room, high + room)
    bottom, top = low - pad * span, high + pad * span
    return Scale(0.0 if bottom < 0 <= low else bottom, 0.0 if high <= 0 < top else top)


def _log_scale(low: float, high: float, pad: float) -> Scale:
    decades = max(math.log10(high) - math.log10(low), 0.3)
    around = 10.0 ** (pad * decades if high > 2 * low else 0.25)
    return Scale(low / around, high * around, True)
