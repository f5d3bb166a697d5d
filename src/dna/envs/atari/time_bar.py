"""What the paper draws into Atari frames: the time, and the last action (appendix A).

Sizes and places are those of the authors' code, for 84 × 84 pixels; other sizes keep the
borders. Functions write in place into numpy arrays.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Pixels of an action's mark each way, of the time bar's border, and rows of the bar.
MARK, BORDER, BAR = 4, 3, 4
#: Brightness of time to come and of time gone.
AHEAD, GONE = 64, 255


def draw_action(frame: Array, action: int) -> None:
    """A white square at the left edge of [H, W], lower for a higher action."""
    frame[MARK * action : MARK * (action + 1), :MARK] = GONE


def draw_time(frames: Array, elapsed: Array, limit: int) -> None:
    """A bar at the bottom of [B, H, W] that fills while `elapsed` [B] runs to `limit`.

    The column that time has reached is as bright as the part of it that is gone.
    """
    _, height, width = frames.shape
    columns = np.arange(BORDER, width - BORDER)
    reached = BORDER + (width - 2 * BORDER) * (elapsed / limit)
    whole = np.floor(reached)
    partly = AHEAD + np.floor((GONE - AHEAD) * (reached - whole))
    bar = np.where(columns < whole[:, None], GONE, AHEAD)
    bar = np.where(columns == whole[:, None], partly[:, None], bar)
    frames[:, height - BAR :] = 0
    frames[:, height - BAR + 1 : height - 1, BORDER : width - BORDER] = bar[:, None]
