"""Which encoder reads an environment's observations: one of ours, several joined, or yours.

Images of a Dict space have a convolutional encoder each; what these say and all vectors
side by side then go through an MLP. An encoder of your own is registered under a name.
"""

import copy
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dna.common.errors import BadInput
from dna.config import Network
from dna.envs.packing import columns, elements
from dna.envs.specs import ObservationSpec, Part
from dna.networks.encoders import build_encoder

#: Makes an encoder for observations that look like this.
Build = Callable[[ObservationSpec], nn.Module]
#: Encoders from outside, by name.
CUSTOM: dict[str, Build] = {}
PREFIX = "custom:"


def register_encoder(encoder: Build | nn.Module, name: str | None = None) -> str:
    """Make an encoder of your own known; returns what `network.encoder` is to say.

    A callable is called with the `ObservationSpec`, once for each network. A module is copied,
    and its layers draw new weights. It reads a tensor [B, D] or [B, C, H, W], of a Dict space a
    dictionary of these, normalized; and returns features [B, F], nonlinearity included.
    """
    known = name or getattr(encoder, "__name__", None) or type(encoder).__name__
    name = re.sub(r"\W", "_", str(known))
    CUSTOM[name] = _copies(encoder) if isinstance(encoder, nn.Module) else encoder
    return PREFIX + name


def _copies(module: nn.Module) -> Build:
    def build(spec: ObservationSpec) -> nn.Module:
        made = copy.deepcopy(module)
        for layer in made.modules():
            reset: Any = getattr(layer, "reset_parameters", None)
            if reset is not None:
                reset()
        return made

    return build


def encoder_for(settings: Network, obs: ObservationSpec) -> tuple[nn.Module, nn.Module, int]:
    """(encoder, the activation behind it, its width) for these observations."""
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
        return nn.Sequential(Split(obs), _Only(images[0].name), inner), activation, width
    return _joined(settings, obs, images)


def _joined(
    settings: Network, obs: ObservationSpec, images: list[Part]
) -> tuple[nn.Module, nn.Module, int]:
    encoders, size = nn.ModuleDict(), 0
    for index, part in enumerate(images):
        encoder, activation, width = build_encoder(settings, _spec(part))
        encoders[str(index)] = nn.Sequential(encoder, activation)
        size += width
    vectors = [part for part in obs.entries if part.kind == "vector"]
    size += sum(part.elements for part in vectors)
    flat = ObservationSpec("vector", (size,), "float32")
    last, activation, width = build_encoder(
        settings.model_copy(update={"encoder": "mlp"}), flat
    )
    names = [part.name for part in images], [part.name for part in vectors]
    return Joined(Split(obs), encoders, names, last), activation, width


def _spec(part: Part) -> ObservationSpec:
    return ObservationSpec("image", part.shape, part.dtype)


class Split(nn.Module):
    """Numbers [B, E] → entry → [B, D], or [B, C, H, W] in channels_last memory."""

    def __init__(self, obs: ObservationSpec) -> None:
        super().__init__()
        self.columns = columns(obs)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Each entry in its own shape."""
        found = {}
        for name, (part, span) in self.columns.items():
            piece = x[:, span].reshape(-1, *part.shape)
            found[name] = piece.permute(0, 3, 1, 2) if part.kind == "image" else piece
        return found


class _Only(nn.Module):
    """The only entry that there is."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, parts: dict[str, Tensor]) -> Tensor:
        """That one."""
        return parts[self.name]


class Joined(nn.Module):
    """An encoder for each image; their features and all vectors through an MLP."""

    def __init__(
        self,
        split: Split,
        encoders: nn.ModuleDict,
        names: tuple[list[str], list[str]],
        last: nn.Module,
    ) -> None:
        super().__init__()
        self.split, self.encoders, self.last = split, encoders, last
        self.images, self.vectors = names

    def forward(self, x: Tensor) -> Tensor:
        """Features, before their activation."""
        parts = self.split(x)
        seen = [self.encoders[str(i)](parts[name]) for i, name in enumerate(self.images)]
        seen += [parts[name].flatten(1) for name in self.vectors]
        features: Tensor = self.last(torch.cat(seen, dim=1))
        return features


def _custom(name: str, obs: ObservationSpec) -> tuple[nn.Module, nn.Module, int]:
    build = CUSTOM.get(name.removeprefix(PREFIX))
    if build is None:
        raise BadInput(
            f"network.encoder: {name!r} is not known here; call dna.register_encoder, "
            "or pass encoder= from Python"
        )
    module: nn.Module = build(obs)
    if obs.kind == "packed":
        module = nn.Sequential(Split(obs), module)
    with torch.no_grad():
        features = _tried(module, obs)
    if not isinstance(features, Tensor) or features.dim() != 2 or len(features) != 2:
        given = tuple(features.shape) if isinstance(features, Tensor) else type(features)
        raise BadInput(f"network.encoder: {name!r} gives {given} of two states, not [2, F]")
    return module, nn.Identity(), features.shape[1]


def _tried(module: nn.Module, obs: ObservationSpec) -> Any:
    shape = (elements(obs),) if obs.kind == "packed" else obs.shape
    x = torch.zeros(2, *shape)
    if obs.kind == "image":
        x = x.permute(0, 3, 1, 2)
    try:
        return module(x)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        text = f"network.encoder: yours cannot read {tuple(x.shape)} ({reason})"
        raise BadInput(text) from error
