"""The data half of the phases (sections 4.3 and 4.4) and of the returns (section 4.2).

A phase is frozen data here and two functions in `dna.phases`. No torch, so that a bad setting
is refused in a fraction of a second.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Count = Annotated[int, Field(ge=1, le=10**12)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Frozen(BaseModel):
    """Immutable, strict about types, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Linear(Frozen):
    """α in the paper: moves linearly from `start` to `end` over the run's interactions."""

    start: NonNegative
    end: NonNegative = 0.0


def _schedule_kind(value: object) -> str:
    return "linear" if isinstance(value, dict | Linear) else "number"


#: A number, or a line from one number to another over the run.
Schedule = Annotated[
    Annotated[NonNegative, Tag("number")] | Annotated[Linear, Tag("linear")],
    Discriminator(_schedule_kind),
]
Rate = Annotated[
    Annotated[Positive, Tag("number")] | Annotated[Linear, Tag("linear")],
    Discriminator(_schedule_kind),
]


class SGD(Frozen):
    """How one phase walks over its data: its Adam, epochs and mini-batches (section 4.4)."""

    epochs: Annotated[int, Field(ge=0, le=1000)]
    minibatch: Annotated[int, Field(ge=2, le=10**9)]
    learning_rate: Rate = 2.5e-4
    max_gradient_norm: Positive | None = 5.0
    adam_eps: Positive = 1e-5


class Returns(Frozen):
    """γ, λ_π and λ_V of the decoupled return estimates (section 4.2)."""

    gamma: Fraction = 0.999
    lambda_pi: Fraction = 0.95
    lambda_v: Fraction = 0.95
    # None: V of all states after the rollout. One network has it at hand while it acts.
    values: Literal["acting"] | None = None


class Phase(Frozen):
    """Base of the built-in phases: what the engine asks besides the fields every phase has."""

    @property
    def skips_first(self) -> bool:
        """Whether the phase is left out in the first iteration."""
        return False


class Policy(Phase):
    """L^CLIP with entropy bonus (section 4.4), on θ_π."""

    kind: Literal["policy"] = "policy"
    name: Name = "policy"
    trains: Literal["policy"] = "policy"
    reads: Literal["rollout"] = "rollout"
    every: Literal[1] = 1
    sgd: SGD
    epsilon: Schedule = 0.2
    entropy_bonus: Schedule = 0.01
    normalize_advantage: Literal["batch", "minibatch", "none"] = "batch"
    surrogate: Literal["joint", "per_dimension"] = "joint"


class Joint(Phase):
    """PPO on a single network: L^CLIP with entropy bonus, and value_weight · L^VF on V_π."""

    kind: Literal["joint"] = "joint"
    name: Name = "joint"
    trains: Literal["policy"] = "policy"
    reads: Literal["rollout"] = "rollout"
    every: Literal[1] = 1
    sgd: SGD
    epsilon: Schedule = 0.2
    entropy_bonus: Schedule = 0.01
    normalize_advantage: Literal["batch", "minibatch", "none"] = "batch"
    surrogate: Literal["joint", "per_dimension"] = "joint"
    value_weight: NonNegative = 0.5


class Value(Phase):
    """L^VF (section 4.4), on θ_V."""

    kind: Literal["value"] = "value"
    name: Name = "value"
    trains: Literal["value"] = "value"
    reads: Literal["rollout"] = "rollout"
    every: Literal[1] = 1
    sgd: SGD
    weight: Positive = 1.0


class Distil(Phase):
    """L^D (section 4.3), on θ_π: V_π follows V_V while π stays at π_old."""

    kind: Literal["distil"] = "distil"
    name: Name = "distil"
    trains: Literal["policy"] = "policy"
    reads: Literal["rollout"] = "rollout"
    every: Count = 1
    first: Literal["run", "skip"] = "run"
    sgd: SGD
    beta: NonNegative = 1.0
    weight: Positive = 1.0
    constraint: Literal["kl", "logit_mse", "mean_mse", "mean_mse_scaled"] = "kl"
    target: Literal["value", "projection", "features"] = "value"

    @property
    def skips_first(self) -> bool:
        """Whether the phase is left out in the first iteration."""
        return self.first == "skip"


class Auxiliary(Phase):
    """PPG's auxiliary phase, on θ_π and θ_V: every N_π iterations, over N_π rollouts."""

    kind: Literal["auxiliary"] = "auxiliary"
    name: Name = "aux"
    trains: Literal["both"] = "both"
    reads: Literal["replay"] = "replay"
    every: Count = 32
    sgd: SGD
    beta: NonNegative = 1.0
    variant: Literal["cobbe", "authors"] = "cobbe"


AnyPhase = Annotated[Policy | Joint | Value | Distil | Auxiliary, Field(discriminator="kind")]


class Noise(Frozen):
    """What is measured of the gradient noise while training (section 3.2, algorithm 2)."""

    every: Count = 10  # iterations; a measurement costs about an epoch of every phase
    first: Count | None = None  # each of the first so many, too
    samples: Annotated[int, Field(ge=2, le=10_000)] = 16  # small mini-batches
    b_small: Count = 32
    b_big: Count | None = None  # None: the whole rollout (or replay)
    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of the smoothed |𝒢|²


def resolve(schedule: float | Linear, progress: float) -> float:
    """The schedule's value after the fraction `progress` of the run."""
    if isinstance(schedule, Linear):
        return schedule.start + (schedule.end - schedule.start) * min(max(progress, 0.0), 1.0)
    return schedule
