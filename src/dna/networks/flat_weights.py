"""All weights in one vector θ = [θ_π, θ_V], of which each parameter is a view.

Whatever the networks consist of, the gradient is one vector with one norm, Adam makes one
pass, a checkpoint has one tensor per moment, and a compiled step has few arguments.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from dna.networks.networks import Networks

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
        span = self.span(which)
        return {
            name: laid_out_as(vector[start - span.start : start - span.start + p.numel()], p)
            for name, (start, p) in self.places.items()
            if span.start <= start < span.stop
        }

    def vector_of(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Concatenate parameters of any layout: the inverse of `parameters_of`."""
        return torch.cat(
            [in_memory_order(x, self.places[name][1]) for name, x in parameters.items()]
        )


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
