"""Configuration of one run: phases, returns, network, normalization, warm-up (appendix A).

The models refuse values that cannot work, alone or together. Settings that cannot change a
result (device, threads, loggers) are not here but in `dna.runs.setup.How`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeVar, Union

from pydantic import Discriminator, Field, Tag, model_validator

from dna.common.errors import BadInput
from dna.config.environments import EnvConfig, RepeatPenalty
from dna.config.phases import (
    BUILT_IN,
    PHASES,
    AnyPhase,
    Count,
    Frozen,
    Noise,
    Positive,
    Returns,
)

#: Rows of a rollout beyond which the settings are assumed to contain a typo.
MOST_ROWS = 2**26
#: Fields that the engine needs of a phase.
PHASE_FIELDS = ("kind", "name", "trains", "reads", "every", "sgd")

P = TypeVar("P", bound=Frozen)


def _encoder_kind(value: object) -> str:
    return "custom" if isinstance(value, str) and value.startswith("custom:") else "known"


#: A built-in encoder, or `custom:NAME` for one registered with `dna.register_encoder`.
Encoder = Annotated[
    Annotated[Literal["auto", "mlp", "small", "nature", "impala"], Tag("known")]
    | Annotated[str, Field(pattern=r"^custom:[A-Za-z_][A-Za-z0-9_]{0,63}$"), Tag("custom")],
    Discriminator(_encoder_kind),
]


class Network(Frozen):
    """Architecture of the policy and the value network: an encoder and linear heads."""

    encoder: Encoder = "auto"
    """Encoder of the observations; "auto" chooses by their shape, custom:NAME is your own."""
    channels: Annotated[int, Field(ge=1, le=8)] = 1
    """Multiplier for the convolutions' channels; 2 is the paper's PPO (2x)."""
    width: Annotated[int, Field(ge=1, le=8192)] | None = None
    """Units of the dense layers; null uses the encoder's default (64, 128, 512 or 256)."""
    depth: Annotated[int, Field(ge=1, le=16)] = 2
    """Dense layers of the "mlp" encoder."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation of the "mlp" encoder; convolutional encoders use ReLU."""
    init: Literal["orthogonal", "authors"] = "orthogonal"
    """Initial weights: orthogonal, or as in the authors' code."""
    precision: Literal["bfloat16"] | None = None
    """Floating-point precision of the encoder; null is float32."""


class ObservationNorm(Frozen):
    """s' = gain · clip((s − s_μ) / s_σ, −clip, clip) (appendix A)."""

    clip: Positive = 3.0
    """Bound of the normalized observation."""
    gain: Positive = 1.0
    """Multiplier applied after clipping; the authors' code has 3."""


class RewardNorm(Frozen):
    """Rewards scaled so that returns have unit variance, then clipped (appendix A)."""

    clip: Annotated[float, Field(gt=0)] = 5.0
    """Bound of the normalized reward."""
    episode_end: Literal["reset", "carry_last"] = "reset"
    """Running return at an episode's end: zero, or the last reward as in the authors' code."""


class WarmUp(Frozen):
    """Before training, each environment plays t ~ U(low, high) steps (appendix A)."""

    low: Annotated[int, Field(ge=0, le=10**6)] = 1
    """Minimum number of steps."""
    high: Annotated[int, Field(ge=0, le=10**6)] = 1000
    """Maximum number of steps."""
    actions: Literal["uniform", "policy"] = "uniform"
    """Actions during the warm-up: uniform, or of the untrained policy (authors' code)."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low: given {self.low}, must be at most high = {self.high}")
        return self


class Config(Frozen):
    """A run without its seed. Rollout: N = `horizon` steps of A = `agents` environments."""

    env: EnvConfig = EnvConfig()
    """The environment."""
    phases: Annotated[tuple[AnyPhase, ...], Field(min_length=1, max_length=16)]
    """Phases of an iteration, in order; addressed by their names (`policy.sgd.epochs`)."""
    returns: Returns = Returns()
    """Return estimates."""
    horizon: Count = 128
    """N: steps of each environment in a rollout."""
    agents: Annotated[int, Field(ge=1, le=65536)] = 128
    """A: environments that run in parallel."""
    interactions: Count = 50_000_000
    """Length of the run: environment steps, summed over agents."""
    network: Network = Network()
    """Architecture of the networks."""
    normalize_observation: ObservationNorm | None = ObservationNorm()
    """Normalization of observations; null switches it off."""
    normalize_reward: RewardNorm | None = RewardNorm()
    """Normalization of rewards; null switches it off."""
    warm_up: WarmUp | None = WarmUp()
    """Random steps before training that decorrelate the environments; null skips them."""
    repeat_penalty: RepeatPenalty | None = None
    """Penalty for repeating one action; null switches it off."""
    noise: Noise | None = None
    """Measurement of the gradient noise scale; never changes what is learned."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for message in _contradictions(self):
            raise ValueError(message)
        return self

    @property
    def batch(self) -> int:
        """Rows of one rollout, N·A."""
        return self.horizon * self.agents

    @property
    def two_networks(self) -> bool:
        """Whether V has a network of its own: whether any phase trains one."""
        return any(phase.trains != "policy" for phase in self.phases)

    @property
    def algorithm(self) -> str:
        """Name of this list of phases, for folders and trackers."""
        kinds = tuple(phase.kind for phase in self.phases)
        known = {
            ("joint",): "ppo",
            ("policy", "value", "distil"): "dna",
            ("policy", "value", "auxiliary"): "ppg",
        }
        return known.get(kinds, "+".join(kinds))

    @property
    def replay_length(self) -> int:
        """Rollouts to keep for the phase that reads the replay, N_π; 0 without one."""
        return max((p.every for p in self.phases if p.reads == "replay"), default=0)


def _contradictions(config: Config) -> Iterator[str]:
    """Yield a message `key: what is wrong` for each rule between fields that is broken."""
    yield from _name_rules([phase.name for phase in config.phases])
    yield from _phase_rules(config)
    if config.batch > MOST_ROWS:
        yield f"horizon: horizon·agents = {config.batch} is more than {MOST_ROWS} rows"
    if config.noise is not None:
        yield from _noise_rule(config.noise, config.batch)
    for phase in config.phases:
        rollouts = phase.every if phase.reads == "replay" else 1
        yield from _minibatch_rule(phase.name, phase.sgd.minibatch, config.batch, rollouts)


def _name_rules(names: list[str]) -> Iterator[str]:
    for name in names:
        if names.count(name) > 1:
            yield f"phases: two phases are named '{name}'; names must differ"
        if name in Config.model_fields:
            yield f"phases: a phase cannot be named '{name}', a setting has that name"


def _phase_rules(config: Config) -> Iterator[str]:
    kinds = {phase.kind for phase in config.phases}
    if "joint" in kinds and len(kinds) > 1:
        others = ", ".join(sorted(kinds - {"joint"}))
        yield f"phases: joint trains one network with both losses and excludes {others}"
    if not kinds & {"policy", "joint"}:
        yield "phases: nothing trains the policy; add a policy phase, or use joint"
    if not kinds & {"value", "joint"}:
        yield "phases: nothing trains the value estimate; add a value phase, or use joint"
    if config.returns.values == "acting" and config.two_networks:
        yield "returns.values: acting is for one network; two are evaluated after the rollout"
    if sum(phase.reads == "replay" for phase in config.phases) > 1:
        yield "phases: two phases read the replay; at most one may"


def _noise_rule(noise: Noise, batch: int) -> Iterator[str]:
    big = batch if noise.b_big is None else noise.b_big
    if big > batch:
        yield f"noise.b_big: {big} is larger than the batch horizon·agents = {batch}"
    if noise.b_small >= big:
        yield f"noise.b_small: {noise.b_small} must be smaller than the large batch, {big}"


def _minibatch_rule(name: str, minibatch: int, batch: int, rollouts: int) -> Iterator[str]:
    size = batch * rollouts
    source = "horizon·agents" + (f"·{name}.every" if rollouts > 1 else "")
    if minibatch > size:
        yield f"{name}.sgd.minibatch: {minibatch} is larger than the batch {source} = {size}"
    elif size % minibatch:
        yield f"{name}.sgd.minibatch: {minibatch} does not divide the batch {source} = {size}"


def json_tree(config: Config) -> dict[str, Any]:
    """Return the configuration as plain JSON values."""
    tree: dict[str, Any] = config.model_dump(mode="json")
    return tree


def register_phase(model: type[P]) -> type[P]:
    """Register the settings of a phase from outside the package; also a decorator.

    Its two functions are registered with `dna.phases.freeze` and `dna.phases.loss`. A model of
    the same kind replaces the one registered before (a notebook cell that runs again). A
    configuration with such a phase can only be read after the phase was registered: reading a
    file never runs foreign code.
    """
    missing = [name for name in PHASE_FIELDS if name not in model.model_fields]
    if missing:
        raise BadInput(f"{model.__name__}: a phase needs the field '{missing[0]}'")
    kind = model.model_fields["kind"].default
    if not isinstance(kind, str) or kind in BUILT_IN:
        raise BadInput(f"{model.__name__}: kind {kind!r} is taken or not a string")
    PHASES[kind] = model
    rebuild()
    return model


def rebuild() -> None:
    """Rebuild `Config` so that it accepts exactly the phases in `PHASES`."""
    members: Any = tuple(PHASES.values())
    union: Any = Annotated[Union[members], Field(discriminator="kind")]  # noqa: UP007
    Config.model_fields["phases"].annotation = tuple[union, ...]
    Config.model_rebuild(force=True)
