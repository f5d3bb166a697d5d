"""Settings of environments: any of them, the paper's Atari (table 3, appendix A), Procgen.

No torch and no environment library, so that a bad setting is refused at once.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dna.config.phases import Count, Fraction, Frozen, Positive

Option = str | int | float | bool | None
#: What an environment's id begins with, where it has settings of its own.
ATARI, PROCGEN = "ALE/", "procgen/"
#: Pixels that 18 marks of 4 and the time bar below them need.
MARKED = 76


class Atari(Frozen):
    """An Arcade Learning Environment game as the paper plays it; the defaults are *hard*.

    Counts of frames are raw frames of the emulator. An agent decides once every `skip` frames.
    """

    sticky: Fraction = 0.25  # probability that a frame repeats the action before
    actions: Literal["full", "minimal"] = "full"
    life_loss: Literal["continue", "terminal"] = "continue"
    skip: Annotated[int, Field(ge=1, le=60)] = 4  # the last two frames' maximum is seen
    stack: Annotated[int, Field(ge=1, le=16)] = 4
    size: Annotated[int, Field(ge=36, le=210)] = 84
    noops: Annotated[tuple[int, int] | None, Field(description="inclusive range")] = (1, 30)
    max_frames: Count = 108_000  # no-ops count
    time: Literal["bar", "hidden"] = "bar"  # drawn on the oldest frame
    last_action: Literal["mark", "hidden"] = "mark"  # drawn on every frame

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
    """A Procgen game: which levels it is made of."""

    distribution: Literal["easy", "hard", "extreme", "memory", "exploration"] = "hard"
    num_levels: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0  # 0: unlimited
    start_level: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class EnvConfig(Frozen):
    """Which environment, and how its ends of episodes are read."""

    id: str | None = None
    max_episode_steps: Count | None = None
    time_limit: Literal["bootstrap", "terminal"] = "bootstrap"
    options: dict[str, Option] = Field(default_factory=dict)
    atari: Atari | None = None
    procgen: Procgen | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, settings, start in (
            ("atari", self.atari, ATARI),
            ("procgen", self.procgen, PROCGEN),
        ):
            if settings is not None and self.id and not self.id.startswith(start):
                raise ValueError(
                    f"{name}: is for ids that begin with {start}, not for {self.id}"
                )
            if settings is not None and self.options:
                raise ValueError(f"options: not beside env.{name}; set keys of env.{name}")
            if settings is not None and self.max_episode_steps is not None:
                limit = "env.atari.max_frames" if name == "atari" else "its own limits"
                raise ValueError(f"max_episode_steps: leave it null; {name} has {limit}")
        return self


class RepeatPenalty(Frozen):
    """Subtracted from the normalized reward while an action is repeated too long (app. A)."""

    amount: Positive = 0.25
    after: Count = 100  # repetitions that are free
