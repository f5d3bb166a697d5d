"""Lines, bars and words on a dark sheet: the drawing behind a film's panel."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from dna.errors import MissingExtra

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
