"""Return estimates: TD(λ) and advantages (sections 2 and 4.2, appendix E).

Axes are [N, A] (horizon, agents). Ends of episodes are two masks: `terminated` (there is no
future, the value behind it is zero) and `done` (the episode's boundary, which the recursion
does not cross). A truncated step is done but not terminated: it bootstraps from its
`next_value`, the value of its true final observation. Rewards are never edited.
"""

import torch
from torch import Tensor


def td_lambda(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    *,
    gamma: float,
    lambda_: float,
) -> Tensor:
    """TD^(γ,λ)(s_t) = (1−λ) Σ_k λ^(k−1) NSTEP^(γ,k)(s_t), equation (2).

    Computed backwards as G_t = r_t + γ [(1−λ) V(s_t+1) + λ G_t+1]. Where the episode or the
    rollout ends there is no G_t+1, and all of the remaining weight falls on V(s_t+1).
    """
    future = torch.where(terminated, 0.0, next_value)
    carry = torch.where(done, 0.0, torch.full_like(future, lambda_))
    carry[-1] = 0.0
    estimate = reward + gamma * (1.0 - carry) * future
    # Step by step in numpy: its calls cost a third of torch's, and rollouts may be long.
    rows, share = estimate.numpy(), (gamma * carry).numpy()
    for t in range(len(rows) - 2, -1, -1):
        rows[t] += share[t] * rows[t + 1]
    return estimate


def advantage(v_adv: Tensor, value: Tensor) -> Tensor:
    """Â_t = V_adv(s_t) − V(s_t), equation (8); equals GAE(γ, λ_π) (appendix E).

    Algorithm 1 prints TD^(γ,λ_π) − V_adv, which is identically zero; section 4.2 is meant.
    """
    return v_adv - value


def normalized(x: Tensor, weight: Tensor) -> Tensor:
    """Zero mean and unit variance over the rows whose weight is one (population, +1e-8)."""
    total = weight.sum().clamp(min=1.0)
    mean = (weight * x).sum() / total
    variance = (weight * (x - mean).square()).sum() / total
    return (x - mean) / (variance.sqrt() + 1e-8)


def explained_variance(prediction: Tensor, target: Tensor, weight: Tensor) -> float:
    """1 − Var[target − prediction] / Var[target]; NaN-free: 0 when the target is constant."""

    def variance(x: Tensor) -> float:
        mean = (weight * x).sum() / weight.sum()
        return float((weight * (x - mean).square()).sum() / weight.sum())

    spread = variance(target)
    return 1.0 - variance(target - prediction) / spread if spread > 0 else 0.0
