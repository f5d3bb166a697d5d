"""Evaluating π while acting: by torch, or for a few small states by numpy.

A step of one environment asks for one row of a small network. Through torch that is some
thirty calls of a few microseconds each; numpy's cost a third. The numpy actor reads the very
memory of the weights and statistics, so it is never out of date.
"""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from dna.networks.frames import moved
from dna.networks.networks import Networks

Array = npt.NDArray[Any]
#: States at a time beyond which torch's matrix products make up for its calls.
FEW = 32


class Actor(Protocol):
    """s, noise → what π says of s, an action drawn from it, and V_π(s) if that is asked for."""

    def __call__(self, obs: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """(parameters of π [A, P], action [A, W], V_π [A]) for states [A, …] and noise."""


def make_actor(networks: Networks, agents: int, *, values: bool = False) -> Actor:
    """The quicker of the two ways; `values`: with V_π."""
    obs = networks.obs
    plain = obs.kind == "vector" and obs.dtype == "float32" and networks.device.type == "cpu"
    plain = plain and networks.action.kind != "hybrid"
    layers = networks.policy.encoder.children()
    dense = all(isinstance(m, nn.Flatten | nn.Linear | nn.Tanh | nn.ReLU) for m in layers)
    if plain and dense and agents <= FEW:
        return NumpyActor(networks, values=values)
    return TorchActor(networks, values=values)


class TorchActor:
    """Any network, on any device; sampled on the host, because GPU noise varies by card."""

    def __init__(self, networks: Networks, *, values: bool = False) -> None:
        self.networks, self.values = networks, values

    @torch.inference_mode()
    def __call__(self, obs: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """One forward pass."""
        states = moved(torch.from_numpy(obs), self.networks.device)
        output = self.networks.pi(states)
        pi = output.pi.cpu()
        action = self.networks.distribution.sample(pi, torch.from_numpy(noise))
        value = output.value.cpu().numpy() if self.values else None
        return pi.numpy(), action.numpy(), value


class NumpyActor:
    """Dense networks on vectors."""

    def __init__(self, networks: Networks, *, values: bool = False) -> None:
        policy, preprocess = networks.policy, networks.preprocess
        self.clip, self.gain = preprocess.clip, np.float32(preprocess.gain)
        self.shift, self.scale = preprocess.shift.numpy(), preprocess.scale.numpy()
        layers = [m for m in policy.encoder.children() if isinstance(m, nn.Linear)]
        self.layers = [_memory(layer) for layer in layers]
        self.head = _memory(policy.policy_head)
        self.value_head = _memory(policy.value_head) if values else None
        self.rectify = isinstance(policy.activation, nn.ReLU)
        self.sizes = networks.action.sizes
        self.log_std = None if policy.log_std is None else policy.log_std.detach().numpy()

    def __call__(self, obs: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """The same forward pass and draw as torch's, up to float rounding."""
        x = obs.reshape(len(obs), -1)
        if self.clip is not None:
            x = (x - self.shift.reshape(-1)) * self.scale.reshape(-1)
            x = np.minimum(np.maximum(x, -self.clip), self.clip) * self.gain
        for weight, bias in self.layers:
            x = x @ weight + bias
            x = np.maximum(x, 0.0) if self.rectify else np.tanh(x)
        pi = x @ self.head[0] + self.head[1]
        value: Array | None = None
        if self.value_head is not None:
            value = (x @ self.value_head[0] + self.value_head[1])[:, 0]
        if self.log_std is not None:
            action = pi + np.exp(self.log_std) * noise
            spread = np.broadcast_to(self.log_std, pi.shape)
            return np.concatenate([pi, spread], axis=1), action, value
        return pi, self._choose(pi + noise), value

    def _choose(self, score: Array) -> Array:
        """Gumbel-max, one choice after the other."""
        if len(self.sizes) == 1:
            choice: Array = np.argmax(score, axis=1)
            return choice[:, None]
        ends = np.cumsum(self.sizes)[:-1]
        groups = np.split(score, ends, axis=1)
        return np.stack([np.argmax(group, axis=1) for group in groups], axis=1)


def _memory(layer: nn.Linear) -> tuple[Array, Array]:
    """A layer's weight, transposed, and bias: views that change as it learns."""
    return layer.weight.detach().numpy().T, layer.bias.detach().numpy()
