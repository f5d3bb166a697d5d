"""Film one episode of a policy: play it as `evaluate` does, and encode it as mp4 or gif.

A panel beside the picture shows the score, V_π and V_V over time, and the action probabilities.
"""

import io
import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dna.algorithm.episodes import Scores
from dna.common.errors import BadInput, MissingExtra
from dna.envs import Array, Making, VectorEnv, make
from dna.envs.protocol import close
from dna.evaluation.evaluate import Player, Playing, evaluate, padded, world_seed
from dna.runs.folder import RunFolder
from dna.runs.policy import Opinion, SavedPolicy

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError:
    raise MissingExtra("recording", "media") from None

Frame = npt.NDArray[np.uint8]
Color = tuple[int, int, int]
#: Small pictures (MinAtar has 10×10 pixels) are enlarged to about this many pixels.
SIDE = 320
GROUND: Color = (22, 24, 29)
TEXT: Color = (236, 239, 244)
DIM: Color = (160, 168, 182)
TRACK: Color = (48, 53, 63)
BAR: Color = (108, 122, 148)
CHOSEN: Color = (240, 196, 84)
#: V_π, V_V: they differ in lightness too, for color-blind readers.
LINES: tuple[Color, ...] = ((80, 190, 255), (255, 138, 76))
#: Share of a bar's width that its name takes, and its least pixels; pixels of its number.
NAME_SHARE = 0.36
NAME_WIDTH = 76
NUMBER_WIDTH = 40
#: Height from which a picture and its panel are easy to read, and the panel's width.
HEIGHT = 320
WIDTH = 360
#: Steps that the chart of values shows.
WINDOW = 200
#: Pixels around everything, per bar, and above the bars.
EDGE = 14
ROW = 15
TOP = 190
#: A film is not larger than this, whatever an environment draws.
LARGEST = 1200
#: Frames among which the poster of a film is chosen.
POSTER_FRAMES = 100


def as_frame(
    picture: npt.NDArray[np.generic], at_least: int | None = None, at_most: int | None = None
) -> Frame:
    """Convert a picture to [H, W, 3] bytes with even sides, enlarged without blur if tiny.

    `at_least` enlarges to that many rows, however wide they get; `at_most` drops rows and
    columns of larger pictures. Gray pictures become colored.
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
    height = array.shape[0] // 2 * 2
    width = array.shape[1] // 2 * 2
    return np.ascontiguousarray(array[:height, :width])


class Box(NamedTuple):
    """Left, top, right, bottom in pixels."""

    left: int
    top: int
    right: int
    bottom: int


def sheet(width: int, height: int) -> tuple[Any, Any]:
    """Return an empty dark image and its drawing context."""
    image = Image.new("RGB", (width, height), GROUND)
    return image, ImageDraw.Draw(image)


@cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def draw_text(
    draw: Any,
    at: tuple[float, float],
    text: str,
    size: int,
    color: Color,
    *,
    anchor: str = "la",
    room: float | None = None,
) -> float:
    """Write a line, shortened to fit into `room`, and return its width."""
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
    """Draw V_π, and V_V if there is one, over the last `room` steps; numbers stand above."""
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
        draw_text(draw, (box.right - 4, y), f"{value:.3g}", 11, DIM, anchor=anchor)
    left = float(box.left)
    for values, color, mark in zip(lines, LINES, ("pi", "V"), strict=False):
        left = _legend(draw, (left, box.top - 19), mark, values[-1], color)


def _height(box: Box, share: float) -> float:
    return box.bottom - 4 - share * (box.bottom - box.top - 8)


def _legend(draw: Any, at: tuple[float, float], mark: str, value: float, color: Color) -> float:
    """Write `V_π 1.25` and return where it ends; the font has no π, so it is drawn."""
    left, top = at
    left += draw_text(draw, at, "V", 14, color)
    if mark == "pi":
        draw.line([(left, top + 10), (left + 7, top + 10)], fill=color)
        draw.line([(left + 2, top + 10), (left + 1, top + 15)], fill=color)
        draw.line([(left + 5, top + 10), (left + 6, top + 15)], fill=color)
        left += 8
    else:
        left += draw_text(draw, (left, top + 6), mark, 10, color)
    return left + 8 + draw_text(draw, (left + 6, top), f"{value:.3f}", 14, color) + 24


def choice_bar(draw: Any, box: Box, name: str, chance: float, chosen: bool) -> None:
    """Draw a name, a bar as long as its probability, and the probability."""
    color = CHOSEN if chosen else DIM
    track = _track(draw, box, name, color)
    draw.rectangle(track, fill=TRACK)
    width = round(chance * (track.right - track.left))
    if width > 0:
        fill = CHOSEN if chosen else BAR
        draw.rectangle((track.left, track.top, track.left + width, track.bottom), fill=fill)
    _write_number(draw, box, f"{chance:.2f}", color)


def real_bar(
    draw: Any, box: Box, name: str, mean: float, sigma: float, action: float, reach: float
) -> None:
    """Draw mean ± σ as a bar between −reach and reach, and the sampled action as a stroke."""
    track = _track(draw, box, name, DIM)
    draw.rectangle(track, fill=TRACK)

    def at(value: float) -> float:
        share = (min(max(value, -reach), reach) / reach + 1) / 2
        return track.left + share * (track.right - track.left)

    draw.rectangle((at(mean - sigma), track.top, at(mean + sigma), track.bottom), fill=BAR)
    draw.line([(at(0), track.top), (at(0), track.bottom)], fill=DIM)
    for value, color in ((mean, TEXT), (action, CHOSEN)):
        draw.line([(at(value), track.top), (at(value), track.bottom)], fill=color, width=2)
    _write_number(draw, box, f"{mean:.2f}", DIM)


def _track(draw: Any, box: Box, name: str, color: Color) -> Box:
    """Write the name and return the space that is left for the bar."""
    room = max((box.right - box.left - NUMBER_WIDTH) * NAME_SHARE, NAME_WIDTH)
    at = (box.left, (box.top + box.bottom) / 2)
    draw_text(draw, at, name, 12, color, anchor="lm", room=room - 4)
    right = box.right - NUMBER_WIDTH + 6
    return Box(round(box.left + room), box.top + 1, right, box.bottom - 1)


def _write_number(draw: Any, box: Box, text: str, color: Color) -> None:
    at = (box.right, (box.top + box.bottom) / 2)
    draw_text(draw, at, text, 12, color, anchor="rm")


@dataclass(frozen=True)
class Moment:
    """One step of an episode: the picture, and what the networks say about it."""

    picture: npt.NDArray[Any]  # [H, W, 3]
    step: int
    score: float  # so far
    value: float  # V_π
    other: float | None  # V_V
    choices: tuple[npt.NDArray[np.floating[Any]], ...]  # probabilities of each group
    normal: npt.NDArray[np.floating[Any]]  # [2, D] mean and σ of each real number
    action: npt.NDArray[Any]  # [W] choices, then real numbers
    over: bool = False  # the episode ended after this picture


@dataclass(frozen=True)
class ActionBar:
    """One bar: a choice with its probability, or a real number with mean and σ."""

    name: str
    chosen: float  # 1 or 0; or the sampled number
    numbers: tuple[float, ...]  # (p,) or (mean, σ)

    @property
    def is_choice(self) -> bool:
        """Whether the bar is a probability."""
        return len(self.numbers) == 1


class Panel:
    """Draws the moments of one episode in turn."""

    def __init__(self, title: str, names: tuple[str, ...] = ()) -> None:
        self.title = title
        self.names = names
        self.values: deque[tuple[float, float | None]] = deque(maxlen=WINDOW)
        self.seen: list[float] = []  # lowest and highest value so far
        self.reach = 1.0  # largest |real number| so far

    def draw(self, moment: Moment) -> Frame:
        """Return the picture with the panel at its right."""
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
        draw_text(draw, (EDGE, 10), self.title, 13, DIM, room=WIDTH - 2 * EDGE)
        draw_text(draw, (EDGE, 28), f"score {number(moment.score)}", 22, TEXT)
        state = "the end" if moment.over else f"step {moment.step:,}"
        color = CHOSEN if moment.over else DIM
        draw_text(draw, (WIDTH - EDGE, 34), state, 14, color, anchor="ra")

    def _chart(self, draw: Any, moment: Moment) -> None:
        box = Box(EDGE, 82, WIDTH - EDGE, TOP - 26)
        lines = [[value for value, _ in self.values]]
        if moment.other is not None:
            lines.append([other for _, other in self.values if other is not None])
        chart(draw, box, lines, (self.seen[0], self.seen[1]), WINDOW)

    def _bars(self, draw: Any, moment: Moment, height: int) -> None:
        bars = list(bars_of(moment, self.names))
        space = max(1, (height - TOP - EDGE // 2) // ROW)
        columns = 1 if len(bars) <= space else 2
        shown = most_likely(bars, space * columns)
        width = (WIDTH - 2 * EDGE - (columns - 1) * EDGE) // columns
        per = -(-len(shown) // columns)
        pitch = min(24, max(ROW, (height - TOP - EDGE // 2) // per))
        for i, bar in enumerate(shown):
            left = EDGE + i // per * (width + EDGE)
            top = TOP + i % per * pitch
            box = Box(left, top, left + width, top + pitch - 3)
            if bar.is_choice:
                choice_bar(draw, box, bar.name, bar.numbers[0], bar.chosen > 0)
            else:
                mean, sigma = bar.numbers
                real_bar(draw, box, bar.name, mean, sigma, bar.chosen, self.reach)
        about = "action probabilities" if bars[0].is_choice else "actions: mean ± std, sample"
        if len(shown) < len(bars):
            about += f" ({len(shown)} of {len(bars)})"
        draw_text(draw, (EDGE, TOP - 20), about, 12, DIM)


def number(score: float) -> str:
    """Format a score; whole ones have no decimals, as in games."""
    return f"{score:,.0f}" if score == round(score) else f"{score:,.2f}"


def bars_of(moment: Moment, names: tuple[str, ...]) -> Iterator[ActionBar]:
    """Yield a bar for every choice of every group, then for every real number."""
    several = len(moment.choices) > 1
    for group, p in enumerate(moment.choices):
        for i, chance in enumerate(p):
            name = str(i)
            if several:
                name = f"{group}: {i}"
            elif len(names) == len(p):
                name = names[i]
            yield ActionBar(name, float(moment.action[group] == i), (float(chance),))
    for i, (mean, sigma) in enumerate(moment.normal.T):
        action = float(moment.action[len(moment.choices) + i])
        yield ActionBar(f"a{i}", action, (float(mean), float(sigma)))


def most_likely(bars: list[ActionBar], room: int) -> list[ActionBar]:
    """Return the `room` most likely choices, or first real numbers, in their order."""
    ranked = sorted(range(len(bars)), key=lambda i: -bars[i].numbers[0] * bars[i].is_choice)
    return [bars[i] for i in sorted(ranked[:room])]


#: Default limit on the number of frames.
MAX_FRAMES = 5000
#: Viewers slow down faster gifs: their clock ticks in hundredths of a second.
MAX_GIF_FPS = 50


@dataclass
class Film:
    """One episode of a policy; iterating over `frames` plays it and updates the counters."""

    policy: SavedPolicy
    seed: int
    episode: int = 0
    deterministic: bool = False
    allow_import: bool = False
    most: int = MAX_FRAMES
    plain: bool = False  # without the panel
    note: str = ""  # appended to the title, such as `best of 3`
    fps: int = 15
    pictures: int = 0
    score: float = 0.0
    whole: bool = False  # False: cut after `most` frames
    vector: VectorEnv = field(init=False)

    def __post_init__(self) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # let pygame draw without a screen
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        seeds = (world_seed(self.seed, self.episode),)
        making = Making(1, seeds, 1, self.allow_import, render=True)
        self.vector = make(self.policy.env, making)
        self.fps = self.vector.fps

    def frames(self) -> Iterator[Frame]:
        """Yield frame after frame; with a panel, the last one stays for a second."""
        algorithm = str(self.policy.about.get("algorithm", "")).upper()
        title = [part for part in (algorithm, self.policy.env.id, self.note) if part]
        panel = Panel(", ".join(title), self.vector.meanings())
        last: Moment | None = None
        for moment in self._moments():
            self.pictures += 1
            yield as_frame(moment.picture) if self.plain else panel.draw(moment)
            last = moment
        if last is not None and self.whole and not self.plain:
            end = replace(last, score=self.score, over=True)
            for _ in range(self.fps):
                self.pictures += 1
                yield panel.draw(end)

    def _moments(self) -> Iterator[Moment]:
        player = Player(self.policy, self.seed, self.deterministic)
        played = Scores(1)
        player.begin(0, self.episode)
        try:
            obs = self.vector.reset()
            for step in range(self.most):
                opinion = self.policy.opinion(padded(obs))
                action = player.choose(self.policy, opinion.pi[:1], [0])
                picture = np.array(self.vector.picture())
                yield self._moment(picture, step, opinion, action[0])
                result = self.vector.step(action)
                played.add(result)
                self.whole = bool(played.window)
                self.score = played.window[0][0] if self.whole else float(played.returns[0])
                if self.whole:
                    return
                obs = result.obs
        finally:
            close(self.vector)

    def _moment(self, picture: Array, step: int, opinion: Opinion, action: Array) -> Moment:
        choices, normal = distribution_of(self.policy, opinion.pi[0].numpy())
        return Moment(
            picture,
            step,
            score=self.score,
            value=float(opinion.value[0]),
            other=None if opinion.other is None else float(opinion.other[0]),
            choices=choices,
            normal=normal,
            action=action,
        )


def distribution_of(policy: SavedPolicy, pi: Array) -> tuple[tuple[Array, ...], Array]:
    """Split a row of π's parameters: probabilities of each group, [2, D] means and σ."""
    spec = policy.action
    size = sum(spec.choices)
    groups = np.split(pi[:size], np.cumsum(spec.choices)[:-1]) if spec.choices else []
    mean, log_std = pi[size:].reshape(2, spec.numbers)
    return tuple(map(_softmax, groups)), np.stack([mean, np.exp(log_std)])


def _softmax(logits: Array) -> Array:
    odds = np.exp(logits - logits.max())
    return np.asarray(odds / odds.sum())


def best_episode(
    policy: SavedPolicy, of: int, *, seed: int, deterministic: bool, how: Playing
) -> int:
    """Play episodes without pictures and return the number of the best, the first of equals.

    An episode depends on its number alone, so that the same one can be played again.
    """
    if of == 1:
        return 0
    played = evaluate(
        policy, policy.env, episodes=of, seed=seed, deterministic=deterministic, how=how
    )
    return int(np.argmax(played.scores))


def default_video(run: RunFolder, kind: str = "mp4") -> Path:
    """Return the path where `dna record` writes by default."""
    return run.path / f"episode.{kind}"


# ── Encoding ──────────────────────────────────────────────────────────────────────────────


def mp4(frames: Iterable[Frame], fps: int) -> bytes:
    """Encode frames, drawn one at a time, as H.264 in an MP4 container."""
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


def poster(film: bytes) -> bytes | None:
    """Choose an early frame of an mp4 film that is not blank, as a PNG; None: not a film.

    Many games show an empty screen first. The panel is never blank, so only the left half
    of the frames is compared.
    """
    try:
        import av
    except ImportError:
        return None
    try:
        with av.open(io.BytesIO(film), "r") as container:
            decoded = itertools.islice(container.decode(video=0), POSTER_FRAMES)
            frames = [frame.to_ndarray(format="rgb24") for frame in decoded]
    except (av.FFmpegError, IndexError):  # damaged, or without a video
        return None
    if not frames:
        return None
    contrasts = [float(frame[:, : frame.shape[1] // 2].std()) for frame in frames]
    chosen = next(i for i, found in enumerate(contrasts) if found >= max(contrasts) / 2)
    buffer = io.BytesIO()
    Image.fromarray(frames[chosen]).save(buffer, format="PNG")
    return buffer.getvalue()


def gif(frames: Iterable[Frame], fps: int) -> bytes:
    """Encode frames as an endless animated gif of at most 50 frames per second."""
    from PIL import Image  # film_panel has checked that it is installed

    # One palette per frame, without dither: flat colors stay flat and files small.
    pictures = (
        Image.fromarray(frame).quantize(
            256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        for frame in frames
    )
    first = next(pictures)
    buffer = io.BytesIO()
    hundredths = max(round(100 / min(fps, MAX_GIF_FPS)), 100 // MAX_GIF_FPS)
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
