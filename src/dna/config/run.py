"""One run's configuration: phases, returns and what surrounds them (appendix A).

Frozen models that refuse what cannot work, alone or together. Settings that cannot change a
result (device, threads, where to log) are not here.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from dna.config.environments import Atari, EnvConfig, Procgen, RepeatPenalty
from dna.config.phases import (
    SGD,
    AnyPhase,
    Auxiliary,
    Count,
    Distil,
    Frozen,
    Joint,
    Linear,
    Noise,
    Policy,
    Positive,
    Returns,
    Value,
    resolve,
)

__all__ = [
    "SGD",
    "AnyPhase",
    "Atari",
    "Auxiliary",
    "Config",
    "Distil",
    "EnvConfig",
    "Joint",
    "Linear",
    "Network",
    "Noise",
    "ObservationNorm",
    "Policy",
    "Procgen",
    "RepeatPenalty",
    "Returns",
    "RewardNorm",
    "Value",
    "WarmUp",
    "json_tree",
    "resolve",
]

#: A rollout beyond this is a typing mistake, not a plan.
MOST_ROWS = 2**26


def _encoder_kind(value: object) -> str:
    return "custom" if isinstance(value, str) and value.startswith("custom:") else "known"


#: One of ours, or one from outside by the name under which it was registered.
Encoder = Annotated[
    Annotated[Literal["auto", "mlp", "small", "nature", "impala"], Tag("known")]
    | Annotated[str, Field(pattern=r"^custom:[A-Za-z_][A-Za-z0-9_]{0,63}$"), Tag("custom")],
    Discriminator(_encoder_kind),
]


class Network(Frozen):
    """The encoder shared in shape by π and V; heads are linear."""

    encoder: Encoder = "auto"
    channels: Annotated[int, Field(ge=1, le=8)] = 1
    width: Annotated[int, Field(ge=1, le=8192)] | None = None
    depth: Annotated[int, Field(ge=1, le=16)] = 2
    activation: Literal["tanh", "relu"] = "tanh"
    init: Literal["orthogonal", "authors"] = "orthogonal"
    precision: Literal["bfloat16"] | None = None  # of the encoder's arithmetic; None: float32


class ObservationNorm(Frozen):
    """s' = gain · clip((s − s_μ) / s_σ, −clip, clip) (appendix A)."""

    clip: Positive = 3.0
    gain: Positive = 1.0


class RewardNorm(Frozen):
    """Rewards scaled so that returns have unit variance, then clipped (appendix A)."""

    clip: Positive = 5.0
    episode_end: Literal["reset", "carry_last"] = "reset"


class WarmUp(Frozen):
    """Each environment first plays t ~ U(low, high) steps, untrained (appendix A)."""

    low: Annotated[int, Field(ge=0, le=10**6)] = 1
    high: Annotated[int, Field(ge=0, le=10**6)] = 1000
    actions: Literal["uniform", "policy"] = "uniform"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low: given {self.low}, must be at most high = {self.high}")
        return self


class Config(Frozen):
    """One run, up to its seed. Rollout: N = `horizon` steps of A = `agents` environments."""

    env: EnvConfig = EnvConfig()
    phases: Annotated[tuple[AnyPhase, ...], Field(min_length=1, max_length=16)]
    returns: Returns = Returns()
    horizon: Count = 128
    agents: Annotated[int, Field(ge=1, le=65536)] = 128
    interactions: Count = 50_000_000
    network: Network = Network()
    normalize_observation: ObservationNorm | None = ObservationNorm()
    normalize_reward: RewardNorm | None = RewardNorm()
    warm_up: WarmUp | None = WarmUp()
    repeat_penalty: RepeatPenalty | None = None
    noise: Noise | None = None  # measured, never learned from

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for message in _contradictions(self):
            raise ValueError(message)
        return self

    @property
    def batch(self) -> int:
        """Interactions of one rollout, N·A."""
        return self.horizon * self.agents

    @property
    def two_networks(self) -> bool:
        """Derived, so that it can never disagree with the phases."""
        return any(phase.trains != "policy" for phase in self.phases)

    @property
    def algorithm(self) -> str:
        """What this list of phases is called, for folders and dashboards."""
        kinds = tuple(phase.kind for phase in self.phases)
        known = {
            ("joint",): "ppo",
            ("policy", "value", "distil"): "dna",
            ("policy", "value", "auxiliary"): "ppg",
        }
        return known.get(kinds, "+".join(kinds))

    @property
    def replay_length(self) -> int:
        """Rollouts to keep, N_π; 0 without a phase that reads them."""
        return max((p.every for p in self.phases if p.reads == "replay"), default=0)


def _contradictions(config: Config) -> Iterator[str]:
    """Cross-field rules, each as `key: what is wrong` for the one-line error."""
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
    """The configuration as plain JSON values."""
    tree: dict[str, Any] = config.model_dump(mode="json")
    return tree
