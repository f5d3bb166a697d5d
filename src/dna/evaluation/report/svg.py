"""Charts as inline SVG: curves with gaps, bands, axes, a legend and room for a readout.

The plot itself is stretched to whatever width the page has, with lines that keep their
thickness; the labels beside it stand at percentages, so text has one size on every screen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dna.evaluation.plots import COLORS
from dna.evaluation.report.bands import digits, ends, known, shapes
from dna.evaluation.report.formats import number
from dna.evaluation.report.markup import Html, el, join
from dna.evaluation.report.scale import Scale, covering
from dna.evaluation.report.series import Array, Curve

#: The plot's own units in both directions.
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
    #: From, to, at the curve's x; NaN: nothing known; ∞, or 0 on a logarithmic axis: no end.
    band: tuple[Array, Array] | None = None
    note: str = ""  # of the legend

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
    from_zero: bool = True  # whether x begins at 0


def chart(lines: Sequence[Line], look: Look) -> Html:
    """A figure; nothing at all when there is no point to draw."""
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
    start = 0.0 if look.from_zero else min(float(x[0]) for x in xs)
    end = max(float(x[-1]) for x in xs)
    curves = [line.curve.y for line in lines]
    bands = [edge for line in lines if line.band is not None for edge in line.band]
    if look.log:
        tight = covering(curves, log=True)
        pairs = (line.band for line in lines if line.band is not None)
        bands = [end for low, high in pairs for end in ends(low, high, tight)]
    y = covering([*curves, *bands], log=look.log)
    return Scale(start, end if end > start else start + 1.0), y


def describe(lines: Sequence[Line], look: Look) -> str:
    """What a reader who sees no chart is told."""
    told = [
        f"{line.name} without a value"
        if line.curve.empty
        else f"{line.name} from {number(line.curve.first)} to {number(line.curve.last)}"
        for line in lines
        if line.kind == "mean"
    ]
    words = f"{look.title}, {look.about}" if look.about else look.title
    return f"{words}: {'; '.join(told)}" if told else words


def legend(lines: Sequence[Line], *, notes: bool) -> Html:
    """One entry per curve that has a name of its own, with its last value."""
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
    """The style of a color; beyond the palette the same again, dashed."""
    dash = index // len(COLORS) % DASHES
    return f"c{index % len(COLORS)}" + (f" d{dash}" if dash else "")


def _classes(line: Line) -> str:
    return f"{line.kind} {color_class(line.color)}"


def _ordered(lines: Sequence[Line]) -> list[Line]:
    """Seeds first, so that means lie on top of them."""
    return sorted(lines, key=lambda line: ("seed", "reference", "mean").index(line.kind))


def _path(line: Line, x: Scale, y: Scale) -> Html:
    if line.curve.empty:
        return Html("")
    value = f"{line.name}: {number(line.curve.last)} at the end"
    if line.kind == "reference":
        height = _down(y, line.curve.y[:1])[0]
        shape = f"M0 {digits(height)}H{SIDE}"
        return el("path", el("title", line.name), class_=_classes(line), d=shape)
    across, down = _across(x, line.curve.x), _down(y, line.curve.y)
    css, dots = _classes(line), path(across, np.where(alone(down), down, np.nan))
    whole = el(
        "path", el("title", value), class_=css, d=path(across, down), data_name=line.name
    )
    return join([whole, el("path", class_=f"dot {css}", d=dots)]) if dots else whole


def path(x: Array, y: Array) -> str:
    """M and L with a new M after every gap; a point alone is a line of no length: a dot."""
    words: list[str] = []
    pen, lonely = False, alone(y)
    for i, good in enumerate(np.isfinite(y)):
        if good:
            place = f"{digits(x[i])} {digits(y[i])}"
            words.append(f"{'L' if pen else 'M'}{place}" + (f"L{place}" if lonely[i] else ""))
        pen = bool(good)
    return "".join(words)


def alone(y: Array) -> npt.NDArray[np.bool_]:
    """Which points have a gap, or nothing, on both sides."""
    good = np.concatenate([[False], np.isfinite(y), [False]])
    found: npt.NDArray[np.bool_] = good[1:-1] & ~good[:-2] & ~good[2:]
    return found


def _band(line: Line, x: Scale, y: Scale) -> Html:
    assert line.band is not None
    low, high = line.band
    low = np.maximum(low, 0) if y.log else low  # its logarithm is an end, not a gap
    areas, strokes = shapes(_across(x, line.curve.x), _down(y, low), _down(y, high))
    color = color_class(line.color)
    whole = el("path", class_=f"band {color}", d=areas) if areas else ""
    lone = el("path", class_=f"band lone {color}", d=strokes) if strokes else ""
    return join([whole, lone])


def _across(x: Scale, values: Array) -> Array:
    return np.asarray(x(values) * SIDE)


def _down(y: Scale, values: Array) -> Array:
    """Places from the top; what lies beyond the axis stays at its edge."""
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
