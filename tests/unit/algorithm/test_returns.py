"""TD(λ) and advantages against their definitions, written term by term (sections 2, 4.2, E).

The recursion of `td_lambda` is compared with equations (1) and (2) as plain sums, with GAE as
a plain sum of TD errors, and with stable-baselines3's buffer, under random ends of episodes.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer
from torch import Tensor

from dna.algorithm.returns import advantage, explained_variance, normalized, td_lambda

SEEDS = st.integers(0, 2**32 - 1)
HORIZONS, AGENTS = st.integers(1, 8), st.integers(1, 3)
#: The ends of the interval matter most: λ = 0 is one step, λ = 1 is Monte Carlo.
FRACTIONS = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))


class Data(NamedTuple):  # axes [N, A]
    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    done: Tensor


def random_data(
    seed: int, horizon: int, agents: int, dtype: torch.dtype = torch.float64
) -> Data:
    """Rewards, values and ends; `next_value` is V(s_t+1), or V(final) where truncated."""
    rng = np.random.default_rng(seed)
    size = (horizon, agents)
    chance = rng.choice([0.0, 0.2, 0.5])
    terminated = rng.random(size) < chance
    truncated = (rng.random(size) < chance) & ~terminated
    values = rng.normal(size=(horizon + 1, agents))
    next_value = np.where(truncated, rng.normal(size=size), values[1:])
    columns = (rng.normal(size=size), values[:-1], next_value)
    reward, value, next_value = (torch.tensor(column, dtype=dtype) for column in columns)
    ends = torch.from_numpy(terminated), torch.from_numpy(terminated | truncated)
    return Data(reward, value, next_value, *ends)


def estimate(data: Data, gamma: float, lambda_: float) -> Tensor:
    return td_lambda(
        data.reward, data.next_value, data.terminated, data.done, gamma=gamma, lambda_=lambda_
    )


def steps_to_the_end(data: Data, t: int, a: int) -> int:
    """K: how many steps from t until the episode or the rollout ends."""
    for last in range(t, len(data.done)):
        if data.done[last][a]:
            return last - t + 1
    return len(data.done) - t


def n_step(data: Data, t: int, a: int, k: int, gamma: float) -> float:
    """Equation (1): Σ_{i<k} γ^i r_t+i + γ^k V(s_t+k); nothing follows a terminal state."""
    rewards = sum(gamma**i * data.reward[t + i][a] for i in range(k))
    last = t + k - 1
    value = 0.0 if data.terminated[last][a] else data.next_value[last][a]
    return rewards + gamma**k * value


def td_lambda_by_definition(data: Data, t: int, a: int, gamma: float, lambda_: float) -> float:
    """Equation (2) cut after K steps: the weight of all longer estimates falls on the K-th."""
    steps = steps_to_the_end(data, t, a)
    weights = [(1 - lambda_) * lambda_ ** (k - 1) for k in range(1, steps)]
    weights.append(lambda_ ** (steps - 1))
    assert sum(weights) == pytest.approx(1.0)
    estimates = [n_step(data, t, a, k, gamma) for k in range(1, steps + 1)]
    return sum(w * g for w, g in zip(weights, estimates, strict=True))


def gae_by_definition(data: Data, t: int, a: int, gamma: float, lambda_: float) -> float:
    """Σ_l (γλ)^l δ_t+l with δ = r + γ V(s_t+1) − V(s_t), up to the end of the episode."""
    total = 0.0
    for step in range(steps_to_the_end(data, t, a)):
        now = t + step
        follows = 0.0 if data.terminated[now][a] else data.next_value[now][a]
        delta = data.reward[now][a] + gamma * follows - data.value[now][a]
        total += (gamma * lambda_) ** step * delta
    return total


def table(data: Data, definition, gamma: float, lambda_: float) -> Tensor:
    horizon, agents = data.reward.shape
    plain = Data(*(column.tolist() for column in data))  # Python's floats: quick to index
    rows = [
        [definition(plain, t, a, gamma, lambda_) for a in range(agents)] for t in range(horizon)
    ]
    return torch.tensor(rows, dtype=torch.float64)


@settings(deadline=None, max_examples=2000)
@given(seed=SEEDS, horizon=HORIZONS, agents=AGENTS, gamma=FRACTIONS, lambda_=FRACTIONS)
def test_td_lambda_is_the_weighted_sum_of_n_step_estimates(
    seed, horizon, agents, gamma, lambda_
):
    data = random_data(seed, horizon, agents)
    expected = table(data, td_lambda_by_definition, gamma, lambda_)
    torch.testing.assert_close(estimate(data, gamma, lambda_), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("gamma", [0.0, 0.999, 1.0])
def test_td_lambda_holds_over_a_long_rollout_at_the_edges(gamma, lambda_):
    data = random_data(seed=5, horizon=40, agents=2)
    expected = table(data, td_lambda_by_definition, gamma, lambda_)
    torch.testing.assert_close(estimate(data, gamma, lambda_), expected, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=500)
@given(seed=SEEDS, horizon=HORIZONS, agents=AGENTS, gamma=FRACTIONS, lambda_=FRACTIONS)
def test_td_lambda_minus_the_value_is_gae(seed, horizon, agents, gamma, lambda_):
    data = random_data(seed, horizon, agents)
    ours = advantage(estimate(data, gamma, lambda_), data.value)
    expected = table(data, gae_by_definition, gamma, lambda_)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS, horizon=st.integers(1, 16), gamma=FRACTIONS, lambda_=FRACTIONS)
def test_estimates_agree_with_stable_baselines3(seed, horizon, gamma, lambda_):
    agents = 3
    data = random_data(seed, horizon, agents, torch.float32)
    buffer = RolloutBuffer(
        horizon, Box(-1, 1, (1,)), Box(-1, 1, (1,)),
        device="cpu", gamma=gamma, gae_lambda=lambda_, n_envs=agents,
    )  # fmt: skip
    # stable-baselines3 bootstraps a truncated step by editing its reward; we never do.
    truncated = data.done & ~data.terminated
    edited = data.reward + gamma * data.next_value * truncated
    starts = np.vstack([np.ones((1, agents)), data.done[:-1].numpy()])
    nothing = np.zeros((agents, 1))
    for t in range(horizon):
        log_prob = torch.zeros(agents)
        buffer.add(nothing, nothing, edited[t].numpy(), starts[t], data.value[t], log_prob)
    buffer.compute_returns_and_advantage(data.next_value[-1], data.done[-1].numpy())

    returns = estimate(data, gamma, lambda_)
    np.testing.assert_allclose(returns, buffer.returns, rtol=1e-4, atol=1e-5)
    ours = advantage(returns, data.value)
    np.testing.assert_allclose(ours, buffer.advantages, rtol=1e-4, atol=1e-5)


def test_the_value_behind_a_terminal_step_is_never_read():
    data = random_data(seed=1, horizon=6, agents=4)
    assert data.terminated.any()
    poisoned = data._replace(next_value=data.next_value.masked_fill(data.terminated, torch.nan))
    assert torch.equal(estimate(poisoned, 0.9, 0.9), estimate(data, 0.9, 0.9))


def test_nothing_flows_across_the_boundary_of_an_episode():
    data = random_data(seed=2, horizon=6, agents=1)
    done = torch.zeros_like(data.done)
    done[2] = True
    first = data._replace(done=done, terminated=torch.zeros_like(done))
    reward = first.reward.clone()
    reward[3:] += 100.0
    second = first._replace(reward=reward)
    before, after = estimate(first, 0.9, 0.9), estimate(second, 0.9, 0.9)
    assert torch.equal(before[:3], after[:3])
    assert (before[3:] != after[3:]).all()


def test_the_inputs_are_left_as_they_were():
    data = random_data(seed=3, horizon=7, agents=2)
    copy = Data(*(column.clone() for column in data))
    estimate(data, 0.99, 0.95)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(data, copy, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_precision_of_the_values_is_kept(dtype):
    data = random_data(seed=4, horizon=5, agents=2, dtype=dtype)
    assert estimate(data, 0.99, 0.95).dtype == dtype


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS, rows=st.integers(2, 40))
def test_normalized_has_the_moments_of_the_rows_that_count(seed, rows):
    rng = np.random.default_rng(seed)
    x, weight = rng.normal(3.0, 7.0, rows), (rng.random(rows) < 0.7).astype(float)
    weight[:2] = 1.0
    kept = x[weight == 1]
    expected = (x - kept.mean()) / (np.std(kept) + 1e-8)
    ours = normalized(torch.from_numpy(x), torch.from_numpy(weight)).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours[weight == 1].mean(), 0.0, atol=1e-9)


def test_normalizing_a_constant_gives_zeros():
    ones = torch.ones(4, dtype=torch.float64)
    assert torch.equal(normalized(2.5 * ones, ones), 0 * ones)


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS, rows=st.integers(2, 40))
def test_explained_variance_is_that_of_the_rows_that_count(seed, rows):
    rng = np.random.default_rng(seed)
    prediction, target = rng.normal(size=(2, rows))
    weight = (rng.random(rows) < 0.7).astype(float)
    weight[:2] = 1.0
    kept = weight == 1
    expected = 1 - np.var(target[kept] - prediction[kept]) / np.var(target[kept])
    columns = (torch.from_numpy(column) for column in (prediction, target, weight))
    assert explained_variance(*columns) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_explained_variance_is_one_for_truth_and_zero_for_a_constant():
    target, weight = torch.tensor([1.0, 2.0, 4.0]), torch.ones(3)
    assert explained_variance(target, target, weight) == 1.0
    nothing = explained_variance(torch.full((3,), 9.0), target, weight)
    assert nothing == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(target, torch.full((3,), 2.0), weight) == 0.0
