"""Packed observations as tensors: numbers for an encoder, and which choices are legal.

An illegal choice has a logit of −10⁸: its probability is exactly zero, it is never sampled,
and log-probabilities, entropy and KL are those over the legal choices alone.
"""

import torch
from torch import Tensor, nn

from dna.envs.packing import divisors, elements, spans
from dna.envs.specs import ObservationSpec
from dna.networks.frames import moved

#: The logit of an illegal choice: its probability is zero in float32, and nothing is NaN.
ILLEGAL = -1e8


def forbid(pi: Tensor, mask: Tensor | None) -> Tensor:
    """π's parameters with illegal choices out of the question; real numbers are untouched."""
    if mask is None:
        return pi
    rest = pi.shape[-1] - mask.shape[-1]
    if rest:
        mask = nn.functional.pad(mask, (0, rest), value=True)
    return torch.where(mask, pi, ILLEGAL)


class Unpack(nn.Module):
    """Packed rows → the normalized numbers of all entries side by side, [B, E]."""

    shift: Tensor
    scale: Tensor
    divisor: Tensor

    def __init__(self, spec: ObservationSpec, clip: float | None, gain: float) -> None:
        super().__init__()
        self.spec, self.clip, self.gain = spec, clip, gain
        shape = (elements(spec),) if clip is not None else ()
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))
        divisor = torch.from_numpy(divisors(spec)).float()
        self.register_buffer("divisor", divisor, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """s' = gain · clip((s − s_μ) / s_σ, −clip, clip); bytes first become [0, 1]."""
        obs = moved(obs, self.shift.device)
        parts = []
        for part, span in spans(self.spec).items():
            if part.kind == "mask":
                continue
            piece = obs[:, span]
            floats = part.dtype == "float32"
            parts.append(piece.contiguous().view(torch.float32) if floats else piece.float())
        x = torch.cat(parts, dim=1) / self.divisor
        if self.clip is None:
            return x
        return ((x - self.shift) * self.scale).clamp(-self.clip, self.clip) * self.gain

    def legal(self, obs: Tensor) -> Tensor | None:
        """Which choices are legal [B, C]; None: all of them, always."""
        for part, span in spans(self.spec).items():
            if part.kind == "mask":
                return moved(obs[:, span], self.shift.device) != 0
        return None
