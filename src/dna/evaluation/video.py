"""Frames to a film in memory, mp4 or gif; the caller writes it."""

import io
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dna.common.errors import BadInput, MissingExtra

Frame = npt.NDArray[np.uint8]
#: Small pictures (MinAtar has 10×10 pixels) are enlarged to about this.
SIDE = 320
#: Viewers show faster gifs as slow ones: their clock has hundredths of a second.
FASTEST_GIF = 50


def as_frame(
    picture: npt.NDArray[np.generic], at_least: int | None = None, at_most: int | None = None
) -> Frame:
    """[H, W, 3] bytes with even sides, enlarged without blur when tiny.

    `at_least` asks for that many rows however wide they get; `at_most` leaves out rows and
    columns of larger ones. Gray pictures become colors.
    """
    array = np.asarray(picture)
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.ndim != 3 or array.shape[2] < 3:
        raise BadInput(f"pictures of shape {array.shape} cannot be filmed; expected [H, W, 3]")
    if array.dtype != np.uint8:
        array = (np.clip(array.astype(np.float64), 0, 1) * 255).round()
    factor = max(1, SIDE // max(array.shape[:2]))
    if at_least is not None:
        factor = -(-at_least // array.shape[0])
    every = 1 if at_most is None else -(-max(array.shape[:2]) * factor // at_most)
    array = array[::every, ::every, :3] if factor == 1 else array[:, :, :3]
    array = array.astype(np.uint8).repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = array.shape[0] // 2 * 2, array.shape[1] // 2 * 2
    return np.ascontiguousarray(array[:height, :width])


def mp4(frames: Iterable[Frame], fps: int) -> bytes:
    """H.264 in an MP4 container; frames are asked for one by one."""
    try:
        import av
    except ImportError:
        raise MissingExtra("recording", "media") from None
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.pix_fmt = "yuv420p"
        for i, frame in enumerate(frames):
            if i == 0:
                stream.height, stream.width = frame.shape[:2]
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return buffer.getvalue()


def gif(frames: Iterable[Frame], fps: int) -> bytes:
    """An animated gif that goes on forever, at most 50 pictures per second."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("recording", "media") from None

    # One palette for each picture, without dither: flat colors stay flat and files small.
    quick = Image.Quantize.FASTOCTREE
    pictures = (
        Image.fromarray(frame).quantize(256, quick, dither=Image.Dither.NONE)
        for frame in frames
    )
    first = next(pictures)
    buffer = io.BytesIO()
    hundredths = max(round(100 / min(fps, FASTEST_GIF)), 100 // FASTEST_GIF)
    first.save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=pictures,
        duration=10 * hundredths,
        loop=0,
        disposal=1,
    )
    return buffer.getvalue()
