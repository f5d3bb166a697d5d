"""Frames side by side → frames interleaved, the order in which convolutions read fastest."""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def interleave(planes: Sequence[Array]) -> Array:
    """K arrays [B, H, W] of bytes → [B, H, W, K]."""
    merge = _merge()
    rows, height, width = planes[0].shape
    if merge is None or rows == 0:
        return np.stack(planes, axis=-1)
    tall = [plane.reshape(rows * height, width) for plane in planes]
    return merge(tall).reshape(rows, height, width, len(planes))


@functools.cache
def _merge() -> Callable[[list[Array]], Array] | None:
    """OpenCV's, which is ten times faster than a strided copy; Atari brings it."""
    if importlib.util.find_spec("cv2") is None:
        return None
    merge: Callable[[list[Array]], Array] = importlib.import_module("cv2").merge
    return merge
