"""The board of shared memory between Atari's workers and the run: one array per field."""

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

Board = dict[str, npt.NDArray[Any]]
Fields = dict[str, tuple[str, list[int]]]
#: Bytes of an emulator's state: about 14,400 with its generator.
STATE = 32_768


def fields(agents: int, size: int, screen: tuple[int, int]) -> Fields:
    """What the board holds for each agent."""
    picture, numbers = [agents, size, size], [agents]
    return {
        "frame": ("uint8", picture),
        "final": ("uint8", picture),
        "screens": ("uint8", [agents, 2, *screen]),
        "state": ("uint8", [agents, STATE]),
        "length": ("int64", numbers),
        "counters": ("int64", [agents, 6]),
        "action": ("int64", numbers),
        "seed": ("int64", numbers),  # of the next game, plus one; 0: goes on from its own
        "elapsed": ("int64", numbers),
        "last": ("int64", numbers),
        "reward": ("float32", numbers),
        "unseen": ("float32", numbers),
        "active": ("bool", numbers),
        "terminated": ("bool", numbers),
        "done": ("bool", numbers),
        "over": ("bool", numbers),
    }


def bytes_of(layout: Fields) -> int:
    """Size of the board; every array begins at a multiple of 64."""
    return sum(
        -(-np.dtype(kind).itemsize * int(np.prod(shape)) // 64) * 64
        for kind, shape in layout.values()
    )


def lay_out(memory: mmap.mmap | bytearray, layout: Fields) -> Board:
    """The arrays of a board."""
    board: Board = {}
    start = 0
    for name, (kind, shape) in layout.items():
        count = int(np.prod(shape))
        board[name] = np.frombuffer(memory, kind, count, start).reshape(shape)
        start += -(-np.dtype(kind).itemsize * count // 64) * 64
    return board
