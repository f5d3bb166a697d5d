"""Settings of environments: general ones, Atari's (table 3, appendix A) and Procgen's.

The string below a field is its description (`dna.config.describe`).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dna.config.phases import Count, Fraction, Frozen

Option = str | int | float | bool | None
#: Prefixes of the environment ids that have settings of their own.
ATARI = "ALE/"
PROCGEN = "procgen/"
#: Pixels needed for the marks of 18 actions (4 each) and the time bar below them.
MARKED = 76


class Atari(Frozen):
    """An Arcade Learning Environment game as the paper plays it; the defaults are *hard*.

    Frames are raw frames of the emulator. An agent chooses an action once every `skip` frames.
    """

    sticky: Fraction = 0.25
    """Probability that a frame repeats the previous action."""
    actions: Literal["full", "minimal"] = "full"
    """All 18 actions, or only those the game uses."""
    life_loss: Literal["continue", "terminal"] = "continue"
    """Whether the loss of a life ends the episode for the learner."""
    skip: Annotated[int, Field(ge=1, le=60)] = 4
    """Frames per action; the observation is the maximum of the last two."""
    stack: Annotated[int, Field(ge=1, le=16)] = 4
    """Observed frames stacked into one observation."""
    size: Annotated[int, Field(ge=36, le=210)] = 84
    """Height and width of the gray image, in pixels."""
    noops: tuple[int, int] | None = (1, 30)
    """Range (inclusive) of the number of no-op frames at the start; null disables them."""
    max_frames: Count = 108_000
    """Time limit of an episode in frames, no-ops included."""
    time: Literal["bar", "hidden"] = "bar"
    """Whether the elapsed time is drawn as a bar on the oldest frame (appendix A)."""
    last_action: Literal["mark", "hidden"] = "mark"
    """Whether the previous action is marked on every frame (appendix A)."""

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if self.noops is not None and not 1 <= self.noops[0] <= self.noops[1] <= 10_000:
            raise ValueError(
                f"noops: given {list(self.noops)}, must be two numbers from 1 on, the smaller "
                "first; null starts without"
            )
        if self.last_action == "mark" and self.size < MARKED:
            raise ValueError(
                f"size: given {self.size}, must be at least {MARKED} for the marks of 18 "
                "actions; last_action=hidden draws none"
            )
        if self.noops is not None and self.max_frames <= self.noops[1]:
            raise ValueError(
                f"max_frames: given {self.max_frames}, must be more than the no-ops"
            )
        return self


class Procgen(Frozen):
    """Levels of a Procgen game."""

    distribution: Literal["easy", "hard", "extreme", "memory", "exploration"] = "hard"
    """Difficulty of the levels (Procgen's distribution_mode)."""
    num_levels: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Number of levels; 0 is unlimited."""
    start_level: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of the first level."""


class EnvConfig(Frozen):
    """Which environment to train on, and how the ends of its episodes are treated."""

    id: str | None = None
    """Id of the environment, such as CartPole-v1, ALE/Breakout-v5 or procgen/coinrun."""
    max_episode_steps: Count | None = None
    """Time limit of an episode in steps; null keeps the environment's own."""
    time_limit: Literal["bootstrap", "terminal"] = "bootstrap"
    """Whether a truncated episode bootstraps from V of its last state or counts as ended."""
    options: dict[str, Option] = Field(default_factory=dict)
    """Keyword arguments for the environment, such as env.options.gravity=9.8."""
    atari: Atari | None = None
    """Settings of Atari games; null for other environments."""
    procgen: Procgen | None = None
    """Settings of Procgen games; null for other environments."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not (self.id or "").isprintable():  # it is printed in many places
            raise ValueError("id: contains control characters; use the environment's own id")
        for name, settings, start in (
            ("atari", self.atari, ATARI),
            ("procgen", self.procgen, PROCGEN),
        ):
            if settings is None:
                continue
            if self.id and not self.id.startswith(start):
                raise ValueError(
                    f"{name}: is for ids that begin with {start}, not for {self.id}"
                )
            if self.options:
                raise ValueError(f"options: not beside env.{name}; set keys of env.{name}")
            if self.max_episode_steps is not None:
                limit = "env.atari.max_frames" if name == "atari" else "its own limits"
                raise ValueError(f"max_episode_steps: leave it null; {name} has {limit}")
        return self


class RepeatPenalty(Frozen):
    """Penalty on the normalized reward for repeating one action too often (appendix A)."""

    amount: Annotated[float, Field(gt=0)] = 0.25
    """Subtracted from the normalized reward on each step."""
    after: Count = 100
    """Number of repetitions without a penalty."""
