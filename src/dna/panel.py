"""What an agent thinks, drawn beside what it sees: values over time, π's bars, the score.

Pillow draws with the font it brings along. Nothing here knows networks or environments: a
`Moment` holds all that a frame of a film shows.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.chart import CHOSEN, DIM, TEXT, Box, chart, choice_row, number_row, sheet, words
from dna.media import Frame, as_frame

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
