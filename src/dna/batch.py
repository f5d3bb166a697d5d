"""The data between environment and loss: a rollout [N, A, …] and its flat batch [B, …].

A `Batch` is a dictionary of columns with one row per interaction. `collect` fills a
`Rollout`, `estimate` turns it into a batch, `freeze` adds columns, `minibatches` cuts it.

    obs        [B, …]   as the environment gave it: uint8, bool or float32
    action     [B, W]   int64 choices or float32 real numbers
    log_prob   [B, W]   log π(a|s) at the time of acting, per column of the action
    advantage  [B]      Â
    v_targ     [B]      V_targ
    weight     [B]      1, or 0 for a row that only carried a reset
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Rollout:  # axes [N, A, …]: horizon, agents
    """What N steps of A environments gave."""

    obs: Tensor  # [N + 1, A, …]; the last one only bootstraps
    action: Tensor  # [N, A, W]
    log_prob: Tensor  # [N, A, W]
    reward: Tensor  # [N, A] normalized
    terminated: Tensor  # [N, A] bool: no future
    done: Tensor  # [N, A] bool: the episode's boundary
    weight: Tensor  # [N, A] 1, or 0 where the row only carried a reset
    final_obs: Tensor  # [K, …] true last observations of the K truncated steps
    final_index: Tensor  # [K, 2] their (t, a)


def minibatches(batch: Batch, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """One epoch: every row once, in a fresh order, `size` rows at a time."""
    order = torch.from_numpy(rng.permutation(len(batch["weight"])))
    order = order.to(batch["weight"].device)
    for rows in torch.split(order, size):
        yield {name: column[rows] for name, column in batch.items()}


@torch.no_grad()
def in_chunks(function: Callable[[Tensor], Tensor], obs: Tensor, rows: int = 2048) -> Tensor:
    """`function` over all rows without gradient, a bounded number of rows at a time."""
    return torch.cat([function(chunk) for chunk in torch.split(obs, rows)])


def flat(x: Tensor) -> Tensor:
    """[N, A, …] → [N·A, …]."""
    return x.flatten(0, 1)
