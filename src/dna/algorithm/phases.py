"""Objectives of the phases: what each freezes and what it minimizes (sections 4.3 and 4.4).

`freeze` computes the columns that stay fixed while the phase runs (targets, π_old), once,
before its first epoch. `loss` is the phase's objective on one mini-batch. Neither changes the
networks; which weights are trained is the phase's `trains`. Losses are means over the rows of
weight one. A custom phase is a settings model and these two functions.
"""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from dna.algorithm.returns import normalized
from dna.config import Auxiliary, Distil, Joint, Linear, Policy, Value, resolve
from dna.networks.batch import Batch, Experience
from dna.networks.networks import Networks

Metrics = dict[str, Tensor]


@singledispatch
def freeze(phase: Any, networks: Networks, data: Experience) -> Batch:
    """Compute the columns to add to the data before the phase's first epoch."""
    return {}


@singledispatch
def loss(phase: Any, networks: Networks, mb: Batch, progress: float) -> tuple[Tensor, Metrics]:
    """Compute (loss of this mini-batch, metrics to log); `progress` drives schedules."""
    raise TypeError(f"no loss is registered for the phase {type(phase).__name__}")


@singledispatch
def is_mean_over_rows(phase: Any) -> bool:
    """Return whether the loss of a batch is the weighted mean of the losses of its pieces.

    Only then may a large mini-batch be processed in pieces. Custom phases default to False.
    """
    return False


def can_be_cut(phase: Any) -> bool:
    """Return whether threads may compute the loss of a mini-batch in pieces.

    A phase derived from a built-in one may have a loss of its own, which then counts.
    """
    known = next(kind for kind in type(phase).__mro__ if kind in is_mean_over_rows.registry)
    same = loss.dispatch(type(phase)) is loss.dispatch(known)
    return same and is_mean_over_rows(phase)


def is_recordable(phase: Any) -> bool:
    """Return whether each call of the phase's loss makes the same calls of the same operators.

    Custom phases may decide as they like; schedules change a number from call to call.
    """
    if type(phase) not in (Policy, Joint, Value, Distil, Auxiliary):
        return False
    return not any(isinstance(value, Linear) for _, value in phase)


# ── L^CLIP ────────────────────────────────────────────────────────────────────────────────


def clipped_surrogate(ratio: Tensor, advantage: Tensor, epsilon: float) -> Tensor:
    """min(ρ Â, clip(ρ, 1−ε, 1+ε) Â)"""
    return torch.min(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage)


@freeze.register(Policy)
@freeze.register(Joint)
def _(phase: Policy | Joint, networks: Networks, data: Experience) -> Batch:
    if phase.normalize_advantage == "batch":
        return {"advantage": data.over_all(normalized, "advantage", "weight")}
    return {}


@is_mean_over_rows.register(Policy)
@is_mean_over_rows.register(Joint)
def _(phase: Policy | Joint) -> bool:
    return phase.normalize_advantage != "minibatch"


@loss.register
def _(phase: Policy, networks: Networks, mb: Batch, progress: float) -> tuple[Tensor, Metrics]:
    """−L^CLIP, equation (11)."""
    return policy_loss(phase, networks, networks.pi(mb["obs"]).pi, mb, progress)


def policy_loss(
    phase: Policy | Joint, networks: Networks, pi: Tensor, mb: Batch, progress: float
) -> tuple[Tensor, Metrics]:
    """−Ê[min(ρ Â, clip(ρ, 1−ε, 1+ε) Â) + c_eb · S[π]]"""
    epsilon = scheduled(phase.epsilon, progress)
    c_eb = scheduled(phase.entropy_bonus, progress)
    weight = mb["weight"]
    advantage = mb["advantage"]
    if phase.normalize_advantage == "minibatch":
        advantage = normalized(advantage, weight)
    log_ratio = networks.distribution.log_prob(pi, mb["action"]) - mb["log_prob"]
    if phase.surrogate == "joint":
        log_ratio = log_ratio.sum(-1, keepdim=True)
    ratio = log_ratio.exp()
    surrogate = clipped_surrogate(ratio, advantage[:, None], epsilon).mean(-1)
    entropy = mean(networks.distribution.entropy(pi), weight)
    objective = mean(surrogate, weight) + c_eb * entropy
    with torch.no_grad():
        outside = ((ratio - 1).abs() > epsilon).float().mean(-1)
        approx_kl = (ratio - 1 - log_ratio).mean(-1)  # Schulman's low-variance estimate
    metrics = {
        "loss": -objective,
        "entropy": entropy,
        "approx_kl": mean(approx_kl, weight),
        "clip_fraction": mean(outside, weight),
    }
    return -objective, metrics


@loss.register
def _(phase: Joint, networks: Networks, mb: Batch, progress: float) -> tuple[Tensor, Metrics]:
    """−L^CLIP + value_weight · Ê[(V_π − V_targ)²]: PPO on one network."""
    output = networks.pi(mb["obs"])
    policy, metrics = policy_loss(phase, networks, output.pi, mb, progress)
    value = squared_error(output.value, mb["v_targ"], mb["weight"])
    total = policy + phase.value_weight * value
    return total, metrics | {"loss": total, "policy_loss": policy, "value_loss": value}


@is_mean_over_rows.register(Value)
@is_mean_over_rows.register(Distil)
@is_mean_over_rows.register(Auxiliary)
def _(phase: Value | Distil | Auxiliary) -> bool:
    return True


# ── L^VF ──────────────────────────────────────────────────────────────────────────────────


@loss.register
def _(phase: Value, networks: Networks, mb: Batch, progress: float) -> tuple[Tensor, Metrics]:
    """weight · L^VF = weight · Ê[(V_V − V_targ)²], equation (12)."""
    total = phase.weight * squared_error(networks.v(mb["obs"]), mb["v_targ"], mb["weight"])
    return total, {"loss": total}


# ── L^D ───────────────────────────────────────────────────────────────────────────────────


@freeze.register
def _(phase: Distil, networks: Networks, data: Experience) -> Batch:
    """Compute the teacher's targets and π_old with the networks at the start of the phase."""
    return {
        "teacher": networks.in_chunks(lambda obs: _teacher(phase, networks, obs), data.obs),
        "pi_old": networks.in_chunks(lambda obs: networks.pi(obs).pi, data.obs),
    }


@loss.register
def _(phase: Distil, networks: Networks, mb: Batch, progress: float) -> tuple[Tensor, Metrics]:
    """L^D = weight · Ê[(V_π − V_V)²] + β · Ê[KL(π_old, π)], equation (10)."""
    output = networks.pi(mb["obs"])
    if phase.target == "value":
        student = output.value
    elif phase.target == "features":
        student = output.features
    else:
        student = _projected(networks.policy, output.features)
    distance = squared_error(student, mb["teacher"], mb["weight"])
    constraint = mean(_constraint(phase, networks, mb["pi_old"], output.pi), mb["weight"])
    total = phase.weight * distance + phase.beta * constraint
    return total, {"loss": total, "value_loss": distance, phase.constraint: constraint}


def _teacher(phase: Distil, networks: Networks, obs: Tensor) -> Tensor:
    assert networks.value is not None, "distillation needs a value network"
    x = networks.preprocess(obs)
    if phase.target == "value":
        value: Tensor = networks.value(x)
        return value
    features = networks.value.features(x)
    return features if phase.target == "features" else _projected(networks.value, features)


def _projected(network: Any, features: Tensor) -> Tensor:
    projected: Tensor = network.projection(network.activation(features))
    return projected


def _constraint(phase: Distil, networks: Networks, old: Tensor, new: Tensor) -> Tensor:
    """Distance of π from π_old, [B]. `kl` is the paper's; the others are variants."""
    if phase.constraint == "kl":
        return networks.distribution.kl(old, new)
    if phase.constraint == "logit_mse":  # the authors' code, discrete actions
        return 0.5 * (new - old).square().mean(-1)
    mean_old, _ = old.chunk(2, dim=-1)
    mean_new, log_std = new.chunk(2, dim=-1)
    distance = (mean_new - mean_old).square()
    if phase.constraint == "mean_mse":  # appendix K
        return distance.mean(-1)
    variance = (2 * log_std.detach()).exp()  # the authors' code, real-valued actions
    return 0.5 * (distance / (2 * variance + 1e-5)).mean(-1)


# ── L^aux (PPG) ───────────────────────────────────────────────────────────────────────────


@freeze.register
def _(phase: Auxiliary, networks: Networks, data: Experience) -> Batch:
    """Compute π_old for the whole replay."""
    return {"pi_old": networks.in_chunks(lambda obs: networks.pi(obs).pi, data.obs)}


@loss.register
def _(
    phase: Auxiliary, networks: Networks, mb: Batch, progress: float
) -> tuple[Tensor, Metrics]:
    """½ Ê[(V_π − V_targ)²] + ½ Ê[(V_V − V_targ)²] + β Ê[KL(π_old, π)] (Cobbe et al. 2021)."""
    output = networks.pi(mb["obs"])
    student = squared_error(output.value, mb["v_targ"], mb["weight"])
    value = squared_error(networks.v(mb["obs"]), mb["v_targ"], mb["weight"])
    if phase.variant == "cobbe":
        kl = mean(networks.distribution.kl(mb["pi_old"], output.pi), mb["weight"])
        total = 0.5 * student + 0.5 * value + phase.beta * kl
    else:  # the DNA authors' PPG: no ½, and the KL divergence reversed
        kl = mean(networks.distribution.kl(output.pi, mb["pi_old"]), mb["weight"])
        total = student + value + phase.beta * kl
    return total, {"loss": total, "aux_value_loss": student, "value_loss": value, "kl": kl}


# ── schedules and means ───────────────────────────────────────────────────────────────────


def scheduled(schedule: float | Linear, progress: float | Tensor) -> Any:
    """Like `resolve`, but also for a progress that is a tensor, as in compiled steps."""
    if isinstance(schedule, Linear) and isinstance(progress, Tensor):
        return schedule.start + (schedule.end - schedule.start) * progress.clamp(0.0, 1.0)
    return resolve(schedule, progress)  # type: ignore[arg-type]


def mean(x: Tensor, weight: Tensor) -> Tensor:
    """Ê_t over the rows of weight one; zero if there are none."""
    return (x * weight).sum() / weight.sum().clamp(min=1.0)


def squared_error(prediction: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Ê[(prediction − target)²], averaged over the columns of a vector target."""
    # [B] minus [B, 1] would broadcast to [B, B] and pull predictions to the batch's mean.
    assert prediction.shape == target.shape, (prediction.shape, target.shape)
    error = (prediction - target).square()
    return mean(error.flatten(1).mean(-1) if error.dim() > 1 else error, weight)
