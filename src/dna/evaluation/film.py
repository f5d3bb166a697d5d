"""An episode in pictures, played as `evaluate` plays it and shown as it is played."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dna.algorithm.episodes import Scores
from dna.envs import Array, Making, VectorEnv, make
from dna.envs.guard import close
from dna.evaluation.evaluate import Player, Playing, evaluate, padded, world_seed
from dna.evaluation.film_panel import Moment, Panel
from dna.evaluation.video import Frame, as_frame
from dna.runs.folder import RunFolder
from dna.runs.policy import Opinion, SavedPolicy

#: Pictures after which a film is cut, unless told otherwise.
MOST = 5000


@dataclass
class Film:
    """One episode of a policy. Iterate to play it; `score` and the rest grow meanwhile."""

    policy: SavedPolicy
    seed: int
    episode: int = 0
    deterministic: bool = False
    allow_import: bool = False
    most: int = MOST
    plain: bool = False  # the bare pictures
    note: str = ""  # behind the title, such as `best of 3`
    fps: int = 15
    pictures: int = 0
    score: float = 0.0
    whole: bool = False  # False: cut after so many pictures
    vector: VectorEnv = field(init=False)

    def __post_init__(self) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame needs no screen to draw
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        seeds = (world_seed(self.seed, self.episode),)
        making = Making(1, seeds, 1, self.allow_import, render=True)
        self.vector = make(self.policy.env, making)
        self.fps = self.vector.fps

    def frames(self) -> Iterator[Frame]:
        """Picture after picture; with a panel, the last one stays for a second."""
        algorithm = str(self.policy.about.get("algorithm", "")).upper()
        parts = [part for part in (algorithm, self.policy.env.id, self.note) if part]
        panel = Panel(", ".join(parts), self.vector.meanings())
        last: Moment | None = None
        for moment in self._moments():
            self.pictures += 1
            yield as_frame(moment.picture) if self.plain else panel.draw(moment)
            last = moment
        if last is not None and self.whole and not self.plain:
            fields = vars(last) | {"score": self.score, "over": True}
            for _ in range(self.fps):
                self.pictures += 1
                yield panel.draw(Moment(**fields))

    def _moments(self) -> Iterator[Moment]:
        player, played = Player(self.policy, self.seed, self.deterministic), Scores(1)
        player.begin(0, self.episode)
        try:
            obs = self.vector.reset()
            for step in range(self.most):
                opinion = self.policy.opinion(padded(obs))
                action = player.choose(self.policy, opinion.pi[:1], [0])
                picture = np.array(self.vector.picture())
                yield self._moment(picture, step, opinion, action[0])
                stepped = self.vector.step(action)
                played.add(stepped)
                self.whole = bool(played.window)
                self.score = played.window[0][0] if self.whole else float(played.returns[0])
                if self.whole:
                    return
                obs = stepped.obs
        finally:
            close(self.vector)

    def _moment(self, picture: Array, step: int, opinion: Opinion, action: Array) -> Moment:
        other = None if opinion.other is None else float(opinion.other[0])
        choices, normal = apart(self.policy, opinion.pi[0].numpy())
        value = float(opinion.value[0])
        return Moment(picture, step, self.score, value, other, choices, normal, action)


def apart(policy: SavedPolicy, pi: Array) -> tuple[tuple[Array, ...], Array]:
    """A row of π's parameters as probabilities of each group, and [2, D] means and σ."""
    spec = policy.action
    ends = np.cumsum(spec.choices)
    groups = np.split(pi[: sum(spec.choices)], ends[:-1]) if spec.choices else []
    real = pi[sum(spec.choices) :].reshape(2, spec.numbers)
    return tuple(map(_softmax, groups)), np.stack([real[0], np.exp(real[1])])


def _softmax(logits: Array) -> Array:
    odds = np.exp(logits - logits.max())
    return np.asarray(odds / odds.sum())


def best_episode(
    policy: SavedPolicy, of: int, *, seed: int, deterministic: bool, how: Playing
) -> int:
    """The number of the best of some episodes, played without pictures; the first of equals.

    The very same episode can be played again: it depends on its number alone.
    """
    if of == 1:
        return 0
    played = evaluate(
        policy, policy.env, episodes=of, seed=seed, deterministic=deterministic, how=how
    )
    return int(np.argmax(played.scores))


def default_video(run: RunFolder, kind: str = "mp4") -> Path:
    """Where `dna record` writes unless told otherwise."""
    return run.path / f"episode.{kind}"
