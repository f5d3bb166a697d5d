"""Film one episode of a policy: play it as `evaluate` does, and encode it as mp4 or gif."""

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from dna.algorithm.episodes import Scores
from dna.common.errors import MissingExtra
from dna.envs import Array, Making, VectorEnv, make
from dna.envs.guard import close
from dna.evaluation.evaluate import Player, Playing, evaluate, padded, world_seed
from dna.evaluation.film_panel import Frame, Moment, Panel, as_frame
from dna.runs.folder import RunFolder
from dna.runs.policy import Opinion, SavedPolicy

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
