"""Draw curves as inline SVG: axes, lines with gaps, bands, a legend.

The plot is stretched to the width of the page, with lines that keep their thickness; the labels
beside it are positioned by percentages, so that text has the same size on every screen. NaN in
a curve is a gap.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from dna.evaluation.plots import COLORS
from dna.evaluation.report.data import Array
from dna.evaluation.report.markup import Html, el, join, log_label, number, tick_labels

#: Limits on the points of one curve, and of all curves of a chart.
MOST = 400
FEWEST = 60
BUDGET = 4000
#: Larger values cannot be drawn and are gaps.
LARGEST = 1e150


@dataclass(frozen=True)
class Curve:
    """Points with ascending x; y is NaN in gaps."""

    x: Array
    y: Array

    @property
    def empty(self) -> bool:
        """Whether there is no point to draw."""
        return not bool(np.isfinite(self.y).any())

    @property
    def last(self) -> float | None:
        """The last finite value."""
        known = self.y[np.isfinite(self.y)]
        return float(known[-1]) if len(known) else None

    @property
    def first(self) -> float | None:
        """The first finite value."""
        known = self.y[np.isfinite(self.y)]
        return float(known[0]) if len(known) else None


@dataclass(frozen=True)
class Mean:
    """The mean of several curves, and the band of its standard error."""

    curve: Curve
    low: Array
    high: Array


def curve(x: Array, y: Array, *, log: bool = False) -> Curve:
    """Return a curve of the values that can be drawn; on a log axis those above zero."""
    with np.errstate(invalid="ignore"):
        good = np.isfinite(y) & (np.abs(y) < LARGEST)
        if log:
            good &= y > 1 / LARGEST
    return Curve(x, np.where(good, y, np.nan))


def room(curves: int, most: int = MOST) -> int:
    """Return the number of points for each of that many curves in one chart."""
    return max(FEWEST, min(most, BUDGET // max(curves, 1)))


def thin(line: Curve, most: int = MOST) -> Curve:
    """Return the curve at its `places`."""
    keep = places(line.y, most)
    return Curve(line.x[keep], line.y[keep])


def places(y: Array, most: int = MOST) -> list[int]:
    """Return at most `most` indices: the lowest and highest of each stretch, so spikes stay.

    A gap stays where a whole stretch has no value; shorter ones would not be visible.
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
    """Return intervals at the kept rows, each widened to cover those dropped before it."""
    if not keep:
        return low, high
    starts = [0, *(row + 1 for row in keep[:-1])]
    return np.fmin.reduceat(low, starts), np.fmax.reduceat(high, starts)


def grid_of(curves: list[Curve], most: int = MOST) -> Array:
    """Return where to average curves: at their own x if they share it, else on an even grid."""
    first = curves[0].x
    if len(first) <= most and all(np.array_equal(first, c.x) for c in curves):
        return first
    start = max(c.x[0] for c in curves)
    end = min(c.x[-1] for c in curves)
    return np.linspace(start, end, most) if end > start else np.empty(0)


def mean_of(curves: list[Curve], most: int = MOST, *, log: bool = False) -> Mean | None:
    """Average curves where all have a value; on a log axis, average their logarithms."""
    grid = grid_of(curves, most)
    if not len(grid):
        return None
    values = np.stack([np.interp(grid, c.x, c.y) for c in curves])
    values = np.log(values) if log else values
    with np.errstate(invalid="ignore"):
        center = values.mean(axis=0)
        error = values.std(axis=0, ddof=1) / np.sqrt(len(curves))
    low = center - error
    high = center + error
    if log:
        center = np.exp(center)
        low = np.exp(low)
        high = np.exp(high)
    return Mean(Curve(grid, center), low, high)


# ── Axes ──────────────────────────────────────────────────────────────────────────────────


#: Steps between ticks, times a power of ten.
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """The range of an axis."""

    low: float
    high: float
    log: bool = False

    def __call__(self, values: Array) -> Array:
        """Map values to 0 at the low end and 1 at the high end."""
        if self.log:
            bottom = math.log10(self.low)
            top = math.log10(self.high)
            return (np.log10(values) - bottom) / (top - bottom)
        return (values - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return (place between 0 and 1, label) of about `most` ticks."""
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
        """The scale for the page's script: low, high, and 1 if logarithmic."""
        return f"{self.low:.10g} {self.high:.10g} {int(self.log)}"


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` + 1 multiples of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * nice for nice in NICE if power * nice >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return powers of ten, or 1-2-5 times each if there are few."""
    first = math.floor(math.log10(low))
    last = math.ceil(math.log10(high))
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
    """Return a scale that shows every value with a margin."""
    known = [part[np.isfinite(part)] for part in values]
    known = [part[part > 0] if log else part for part in known]
    flat = np.concatenate([*known, np.empty(0)])
    if not len(flat):
        return Scale(1.0, 10.0, True) if log else Scale(0.0, 1.0)
    low = float(flat.min())
    high = float(flat.max())
    if log:
        return _log_scale(low, high, pad)
    span = high - low
    if span <= 1e-9 * max(abs(low), abs(high), 1e-200):
        margin = 0.1 * abs(high) or 1.0
        return Scale(low - margin, high + margin)
    bottom = low - pad * span
    top = high + pad * span
    return Scale(0.0 if bottom < 0 <= low else bottom, 0.0 if high <= 0 < top else top)


def _log_scale(low: float, high: float, pad: float) -> Scale:
    decades = max(math.log10(high) - math.log10(low), 0.3)
    around = 10.0 ** (pad * decades if high > 2 * low else 0.25)
    return Scale(low / around, high * around, True)


# ── Bands ─────────────────────────────────────────────────────────────────────────────────


# NaN is an unknown interval. An unbounded one (∞; 0 on a logarithmic axis) reaches the edge of
# the plot: if it were left out, the least certain stretch would look the most certain.


def known(low: Array, high: Array) -> npt.NDArray[np.bool_]:
    """Return where there is an interval."""
    found: npt.NDArray[np.bool_] = ~(np.isnan(low) | np.isnan(high))
    return found


def ends(low: Array, high: Array, tight: Scale) -> tuple[Array, Array]:
    """Return the ends of intervals that a logarithmic axis should include.

    `tight` is the scale of the curves alone. A nearly unbounded interval must not flatten the
    curves, and an open end needs no space, unless the whole interval lies beyond them: then a
    little, so that it is visible.
    """
    least = np.maximum(low, np.fmin(high, tight.low) / 3)
    most = np.minimum(high, np.fmax(low, tight.high) * 3)
    below = (low <= 0) & ~(high < tight.low)
    above = np.isinf(high) & ~(low > tight.high)
    # Ends closer to zero than any drawable value cannot be placed on the axis.
    least = np.where(below | ~(least > 1 / LARGEST), np.nan, least)
    return least, np.where(above | ~(most > 1 / LARGEST), np.nan, most)


def shapes(across: Array, low: Array, high: Array) -> tuple[str, str]:
    """Return (areas, strokes) as paths; a single interval between gaps becomes a stroke."""
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
    """Format a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


# ── Charts ────────────────────────────────────────────────────────────────────────────────


#: Units of the plot in both directions.
SIDE = 1000
DASHES = 4
Kind = Literal["mean", "seed", "reference"]


@dataclass(frozen=True)
class Line:
    """One curve of a chart."""

    name: str
    curve: Curve
    color: int = 0
    kind: Kind = "mean"
    #: (low, high) at the curve's x; NaN: unknown; ∞, or 0 on a logarithmic axis: unbounded.
    band: tuple[Array, Array] | None = None
    note: str = ""  # in the legend

    @property
    def empty(self) -> bool:
        """Whether there is neither a point nor an interval to draw."""
        return self.curve.empty and (self.band is None or not known(*self.band).any())


@dataclass(frozen=True)
class Look:
    """How a chart is drawn."""

    title: str
    about: str = ""
    log: bool = False
    wide: bool = False
    x_name: str = ""


def chart(lines: Sequence[Line], look: Look) -> Html:
    """Return a figure; empty if there is nothing to draw."""
    lines = [line for line in lines if not line.empty]
    if not any(line.kind != "reference" for line in lines):
        return Html("")
    x, y = _scales(lines, look)
    plot = el(
        "svg",
        _grid(x, y, look),
        *(_band(line, x, y) for line in lines if line.band is not None),
        *(_path(line, x, y) for line in _ordered(lines)),
        class_="plot",
        viewBox=f"0 0 {SIDE} {SIDE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=describe(lines, look),
        data_x=x.written,
        data_y=y.written,
    )
    frame = el(
        "div", _y_labels(y, look), el("div", plot, class_="box"), _x_labels(x), class_="frame"
    )
    about = el("span", look.about) if look.about else ""
    caption = el("figcaption", el("b", look.title), about)
    name = el("p", look.x_name, class_="axis") if look.x_name else ""
    css = "chart wide" if look.wide else "chart"
    return el("figure", caption, legend(lines, notes=look.wide), frame, name, class_=css)


def _scales(lines: Sequence[Line], look: Look) -> tuple[Scale, Scale]:
    xs = [line.curve.x for line in lines if line.kind != "reference" and len(line.curve.x)]
    end = max(float(x[-1]) for x in xs)
    curves = [line.curve.y for line in lines]
    bands = [edge for line in lines if line.band is not None for edge in line.band]
    if look.log:
        tight = covering(curves, log=True)
        pairs = (line.band for line in lines if line.band is not None)
        bands = [end for low, high in pairs for end in ends(low, high, tight)]
    y = covering([*curves, *bands], log=look.log)
    return Scale(0.0, end if end > 0 else 1.0), y


def describe(lines: Sequence[Line], look: Look) -> str:
    """Describe the chart for screen readers."""
    ranges = [
        f"{line.name} without a value"
        if line.curve.empty
        else f"{line.name} from {number(line.curve.first)} to {number(line.curve.last)}"
        for line in lines
        if line.kind == "mean"
    ]
    title = f"{look.title}, {look.about}" if look.about else look.title
    return f"{title}: {'; '.join(ranges)}" if ranges else title


def legend(lines: Sequence[Line], *, notes: bool) -> Html:
    """Return one entry per curve, except for single seeds, with its last value."""
    named = [line for line in lines if line.kind != "seed"]
    entries = []
    for line in named:
        swatch = el(
            "svg",
            el("path", d="M1 6H21", class_=_classes(line)),
            class_="swatch",
            viewBox="0 0 22 12",
            aria_hidden="true",
        )
        value = el("b", number(line.curve.last))
        note = el("span", f" {line.note}") if line.note and notes else ""
        entries.append(el("li", swatch, f"{line.name} ", value, note))
    return el("ul", *entries, class_="legend")


def color_class(index: int) -> str:
    """Return the CSS classes of a color; colors beyond the palette repeat it, dashed."""
    dash = index // len(COLORS) % DASHES
    return f"c{index % len(COLORS)}" + (f" d{dash}" if dash else "")


def _classes(line: Line) -> str:
    return f"{line.kind} {color_class(line.color)}"


def _ordered(lines: Sequence[Line]) -> list[Line]:
    """Sort seeds first, so that means are drawn on top of them."""
    return sorted(lines, key=lambda line: ("seed", "reference", "mean").index(line.kind))


def _path(line: Line, x: Scale, y: Scale) -> Html:
    if line.curve.empty:
        return Html("")
    value = f"{line.name}: {number(line.curve.last)} at the end"
    if line.kind == "reference":
        height = _down(y, line.curve.y[:1])[0]
        shape = f"M0 {digits(height)}H{SIDE}"
        return el("path", el("title", line.name), class_=_classes(line), d=shape)
    across = _across(x, line.curve.x)
    down = _down(y, line.curve.y)
    css = _classes(line)
    dots = path(across, np.where(alone(down), down, np.nan))
    whole = el(
        "path", el("title", value), class_=css, d=path(across, down), data_name=line.name
    )
    return join([whole, el("path", class_=f"dot {css}", d=dots)]) if dots else whole


def path(x: Array, y: Array) -> str:
    """Return an SVG path with gaps; an isolated point is a zero-length line, drawn as a dot."""
    commands: list[str] = []
    pen = False
    lonely = alone(y)
    for i, good in enumerate(np.isfinite(y)):
        if good:
            place = f"{digits(x[i])} {digits(y[i])}"
            commands.append(f"{'L' if pen else 'M'}{place}")
            if lonely[i]:
                commands.append(f"L{place}")
        pen = bool(good)
    return "".join(commands)


def alone(y: Array) -> npt.NDArray[np.bool_]:
    """Return which points have a gap, or nothing, on both sides."""
    good = np.concatenate([[False], np.isfinite(y), [False]])
    found: npt.NDArray[np.bool_] = good[1:-1] & ~good[:-2] & ~good[2:]
    return found


def _band(line: Line, x: Scale, y: Scale) -> Html:
    assert line.band is not None
    low, high = line.band
    low = np.maximum(low, 0) if y.log else low  # log 0 is an open end, not a gap
    areas, strokes = shapes(_across(x, line.curve.x), _down(y, low), _down(y, high))
    color = color_class(line.color)
    whole = el("path", class_=f"band {color}", d=areas) if areas else ""
    lone = el("path", class_=f"band lone {color}", d=strokes) if strokes else ""
    return join([whole, lone])


def _across(x: Scale, values: Array) -> Array:
    return np.asarray(x(values) * SIDE)


def _down(y: Scale, values: Array) -> Array:
    """Return coordinates from the top; values beyond the axis stay at its edge."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip((1 - y(values)) * SIDE, 0, SIDE)


def _grid(x: Scale, y: Scale, look: Look) -> Html:
    rows = [f"M0 {digits((1 - place) * SIDE)}H{SIDE}" for place, _ in y.ticks(_rows(look))]
    return el("path", class_="grid", d="".join(rows) + f"M0 {SIDE}H{SIDE}")


def _rows(look: Look) -> int:
    return 6 if look.wide else 5


def _y_labels(y: Scale, look: Look) -> Html:
    marks = (
        el("text", text, x="100%", y=f"{100 * (1 - place):.2f}%", dx=-7, dy="0.32em")
        for place, text in y.ticks(_rows(look))
    )
    return el("svg", *marks, class_="ys", aria_hidden="true")


def _x_labels(x: Scale) -> Html:
    marks = []
    for place, text in x.ticks(4):
        side = "end" if place > 0.97 else None
        marks.append(el("text", text, x=f"{100 * place:.2f}%", y=15, text_anchor=side))
    return el("svg", join(marks), class_="xs", aria_hidden="true")
