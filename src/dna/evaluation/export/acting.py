"""The module that becomes a file: normalizer, network, distribution, post-processing.

Its inputs are observations as our spec has them, one per entry of a Dict, and the mask; its
outputs the most likely action as the environment takes it, π's parameters and V_π.
"""

import copy
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from dna.envs.outside import ActionPart, Outside
from dna.envs.specs import ActionSpec, ObservationSpec, Part
from dna.networks.distributions import Categorical, Distribution, Gaussian, Hybrid
from dna.networks.encoders import InBfloat16
from dna.networks.normalizers import Unpack
from dna.runs.policy import SavedPolicy

#: The input of an observation that has no name of its own.
OBSERVATION = "observation"
ACTION = "action"
Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class Input:
    """One tensor that is fed."""

    name: str
    part: Part  # shape without the batch


def spec_of(distribution: Distribution) -> ActionSpec:
    """The space of actions that a distribution is over."""
    if isinstance(distribution, Hybrid):
        return ActionSpec("hybrid", distribution.choices.sizes, distribution.reals.dimensions)
    if isinstance(distribution, Categorical):
        return ActionSpec("categorical", distribution.sizes)
    assert isinstance(distribution, Gaussian)
    return ActionSpec("gaussian", (distribution.dimensions,))


def inputs(obs: ObservationSpec, outputs: list[str]) -> list[Input]:
    """Every tensor to feed, in order; a name that an output has is put behind a prefix."""
    if obs.kind == "packed":
        taken = set(outputs)
        names = {p: f"{OBSERVATION}/{p.name}" if p.name in taken else p.name for p in obs.parts}
        return [Input(names[part], part) for part in obs.parts]
    kind: Literal["vector", "image"] = "image" if obs.kind == "image" else "vector"
    return [Input(OBSERVATION, Part(OBSERVATION, kind, obs.shape, obs.dtype))]


def action_parts(spec: ActionSpec, known: Outside | None) -> tuple[ActionPart, ...]:
    """What `step` takes; without an environment, the columns of a row as they are."""
    if known is not None:
        return known.actions
    choices, reals = len(spec.choices), spec.numbers
    hybrid = bool(choices and reals)
    parts = []
    if choices:
        name, columns = "choices" if hybrid else "", tuple(range(choices))
        parts.append(ActionPart(name, "choices", columns, (choices,), "int64", (0,) * choices))
    if reals:
        name, columns = "reals" if hybrid else "", tuple(range(choices, choices + reals))
        parts.append(ActionPart(name, "reals", columns, (reals,), "float32"))
    return tuple(parts)


def action_name(part: ActionPart) -> str:
    """`action`, or `action/<entry>` of a Dict."""
    return f"{ACTION}/{part.name}" if part.name else ACTION


def output_names(spec: ActionSpec, parts: tuple[ActionPart, ...]) -> list[str]:
    """Every tensor that comes out, in order."""
    names = [action_name(part) for part in parts]
    names += ["logits"] if spec.choices else []
    names += ["mean", "log_std"] if spec.numbers else []
    return [*names, "value"]


class Acting(nn.Module):
    """Observations → actions, π's parameters, V_π."""

    def __init__(
        self, policy: SavedPolicy, spec: ActionSpec, parts: tuple[ActionPart, ...]
    ) -> None:
        super().__init__()
        self.read = Reading(policy)
        self.network = in_float32(policy.network)
        self.spec = spec
        self.post = nn.ModuleList(
            _Choices(part) if part.kind == "choices" else _Reals(part, len(spec.choices))
            for part in parts
        )

    def forward(self, obs: list[Tensor]) -> tuple[Tensor, ...]:
        """In the order of `output_names`."""
        numbers, legal = self.read(obs)
        out = self.network(numbers, legal)
        size, reals = sum(self.spec.choices), self.spec.numbers
        logits, mean = out.pi[:, :size], out.pi[:, size : size + reals]
        mode = [g.argmax(dim=-1) for g in torch.split(logits, list(self.spec.choices), dim=-1)]
        chosen = torch.stack(mode, dim=-1) if mode else None
        found = [post(chosen if isinstance(post, _Choices) else mean) for post in self.post]
        found += [logits] if size else []
        found += [mean, out.pi[:, size + reals :]] if reals else []
        return (*found, out.value)


class Reading(nn.Module):
    """What `Preprocess` and `Unpack` do, for tensors under names and batches of any size."""

    shift: Tensor
    scale: Tensor
    divisor: Tensor

    def __init__(self, policy: SavedPolicy) -> None:
        super().__init__()
        given = policy.preprocess
        self.spec, self.clip, self.gain = given.spec, given.clip, given.gain
        # The same order of operations as in training, so that roundings are the same.
        self.pixels = self.spec.dtype == "uint8" and self.spec.kind == "image"
        shift, scale = given.shift.clone(), given.scale.clone()
        self.register_buffer("shift", shift * 255 if self.pixels else shift)
        self.register_buffer("scale", scale / 255 if self.pixels else scale)
        divisor = torch.tensor(255.0 if self.spec.dtype == "uint8" else 1.0)
        if isinstance(given, Unpack):
            divisor = given.divisor.clone()
        self.register_buffer("divisor", divisor)

    def forward(self, obs: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Normalized numbers as the encoder reads them, and which choices are legal."""
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
    """Columns of choices [B, C] → what `step` takes."""

    columns: Tensor
    start: Tensor

    def __init__(self, part: ActionPart) -> None:
        super().__init__()
        self.shape, self.dtype = part.shape, getattr(torch, part.dtype)
        self.register_buffer("columns", torch.tensor(part.columns))
        self.register_buffer("start", torch.tensor(part.start))

    def forward(self, chosen: Tensor) -> Tensor:
        """Offsets added, in shape and type."""
        own = chosen.index_select(1, self.columns) + self.start
        return own.reshape(-1, *self.shape).to(self.dtype)


class _Reals(nn.Module):
    """Means [B, R] → what `step` takes."""

    columns: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, part: ActionPart, choices: int) -> None:
        super().__init__()
        self.shape, self.dtype = part.shape, getattr(torch, part.dtype)
        self.bounded = bool(part.low)
        self.register_buffer("columns", torch.tensor(part.columns) - choices)
        self.register_buffer("low", torch.tensor(part.low, dtype=self.dtype))
        self.register_buffer("high", torch.tensor(part.high, dtype=self.dtype))

    def forward(self, mean: Tensor) -> Tensor:
        """Clipped to the space's bounds, in shape and type."""
        own = mean.index_select(1, self.columns).to(self.dtype)
        if self.bounded:
            own = torch.minimum(torch.maximum(own, self.low), self.high)
        return own.reshape(-1, *self.shape)


def in_float32(network: Network) -> Network:
    """A copy without bfloat16 in it, which few runtimes compute on a processor."""
    made = copy.deepcopy(network).eval()
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, InBfloat16):
                setattr(parent, name, child.encoder)
    return made


def has_bfloat16(network: nn.Module) -> bool:
    """Whether `in_float32` takes something out."""
    return any(isinstance(module, InBfloat16) for module in network.modules())
