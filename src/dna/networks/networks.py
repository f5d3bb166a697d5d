"""The policy and value networks (section 4.1): two encoders of one shape, never shared.

`PolicyNetwork` → (π, V_π), `ValueNetwork` → V_V only. `Networks` holds one or both, derived
from the phases, behind one preprocessing whose statistics both networks share.
"""

from typing import Any, Literal, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor, nn

from dna.config import Config, Network
from dna.distributed.world import SOLO, World
from dna.envs.packing import divisors, elements, numbers
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.batch import Observations, in_chunks
from dna.networks.distributions import distribution
from dna.networks.encoder_for import encoder_for
from dna.networks.encoders import init_head
from dna.networks.frames import moved
from dna.networks.normalizers import ObservationNormalizer
from dna.networks.unpack import Unpack, forbid

#: Width of the random projection of appendix J.
PROJECTION = 16
#: Images normalized at a time: 16 stacks of 84 × 84 × 4 floats are 1.8 MB.
CACHED = 16


class Output(NamedTuple):
    """What the policy network says of a batch of states."""

    pi: Tensor  # [B, P] parameters of π
    value: Tensor  # [B] V_π
    features: Tensor  # [B, H] the encoder's output, before its activation


class Preprocess(nn.Module):
    """Raw observations → what the encoders read: floats, normalized, channels in front."""

    shift: Tensor
    scale: Tensor

    def __init__(self, spec: ObservationSpec, clip: float | None, gain: float) -> None:
        super().__init__()
        self.spec, self.clip, self.gain = spec, clip, gain
        shape = spec.shape if clip is not None else ()
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def legal(self, obs: Tensor) -> Tensor | None:
        """Every choice always is: only packed observations can say otherwise."""
        return None

    def forward(self, obs: Tensor) -> Tensor:
        """s' = gain · clip((s − s_μ) / s_σ, −clip, clip); bytes first become [0, 1]."""
        obs = moved(obs, self.shift.device)
        if self.spec.dtype == "uint8" and self.spec.kind == "image":
            x = self._pixels(obs)
        else:
            x = obs.float()
            if self.spec.dtype == "uint8":
                x = x / 255
            if self.clip is not None:
                x = ((x - self.shift) * self.scale).clamp(-self.clip, self.clip) * self.gain
        # The permuted view of [B, H, W, C] *is* the channels_last layout convolutions like.
        return x.permute(0, 3, 1, 2) if self.spec.kind == "image" else x

    def _pixels(self, obs: Tensor) -> Tensor:
        """The same for images of bytes, in place and so few at a time that they stay in cache.

        Whatever order the bytes are in, the result is channels last.
        """
        x = torch.empty(obs.shape, device=obs.device)
        shift, scale = self.shift * 255, self.scale / 255
        for part, out in zip(torch.split(obs, CACHED), torch.split(x, CACHED), strict=True):
            if self.clip is None:
                torch.div(part, 255, out=out)
            else:
                torch.sub(part, shift, out=out).mul_(scale).clamp_(-self.clip, self.clip)
                if self.gain != 1.0:
                    out.mul_(self.gain)
        return x


def preprocessing(
    spec: ObservationSpec, clip: float | None, gain: float
) -> Preprocess | Unpack:
    """What reads observations of this kind."""
    return (Unpack if spec.kind == "packed" else Preprocess)(spec, clip, gain)


def normalizer_for(spec: ObservationSpec) -> ObservationNormalizer:
    """Statistics of observations of this kind."""
    if spec.kind == "packed":
        return ObservationNormalizer((elements(spec),), divisors(spec))
    return ObservationNormalizer(spec.shape, 255.0 if spec.dtype == "uint8" else 1.0)


class PolicyNetwork(nn.Module):
    """s → π(·|s), V_π(s)."""

    def __init__(
        self, settings: Network, obs: ObservationSpec, action: ActionSpec, projection: bool
    ) -> None:
        super().__init__()
        self.encoder, self.activation, width = encoder_for(settings, obs)
        outputs, reals = sum(action.choices) + action.numbers, action.numbers
        self.policy_head = init_head(nn.Linear(width, outputs), settings.init, gain=0.01)
        self.value_head = init_head(nn.Linear(width, 1), settings.init, gain=1.0)
        self.log_std = nn.Parameter(torch.zeros(reals)) if reals else None
        self.projection = nn.Linear(width, PROJECTION) if projection else None

    def forward(self, x: Tensor, legal: Tensor | None = None) -> Output:
        """π's parameters, V_π and the features behind them; illegal choices have no chance."""
        features = self.encoder(x)
        hidden = self.activation(features)
        pi = self.policy_head(hidden)
        if self.log_std is not None:
            # Not len(pi): that fixes the batch of an exported policy.
            pi = torch.cat([pi, self.log_std.expand(pi.shape[0], -1)], dim=-1)
        return Output(forbid(pi, legal), self.value_head(hidden).squeeze(-1), features)


class ValueNetwork(nn.Module):
    """s → V_V(s), nothing else."""

    def __init__(self, settings: Network, obs: ObservationSpec, projection: bool) -> None:
        super().__init__()
        self.encoder, self.activation, width = encoder_for(settings, obs)
        self.value_head = init_head(nn.Linear(width, 1), settings.init, gain=1.0)
        self.projection = nn.Linear(width, PROJECTION) if projection else None
        if self.projection is not None:
            self.projection.requires_grad_(False)  # a *fixed* random projection

    def forward(self, x: Tensor) -> Tensor:
        """V_V, [B]."""
        value: Tensor = self.value_head(self.activation(self.encoder(x))).squeeze(-1)
        return value

    def features(self, x: Tensor) -> Tensor:
        """The encoder's output, before its activation: a distillation target."""
        features: Tensor = self.encoder(x)
        return features


class Networks(nn.Module):
    """θ_π and, where a phase trains it, θ_V, behind one preprocessing."""

    def __init__(self, config: Config, obs: ObservationSpec, action: ActionSpec) -> None:
        super().__init__()
        norm = config.normalize_observation
        self.obs, self.action = obs, action
        self.distribution = distribution(action)
        self.normalizer = None if norm is None else normalizer_for(obs)
        clip, gain = (None, 1.0) if norm is None else (norm.clip, norm.gain)
        self.preprocess = preprocessing(obs, clip, gain)
        projection = any(p.kind == "distil" and p.target == "projection" for p in config.phases)
        self.policy = PolicyNetwork(config.network, obs, action, projection)
        self.value: ValueNetwork | None = None
        if config.two_networks:
            self.value = ValueNetwork(config.network, obs, projection)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def pi(self, obs: Tensor) -> Output:
        """The policy network on raw observations."""
        output: Output = self.policy(self.preprocess(obs), self.preprocess.legal(obs))
        return output

    def v(self, obs: Tensor) -> Tensor:
        """V, the estimate behind the returns: V_V where there is one, else V_π."""
        if self.value is None:
            return self.pi(obs).value
        value: Tensor = self.value(self.preprocess(obs))
        return value

    def v_of_all(self, obs: Observations) -> Tensor:
        """V of many states, in chunks, without gradient, on the host."""
        return in_chunks(self.v, obs).cpu()

    def observe(self, obs: npt.NDArray[Any], world: World = SOLO) -> None:
        """Add states, of all ranks, to the shared statistics, and use them from now on."""
        if self.normalizer is None:
            return
        seen = numbers(self.obs, obs) if self.obs.kind == "packed" else obs
        self.normalizer.update(seen, world)
        self.refresh()

    def refresh(self) -> None:
        """Bring the statistics into the preprocessing."""
        if self.normalizer is not None:
            shift, scale = self.normalizer.shift_and_scale()
            self.preprocess.shift.copy_(torch.from_numpy(shift))
            self.preprocess.scale.copy_(torch.from_numpy(scale))

    @property
    def device(self) -> torch.device:
        """Where the networks live."""
        return self.preprocess.shift.device

    def weights(self, which: Literal["policy", "value", "both"]) -> list[nn.Parameter]:
        """θ_π, θ_V, or both: what a phase's optimizer may move."""
        parts: list[nn.Module | None] = []
        if which in ("policy", "both"):
            parts.append(self.policy)
        if which in ("value", "both"):
            parts.append(self.value)
        return [p for part in parts if part for p in part.parameters() if p.requires_grad]
