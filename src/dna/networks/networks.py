"""The policy and value networks (section 4.1): two encoders of the same shape, never shared.

`PolicyNetwork` computes π and V_π, `ValueNetwork` computes V_V only. `Networks` holds one or
both, as the phases require, behind one preprocessing step whose statistics both networks share.
`FlatWeights` places all their weights in one vector, θ = [θ_π, θ_V].
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dna.common.threads import ONE_THREAD, Workers
from dna.config import Config, Network
from dna.distributed.world import SOLO, World
from dna.envs.specs import ActionSpec, ObservationSpec, numbers
from dna.networks.batch import Observations, in_chunks
from dna.networks.distributions import distribution, mask_illegal
from dna.networks.encoders import PREFIX, encoder_for, init_head
from dna.networks.normalizers import normalizer_for, preprocessing

#: Width of the random projection of appendix J.
PROJECTION = 16


class Output(NamedTuple):
    """Output of the policy network for a batch of states."""

    pi: Tensor  # [B, P] parameters of π
    value: Tensor  # [B] V_π
    features: Tensor  # [B, H] the encoder's output, before its activation


class PolicyNetwork(nn.Module):
    """s → π(·|s), V_π(s)."""

    def __init__(
        self, settings: Network, obs: ObservationSpec, action: ActionSpec, projection: bool
    ) -> None:
        super().__init__()
        self.encoder, self.activation, width = encoder_for(settings, obs)
        self.custom = settings.encoder.startswith(PREFIX)
        outputs = sum(action.choices) + action.numbers
        reals = action.numbers
        self.policy_head = init_head(nn.Linear(width, outputs), settings.init, gain=0.01)
        self.value_head = init_head(nn.Linear(width, 1), settings.init, gain=1.0)
        self.log_std = nn.Parameter(torch.zeros(reals)) if reals else None
        self.projection = nn.Linear(width, PROJECTION) if projection else None

    def forward(self, x: Tensor, legal: Tensor | None = None) -> Output:
        """Compute π's parameters, with illegal choices masked, V_π and the features."""
        features = self.encoder(x)
        hidden = self.activation(features)
        pi = self.policy_head(hidden)
        if self.log_std is not None:
            # Not len(pi): that would fix the batch size of an exported policy.
            pi = torch.cat([pi, self.log_std.expand(pi.shape[0], -1)], dim=-1)
        return Output(mask_illegal(pi, legal), self.value_head(hidden).squeeze(-1), features)


class ValueNetwork(nn.Module):
    """s → V_V(s)."""

    def __init__(self, settings: Network, obs: ObservationSpec, projection: bool) -> None:
        super().__init__()
        self.encoder, self.activation, width = encoder_for(settings, obs)
        self.value_head = init_head(nn.Linear(width, 1), settings.init, gain=1.0)
        self.projection = nn.Linear(width, PROJECTION) if projection else None
        if self.projection is not None:
            self.projection.requires_grad_(False)  # a *fixed* random projection

    def forward(self, x: Tensor) -> Tensor:
        """Compute V_V, [B]."""
        value: Tensor = self.value_head(self.activation(self.encoder(x))).squeeze(-1)
        return value

    def features(self, x: Tensor) -> Tensor:
        """Compute the encoder's output before its activation, for appendix J."""
        features: Tensor = self.encoder(x)
        return features


class Networks(nn.Module):
    """θ_π, and θ_V where a phase trains it, behind one shared preprocessing step."""

    #: Threads that share passes over many states.
    workers: Workers = ONE_THREAD

    def __init__(self, config: Config, obs: ObservationSpec, action: ActionSpec) -> None:
        super().__init__()
        norm = config.normalize_observation
        self.obs = obs
        self.action = action
        self.distribution = distribution(action)
        self.normalizer = None if norm is None else normalizer_for(obs)
        if norm is None:
            self.preprocess = preprocessing(obs, None, 1.0)
        else:
            self.preprocess = preprocessing(obs, norm.clip, norm.gain)
        projection = any(p.kind == "distil" and p.target == "projection" for p in config.phases)
        self.policy = PolicyNetwork(config.network, obs, action, projection)
        self.value: ValueNetwork | None = None
        if config.two_networks:
            self.value = ValueNetwork(config.network, obs, projection)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def pi(self, obs: Tensor) -> Output:
        """Apply the policy network to raw observations."""
        output: Output = self.policy(self.preprocess(obs), self.preprocess.legal(obs))
        return output

    def v(self, obs: Tensor) -> Tensor:
        """Compute V, the baseline of the returns: V_V if there is a value network, else V_π."""
        if self.value is None:
            return self.pi(obs).value
        value: Tensor = self.value(self.preprocess(obs))
        return value

    def v_of_all(self, obs: Observations) -> Tensor:
        """Compute V of many states in chunks, without gradient; the result is on the CPU."""
        return self.in_chunks(self.v, obs).cpu()

    def in_chunks(self, function: Callable[[Tensor], Tensor], obs: Observations) -> Tensor:
        """Apply `function` to many states in chunks, shared among the threads of this run."""
        return in_chunks(function, obs, workers=self.workers)

    def observe(self, obs: npt.NDArray[Any], world: World = SOLO) -> None:
        """Add the states of all ranks to the observation statistics, and apply the result."""
        if self.normalizer is None:
            return
        seen = numbers(self.obs, obs) if self.obs.kind == "packed" else obs
        self.normalizer.update(seen, world)
        self.refresh()

    def refresh(self) -> None:
        """Copy the statistics into the preprocessing."""
        if self.normalizer is not None:
            shift, scale = self.normalizer.shift_and_scale()
            _assign(self.preprocess.shift, shift)
            _assign(self.preprocess.scale, scale)

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return self.preprocess.shift.device

    def weights(self, which: Literal["policy", "value", "both"]) -> list[nn.Parameter]:
        """Return θ_π, θ_V or both: the parameters that a phase optimizes."""
        parts: list[nn.Module | None] = []
        if which in ("policy", "both"):
            parts.append(self.policy)
        if which in ("value", "both"):
            parts.append(self.value)
        return [p for part in parts if part for p in part.parameters() if p.requires_grad]


def _assign(buffer: Tensor, values: npt.NDArray[np.float64]) -> None:
    """Copy values into a buffer of float32; on the CPU numpy does so in less time."""
    if buffer.device.type == "cpu":
        np.copyto(buffer.numpy(), values, casting="same_kind")
    else:
        buffer.copy_(torch.from_numpy(values.astype(np.float32)))


Which = Literal["policy", "value", "both"]


class FlatWeights:
    """Owner of the memory of the networks' trainable weights and their gradients."""

    def __init__(self, networks: Networks) -> None:
        groups = [networks.weights("policy"), networks.weights("value")]
        self.border = sum(p.numel() for p in groups[0])  # where θ_π ends and θ_V begins
        weights = [p for group in groups for p in group]
        self.theta = torch.cat([in_memory_order(p.detach(), p) for p in weights])
        self.gradient = torch.zeros_like(self.theta)
        names = {p: name for name, p in networks.named_parameters()}
        self.places: dict[str, tuple[int, nn.Parameter]] = {}
        start = 0
        for p in weights:
            self.places[names[p]] = start, p
            stop = start + p.numel()
            p.grad = laid_out_as(self.gradient[start:stop], p)
            p.data = laid_out_as(self.theta[start:stop], p)
            start = stop
        self._vectors: dict[str, nn.Parameter] = {}

    def span(self, which: Which) -> slice:
        """Return the range of these weights in θ."""
        end = len(self.theta)
        return {
            "policy": slice(0, self.border),
            "value": slice(self.border, end),
            "both": slice(0, end),
        }[which]

    def vector(self, which: Which) -> nn.Parameter:
        """Return θ_π, θ_V or both as a single parameter, for an optimizer."""
        if which not in self._vectors:
            span = self.span(which)
            vector = nn.Parameter(self.theta[span])
            vector.grad = self.gradient[span]
            self._vectors[which] = vector
        return self._vectors[which]

    def parameters_of(self, vector: Tensor, which: Which) -> dict[str, Tensor]:
        """Split a vector like `vector(which)` into views, by parameter name in `Networks`."""
        offset = self.span(which).start
        return {
            name: laid_out_as(vector[self.places[name][0] - offset :][: p.numel()], p)
            for name, p in self.parameters(which).items()
        }

    def parameters(self, which: Which) -> dict[str, nn.Parameter]:
        """Return the networks' own parameters in the order of `vector(which)`."""
        span = self.span(which)
        inside = range(span.start, span.stop)
        return {name: p for name, (start, p) in self.places.items() if start in inside}

    def vector_of(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Concatenate parameters of any layout: the inverse of `parameters_of`."""
        return torch.cat(self._flat(parameters))

    def write(self, parameters: Mapping[str, Tensor], vector: Tensor) -> None:
        """Write what `vector_of` returns into existing memory."""
        torch.cat(self._flat(parameters), out=vector)

    def _flat(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        return [in_memory_order(x, self.places[name][1]) for name, x in parameters.items()]


def _order(like: Tensor) -> list[int]:
    """Return the dimensions from slowest- to fastest-varying in memory."""
    strides = like.stride()
    return sorted(range(like.dim()), key=lambda d: (-strides[d], d))


def in_memory_order(x: Tensor, like: Tensor) -> Tensor:
    """Flatten a tensor in the memory order of `like`."""
    return x.permute(_order(like)).reshape(-1)


def laid_out_as(vector: Tensor, like: Tensor) -> Tensor:
    """View a vector with the shape and memory layout of `like`."""
    order = _order(like)
    back = sorted(range(like.dim()), key=order.__getitem__)
    return vector.view([like.shape[d] for d in order]).permute(back)
