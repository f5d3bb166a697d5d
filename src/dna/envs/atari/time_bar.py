"""What the paper draws into Atari frames: a time bar, and a mark of the last action (app. A).

Sizes and positions are those of the authors' code, for 84 × 84 pixels; other sizes keep the
borders. The functions draw in place.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Height and width of an action's mark in pixels.
MARK = 4
#: Columns to the left and right of the time bar, and rows of the bar.
BORDER = 3
BAR = 4
#: Brightness of the remaining and of the elapsed time.
AHEAD = 64
GONE = 255


def draw_action(frame: Array, action: int) -> None:
    """Draw a white square at the left edge of [H, W], lower for a higher action."""
    frame[MARK * action : MARK * (action + 1), :MARK] = GONE


def draw_time(frames: Array, elapsed: Array, limit: int) -> None:
    """Draw a bar at the bottom of [B, H, W] that fills as `elapsed` [B] runs to `limit`.

    The brightness of the column that time has reached lies between `AHEAD` and `GONE`.
    """
    _, height, width = frames.shape
    columns = np.arange(BORDER, width - BORDER)
    reached = BORDER + (width - 2 * BORDER) * (elapsed / limit)
    whole = np.floor(reached)
    partial = AHEAD + np.floor((GONE - AHEAD) * (reached - whole))
    bar = np.where(columns < whole[:, None], GONE, AHEAD)
    bar = np.where(columns == whole[:, None], partial[:, None], bar)
    frames[:, height - BAR :] = 0
    frames[:, height - BAR + 1 : height - 1, BORDER : width - BORDER] = bar[:, None]
