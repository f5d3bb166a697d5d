"""Claims about mathematics and construction: each function checks one by computation.

They are short demonstrations for the verdicts; the test suite checks the same things
thoroughly.
"""

import contextlib
import csv
import math
import statistics
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.algorithm.compiled_step import make_steps
from dna.algorithm.noise_scale import Estimate, NoiseScale
from dna.algorithm.phases import freeze, loss, squared_error
from dna.algorithm.returns import advantage, td_lambda
from dna.algorithm.rollout import Collector
from dna.config import SGD, AnyPhase, Policy, WarmUp
from dna.config.overrides import tweak
from dna.config.presets import preset
from dna.config.presets.tables import TABLES
from dna.envs import Making, make
from dna.envs.benchmark_scores import (
    atari57_median,
    games,
    human_normalized,
    paper_table,
    subset,
)
from dna.envs.specs import ActionSpec, ObservationSpec, Stack
from dna.networks.batch import Experience
from dna.networks.networks import FlatWeights, Networks
from dna.networks.normalizers import RewardNormalizer
from dna.paper import published

#: Whether the claim holds, and the numbers found.
Proof = tuple[bool, str]
ATARI = ObservationSpec("image", (84, 84, 4), "uint8", Stack(108_000))
#: A small stand-in: these claims do not depend on the encoder.
VECTOR = ObservationSpec("vector", (5,), "float32")
ACTIONS = ActionSpec("categorical", (3,))
#: Every model of figures 6, 7 and 10, by its preset.
COMPARED = {
    "DNA": "tuned.dna",
    "PPG": "tuned.ppg",
    "PPO (2x)": "tuned.ppo",
    "PPO (1x)": "tuned.ppo_1x",
    "PPO (basic)": "tuned.ppo_basic",
    "PPO (orig)": "table1.ppo_orig",
}


# --- Mathematics --------------------------------------------------------------------------


def n_step_variance_and_bias() -> Proof:
    """NSTEP^(γ,k) in a chain of noisy rewards under a wrong V: variance rises, bias falls."""
    gamma = 0.9
    reward = 1.0 + np.random.default_rng(0).normal(size=(4000, 64))
    truth = 1 / (1 - gamma)
    guess = 0.5 / (1 - gamma)
    found = []
    for k in (1, 2, 4, 8, 16):
        weights = gamma ** np.arange(k)
        returns = reward[:, :k] @ weights + gamma**k * guess
        found.append((float(returns.var()), abs(float(returns.mean()) - truth)))
    rising = all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(found))
    first, last = found[0], found[-1]
    text = f"k = 1 to 16: variance {first[0]:.1f} → {last[0]:.1f}"
    return rising, f"{text}, bias {first[1]:.1f} → {last[1]:.1f}"


def gae_is_td_lambda() -> Proof:
    """Â = TD^(γ,λ) − V against the recursion of GAE, with random episode ends."""
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
    """The recursion of Schulman et al. 2016, as in common implementations of PPO."""
    reward, value, future = rollout
    last = torch.zeros_like(reward[0])
    found = torch.empty_like(reward)
    for t in reversed(range(len(reward))):
        alive = (~ends[t]).double()
        delta = reward[t] + gamma * alive * future[t] - value[t]
        found[t] = last = delta + gamma * lambda_ * alive * last
    return found


def targets_from_advantages() -> Proof:
    """GAE + V, as in common implementations of PPO, is TD^(γ,λ_π): so λ_V = λ_π."""
    rng = np.random.default_rng(0)
    reward, value, future = (torch.from_numpy(rng.normal(size=(32, 4))) for _ in range(3))
    future[:-1] = value[1:]
    ends = torch.zeros(32, 4, dtype=torch.bool)
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
    """Atari-5 against the median of 57 games, for the five columns of scores in the paper."""
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
    """The printed median of Rainbow DQN against the median of its 57 printed scores."""
    scores = {row["game"]: float(row["rainbow"]) for row in paper_table("atari57_easy")}
    found, printed = atari57_median(scores), 223.0
    below = max(n for g, x in scores.items() if (n := human_normalized(g, x)) < found)
    text = f"{found:.1f} of the table's scores against {printed:.0f}"
    return abs(found - printed) < 0.5, f"{text}; the next lower game has {below:.1f}"


def ppo_against_rainbow() -> Proof:
    """GPU hours of Rainbow DQN over those of tuned PPO, as printed in table 5."""
    hours = published.hours()
    rainbow = next(spent for name, spent in hours.items() if "Rainbow" in name)
    ppo = hours[published.TIMED["PPO (2x)"]]
    return rainbow / ppo == 80, f"{rainbow:g} / {ppo:g} = {rainbow / ppo:g}"


def clipping_is_rare() -> Proof:
    """Share of steps whose reward is clipped, in simulated games.

    Rewards come every ten to every thousand steps, of one size or with a heavy tail
    (lognormal). For rewards of one size with probability p, Var[R] ≈ p / (1 − γ²): a reward is
    clipped only if p < (1 − γ²) / clip², which bounds the share for any p.
    """
    config = preset("tuned.dna")
    assert config.normalize_reward is not None
    gamma = config.returns.gamma
    clip = config.normalize_reward.clip
    rng = np.random.default_rng(0)
    shape = (4000, 64)
    shares = []
    for chance in (0.1, 0.01, 0.001):
        for tail in (0.0, 1.0):
            sizes = np.exp(tail * rng.normal(size=shape)) * (rng.random(shape) < chance)
            normalizer = RewardNormalizer(64, gamma, clip)
            seen = []
            for row in sizes.astype(np.float32):
                seen.append(normalizer(row, rng.random(64) < 0.001, np.ones(64, np.bool_)))
            shares.append(float((np.abs(seen[2000:]) >= clip).mean()))
    bound = (1 - gamma**2) / clip**2
    text = f"at most {max(shares):.0e} of simulated steps; rewards of one size: below"
    return max(shares) < 1e-3 and bound < 1e-3, f"{text} {bound:.0e}"


def _returns(spread: float) -> npt.NDArray[np.float64]:
    """Discounted returns of normalized rewards of 16 agents, after the statistics settled."""
    rng = np.random.default_rng(0)
    gamma = 0.99
    steps = 4000
    normalizer = RewardNormalizer(16, gamma, clip=5.0)
    running = np.zeros(16)
    seen = []
    for _ in range(steps):
        raw = (spread * (rng.random(16) < 0.1) * rng.normal(1, 1, 16)).astype(np.float32)
        done = rng.random(16) < 0.005
        reward = normalizer(raw, done, np.ones(16, np.bool_))
        running = reward + gamma * running
        seen.append(running.copy())
        running[done] = 0.0
    return np.array(seen[steps // 2 :])


def returns_have_unit_variance() -> Proof:
    """Variance of the discounted returns of normalized rewards, for rewards of any size."""
    found = [float(_returns(spread).var()) for spread in (0.01, 1.0, 100.0)]
    good = all(0.8 < one < 1.25 for one in found)
    return good, "variance " + ", ".join(f"{one:.2f}" for one in found)


def repetitions_end() -> Proof:
    """Probability of 1,000 equal actions in a row: ε-greedy, ε = 0.01, 18 actions."""
    chance = (1 - 0.01 * 17 / 18) ** 1000
    return chance < 1e-3, f"{chance:.1e} for 1,000 repetitions at ε = 0.01"


def noise_estimators() -> Proof:
    """|𝒢|² and 𝒮 on samples with a known gradient and covariance."""
    found = _known(300, samples=16)
    words = []
    good = True
    for name, truth in (("g2", 0.04), ("s", 4.0)):
        values = [getattr(one, name) for one in found]
        error = statistics.stdev(values) / math.sqrt(len(values))
        good &= abs(statistics.fmean(values) - truth) < 4 * error < truth / 4
        words.append(f"{statistics.fmean(values):.4f} ± {error:.4f} (true {truth:g})")
    return good, f"|𝒢|² {words[0]}, 𝒮 {words[1]}"


def smoothing_reduces(seed: int = 0) -> Proof:
    """B_simple, truly 100, from few small batches, from many, and smoothed.

    Bias of the median and width of the central 80 %: |𝒢|² comes near zero, so the mean of the
    ratio would depend on its largest value alone.
    """
    few = _known(1500, 2, seed)
    many = _known(1500, 16, seed)
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
    """Estimates of |G|² = 0.04 and tr Σ = 4."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(repeats):
        x = np.array([0.12, 0.16]) + rng.normal(size=(1024, 2)) * np.sqrt([1.0, 3.0])
        big = x.mean(0)
        small = [x[rng.choice(1024, 32, replace=False)].mean(0) for _ in range(samples)]
        squares = tuple(float(g @ g) for g in small)
        along = tuple(float(g @ big) for g in small)
        found.append(Estimate(32, 1024, float(big @ big), squares, along))
    return found


# --- Construction -------------------------------------------------------------------------


def stored_states() -> Proof:
    """States that DNA and PPG hold at any time."""
    dna, ppg = preset("tuned.dna"), preset("tuned.ppg")
    held = dna.batch, ppg.batch * ppg.replay_length
    return held == (16_384, 524_288), f"{held[0]:,} against {held[1]:,}"


def networks_are_apart() -> Proof:
    """θ_π and θ_V share no weight, and no loss has a gradient on the other network."""
    networks, data = _small()
    policy = networks.weights("policy")
    value = networks.weights("value")
    shared = {id(p) for p in policy} & {id(p) for p in value}
    reached = 0
    for phase in preset("small.dna").phases:
        others = value if phase.trains == "policy" else policy
        reached += _reached(phase, networks, data, others)
    names = [name for name, _ in networks.named_parameters() if name.startswith("value.")]
    only = all("policy_head" not in name for name in names)
    return not shared and not reached and only, "no shared weight, no gradient across"


def student_can_be_teacher() -> Proof:
    """L^D is zero once the value network's weights are copied to the policy network."""
    networks, data = _small()
    assert networks.value is not None
    networks.policy.encoder.load_state_dict(networks.value.encoder.state_dict())
    networks.policy.value_head.load_state_dict(networks.value.value_head.state_dict())
    phase = preset("small.dna").phases[2]
    frozen = data.with_columns(freeze(phase, networks, data))
    _, metrics = loss(phase, networks, frozen.rows(torch.arange(len(data))), 0.0)
    distance = float(metrics["value_loss"].detach())
    return distance == 0.0, f"distance {distance:g}"


def distillation_moves_the_policy_only() -> Proof:
    """∂L^D/∂θ_V = 0."""
    networks, data = _small()
    reached = _reached(preset("small.dna").phases[2], networks, data, networks.weights("value"))
    return reached == 0, f"gradient on {reached} of the value network's tensors"


def phases_read_the_rollout() -> Proof:
    """All of DNA's phases read the current rollout, each with its own settings."""
    config = preset("tuned.dna")
    kinds = [phase.kind for phase in config.phases]
    good = all(phase.reads == "rollout" for phase in config.phases)
    good &= config.replay_length == 0 and kinds == ["policy", "value", "distil"]
    adams = _adams()
    settings = {phase.sgd for phase in config.phases}
    text = f"rollout only: {', '.join(kinds)}; {adams} optimizers, {len(settings)} settings"
    return good and adams == len(kinds) == len(settings), text


def _adams() -> int:
    """Number of separate optimizers that DNA's three phases use."""
    config = preset("small.dna")
    networks = Networks(config, VECTOR, ACTIONS)
    steps = make_steps(config, networks, FlatWeights(networks), compile="off")
    return len({id(step.optimizer) for step in steps.values()})


def epochs_per_network() -> Proof:
    """Passes over a rollout by the policy network and by the value network."""
    epochs = {phase.name: phase.sgd.epochs for phase in preset("tuned.dna").phases}
    policy = epochs["policy"] + epochs["distil"]
    value = epochs["value"]
    return (policy, value) == (4, 1), f"policy network {policy} passes, value network {value}"


def passes_per_observation() -> Proof:
    """Network passes per observation on Procgen, of DNA and of PPG."""
    dna = sum(phase.sgd.epochs for phase in preset("procgen.dna").phases)
    ppg = sum(
        phase.sgd.epochs * (2 if phase.trains == "both" else 1)
        for phase in preset("procgen.ppg").phases
    )
    return (dna, ppg) == (4, 14), f"{dna} passes per observation against {ppg}"


def parameter_counts() -> Proof:
    """Weights of every compared model with 18 actions, within a tenth of 3.5 M."""
    counts = {}
    for name, settings in COMPARED.items():
        with torch.device("meta"):
            networks = Networks(preset(settings), ATARI, ActionSpec("categorical", (18,)))
        counts[name] = sum(p.numel() for p in networks.parameters())
    others = [name for name, count in counts.items() if abs(count / 3.5e6 - 1) > 0.1]
    text = ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in counts.items())
    return not others, text + (f"; not: {', '.join(others)}" if others else "")


def frames_and_interactions() -> Proof:
    """Emulator frames per interaction, and presets of 200 million frames."""
    from dna.envs.atari.game import Game

    found = set()
    for name in ("tuned.dna", "tuned.ppo", "tuned.ppg", "easy.dna", "easy.ppo"):
        config = preset(name)
        assert config.env.atari is not None
        game = Game("pong", config.env.atari, 0, np.zeros((2, 210, 160), np.uint8))
        game.reset()
        before = game.ale.getFrameNumber()
        for _ in range(10):
            game.skip(0)
        each = (game.ale.getFrameNumber() - before) / 10
        found.add((config.interactions, each, each * config.interactions))
    text = "; ".join(f"{n:,} × {each:g} = {frames:,.0f} frames" for n, each, frames in found)
    return found == {(50_000_000, 4.0, 200_000_000.0)}, text


def warm_up_pulls_apart() -> Proof:
    """Largest share of episodes that end in the same step, 16 environments of one length."""
    shares = [_ends_together(warm_up) for warm_up in (None, WarmUp())]
    text = f"Pendulum-v1, episodes of 200 steps: {shares[0]:.0%} end in one step"
    return shares[0] > 0.9 and shares[1] < 0.5, f"{text}, {shares[1]:.0%} after warm-up"


def _ends_together(warm_up: WarmUp | None) -> float:
    agents = 16
    rng = np.random.default_rng(0)
    config = tweak(preset("small.dna"), **{"env.id": "Pendulum-v1", "agents": agents})
    config = config.model_copy(update={"warm_up": warm_up})
    with contextlib.closing(make(config.env, Making(agents, tuple(range(agents))))) as env:
        networks = Networks(config, env.observation, env.action)
        Collector(env, networks, config, 0).warm_up()
        ends = [env.step(env.uniform(rng)).done.sum() for _ in range(200)]
    return float(max(ends) / sum(ends))


def table_1_is_the_preset() -> Proof:
    """Table 1, cell by cell."""
    return _same("table1", "hyperparameters_atari.csv")


def table_3_is_the_preset() -> Proof:
    """Table 3, cell by cell."""
    return _same("table3", "environment_settings.csv")


def actions_cannot_be_seen() -> Proof:
    """Two different actions from one state of Breakout that give the same frame."""
    from dna.envs.atari.game import emulator

    ale = emulator("breakout")
    ale.reset_game()
    for _ in range(20):
        ale.act(0)
    state = ale.cloneState(include_rng=True)
    frames = []
    for action in (0, 2):  # nothing, up: a paddle moves sideways only
        ale.restoreState(state)
        ale.act(action)
        frames.append(ale.getScreenRGB())
    same = bool(np.array_equal(frames[0], frames[1]))
    return same, "no-op and up give the same frame of Breakout" if same else "frames differ"


def _same(name: str, file: str) -> Proof:
    """Compare a table of presets with the paper's, cell by cell."""
    text = resources.files("dna").joinpath("paper", "data", file).read_text(encoding="utf-8")
    cells = equal = 0
    ours = {row["setting"]: row for row in TABLES[name].cells()}
    for row in csv.DictReader(text.splitlines()):
        symbol = row.pop("symbol", "")
        setting = row.pop("setting") + (f" ({symbol})" if symbol else "")
        for column, cell in row.items():
            cells += 1
            equal += _number(ours[setting][column]) == _number(cell)
    return cells == equal, f"{equal} of {cells} cells are equal"


def _number(cell: str) -> tuple[str, object]:
    factor, _, rest = cell.rpartition("*")
    try:
        return factor, float(rest)
    except ValueError:
        return factor, rest


def _small() -> tuple[Networks, Experience]:
    torch.manual_seed(0)
    networks = Networks(preset("small.dna"), VECTOR, ACTIONS)
    rng = np.random.default_rng(0)
    rows = 32
    columns = {
        "action": torch.from_numpy(rng.integers(0, 3, (rows, 1))),
        "log_prob": torch.full((rows, 1), -1.1),
        "advantage": torch.from_numpy(rng.normal(size=rows)).float(),
        "v_targ": torch.from_numpy(rng.normal(size=rows)).float(),
        "weight": torch.ones(rows),
    }
    obs = torch.from_numpy(rng.normal(size=(rows, 5))).float()
    return networks, Experience(obs, columns)


def entropy_is_not_clipped() -> Proof:
    """Where every ratio is clipped, the gradient of L^CLIP is that of the entropy bonus."""
    networks, data = _small()
    assert isinstance(data.obs, Tensor)
    pi = networks.pi(data.obs).pi
    rows = torch.arange(len(data))
    log_prob = networks.distribution.log_prob(pi, data.columns["action"]).detach()
    # Every ratio is e, far beyond 1 + ε, and its advantage is positive.
    far = {"log_prob": log_prob - 1.0, "advantage": torch.ones(len(data))}
    clipped = data.with_columns(far).rows(rows)
    found = {}
    for bonus in (0.0, 0.01):
        phase = Policy(sgd=SGD(epochs=1, minibatch=len(data)), entropy_bonus=bonus)
        found[bonus] = _gradient(loss(phase, networks, clipped, 0.0)[0], networks)
    own = _gradient(-0.01 * networks.distribution.entropy(pi).mean(), networks)
    apart = float((found[0.01] - own).abs().max() / own.abs().max())
    text = f"|∇ L^CLIP| = {float(found[0.0].norm()):g} without bonus"
    text += f", with it that of the entropy to {apart:.0e}"
    return float(found[0.0].abs().max()) == 0 and apart < 1e-4, text


def _gradient(objective: Tensor, networks: Networks) -> Tensor:
    """Gradient on θ_π, as one vector."""
    found = torch.autograd.grad(objective, networks.weights("policy"), allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None])


def _reached(
    phase: AnyPhase, networks: Networks, data: Experience, weights: Sequence[Tensor]
) -> int:
    """Number of these tensors on which the phase's loss has a gradient."""
    frozen = data.with_columns(freeze(phase, networks, data))
    objective, _ = loss(phase, networks, frozen.rows(torch.arange(len(data))), 0.0)
    found = torch.autograd.grad(objective, weights, allow_unused=True)
    return sum(g is not None and bool(g.abs().max() > 0) for g in found)
