"""Return estimates: TD(λ) and advantages (sections 2 and 4.2, appendix E).

Axes are [N, A] (horizon, agents). Ends of episodes are two masks: `terminated` (there is no
future, the value behind it is zero) and `done` (the episode's boundary, which the recursion
does not cross). A truncated step is done but not terminated: it bootstraps from its
`next_value`, the value of its true final observation. Rewards are never edited.
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


def estimate(
    rollout: Rollout, networks: Networks, returns: Returns
) -> tuple[Experience, dict[str, float]]:
    """V_targ, V_adv and Â of a rollout (lines 8-10 of algorithm 1), row by row."""
    horizon, agents = rollout.reward.shape
    value = _values(rollout, networks)
    next_value = value[1:].clone()
    if len(rollout.final_obs):
        t, a = rollout.final_index.unbind(1)
        next_value[t, a] = networks.v_of_all(rollout.final_obs)
    args = (rollout.reward, next_value, rollout.terminated, rollout.done)
    v_targ = td_lambda(*args, gamma=returns.gamma, lambda_=returns.lambda_v)
    v_adv = td_lambda(*args, gamma=returns.gamma, lambda_=returns.lambda_pi)
    columns = {
        "action": flat(rollout.action),
        "log_prob": flat(rollout.log_prob),
        "advantage": flat(advantage(v_adv, value[:-1])),
        "v_targ": flat(v_targ),
        "weight": flat(rollout.weight),
    }
    share = rollout.share
    seen = (flat(value[:-1]), columns["v_targ"], columns["weight"])
    explained = explained_variance(*(share.whole(column) for column in seen))
    obs, rows = rollout.obs, horizon * agents
    taken = obs[:rows] if isinstance(obs, Tensor) else obs.head(rows)
    return Experience(taken, columns, share), {"returns/explained_variance": explained}


def _values(rollout: Rollout, networks: Networks) -> Tensor:
    """V of all N+1 states, [N + 1, A]: in one pass, or as it was found while acting."""
    horizon, agents = rollout.reward.shape
    if rollout.value is None:
        return networks.v_of_all(rollout.obs).view(horizon + 1, agents)
    last = networks.v_of_all(rollout.obs[horizon * agents :])
    return torch.cat([rollout.value, last[None]])
