"""Actors: evaluate π and sample actions with torch, or for few small states with numpy.

A step of one environment needs a single row of a small network. In torch that takes about
thirty calls of a few microseconds each; numpy's calls cost a third of that. `NumpyActor` shares
the memory of the weights and statistics, so it is always up to date.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dna.networks.frames import moved
from dna.networks.networks import Networks

Array = npt.NDArray[Any]
#: Most states at a time for which numpy is faster than torch.
FEW = 32


class Actor(Protocol):
    """(s, noise) → parameters of π(·|s), a sampled action, and V_π(s) if requested."""

    def __call__(self, obs: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """Return (parameters of π [A, P], action [A, W], V_π [A]) for states [A, …]."""


def make_actor(
    networks: Networks, agents: int, *, values: bool = False, piece: int | None = None
) -> Actor:
    """Make the faster of the two actors; `values` asks for V_π as well.

    `piece` is the number of states that a thread evaluates at a time; None: all.
    """
    obs = networks.obs
    layers = networks.policy.encoder.children()
    if (
        agents <= FEW
        and obs.kind == "vector"
        and obs.dtype == "float32"
        and networks.action.kind != "hybrid"
        and networks.device.type == "cpu"
        and not networks.policy.custom  # whatever its layers look like
        and all(isinstance(m, nn.Flatten | nn.Linear | nn.Tanh | nn.ReLU) for m in layers)
    ):
        return NumpyActor(networks, values=values)
    return TorchActor(networks, values=values, piece=piece)


class TorchActor:
    """Any network on any device; samples on the CPU, as noise on GPUs depends on the model."""

    def __init__(
        self, networks: Networks, *, values: bool = False, piece: int | None = None
    ) -> None:
        self.networks = networks
        self.values = values
        self.piece = piece

    @torch.inference_mode()
    def __call__(self, obs: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """Run a forward pass and sample."""
        parts = torch.split(torch.from_numpy(obs), self.piece or len(obs))
        found = self.networks.workers.map(self._forward, parts)
        pi, *values = (torch.cat(part) for part in zip(*found, strict=True))
        action = self.networks.distribution.sample(pi, torch.from_numpy(noise))
        return pi.numpy(), action.numpy(), values[0].numpy() if values else None

    @torch.inference_mode()  # in every thread
    def _forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        output = self.networks.pi(moved(obs, self.networks.device))
        return (output.pi.cpu(), output.value.cpu()) if self.values else (output.pi.cpu(),)


class NumpyActor:
    """Dense networks on vector observations."""

    def __init__(self, networks: Networks, *, values: bool = False) -> None:
        policy = networks.policy
        preprocess = networks.preprocess
        self.clip = preprocess.clip
        self.gain = np.float32(preprocess.gain)
        self.shift = preprocess.shift.numpy().reshape(-1)
        self.scale = preprocess.scale.numpy().reshape(-1)
        layers = [m for m in policy.encoder.children() if isinstance(m, nn.Linear)]
        self.layers = [_memory(layer) for layer in layers]
        self.head = _memory(policy.policy_head)
        self.value_head = _memory(policy.value_head) if values else None
        self.rectify = isinstance(policy.activation, nn.ReLU)
        self.sizes = networks.action.sizes
        self.log_std = None if policy.log_std is None else policy.log_std.detach().numpy()

    def __call__(self, obs: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """Compute the same forward pass and sample as `TorchActor`, up to float rounding."""
        x = obs.reshape(len(obs), -1)
        if self.clip is not None:
            x = x - self.shift
            x *= self.scale
            np.minimum(np.maximum(x, -self.clip, out=x), self.clip, out=x)
            if self.gain != 1.0:
                x *= self.gain
        for weight, bias in self.layers:
            x = x @ weight
            x += bias
            x = np.maximum(x, 0.0, out=x) if self.rectify else np.tanh(x, out=x)
        pi = x @ self.head[0] + self.head[1]
        value: Array | None = None
        if self.value_head is not None:
            value = (x @ self.value_head[0] + self.value_head[1])[:, 0]
        if self.log_std is not None:
            action = pi + np.exp(self.log_std) * noise
            width = len(self.log_std)
            parameters = np.empty((len(pi), 2 * width), np.float32)
            parameters[:, :width] = pi
            parameters[:, width:] = self.log_std
            return parameters, action, value
        return pi, self._choose(pi + noise), value

    def _choose(self, score: Array) -> Array:
        """Take the argmax of each group of logits plus Gumbel noise."""
        if len(self.sizes) == 1:
            choice: Array = np.argmax(score, axis=1)
            return choice[:, None]
        ends = np.cumsum(self.sizes)[:-1]
        groups = np.split(score, ends, axis=1)
        return np.stack([np.argmax(group, axis=1) for group in groups], axis=1)


def _memory(layer: nn.Linear) -> tuple[Array, Array]:
    """Return a layer's transposed weight and bias as views of the memory that is trained."""
    return layer.weight.detach().numpy().T, layer.bias.detach().numpy()
