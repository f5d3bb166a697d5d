"""Frames to a video file in memory; the caller writes it."""

import io
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dna.errors import MissingExtra

Frame = npt.NDArray[np.uint8]
#: Small pictures (MinAtar has 10×10 pixels) are enlarged to about this.
SIDE = 320


def as_frame(picture: npt.NDArray[np.generic]) -> Frame:
    """[H, W, 3] bytes with even sides, enlarged without blur when tiny."""
    array = np.asarray(picture)
    if array.dtype != np.uint8:
        array = (np.clip(array.astype(np.float64), 0, 1) * 255).round()
    factor = max(1, SIDE // max(array.shape[:2]))
    array = array.astype(np.uint8).repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = array.shape[0] // 2 * 2, array.shape[1] // 2 * 2
    return np.ascontiguousarray(array[:height, :width])


def mp4(frames: list[Frame], fps: int) -> bytes:
    """H.264 in an MP4 container."""
    try:
        import av
    except ImportError:
        raise MissingExtra("recording", "media") from None
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return buffer.getvalue()
