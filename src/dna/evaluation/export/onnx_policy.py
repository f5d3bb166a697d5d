"""The torch module that is exported to ONNX: normalizer, network, post-processing.

Its inputs are the observations, one tensor per entry of a Dict, and the mask of legal actions.
Its outputs are the most likely action in the environment's own format, π's parameters and V_π.
"""

import copy
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from dna.envs.spaces import ActionPart, SpaceDescription
from dna.envs.specs import ActionSpec, ObservationSpec, Part
from dna.networks.distributions import Categorical, Distribution, Gaussian, Hybrid
from dna.networks.encoders import InBfloat16
from dna.networks.normalizers import Unpack
from dna.runs.policy import SavedPolicy

#: The name of the input, unless the observation is a Dict.
OBSERVATION = "observation"
ACTION = "action"
Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class Input:
    """One input tensor of the file."""

    name: str
    part: Part  # shape without the batch


def spec_of(distribution: Distribution) -> ActionSpec:
    """Return the action spec of a distribution."""
    if isinstance(distribution, Hybrid):
        return ActionSpec("hybrid", distribution.choices.sizes, distribution.reals.dimensions)
    if isinstance(distribution, Categorical):
        return ActionSpec("categorical", distribution.sizes)
    assert isinstance(distribution, Gaussian)
    return ActionSpec("gaussian", (distribution.dimensions,))


def inputs(obs: ObservationSpec, outputs: list[str]) -> list[Input]:
    """Return all inputs in order; a name that an output also has gets a prefix."""
    if obs.kind == "packed":
        return [
            Input(f"{OBSERVATION}/{part.name}" if part.name in outputs else part.name, part)
            for part in obs.parts
        ]
    kind: Literal["vector", "image"] = "image" if obs.kind == "image" else "vector"
    return [Input(OBSERVATION, Part(OBSERVATION, kind, obs.shape, obs.dtype))]


def action_parts(spec: ActionSpec, known: SpaceDescription | None) -> tuple[ActionPart, ...]:
    """Return the parts of an action that `step` takes.

    Without an environment these are the columns of the network's action row, unchanged.
    """
    if known is not None:
        return known.actions
    choices = len(spec.choices)
    reals = spec.numbers
    hybrid = bool(choices and reals)
    parts = []
    if choices:
        name = "choices" if hybrid else ""
        columns = tuple(range(choices))
        parts.append(ActionPart(name, "choices", columns, (choices,), "int64", (0,) * choices))
    if reals:
        name = "reals" if hybrid else ""
        columns = tuple(range(choices, choices + reals))
        parts.append(ActionPart(name, "reals", columns, (reals,), "float32"))
    return tuple(parts)


def action_name(part: ActionPart) -> str:
    """Return `action`, or `action/<entry>` for an entry of a Dict."""
    return f"{ACTION}/{part.name}" if part.name else ACTION


def output_names(spec: ActionSpec, parts: tuple[ActionPart, ...]) -> list[str]:
    """Return the names of all outputs in order."""
    names = [action_name(part) for part in parts]
    if spec.choices:
        names.append("logits")
    if spec.numbers:
        names += ["mean", "log_std"]
    return [*names, "value"]


class ExportedPolicy(nn.Module):
    """Observations → actions, π's parameters, V_π."""

    def __init__(
        self, policy: SavedPolicy, spec: ActionSpec, parts: tuple[ActionPart, ...]
    ) -> None:
        super().__init__()
        self.read = NormalizedInputs(policy)
        self.network = in_float32(policy.network)
        self.spec = spec
        self.post = nn.ModuleList(
            _Choices(part) if part.kind == "choices" else _Reals(part, len(spec.choices))
            for part in parts
        )

    def forward(self, obs: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs in the order of `output_names`."""
        numbers, legal = self.read(obs)
        out = self.network(numbers, legal)
        size = sum(self.spec.choices)
        reals = self.spec.numbers
        logits = out.pi[:, :size]
        mean = out.pi[:, size : size + reals]
        mode = [g.argmax(dim=-1) for g in torch.split(logits, list(self.spec.choices), dim=-1)]
        chosen = torch.stack(mode, dim=-1) if mode else None
        outputs = [post(chosen if isinstance(post, _Choices) else mean) for post in self.post]
        if size:
            outputs.append(logits)
        if reals:
            outputs += [mean, out.pi[:, size + reals :]]
        return (*outputs, out.value)


class NormalizedInputs(nn.Module):
    """Normalize named inputs of any batch size as `Preprocess` and `Unpack` do in training."""

    shift: Tensor
    scale: Tensor
    divisor: Tensor

    def __init__(self, policy: SavedPolicy) -> None:
        super().__init__()
        preprocess = policy.preprocess
        self.spec = preprocess.spec
        self.clip = preprocess.clip
        self.gain = preprocess.gain
        # The same order of operations as in training, so that rounding is the same.
        self.pixels = self.spec.dtype == "uint8" and self.spec.kind == "image"
        shift = preprocess.shift.clone()
        scale = preprocess.scale.clone()
        self.register_buffer("shift", shift * 255 if self.pixels else shift)
        self.register_buffer("scale", scale / 255 if self.pixels else scale)
        divisor = torch.tensor(255.0 if self.spec.dtype == "uint8" else 1.0)
        if isinstance(preprocess, Unpack):
            divisor = preprocess.divisor.clone()
        self.register_buffer("divisor", divisor)

    def forward(self, obs: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return normalized numbers as the encoder reads them, and which choices are legal."""
        if self.spec.kind != "packed":
            x = self._normalized(obs[0].float())
            return x.permute(0, 3, 1, 2) if self.spec.kind == "image" else x, None
        pairs = list(zip(self.spec.parts, obs, strict=True))
        numbers = [x.float().flatten(1) for part, x in pairs if part.kind != "mask"]
        masks = [x for part, x in pairs if part.kind == "mask"]
        return self._normalized(torch.cat(numbers, dim=1)), masks[0] if masks else None

    def _normalized(self, x: Tensor) -> Tensor:
        if self.clip is None or not self.pixels:
            x = x / self.divisor
        if self.clip is None:
            return x
        return ((x - self.shift) * self.scale).clamp(-self.clip, self.clip) * self.gain


class _Choices(nn.Module):
    """Chosen indices [B, C] → one part of the action that `step` takes."""

    columns: Tensor
    start: Tensor

    def __init__(self, part: ActionPart) -> None:
        super().__init__()
        self.shape = part.shape
        self.dtype = getattr(torch, part.dtype)
        self.register_buffer("columns", torch.tensor(part.columns))
        self.register_buffer("start", torch.tensor(part.start))

    def forward(self, chosen: Tensor) -> Tensor:
        """Add the offsets; return the part in its shape and type."""
        own = chosen.index_select(1, self.columns) + self.start
        return own.reshape(-1, *self.shape).to(self.dtype)


class _Reals(nn.Module):
    """Means [B, R] → one part of the action that `step` takes."""

    columns: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, part: ActionPart, choices: int) -> None:
        super().__init__()
        self.shape = part.shape
        self.dtype = getattr(torch, part.dtype)
        self.bounded = bool(part.low)
        self.register_buffer("columns", torch.tensor(part.columns) - choices)
        self.register_buffer("low", torch.tensor(part.low, dtype=self.dtype))
        self.register_buffer("high", torch.tensor(part.high, dtype=self.dtype))

    def forward(self, mean: Tensor) -> Tensor:
        """Clip to the bounds; return the part in its shape and type."""
        own = mean.index_select(1, self.columns).to(self.dtype)
        if self.bounded:
            own = torch.minimum(torch.maximum(own, self.low), self.high)
        return own.reshape(-1, *self.shape)


def in_float32(network: Network) -> Network:
    """Return a copy that computes in float32: few runtimes support bfloat16 on a CPU."""
    copied = copy.deepcopy(network).eval()
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, InBfloat16):
                setattr(parent, name, child.encoder)
    return copied


def has_bfloat16(network: nn.Module) -> bool:
    """Return whether `in_float32` changes the network."""
    return any(isinstance(module, InBfloat16) for module in network.modules())
