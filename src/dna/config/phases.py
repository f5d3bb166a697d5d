"""Settings of the phases (sections 4.3 and 4.4) and of the return estimates (section 4.2).

A phase is frozen data here and two functions in `dna.algorithm.phases`. The string below a
field is its description: `dna.config.describe` and docs/settings.md are made from it.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Count = Annotated[int, Field(ge=1, le=10**12)]
#: The largest float32, the type that torch computes with.
FLOAT32 = 3.4028234663852886e38

Positive = Annotated[float, Field(gt=0, le=FLOAT32)]
NonNegative = Annotated[float, Field(ge=0, le=FLOAT32)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Frozen(BaseModel):
    """Base of all settings: immutable, strict about types, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Linear(Frozen):
    """A linear schedule over the run's interactions (α in the paper)."""

    start: NonNegative
    """Value at the start of the run."""
    end: NonNegative = 0.0
    """Value at the end of the run."""


def _schedule_kind(value: object) -> str:
    return "linear" if isinstance(value, dict | Linear) else "number"


#: A constant, or a linear schedule over the run.
Schedule = Annotated[
    Annotated[NonNegative, Tag("number")] | Annotated[Linear, Tag("linear")],
    Discriminator(_schedule_kind),
]
Rate = Annotated[
    Annotated[Positive, Tag("number")] | Annotated[Linear, Tag("linear")],
    Discriminator(_schedule_kind),
]


def resolve(schedule: float | Linear, progress: float) -> float:
    """Return a schedule's value after the fraction `progress` of the run."""
    if isinstance(schedule, Linear):
        return schedule.start + (schedule.end - schedule.start) * min(max(progress, 0.0), 1.0)
    return schedule


class SGD(Frozen):
    """Optimization of one phase: epochs, mini-batches and its own Adam (section 4.4)."""

    epochs: Annotated[int, Field(ge=0, le=1000)]
    """Passes over the phase's data (E); 0 leaves the phase out."""
    minibatch: Annotated[int, Field(ge=2, le=10**9)]
    """Rows of a mini-batch; must divide the number of rows that the phase reads."""
    learning_rate: Rate = 2.5e-4
    """Learning rate of Adam, constant or annealed."""
    max_gradient_norm: Positive | None = 5.0
    """Clip the global L2 norm of the gradient to this; null does not clip."""
    adam_eps: Positive = 1e-5
    """Adam's ε."""


class Returns(Frozen):
    """Decoupled return estimates: advantages with λ_π, value targets with λ_V (section 4.2)."""

    gamma: Fraction = 0.999
    """Discount γ."""
    lambda_pi: Fraction = 0.95
    """λ_π of the advantage estimates (GAE)."""
    lambda_v: Fraction = 0.95
    """λ_V of the value targets (TD(λ))."""
    values: Literal["acting"] | None = None
    """null evaluates V on all states after the rollout; "acting" keeps the values that a
    single network gives while it acts."""


class Phase(Frozen):
    """Fields that every phase has, and what the engine asks of them."""

    kind: str
    """Which phase this is; selects the model and the loss."""
    name: Name
    """Name of the phase in settings (`NAME.sgd.epochs`) and metrics (`NAME/loss`)."""
    trains: Literal["policy", "value", "both"]
    """Networks whose weights the phase updates: θ_π, θ_V or both."""
    reads: Literal["rollout", "replay"]
    """Data of the phase: the latest rollout, or the last `every` rollouts."""
    every: Count
    """Run the phase on every n-th iteration."""

    @property
    def skips_first(self) -> bool:
        """Whether the phase is left out on the first iteration."""
        return False

    @property
    def needs(self) -> Literal["policy", "value", "both"]:
        """Networks that `freeze` and `loss` evaluate; decides what may run at the same time.

        A derived phase, whose functions may evaluate more, does not inherit it.
        """
        return "both"


class ClippedPhase(Phase):
    """Fields of a phase with the clipped surrogate objective L^CLIP (section 4.4)."""

    trains: Literal["policy"] = "policy"
    reads: Literal["rollout"] = "rollout"
    every: Literal[1] = 1
    sgd: SGD
    """Epochs, mini-batches and optimizer of this phase."""
    epsilon: Schedule = 0.2
    """ε: the ratio is clipped to 1 − ε … 1 + ε."""
    entropy_bonus: Schedule = 0.01
    """c_eb: weight of the entropy bonus."""
    normalize_advantage: Literal["batch", "minibatch", "none"] = "batch"
    """Rows over which advantages are normalized to mean 0 and standard deviation 1."""
    surrogate: Literal["joint", "per_dimension"] = "joint"
    """One ratio for the whole action, or one for each dimension and then their mean."""


class Policy(ClippedPhase):
    """L^CLIP with entropy bonus (section 4.4), on θ_π."""

    kind: Literal["policy"] = "policy"
    name: Name = "policy"

    @property
    def needs(self) -> Literal["policy"]:
        """Networks that `freeze` and `loss` evaluate: the policy network."""
        return "policy"


class Joint(ClippedPhase):
    """PPO on a single network: L^CLIP with entropy bonus, and value_weight · L^VF on V_π."""

    kind: Literal["joint"] = "joint"
    name: Name = "joint"
    value_weight: NonNegative = 0.5
    """Weight of the value loss L^VF relative to L^CLIP."""

    @property
    def needs(self) -> Literal["policy"]:
        """Networks that `freeze` and `loss` evaluate: the policy network."""
        return "policy"


class Value(Phase):
    """L^VF (section 4.4), on θ_V."""

    kind: Literal["value"] = "value"
    name: Name = "value"
    trains: Literal["value"] = "value"
    reads: Literal["rollout"] = "rollout"
    every: Literal[1] = 1
    sgd: SGD
    """Epochs, mini-batches and optimizer of this phase."""
    weight: Positive = 1.0
    """Coefficient of L^VF; the authors' code has 0.5."""

    @property
    def needs(self) -> Literal["value"]:
        """Networks that `freeze` and `loss` evaluate: the value network."""
        return "value"


class Distil(Phase):
    """L^D (section 4.3), on θ_π: V_π follows V_V while π stays close to π_old."""

    kind: Literal["distil"] = "distil"
    name: Name = "distil"
    trains: Literal["policy"] = "policy"
    reads: Literal["rollout"] = "rollout"
    every: Count = 1
    first: Literal["run", "skip"] = "run"
    """Whether to distil on the first iteration; the authors' code skips it."""
    sgd: SGD
    """Epochs, mini-batches and optimizer of this phase."""
    beta: NonNegative = 1.0
    """β: weight of the constraint that keeps π close to π_old."""
    weight: Positive = 1.0
    """Coefficient of the distillation error; the authors' code has 0.5."""
    constraint: Literal["kl", "logit_mse", "mean_mse", "mean_mse_scaled"] = "kl"
    """Distance of π from π_old: the exact KL, squared error of logits (authors' code), of
    Gaussian means (appendix K), or of means divided by the variance (authors' code)."""
    target: Literal["value", "projection", "features"] = "value"
    """What is distilled: V_V, a random projection of the features, or the features
    (appendix J)."""

    @property
    def skips_first(self) -> bool:
        """Whether the phase is left out on the first iteration."""
        return self.first == "skip"


class Auxiliary(Phase):
    """PPG's auxiliary phase, on θ_π and θ_V: every N_π iterations, over N_π rollouts."""

    kind: Literal["auxiliary"] = "auxiliary"
    name: Name = "aux"
    trains: Literal["both"] = "both"
    reads: Literal["replay"] = "replay"
    every: Count = 32
    """N_π: run on every n-th iteration, over the last n rollouts."""
    sgd: SGD
    """Epochs, mini-batches and optimizer of this phase."""
    beta: NonNegative = 1.0
    """β_clone: weight of the KL that keeps π close to π_old."""
    variant: Literal["cobbe", "authors"] = "cobbe"
    """Loss of Cobbe et al. 2021, or of the DNA authors' code (no halves, KL reversed)."""


AnyPhase = Annotated[Policy | Joint | Value | Distil | Auxiliary, Field(discriminator="kind")]
#: Kind of a phase → its settings; `dna.config.run.register_phase` adds to it.
PHASES: dict[str, type[BaseModel]] = {
    model.model_fields["kind"].default: model
    for model in (Policy, Joint, Value, Distil, Auxiliary)
}
#: Kinds that cannot be replaced.
BUILT_IN = frozenset(PHASES)


class Noise(Frozen):
    """Measurement of the gradient noise scale while training (section 3.2, algorithm 2)."""

    every: Count = 10
    """Iterations between measurements; each costs about as much as an epoch of every phase."""
    first: Count | None = None
    """Also measure on each of the first n iterations; null does not."""
    samples: Annotated[int, Field(ge=2, le=10_000)] = 16
    """Number of small mini-batches per measurement."""
    b_small: Count = 32
    """B_small: rows of a small mini-batch."""
    b_big: Count | None = None
    """B_big: rows of the large batch; null uses the whole rollout (or replay buffer)."""
    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """α: decay of the moving average of |𝒢|²."""
