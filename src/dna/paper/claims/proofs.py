"""Claims that are mathematics: each function computes one and says what came out.

They are small demonstrations for the verdicts; the suite has the thorough tests.
"""

import math
import statistics
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.algorithm.noise_scale import Estimate, NoiseScale
from dna.algorithm.phases import squared_error
from dna.algorithm.returns import advantage, td_lambda
from dna.config.presets import preset
from dna.envs.benchmark_scores import (
    atari57_median,
    games,
    human_normalized,
    paper_table,
    subset,
)
from dna.networks.normalizers import RewardNormalizer

Proof = tuple[bool, str]


def n_step_variance_and_bias() -> Proof:
    """NSTEP^(γ,k) in a chain of noisy rewards under a wrong V: variance rises, bias falls."""
    rng, gamma, steps = np.random.default_rng(0), 0.9, (1, 2, 4, 8, 16)
    reward = 1.0 + rng.normal(size=(4000, 64))
    truth, guess = 1 / (1 - gamma), 0.5 / (1 - gamma)
    found = []
    for k in steps:
        weights = gamma ** np.arange(k)
        returns = reward[:, :k] @ weights + gamma**k * guess
        found.append((float(returns.var()), abs(float(returns.mean()) - truth)))
    rising = all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(found))
    first, last = found[0], found[-1]
    text = f"k = 1 to 16: variance {first[0]:.1f} → {last[0]:.1f}"
    return rising, f"{text}, bias {first[1]:.1f} → {last[1]:.1f}"


def gae_is_td_lambda() -> Proof:
    """Â = TD^(γ,λ) − V against the recursion of GAE, for random ends of episodes."""
    worst = 0.0
    for seed, gamma, lambda_ in (
        (0, 0.99, 0.95),
        (1, 0.999, 0.8),
        (2, 1.0, 0.0),
        (3, 0.9, 1.0),
    ):
        rng = np.random.default_rng(seed)
        reward, value, future = (torch.from_numpy(rng.normal(size=(50, 4))) for _ in range(3))
        ends = torch.from_numpy(rng.random((50, 4)) < 0.1)
        future[:-1] = torch.where(ends[:-1], future[:-1], value[1:])
        target = td_lambda(reward, future, ends, ends, gamma=gamma, lambda_=lambda_)
        expected = _gae((reward, value, future), ends, gamma, lambda_)
        worst = max(worst, float((advantage(target, value) - expected).abs().max()))
    return worst < 1e-10, f"largest difference {worst:.1e}"


def _gae(
    rollout: tuple[Tensor, Tensor, Tensor], ends: Tensor, gamma: float, lambda_: float
) -> Tensor:
    """The recursion of Schulman et al. 2016, as implementations of PPO have it."""
    reward, value, future = rollout
    last, found = torch.zeros_like(reward[0]), torch.empty_like(reward)
    for t in reversed(range(len(reward))):
        alive = (~ends[t]).double()
        delta = reward[t] + gamma * alive * future[t] - value[t]
        found[t] = last = delta + gamma * lambda_ * alive * last
    return found


def targets_from_advantages() -> Proof:
    """GAE + V, as PPO's implementations have it, is TD^(γ,λ_π): so λ_V = λ_π."""
    rng = np.random.default_rng(0)
    reward, value, future = (torch.from_numpy(rng.normal(size=(32, 4))) for _ in range(3))
    future[:-1], ends = value[1:], torch.zeros(32, 4, dtype=torch.bool)
    same, other = (
        td_lambda(reward, future, ends, ends, gamma=0.99, lambda_=x) for x in (0.8, 0.95)
    )
    built = _gae((reward, value, future), ends, 0.99, 0.8) + value
    zero = float((built - same).abs().max())
    apart = float((built - other).abs().max())
    return zero < 1e-12 < apart, f"difference {zero:.1e} to λ_π's target, {apart:.2f} to λ_V's"


def pooled_targets_give_their_mean() -> Proof:
    """The minimum of a pooled squared error is the mean of the targets."""
    targets = torch.from_numpy(np.random.default_rng(0).normal(size=(32, 10)))
    v = torch.zeros(10, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([v], lr=2.0)
    for _ in range(200):
        optimizer.zero_grad()
        loss = squared_error(v.expand(32, 10), targets, torch.ones(32, dtype=torch.float64))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    error = float((v.detach() - targets.mean(0)).abs().max())
    return error < 1e-6, f"distance from the mean of 32 targets {error:.1e}"


def subset_predicts_median() -> Proof:
    """Atari-5 against the median of 57 games, for the paper's own five columns of scores."""
    errors = []
    for name, columns in (("hard", ("dna", "ppo")), ("easy", ("dna", "ppo", "rainbow"))):
        rows = paper_table(f"atari57_{name}")
        for column in columns:
            scores = {row["game"]: float(row[column]) for row in rows if row[column]}
            if set(games("Atari-57")) <= set(scores):
                few = {game: scores[game] for game in games("Atari-5")}
                errors.append(abs(subset("Atari-5", few) / atari57_median(scores) - 1))
    mean = statistics.fmean(errors)
    return mean < 0.2, f"mean relative error {100 * mean:.1f} % over {len(errors)} columns"


def rainbows_median() -> Proof:
    """The printed median of Rainbow DQN against that of its 57 printed scores."""
    scores = {row["game"]: float(row["rainbow"]) for row in paper_table("atari57_easy")}
    found, printed = atari57_median(scores), 223.0
    below = max(n for g, x in scores.items() if (n := human_normalized(g, x)) < found)
    text = f"{found:.1f} of the table's scores against {printed:.0f}"
    return abs(found - printed) < 0.5, f"{text}; the next lower game has {below:.1f}"


def ppo_against_rainbow() -> Proof:
    """GPU hours of Rainbow DQN over those of tuned PPO, as table 5 prints them."""
    hours = {
        row["algorithm"]: float(row["gpu_hours_per_game"])
        for row in paper_table("training_times")
    }
    rainbow = next(spent for name, spent in hours.items() if "Rainbow" in name)
    ratio = rainbow / hours["PPO (our settings)"]
    return ratio == 80, f"{rainbow:g} / {hours['PPO (our settings)']:g} = {ratio:g}"


def clipping_is_rare() -> Proof:
    """Share of steps whose reward reaches the clip, in simulated games.

    Rewards come on one step of ten to one of a thousand, of one size or of sizes with a heavy
    tail (lognormal). Of one size, at chance p, Var[R] ≈ p / (1 − γ²): a reward is clipped only
    if p < (1 − γ²) / clip², which bounds the share for any p.
    """
    config = preset("tuned.dna")
    assert config.normalize_reward is not None
    gamma, clip = config.returns.gamma, config.normalize_reward.clip
    rng, shares, shape = np.random.default_rng(0), [], (4000, 64)
    for chance in (0.1, 0.01, 0.001):
        for tail in (0.0, 1.0):
            sizes = np.exp(tail * rng.normal(size=shape)) * (rng.random(shape) < chance)
            normalizer, seen = RewardNormalizer(64, gamma, clip), []
            for row in sizes.astype(np.float32):
                seen.append(normalizer(row, rng.random(64) < 0.001, np.ones(64, np.bool_)))
            shares.append(float((np.abs(seen[2000:]) >= clip).mean()))
    bound = (1 - gamma**2) / clip**2
    text = f"at most {max(shares):.0e} of simulated steps; rewards of one size: below"
    return max(shares) < 1e-3 and bound < 1e-3, f"{text} {bound:.0e}"


def _returns(spread: float) -> npt.NDArray[np.float64]:
    """Discounted returns of normalized rewards, 16 agents, once the statistics have settled."""
    rng, gamma, steps = np.random.default_rng(0), 0.99, 4000
    normalizer = RewardNormalizer(16, gamma, clip=5.0)
    running, seen = np.zeros(16), []
    for _ in range(steps):
        raw = (spread * (rng.random(16) < 0.1) * rng.normal(1, 1, 16)).astype(np.float32)
        done = rng.random(16) < 0.005
        reward = normalizer(raw, done, np.ones(16, np.bool_))
        running = reward + gamma * running
        seen.append(running.copy())
        running[done] = 0.0
    return np.array(seen[steps // 2 :])


def returns_have_unit_variance() -> Proof:
    """Rewards of any size, normalized: the variance of discounted returns is about one."""
    found = [float(_returns(spread).var()) for spread in (0.01, 1.0, 100.0)]
    good = all(0.8 < one < 1.25 for one in found)
    return good, "variance " + ", ".join(f"{one:.2f}" for one in found)


def repetitions_end() -> Proof:
    """ε-greedy with ε = 0.01 and 18 actions: chance of 1,000 equal actions in a row."""
    chance = (1 - 0.01 * 17 / 18) ** 1000
    return chance < 1e-3, f"{chance:.1e} for 1,000 repetitions at ε = 0.01"


def noise_estimators() -> Proof:
    """|𝒢|² and 𝒮 on samples with a known gradient and covariance."""
    found = _known(300, samples=16)
    words, good = [], True
    for name, truth in (("g2", 0.04), ("s", 4.0)):
        values = [getattr(one, name) for one in found]
        error = statistics.stdev(values) / math.sqrt(len(values))
        good &= abs(statistics.fmean(values) - truth) < 4 * error < truth / 4
        words.append(f"{statistics.fmean(values):.4f} ± {error:.4f} (true {truth:g})")
    return good, f"|𝒢|² {words[0]}, 𝒮 {words[1]}"


def smoothing_reduces(seed: int = 0) -> Proof:
    """B_simple, truly 100, of few small batches, of many, and smoothed: median and middle 80 %.

    |𝒢|² comes near zero, so the mean of such a ratio is whatever its largest value makes it.
    """
    few, many = _known(1500, 2, seed), _known(1500, 16, seed)
    scale = NoiseScale(0.9)
    rows = {
        "2 samples": [one.s / one.g2 for one in few],
        "16 samples": [one.s / one.g2 for one in many],
        "smoothed": [r.s / r.g2 for r in map(scale.update, many)][20:],
    }
    ends = {name: np.quantile(values, (0.1, 0.5, 0.9)) for name, values in rows.items()}
    bias = {name: abs(float(middle) - 100.0) for name, (_, middle, _) in ends.items()}
    width = {name: float(high - low) for name, (low, _, high) in ends.items()}
    good = all(width[b] < 0.8 * width[a] for a, b in pairwise(rows))
    good &= bias["smoothed"] < 0.5 * bias["2 samples"]
    return good, "; ".join(f"{k}: bias {bias[k]:.0f}, scatter {width[k]:.0f}" for k in rows)


def _known(repeats: int, samples: int, seed: int = 0) -> list[Estimate]:
    """Measurements of |G|² = 0.04 and tr Σ = 4."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(repeats):
        x = np.array([0.12, 0.16]) + rng.normal(size=(1024, 2)) * np.sqrt([1.0, 3.0])
        big = x.mean(0)
        small = [x[rng.choice(1024, 32, replace=False)].mean(0) for _ in range(samples)]
        squares = tuple(float(g @ g) for g in small)
        along = tuple(float(g @ big) for g in small)
        found.append(Estimate(32, 1024, float(big @ big), squares, along))
    return found
