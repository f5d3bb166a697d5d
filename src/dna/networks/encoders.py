"""Encoders of observations: NatureCNN, IMPALA, a small CNN, an MLP, combined and custom ones.

`encoder_for` chooses the encoder of an environment. Each image of a Dict space gets its own
convolutional encoder; their features and all vectors are concatenated and go through an MLP.
Users register their own encoders under a name. Built-in encoders return features *before* the
activation, because one distillation target (appendix J) is read there; the networks apply the
activation before their heads.
"""

import copy
import math
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from dna.common.errors import BadInput
from dna.config import Network
from dna.envs.specs import ObservationSpec, Part, columns, elements

#: NatureCNN's three convolutions need at least this many pixels in each direction.
NATURE_MINIMUM = 36
#: The small encoder's single convolution needs this many.
SMALL_MINIMUM = 3
#: Prefix of registered encoders in `network.encoder`.
PREFIX = "custom:"
#: Builds an encoder for observations of this shape.
Build = Callable[[ObservationSpec], nn.Module]
#: Registered encoders by name.
CUSTOM: dict[str, Build] = {}
Layer = TypeVar("Layer", bound=nn.Linear | nn.Conv2d)
_WIDTH = {"mlp": 64, "small": 128, "nature": 512, "impala": 256}


def encoder_for(settings: Network, obs: ObservationSpec) -> tuple[nn.Module, nn.Module, int]:
    """Build (encoder, activation to apply to its features, width) for these observations."""
    if settings.encoder.startswith(PREFIX):
        return _custom(settings.encoder, obs)
    if obs.kind != "packed":
        return build_encoder(settings, obs)
    images = [part for part in obs.entries if part.kind == "image"]
    if not images or settings.encoder == "mlp":
        flat = ObservationSpec("vector", (elements(obs),), "float32")
        return build_encoder(settings.model_copy(update={"encoder": "mlp"}), flat)
    if len(obs.entries) == 1:
        inner, activation, width = build_encoder(settings, _spec(images[0]))
        return nn.Sequential(Split(obs), _Select(images[0].name), inner), activation, width
    return _combined(settings, obs, images)


def init_head(
    head: nn.Linear, init: Literal["orthogonal", "authors"], gain: float
) -> nn.Linear:
    """Initialize a head to small outputs: a nearly uniform policy or a nearly flat value."""
    if init == "orthogonal":
        nn.init.orthogonal_(head.weight, gain)
        nn.init.zeros_(head.bias)
    else:
        bound = 0.1 / math.sqrt(head.in_features)
        nn.init.uniform_(head.weight, -bound, bound)
    return head


# ── built-in encoders ─────────────────────────────────────────────────────────────────────────


def build_encoder(settings: Network, obs: ObservationSpec) -> tuple[nn.Module, nn.Module, int]:
    """Build (encoder, activation, width) for a single image or vector."""
    name = _choose(settings, obs)
    width = settings.width or _WIDTH[name]
    activation = _activation(settings) if name == "mlp" else nn.ReLU()
    encoder = _BUILDERS[name](settings, obs, width)
    if settings.precision == "bfloat16":
        encoder = InBfloat16(encoder)
    return encoder, activation, width


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
    """NatureCNN (Mnih et al. 2015); channels = 2 is the paper's PPO (2x)."""
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
    """[B, C, H, W] → [B, H·W·C], without a copy when the memory is channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        """Flatten in memory order."""
        return x.permute(0, 2, 3, 1).flatten(1)


class ResidualBlock(nn.Module):
    """IMPALA's residual block (Espeholt et al. 2018): x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int, scale: float) -> None:
        super().__init__()
        half = math.sqrt(scale)
        self.first = _scaled(nn.Conv2d(channels, channels, 3, padding=1), half)
        self.second = _scaled(nn.Conv2d(channels, channels, 3, padding=1), half)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the residual sum."""
        y: Tensor = self.second(torch.relu_(self.first(torch.relu(x))))
        return x + y


def _impala(settings: Network, obs: ObservationSpec, width: int) -> nn.Module:
    """Channels (16, 32, 32) with two residual blocks each, then a dense layer, as in PPG."""
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
    """Scale each filter to norm `scale` and zero the bias, as PPG's encoder is initialized."""
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


# ── pieces of work ────────────────────────────────────────────────────────────────────────────


class Pieces(NamedTuple):
    """Rows of the pieces of work that threads share."""

    least: int  # of a mini-batch
    most: int
    acting: int  # of the agents' states

    def of(self, minibatch: int) -> int:
        """Return the rows of a piece of a mini-batch: half of it, within the limits."""
        return min(max(minibatch // 2, self.least), self.most, minibatch)


#: Measured by benchmarks/pieces.py: as small as costs little on a single thread.
_PIECES = {
    "small": Pieces(128, 256, 64),
    "nature": Pieces(128, 256, 64),
    "impala": Pieces(128, 256, 64),
}
#: Multiplications per piece of a dense network.
_MULTIPLICATIONS = 2**26


def pieces_of(settings: Network, obs: ObservationSpec) -> Pieces | None:
    """Return the pieces for these observations; None for custom encoders.

    They depend on the encoder alone, never on the machine, so that results do not either.
    """
    if settings.encoder.startswith(PREFIX):
        return None
    images = [ObservationSpec("image", shape, "uint8") for shape in obs.images]
    names = {_choose(settings, image) for image in images} - {"mlp"}
    if names:
        return min(_PIECES[name] for name in names)
    width = settings.width or _WIDTH["mlp"]
    inputs = elements(obs) if obs.kind == "packed" else math.prod(obs.shape)
    weights = inputs * width + (settings.depth - 1) * width**2
    rows = 2 ** max(round(math.log2(_MULTIPLICATIONS / weights)), 5)
    return Pieces(rows, rows, rows)


class InBfloat16(nn.Module):
    """Run an encoder in bfloat16 autocast, with float32 input and output."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Compute features in float32; weights and their gradients stay in float32 too."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            features: Tensor = self.encoder(x)
        return features.float()


# ── Dict spaces: several entries ──────────────────────────────────────────────────────────────


def _combined(
    settings: Network, obs: ObservationSpec, images: list[Part]
) -> tuple[nn.Module, nn.Module, int]:
    encoders = nn.ModuleDict()
    size = 0
    for index, part in enumerate(images):
        image_encoder, activation, width = build_encoder(settings, _spec(part))
        encoders[str(index)] = nn.Sequential(image_encoder, activation)
        size += width
    vectors = [part for part in obs.entries if part.kind == "vector"]
    size += sum(part.elements for part in vectors)
    flat = ObservationSpec("vector", (size,), "float32")
    last, activation, width = build_encoder(
        settings.model_copy(update={"encoder": "mlp"}), flat
    )
    image_names = [part.name for part in images]
    vector_names = [part.name for part in vectors]
    encoder = CombinedEncoder(Split(obs), encoders, image_names, vector_names, last)
    return encoder, activation, width


def _spec(part: Part) -> ObservationSpec:
    return ObservationSpec("image", part.shape, part.dtype)


class Split(nn.Module):
    """Split elements [B, E] into entries: [B, D], or [B, C, H, W] in channels_last memory."""

    def __init__(self, obs: ObservationSpec) -> None:
        super().__init__()
        self.columns = columns(obs)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return the entries by name, each in its own shape."""
        found = {}
        for name, (part, span) in self.columns.items():
            piece = x[:, span].reshape(-1, *part.shape)
            found[name] = piece.permute(0, 3, 1, 2) if part.kind == "image" else piece
        return found


class _Select(nn.Module):
    """Select one entry by name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, parts: dict[str, Tensor]) -> Tensor:
        """Return the entry."""
        return parts[self.name]


class CombinedEncoder(nn.Module):
    """One encoder per image; their features and all vectors go through an MLP."""

    def __init__(
        self,
        split: Split,
        encoders: nn.ModuleDict,
        images: list[str],
        vectors: list[str],
        last: nn.Module,
    ) -> None:
        super().__init__()
        self.split = split
        self.encoders = encoders
        self.last = last
        self.images = images
        self.vectors = vectors

    def forward(self, x: Tensor) -> Tensor:
        """Compute the features before their activation."""
        parts = self.split(x)
        inputs = [self.encoders[str(i)](parts[name]) for i, name in enumerate(self.images)]
        inputs += [parts[name].flatten(1) for name in self.vectors]
        features: Tensor = self.last(torch.cat(inputs, dim=1))
        return features


# ── custom encoders ───────────────────────────────────────────────────────────────────────────


def register_encoder(encoder: Build | nn.Module, name: str | None = None) -> str:
    """Register a custom encoder and return its value for `network.encoder`.

    A callable is called with the `ObservationSpec`, once per network. A module is copied, and
    the copy's layers are initialized anew. The encoder gets a normalized tensor [B, D] or
    [B, C, H, W], or a dictionary of these for a Dict space, and returns features [B, F] that
    include the final nonlinearity.
    """
    known = name or getattr(encoder, "__name__", None) or type(encoder).__name__
    name = re.sub(r"\W", "_", str(known))
    CUSTOM[name] = _copies(encoder) if isinstance(encoder, nn.Module) else encoder
    return PREFIX + name


def _copies(module: nn.Module) -> Build:
    """Make a builder of copies with fresh weights."""

    def build(spec: ObservationSpec) -> nn.Module:
        copied = copy.deepcopy(module)
        for layer in copied.modules():
            reset: Any = getattr(layer, "reset_parameters", None)
            if reset is not None:
                reset()
        return copied

    return build


def _custom(name: str, obs: ObservationSpec) -> tuple[nn.Module, nn.Module, int]:
    build = CUSTOM.get(name.removeprefix(PREFIX))
    if build is None:
        raise BadInput(
            f"network.encoder: {name!r} is not registered; call dna.register_encoder, "
            "or pass encoder= from Python"
        )
    module: nn.Module = build(obs)
    if obs.kind == "packed":
        module = nn.Sequential(Split(obs), module)
    with torch.no_grad():
        features = _probe(module, obs)
    if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != 2:
        given = tuple(features.shape) if isinstance(features, Tensor) else type(features)
        raise BadInput(
            f"network.encoder: {name!r} returns {given} for two states; it must return [2, F]"
        )
    return module, nn.Identity(), features.shape[1]


def _probe(module: nn.Module, obs: ObservationSpec) -> Any:
    """Apply a custom encoder to two states of zeros."""
    shape = (elements(obs),) if obs.kind == "packed" else obs.shape
    x = torch.zeros(2, *shape)
    if obs.kind == "image":
        x = x.permute(0, 3, 1, 2)
    try:
        return module(x)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        text = f"network.encoder: the custom encoder fails on {tuple(x.shape)} ({reason})"
        raise BadInput(text) from error
