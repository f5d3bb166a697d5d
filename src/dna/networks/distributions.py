"""Action distributions as pure functions of their parameters.

A policy head outputs one row of parameters per state, [B, P]: logits for choices, mean and
log standard deviation for real numbers. π_old is therefore just a stored column. Actions are
[B, W]: one column per choice (int64) or per real number (float32).

Illegal choices are masked with a logit of −10⁸: their probability is exactly zero, so they
are never sampled, and log-probabilities, entropy and KL are those over the legal choices.
"""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dna.envs.specs import ActionSpec

#: Logit of an illegal choice: its probability underflows to zero and nothing becomes NaN.
ILLEGAL = -1e8


class Distribution(Protocol):
    """Interface of π that phases and rollouts use."""

    parameters: int  # P, the number of parameters per state

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Turn standard noise from `draw` into an action; sampling itself is deterministic."""

    def mode(self, params: Tensor) -> Tensor:
        """The most likely action."""

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Draw standard noise [*size, …] for `sample`."""

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) per column of the action, [B, W]; the joint is its sum."""

    def entropy(self, params: Tensor) -> Tensor:
        """S[π(s)] in nats, [B]."""

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(π_old(·|s), π(·|s)), [B]."""


class Categorical:
    """One or several independent choices, with the logits of all choices concatenated."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.parameters = sum(sizes)

    def _split(self, params: Tensor) -> tuple[Tensor, ...]:
        return torch.split(params, list(self.sizes), dim=-1)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Gumbel-max: argmax(logits + noise) is a draw from softmax(logits)."""
        return self.mode(params + noise)

    def mode(self, params: Tensor) -> Tensor:
        """The most likely choice of each group."""
        return torch.stack([logits.argmax(dim=-1) for logits in self._split(params)], dim=-1)

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Standard Gumbel noise."""
        return rng.gumbel(size=(*size, self.parameters)).astype(np.float32)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """log softmax(logits)[a] for each group."""
        groups = zip(self._split(params), action.unbind(dim=-1), strict=True)
        picked = [logits.log_softmax(-1).gather(-1, a[..., None]) for logits, a in groups]
        return torch.cat(picked, dim=-1)

    def entropy(self, params: Tensor) -> Tensor:
        """−Σ p log p, summed over groups."""
        return torch.stack([self._entropy(logits) for logits in self._split(params)]).sum(0)

    @staticmethod
    def _entropy(logits: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        return -(log_p.exp() * log_p).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Σ p_old (log p_old − log p_new), summed over groups."""
        pairs = zip(self._split(old), self._split(new), strict=True)
        return torch.stack([self._kl(a, b) for a, b in pairs]).sum(0)

    @staticmethod
    def _kl(old: Tensor, new: Tensor) -> Tensor:
        log_p, log_q = old.log_softmax(-1), new.log_softmax(-1)
        return (log_p.exp() * (log_p - log_q)).sum(-1)


class Gaussian:
    """Independent normal distributions with parameters [μ, log σ]."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.parameters = 2 * dimensions

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """μ + σ · noise, unclipped: the environment applies the bounds of its action space."""
        mean, log_std = params.chunk(2, dim=-1)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        """The mean."""
        return params.chunk(2, dim=-1)[0]

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Standard normal noise."""
        return rng.standard_normal(size=(*size, self.dimensions), dtype=np.float32)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """−½ ((a−μ)/σ)² − log σ − ½ log 2π, per dimension."""
        mean, log_std = params.chunk(2, dim=-1)
        z = (action - mean) * (-log_std).exp()
        return -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)

    def entropy(self, params: Tensor) -> Tensor:
        """Σ_d log σ_d + ½ log 2πe."""
        _, log_std = params.chunk(2, dim=-1)
        return (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Σ_d log(σ_new/σ_old) + (σ_old² + (μ_old−μ_new)²) / 2σ_new² − ½."""
        mean_p, log_p = old.chunk(2, dim=-1)
        mean_q, log_q = new.chunk(2, dim=-1)
        spread = (2 * (log_p - log_q)).exp() + ((mean_p - mean_q) * (-log_q).exp()).square()
        return (log_q - log_p + 0.5 * (spread - 1)).sum(-1)


class Hybrid:
    """Independent choices and real numbers; the choices come first in every row.

    Actions are float32: a choice is a small integer, which float32 represents exactly.
    """

    def __init__(self, sizes: tuple[int, ...], reals: int) -> None:
        self.choices = Categorical(sizes)
        self.reals = Gaussian(reals)
        self.parameters = self.choices.parameters + self.reals.parameters

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.choices.parameters
        return params[..., :logits], params[..., logits:]

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Sample the choices and the real numbers."""
        logits, normal = self._split(params)
        gumbel, standard = self._split(noise)
        choice = self.choices.sample(logits, gumbel).to(params.dtype)
        return torch.cat([choice, self.reals.sample(normal, standard)], dim=-1)

    def mode(self, params: Tensor) -> Tensor:
        """The most likely choices and the means."""
        logits, normal = self._split(params)
        choice = self.choices.mode(logits).to(params.dtype)
        return torch.cat([choice, self.reals.mode(normal)], dim=-1)

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Gumbel noise for the logits, then normal noise for the real numbers."""
        parts = [self.choices.draw(rng, size), self.reals.draw(rng, size)]
        return np.concatenate(parts, axis=-1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """log π(a|s) per column, choices first."""
        logits, normal = self._split(params)
        width = len(self.choices.sizes)
        chosen = self.choices.log_prob(logits, action[..., :width].long())
        return torch.cat([chosen, self.reals.log_prob(normal, action[..., width:])], dim=-1)

    def entropy(self, params: Tensor) -> Tensor:
        """The sum over choices and real numbers."""
        logits, normal = self._split(params)
        return self.choices.entropy(logits) + self.reals.entropy(normal)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """The sum over choices and real numbers."""
        p, p_real = self._split(old)
        q, q_real = self._split(new)
        return self.choices.kl(p, q) + self.reals.kl(p_real, q_real)


def distribution(spec: ActionSpec) -> Distribution:
    """Build the distribution of an action space."""
    if spec.kind == "hybrid":
        return Hybrid(spec.sizes, spec.reals)
    return Categorical(spec.sizes) if spec.kind == "categorical" else Gaussian(spec.numbers)


def mask_illegal(pi: Tensor, mask: Tensor | None) -> Tensor:
    """Mask the logits of illegal choices; parameters of real numbers are unchanged."""
    if mask is None:
        return pi
    rest = pi.shape[-1] - mask.shape[-1]
    if rest:
        mask = nn.functional.pad(mask, (0, rest), value=True)
    return torch.where(mask, pi, ILLEGAL)
