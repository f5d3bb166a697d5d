"""From a rollout to a batch with V_targ and Â: lines 8-10 of algorithm 1 (section 4.2)."""

import torch
from torch import Tensor

from dna.batch import Experience, Rollout, flat
from dna.config import Returns
from dna.networks import Networks
from dna.returns import advantage, explained_variance, td_lambda


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
