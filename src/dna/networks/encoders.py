"""Encoders: NatureCNN (1× and 2× channels), IMPALA, a small CNN and an MLP.

Each returns features *before* their activation, because one distillation target (appendix J)
is read there; the networks apply the activation before their heads.
"""

import math
from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from dna.common.errors import BadInput
from dna.config import Network
from dna.envs.specs import ObservationSpec

#: NatureCNN's three convolutions need at least this many pixels each way.
NATURE_MINIMUM = 36
#: The small encoder's one convolution.
SMALL_MINIMUM = 3
Layer = TypeVar("Layer", bound=nn.Linear | nn.Conv2d)
_WIDTH = {"mlp": 64, "small": 128, "nature": 512, "impala": 256}


def build_encoder(settings: Network, obs: ObservationSpec) -> tuple[nn.Module, nn.Module, int]:
    """(encoder, the activation behind it, its width) for these observations."""
    name = _choose(settings, obs)
    width = settings.width or _WIDTH[name]
    activation = _activation(settings) if name == "mlp" else nn.ReLU()
    encoder = _BUILDERS[name](settings, obs, width)
    if settings.precision == "bfloat16":
        encoder = InBfloat16(encoder)
    return encoder, activation, width


class InBfloat16(nn.Module):
    """An encoder whose products are computed in bfloat16, from and to float32."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Features in float32; weights and their gradients stay in float32 too."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            features: Tensor = self.encoder(x)
        return features.float()


def init_head(
    head: nn.Linear, init: Literal["orthogonal", "authors"], gain: float
) -> nn.Linear:
    """Small first outputs: a nearly uniform policy, a nearly flat value."""
    if init == "orthogonal":
        nn.init.orthogonal_(head.weight, gain)
        nn.init.zeros_(head.bias)
    else:
        bound = 0.1 / math.sqrt(head.in_features)
        nn.init.uniform_(head.weight, -bound, bound)
    return head


def _choose(settings: Network, obs: ObservationSpec) -> str:
    name = settings.encoder
    if name == "auto":
        if obs.kind == "vector" or min(obs.shape[:2]) < SMALL_MINIMUM:
            return "mlp"
        return "nature" if min(obs.shape[:2]) >= NATURE_MINIMUM else "small"
    if name != "mlp" and obs.kind == "vector":
        raise BadInput(
            f"network.encoder: '{name}' reads images, but the environment "
            f"gives vectors of shape {obs.shape}; use mlp or auto"
        )
    if name == "small" and min(obs.shape[:2]) < SMALL_MINIMUM:
        raise BadInput(
            f"network.encoder: 'small' needs {SMALL_MINIMUM} pixels each way, the environment "
            f"gives {obs.shape[:2]}; use mlp"
        )
    if name == "nature" and min(obs.shape[:2]) < NATURE_MINIMUM:
        raise BadInput(
            f"network.encoder: 'nature' needs {NATURE_MINIMUM} pixels each way, "
            f"the environment gives {obs.shape[:2]}; use small or auto"
        )
    return name


def _activation(settings: Network) -> nn.Module:
    return nn.Tanh() if settings.activation == "tanh" else nn.ReLU()


def _mlp(settings: Network, obs: ObservationSpec, width: int) -> nn.Module:
    gain = 5 / 3 if settings.init == "authors" else math.sqrt(2)
    layers: list[nn.Module] = [nn.Flatten()]
    size = math.prod(obs.shape)
    for depth in range(settings.depth):
        if depth:
            layers.append(_activation(settings))
        layers.append(_orthogonal(nn.Linear(size, width), gain))
        size = width
    return nn.Sequential(*layers)


def _small(settings: Network, obs: ObservationSpec, width: int) -> nn.Module:
    """One 3×3 convolution and a dense layer, for images of MinAtar's size."""
    return _convolutional(settings, obs, width, [(16, 3, 1)])


def _nature(settings: Network, obs: ObservationSpec, width: int) -> nn.Module:
    """Mnih et al. 2015; channels = 2 is the paper's PPO (2x)."""
    return _convolutional(settings, obs, width, [(32, 8, 4), (64, 4, 2), (64, 3, 1)])


def _convolutional(
    settings: Network,
    obs: ObservationSpec,
    width: int,
    convolutions: list[tuple[int, int, int]],
) -> nn.Module:
    height, across, channels = obs.shape
    layers: list[nn.Module] = []
    for filters, kernel, stride in convolutions:
        filters *= settings.channels
        layers += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU(inplace=True)]
        height, across = (height - kernel) // stride + 1, (across - kernel) // stride + 1
        channels = filters
    layers += [FlattenChannelsLast(), nn.Linear(height * across * channels, width)]
    if settings.init == "orthogonal":
        for layer in layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                _orthogonal(layer, math.sqrt(2))
    return nn.Sequential(*layers)


class FlattenChannelsLast(nn.Module):
    """[B, C, H, W] → [B, H·W·C]: no copy when the memory is channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        """Flatten in the order the memory has."""
        return x.permute(0, 2, 3, 1).flatten(1)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))) of IMPALA (Espeholt et al. 2018)."""

    def __init__(self, channels: int, scale: float) -> None:
        super().__init__()
        half = math.sqrt(scale)
        self.first = _scaled(nn.Conv2d(channels, channels, 3, padding=1), half)
        self.second = _scaled(nn.Conv2d(channels, channels, 3, padding=1), half)

    def forward(self, x: Tensor) -> Tensor:
        """The residual sum."""
        y: Tensor = self.second(torch.relu_(self.first(torch.relu(x))))
        return x + y


def _impala(settings: Network, obs: ObservationSpec, width: int) -> nn.Module:
    """Channels (16, 32, 32), two residual blocks each, then a dense layer, as PPG uses it."""
    height, across, channels = obs.shape
    layers: list[nn.Module] = []
    stack_scale = 1 / math.sqrt(3)
    for filters in (16, 32, 32):
        filters *= settings.channels
        first = nn.Conv2d(channels, filters, 3, padding=1)
        layers += [_scaled(first, 1.0), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [ResidualBlock(filters, stack_scale / math.sqrt(2)) for _ in range(2)]
        height, across, channels = (height + 1) // 2, (across + 1) // 2, filters
    dense = _scaled(nn.Linear(height * across * channels, width), 1.4)
    return nn.Sequential(*layers, nn.ReLU(), FlattenChannelsLast(), dense)


def _orthogonal(layer: Layer, gain: float) -> Layer:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


def _scaled(layer: Layer, scale: float) -> Layer:
    """Each filter scaled to the norm `scale`, zero bias (the init of PPG's encoder)."""
    weight = layer.weight.data
    weight *= scale / weight.flatten(1).norm(dim=1).view(-1, *[1] * (weight.dim() - 1))
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


_BUILDERS: dict[str, Callable[[Network, ObservationSpec, int], nn.Module]] = {
    "mlp": _mlp,
    "small": _small,
    "nature": _nature,
    "impala": _impala,
}
