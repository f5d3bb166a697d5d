"""Return estimates: TD(λ) and advantages (sections 2 and 4.2, appendix E).

Axes are [N, A] (horizon, agents). Two masks mark the ends of episodes: `terminated` (there is
no future, so the value after it is zero) and `done` (the episode's boundary, which the
recursion does not cross). A truncated step is done but not terminated: it bootstraps from its
`next_value`, the value of its true final observation. Rewards are never modified.
"""

import torch
from torch import Tensor

from dna.config import Returns
from dna.networks.batch import Experience, Rollout, flat
from dna.networks.networks import Networks


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
    rollout ends there is no G_t+1, and V(s_t+1) gets all of the remaining weight.
    """
    future = torch.where(terminated, 0.0, next_value)
    carry = torch.where(done, 0.0, torch.full_like(future, lambda_))
    carry[-1] = 0.0
    estimate = reward + gamma * (1.0 - carry) * future
    # In numpy: its calls cost a third of torch's, and rollouts may be long.
    rows = estimate.numpy()
    decay = (gamma * carry).numpy()
    for t in range(len(rows) - 2, -1, -1):
        rows[t] += decay[t] * rows[t + 1]
    return estimate


def advantage(v_adv: Tensor, value: Tensor) -> Tensor:
    """Â_t = V_adv(s_t) − V(s_t), equation (8); equals GAE(γ, λ_π) (appendix E).

    Algorithm 1 prints TD^(γ,λ_π) − V_adv, which is identically zero; section 4.2 has it right.
    """
    return v_adv - value


def normalized(x: Tensor, weight: Tensor) -> Tensor:
    """(x − mean) / (σ + 10⁻⁸), with the mean and population σ of the rows of weight one."""
    total = weight.sum().clamp(min=1.0)
    mean = (weight * x).sum() / total
    variance = (weight * (x - mean).square()).sum() / total
    return (x - mean) / (variance.sqrt() + 1e-8)


def explained_variance(prediction: Tensor, target: Tensor, weight: Tensor) -> float:
    """1 − Var[target − prediction] / Var[target], or 0 for a constant target."""

    def variance(x: Tensor) -> float:
        mean = (weight * x).sum() / weight.sum()
        return float((weight * (x - mean).square()).sum() / weight.sum())

    total = variance(target)
    return 1.0 - variance(target - prediction) / total if total > 0 else 0.0


# ── from a rollout to experience ──────────────────────────────────────────────────────────


def estimate(
    rollout: Rollout, networks: Networks, returns: Returns
) -> tuple[Experience, dict[str, float]]:
    """Compute V_targ, V_adv and Â of a rollout (lines 8-10 of algorithm 1), as flat rows."""
    horizon, agents = rollout.reward.shape
    value = _values(rollout, networks)
    next_value = value[1:].clone()
    if len(rollout.final_obs):
        t, a = rollout.final_index.unbind(1)
        next_value[t, a] = networks.v_of_all(rollout.final_obs)

    def td(lambda_: float) -> Tensor:
        return td_lambda(
            rollout.reward,
            next_value,
            rollout.terminated,
            rollout.done,
            gamma=returns.gamma,
            lambda_=lambda_,
        )

    v_targ = td(returns.lambda_v)
    v_adv = td(returns.lambda_pi)
    columns = {
        "action": flat(rollout.action),
        "log_prob": flat(rollout.log_prob),
        "advantage": flat(advantage(v_adv, value[:-1])),
        "v_targ": flat(v_targ),
        "weight": flat(rollout.weight),
    }
    share = rollout.share
    explained = explained_variance(
        share.whole(flat(value[:-1])),
        share.whole(columns["v_targ"]),
        share.whole(columns["weight"]),
    )
    rows = horizon * agents  # without the last states, which only bootstrap
    obs = rollout.obs[:rows] if isinstance(rollout.obs, Tensor) else rollout.obs.head(rows)
    return Experience(obs, columns, share), {"returns/explained_variance": explained}


def _values(rollout: Rollout, networks: Networks) -> Tensor:
    """Compute V of all states, [N + 1, A], or take the values computed while acting."""
    horizon, agents = rollout.reward.shape
    if rollout.value is None:
        return networks.v_of_all(rollout.obs).view(horizon + 1, agents)
    last = networks.v_of_all(rollout.obs[horizon * agents :])
    return torch.cat([rollout.value, last[None]])
