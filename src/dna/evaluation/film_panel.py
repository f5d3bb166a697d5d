"""What an agent thinks, drawn beside what it sees: values over time, π's bars, the score.

Pillow draws with the font it brings along. Nothing here knows networks or environments: a
`Moment` holds all that a frame of a film shows.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dna.common.errors import MissingExtra
from dna.evaluation.video import Frame, as_frame

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError:
    raise MissingExtra("recording", "media") from None

Color = tuple[int, int, int]
GROUND: Color = (22, 24, 29)
TEXT: Color = (236, 239, 244)
DIM: Color = (160, 168, 182)
TRACK: Color = (48, 53, 63)
BAR: Color = (108, 122, 148)
CHOSEN: Color = (240, 196, 84)
#: V_π, V_V: told apart by lightness as well, for eyes that see no colors.
LINES: tuple[Color, ...] = ((80, 190, 255), (255, 138, 76))
#: Share of a row that its name takes, and at least so many pixels; those of its number.
NAME, LEAST, NUMBER = 0.36, 76, 40


class Box(NamedTuple):
    """Left, top, right, bottom in pixels."""

    left: int
    top: int
    right: int
    bottom: int


def sheet(width: int, height: int) -> tuple[Any, Any]:
    """An empty dark image, and what draws on it."""
    image = Image.new("RGB", (width, height), GROUND)
    return image, ImageDraw.Draw(image)


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def words(
    draw: Any,
    at: tuple[float, float],
    text: str,
    ink: tuple[int, Color],
    *,
    anchor: str = "la",
    room: float | None = None,
) -> float:
    """Write a line in this size and color, cut to its room; returns how wide it is."""
    size, color = ink
    font = _font(size)
    while room is not None and len(text) > 1 and font.getlength(text) > room:
        text = text.rstrip(".")[:-1] + "."
    draw.text(at, text, fill=color, font=font, anchor=anchor)
    return float(font.getlength(text))


def chart(
    draw: Any,
    box: Box,
    lines: Sequence[Sequence[float]],
    limits: tuple[float, float],
    room: int,
) -> None:
    """One or two lines over the last steps, V_π and V_V, with their numbers above."""
    low, high = limits
    span = (high - low) or 1.0
    draw.rectangle(box, fill=(15, 16, 20), outline=TRACK)
    if low < 0 < high:
        zero = _height(box, -low / span)
        draw.line([(box.left + 1, zero), (box.right - 1, zero)], fill=TRACK)
    for values, color in zip(lines, LINES, strict=False):
        step = (box.right - box.left - 6) / max(room - 1, 1)
        points = [
            (box.left + 3 + i * step, _height(box, (v - low) / span))
            for i, v in enumerate(values)
        ]
        draw.line(points if len(points) > 1 else points * 2, fill=color, width=2)
    for value, y, anchor in ((high, box.top + 3, "ra"), (low, box.bottom - 3, "rd")):
        words(draw, (box.right - 4, y), f"{value:.3g}", (11, DIM), anchor=anchor)
    left = float(box.left)
    for values, color, mark in zip(lines, LINES, ("pi", "V"), strict=False):
        left = _legend(draw, (left, box.top - 19), mark, values[-1], color)


def _height(box: Box, share: float) -> float:
    return box.bottom - 4 - share * (box.bottom - box.top - 8)


def _legend(draw: Any, at: tuple[float, float], mark: str, value: float, color: Color) -> float:
    """`V_π 1.25`; the font has no Greek, so π is three strokes."""
    left, top = at
    left += words(draw, at, "V", (14, color))
    if mark == "pi":
        draw.line([(left, top + 10), (left + 7, top + 10)], fill=color)
        draw.line([(left + 2, top + 10), (left + 1, top + 15)], fill=color)
        draw.line([(left + 5, top + 10), (left + 6, top + 15)], fill=color)
        left += 8
    else:
        left += words(draw, (left, top + 6), mark, (10, color))
    return left + 8 + words(draw, (left + 6, top), f"{value:.3f}", (14, color)) + 24


def choice_row(draw: Any, box: Box, name: str, chance: float, chosen: bool) -> None:
    """A name, a bar as long as its probability, the probability."""
    color = CHOSEN if chosen else DIM
    track = _track(draw, box, name, color)
    draw.rectangle(track, fill=TRACK)
    width = round(chance * (track.right - track.left))
    if width > 0:
        fill = CHOSEN if chosen else BAR
        draw.rectangle((track.left, track.top, track.left + width, track.bottom), fill=fill)
    _middle(draw, box, f"{chance:.2f}", color)


def number_row(
    draw: Any, box: Box, name: str, told: tuple[float, float, float], reach: float
) -> None:
    """A name, mean ± σ as a bar between −reach and reach, and what was drawn as a stroke."""
    mean, sigma, drawn = told
    track = _track(draw, box, name, DIM)
    draw.rectangle(track, fill=TRACK)

    def at(value: float) -> float:
        share = (min(max(value, -reach), reach) / reach + 1) / 2
        return track.left + share * (track.right - track.left)

    draw.rectangle((at(mean - sigma), track.top, at(mean + sigma), track.bottom), fill=BAR)
    draw.line([(at(0), track.top), (at(0), track.bottom)], fill=DIM)
    for value, color in ((mean, TEXT), (drawn, CHOSEN)):
        draw.line([(at(value), track.top), (at(value), track.bottom)], fill=color, width=2)
    _middle(draw, box, f"{mean:.2f}", DIM)


def _track(draw: Any, box: Box, name: str, color: Color) -> Box:
    """Write the name; what is left for the bar."""
    room = max((box.right - box.left - NUMBER) * NAME, LEAST)
    at = (box.left, (box.top + box.bottom) / 2)
    words(draw, at, name, (12, color), anchor="lm", room=room - 4)
    return Box(round(box.left + room), box.top + 1, box.right - NUMBER + 6, box.bottom - 1)


def _middle(draw: Any, box: Box, text: str, color: Color) -> None:
    at = (box.right, (box.top + box.bottom) / 2)
    words(draw, at, text, (12, color), anchor="rm")


#: Height from which a picture and its panel are easy to read, and the panel's width.
HEIGHT, WIDTH = 320, 360
#: Steps that the chart of values shows.
WINDOW = 200
#: Pixels around everything, per row of bars, and above the bars.
EDGE, ROW, TOP = 14, 15, 190
#: A film is not made larger than this, whatever an environment draws.
LARGEST = 1200


@dataclass(frozen=True)
class Moment:
    """One step of an episode: the picture, and what the agent thinks of it."""

    picture: npt.NDArray[Any]  # [H, W, 3]
    step: int
    score: float  # so far
    value: float  # V_π
    other: float | None  # V_V
    choices: tuple[npt.NDArray[np.floating[Any]], ...]  # probabilities of each group
    normal: npt.NDArray[np.floating[Any]]  # [2, D] mean and σ of each real number
    action: npt.NDArray[Any]  # [W] what was done: choices, then real numbers
    over: bool = False  # the episode ended behind this picture


@dataclass(frozen=True)
class Row:
    """One bar: a choice with its probability, or a real number with mean and σ."""

    name: str
    chosen: float  # 1 or 0; or the number that was drawn
    numbers: tuple[float, ...]  # (p,) or (mean, σ)

    @property
    def is_choice(self) -> bool:
        """Whether it is a probability."""
        return len(self.numbers) == 1


class Panel:
    """Draws moment after moment of one episode."""

    def __init__(self, title: str, names: tuple[str, ...] = ()) -> None:
        self.title, self.names = title, names
        self.values: deque[tuple[float, float | None]] = deque(maxlen=WINDOW)
        self.seen: list[float] = []  # lowest and highest value so far
        self.reach = 1.0  # largest |real number| so far

    def draw(self, moment: Moment) -> Frame:
        """The picture with the panel at its right."""
        left = as_frame(moment.picture, at_least=HEIGHT, at_most=LARGEST)
        image, draw = sheet(WIDTH, len(left))
        if not moment.over:
            self._remember(moment)
        self._head(draw, moment)
        self._chart(draw, moment)
        self._bars(draw, moment, len(left))
        return np.ascontiguousarray(np.concatenate([left, np.asarray(image)], axis=1))

    def _remember(self, moment: Moment) -> None:
        self.values.append((moment.value, moment.other))
        now = [moment.value] if moment.other is None else [moment.value, moment.other]
        self.seen = [min([*self.seen, *now]), max([*self.seen, *now])]
        mean, sigma = moment.normal
        reach = np.abs(np.concatenate([mean - sigma, mean + sigma, [self.reach]])).max()
        self.reach = float(reach)

    def _head(self, draw: Any, moment: Moment) -> None:
        words(draw, (EDGE, 10), self.title, (13, DIM), room=WIDTH - 2 * EDGE)
        words(draw, (EDGE, 28), f"score {number(moment.score)}", (22, TEXT))
        state = "the end" if moment.over else f"step {moment.step:,}"
        color = CHOSEN if moment.over else DIM
        words(draw, (WIDTH - EDGE, 34), state, (14, color), anchor="ra")

    def _chart(self, draw: Any, moment: Moment) -> None:
        box = Box(EDGE, 82, WIDTH - EDGE, TOP - 26)
        lines = [[value for value, _ in self.values]]
        if moment.other is not None:
            lines.append([other for _, other in self.values if other is not None])
        chart(draw, box, lines, (self.seen[0], self.seen[1]), WINDOW)

    def _bars(self, draw: Any, moment: Moment, height: int) -> None:
        rows = list(rows_of(moment, self.names))
        space = max(1, (height - TOP - EDGE // 2) // ROW)
        columns = 1 if len(rows) <= space else 2
        shown = most_likely(rows, space * columns)
        width = (WIDTH - 2 * EDGE - (columns - 1) * EDGE) // columns
        per = -(-len(shown) // columns)
        pitch = min(24, max(ROW, (height - TOP - EDGE // 2) // per))
        for i, row in enumerate(shown):
            left = EDGE + i // per * (width + EDGE)
            top = TOP + i % per * pitch
            box = Box(left, top, left + width, top + pitch - 3)
            if row.is_choice:
                choice_row(draw, box, row.name, row.numbers[0], row.chosen > 0)
            else:
                mean, sigma = row.numbers
                number_row(draw, box, row.name, (mean, sigma, row.chosen), self.reach)
        about = "action probabilities" if rows[0].is_choice else "actions: mean ± std, drawn"
        if len(shown) < len(rows):
            about += f" ({len(shown)} of {len(rows)})"
        words(draw, (EDGE, TOP - 20), about, (12, DIM))


def number(score: float) -> str:
    """Whole scores without decimals, as games show them."""
    return f"{score:,.0f}" if score == round(score) else f"{score:,.2f}"


def rows_of(moment: Moment, names: tuple[str, ...]) -> Iterator[Row]:
    """Every choice of every group, then every real number."""
    several = len(moment.choices) > 1
    for group, p in enumerate(moment.choices):
        for i, chance in enumerate(p):
            fits = not several and len(names) == len(p)
            name = names[i] if fits else f"{group}: {i}" if several else str(i)
            yield Row(name, float(moment.action[group] == i), (float(chance),))
    for i, (mean, sigma) in enumerate(moment.normal.T):
        drawn = float(moment.action[len(moment.choices) + i])
        yield Row(f"a{i}", drawn, (float(mean), float(sigma)))


def most_likely(rows: list[Row], room: int) -> list[Row]:
    """As many as there is room for: the likely choices, real numbers first come; in order."""
    ranked = sorted(range(len(rows)), key=lambda i: -rows[i].numbers[0] * rows[i].is_choice)
    return [rows[i] for i in sorted(ranked[:room])]
