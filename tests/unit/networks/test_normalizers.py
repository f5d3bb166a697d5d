"""Running statistics and the normalizers of appendix A against numpy over all data at once."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import NormalizeReward
from hypothesis import given, settings
from hypothesis import strategies as st

from dna.networks.normalizers import ObservationNormalizer, RewardNormalizer, RunningMoments

SEEDS = st.integers(0, 2**32 - 1)


def moments_of(*batches: np.ndarray, shape: tuple[int, ...] = (3,)) -> RunningMoments:
    moments = RunningMoments(shape)
    for batch in batches:
        moments.update(batch)
    return moments


@settings(deadline=None, max_examples=200)
@given(
    seed=SEEDS, cuts=st.lists(st.integers(0, 60), max_size=6), offset=st.sampled_from([0, 1e6])
)
def test_moments_do_not_depend_on_how_the_data_was_split(seed, cuts, offset):
    data = offset + np.random.default_rng(seed).normal(2.0, 3.0, size=(60, 3))
    moments = moments_of(*np.split(data, sorted(cuts)))
    assert moments.count == 60
    np.testing.assert_allclose(moments.mean, data.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moments.variance, data.var(axis=0), rtol=1e-9)


@settings(deadline=None, max_examples=200)
@given(seed=SEEDS, owners=st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_merged_moments_are_those_of_all_the_data(seed, owners):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(rng.normal(0, 5), 2.0, size=(rng.integers(1, 9), 3)) for _ in owners]
    parts = [RunningMoments((3,)) for _ in range(4)]
    for owner, batch in zip(owners, batches, strict=True):
        parts[owner].update(batch)
    whole = RunningMoments((3,))
    for part in parts:
        whole.merge(part)
    data = np.concatenate(batches)
    assert whole.count == len(data)
    np.testing.assert_allclose(whole.mean, data.mean(axis=0), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(whole.variance, data.var(axis=0), rtol=1e-9, atol=1e-10)


def test_a_million_away_from_zero_the_variance_is_still_right():
    data = 1e6 + 0.01 * np.random.default_rng(0).normal(size=(20_000, 1))
    moments = moments_of(*np.split(data, 200), shape=(1,))
    np.testing.assert_allclose(moments.variance, data.var(axis=0), rtol=1e-6)


def test_moments_are_float64_whatever_comes_in():
    moments = moments_of(np.full((4, 3), 255, np.uint8), np.ones((2, 3), np.float32))
    assert moments.mean.dtype == moments.variance.dtype == np.float64
    np.testing.assert_allclose(moments.mean, (4 * 255 + 2) / 6)


def test_an_empty_batch_changes_nothing():
    data = np.random.default_rng(0).normal(size=(5, 3))
    moments = moments_of(data, np.empty((0, 3)))
    moments.merge(RunningMoments((3,)))
    assert moments.count == 5
    np.testing.assert_allclose(moments.mean, data.mean(axis=0), rtol=1e-12)


def test_before_any_data_scaling_does_nothing():
    moments = moments_of(np.empty((0, 3)))
    assert moments.count == 0
    np.testing.assert_array_equal(moments.variance, np.ones(3))
    np.testing.assert_array_equal(moments.mean, np.zeros(3))


def test_merging_leaves_the_other_as_it_was():
    first, second = moments_of(np.eye(3)), moments_of(np.ones((2, 3)))
    kept = {name: value.copy() for name, value in second.state().items()}
    first.merge(second)
    first.update(np.full((3, 3), 7.0))
    for name, value in second.state().items():
        np.testing.assert_array_equal(value, kept[name])


def test_loaded_moments_go_on_as_the_saved_ones():
    rng = np.random.default_rng(0)
    saved = moments_of(rng.normal(size=(7, 3)))
    loaded = RunningMoments((3,))
    loaded.load(saved.state())
    more = rng.normal(size=(4, 3))
    saved.update(more)
    assert loaded.count == 7, "the loaded moments share no memory with the saved ones"
    loaded.update(more)
    for name, value in saved.state().items():
        np.testing.assert_array_equal(loaded.state()[name], value)


# ── observations ──────────────────────────────────────────────────────────────────────────


def test_observation_constants_are_the_mean_and_the_deviation_of_all_states():
    data = np.random.default_rng(0).normal(4.0, 2.0, size=(50, 3)).astype(np.float32)
    normalizer = ObservationNormalizer((3,))
    for batch in np.split(data, 5):
        normalizer.update(batch)
    shift, scale = normalizer.shift_and_scale()
    np.testing.assert_allclose(shift, data.astype(float).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(1 / scale, data.astype(float).std(axis=0) + 1e-5, rtol=1e-6)


def test_pixels_are_counted_between_zero_and_one():
    data = np.random.default_rng(0).integers(0, 256, size=(50, 2, 2, 1)).astype(np.uint8)
    normalizer = ObservationNormalizer((2, 2, 1), divisor=255.0)
    normalizer.update(data)
    shift, scale = normalizer.shift_and_scale()
    np.testing.assert_allclose(shift, (data / 255).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(1 / scale, (data / 255).std(axis=0) + 1e-5, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (128, 128), (3, 70_000)])
def test_whole_numbers_have_the_moments_of_real_ones(sizes):
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 256, size=(n, 2), dtype=np.uint8) for n in sizes]
    batches[0][:, 1] = 255
    ours = moments_of(*batches, shape=(2,))
    data = np.concatenate(batches).astype(np.float64)
    np.testing.assert_allclose(ours.mean, data.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(ours.variance, data.var(axis=0), rtol=1e-11, atol=1e-12)


def test_a_constant_element_stays_finite():
    normalizer = ObservationNormalizer((2,))
    normalizer.update(np.full((10, 2), 0.1, np.float32))
    shift, scale = normalizer.shift_and_scale()
    assert np.isfinite(scale).all()
    np.testing.assert_allclose((np.float32(0.1) - shift) * scale, 0.0, atol=1e-3)


# ── rewards ───────────────────────────────────────────────────────────────────────────────


def normalized_slowly(reward, done, valid, gamma, clip, episode_end):
    """One agent after the other, one plain number at a time; Var over a list of everything."""
    seen: list[float] = []
    running = [0.0] * reward.shape[1]
    scaled = np.zeros(reward.shape)
    for t in range(len(reward)):
        for a in range(reward.shape[1]):
            if not valid[t, a]:
                continue
            before = 0.0 if episode_end == "carry_last" and done[t, a] else running[a]
            running[a] = float(reward[t, a]) + gamma * before
            seen.append(running[a])
            if episode_end == "reset" and done[t, a]:
                running[a] = 0.0
        deviation = np.sqrt((np.var(seen) if seen else 1.0) + 1e-8)
        scaled[t] = np.clip(reward[t] / deviation, -clip, clip)
    return scaled, running


@pytest.mark.parametrize("episode_end", ["reset", "carry_last"])
@settings(deadline=None, max_examples=60)
@given(seed=SEEDS, agents=st.integers(1, 4), gamma=st.sampled_from([0.0, 0.9, 0.999, 1.0]))
def test_rewards_are_scaled_as_by_a_slow_loop_over_agents(episode_end, seed, agents, gamma):
    rng = np.random.default_rng(seed)
    size = (15, agents)
    reward = rng.normal(0.5, 2.0, size).astype(np.float32)
    done, valid = rng.random(size) < 0.2, rng.random(size) < 0.8
    normalizer = RewardNormalizer(agents, gamma, clip=5.0, episode_end=episode_end)
    ours = [normalizer(reward[t], done[t], valid[t]) for t in range(len(reward))]
    expected, running = normalized_slowly(reward, done, valid, gamma, 5.0, episode_end)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(normalizer.running, running, rtol=1e-9, atol=1e-9)
    assert normalizer.moments.count == valid.sum()


def test_the_variants_differ_only_at_the_end_of_an_episode():
    no, yes = np.array([False]), np.array([True])
    reset = RewardNormalizer(1, 0.5, clip=5.0, episode_end="reset")
    carry = RewardNormalizer(1, 0.5, clip=5.0, episode_end="carry_last")
    for normalizer, after_end, afterwards in ((reset, 0.0, 8.0), (carry, 4.0, 10.0)):
        normalizer(np.array([2.0], np.float32), no, yes)
        assert normalizer.running == 2.0
        normalizer(np.array([4.0], np.float32), yes, yes)
        assert normalizer.running == after_end
        normalizer(np.array([8.0], np.float32), no, yes)
        assert normalizer.running == afterwards


@pytest.mark.parametrize("episode_end", ["reset", "carry_last"])
def test_a_masked_row_neither_counts_nor_moves_its_return(episode_end):
    normalizer = RewardNormalizer(2, 0.9, clip=5.0, episode_end=episode_end)
    everyone = np.array([True, True])
    normalizer(np.array([1.0, 3.0], np.float32), ~everyone, everyone)
    only_first = np.array([True, False])
    normalizer(np.array([1.0, 1000.0], np.float32), np.array([False, True]), only_first)
    np.testing.assert_allclose(normalizer.running, [1.9, 3.0])
    np.testing.assert_allclose(normalizer.moments.mean, np.mean([1.0, 3.0, 1.9]))
    assert normalizer.moments.count == 3


@pytest.mark.parametrize("episode_end", ["reset", "carry_last"])
def test_returns_of_normalized_rewards_have_unit_variance(episode_end):
    rng = np.random.default_rng(0)
    steps, agents, gamma = 3000, 16, 0.9
    reward = rng.normal(0.3, 20.0, size=(steps, agents)).astype(np.float32)
    done, valid = rng.random((steps, agents)) < 0.01, np.ones(agents, bool)
    normalizer = RewardNormalizer(agents, gamma, clip=5.0, episode_end=episode_end)
    scaled = [normalizer(reward[t], done[t], valid) for t in range(steps)]
    discounted, returns = np.zeros(agents), []
    for t in range(1000, steps):
        discounted = scaled[t] + gamma * discounted
        returns.append(discounted)
        discounted = np.where(done[t], 0.0, discounted)
    assert np.var(returns[50:]) == pytest.approx(1.0, rel=0.05)


def test_normalized_rewards_are_clipped_on_both_sides():
    normalizer = RewardNormalizer(3, 0.0, clip=5.0)
    calm, valid = np.array([1.0, -1.0, 0.0], np.float32), np.ones(3, bool)
    for _ in range(1000):
        normalizer(calm, ~valid, valid)
    scaled = normalizer(np.array([50.0, -50.0, 1.0], np.float32), ~valid, valid)
    assert scaled.dtype == np.float32
    np.testing.assert_array_equal(scaled[:2], [5.0, -5.0])
    assert 0 < scaled[2] < 5


class Tape(VectorEnv):
    """Plays recorded rewards and ends, so that Gymnasium's wrapper sees exactly our data."""

    def __init__(self, reward, terminated, truncated, mode: AutoresetMode) -> None:
        self.num_envs = reward.shape[1]
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = self.observation_space = gym.spaces.Box(-1, 1, (1,))
        self.single_action_space = self.action_space = gym.spaces.Discrete(2)
        self.tape = iter(zip(reward, terminated, truncated, strict=True))

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions):
        reward, terminated, truncated = next(self.tape)
        obs = np.zeros((self.num_envs, 1), np.float32)
        return obs, reward.astype(np.float64), terminated, truncated, {}


def scaled_by_gymnasium(reward, terminated, truncated, gamma, mode) -> np.ndarray:
    wrapper = NormalizeReward(Tape(reward, terminated, truncated, mode), gamma=gamma)
    wrapper.return_rms.count = 0.0  # it starts from 10⁻⁴ imaginary samples, we from none
    wrapper.reset()
    return np.array([wrapper.step(None)[1] for _ in reward])


def test_resetting_returns_agrees_with_gymnasium_when_episodes_are_truncated():
    rng = np.random.default_rng(0)
    reward = rng.normal(1.0, 3.0, size=(200, 4)).astype(np.float32)
    done, nothing = rng.random(reward.shape) < 0.1, np.zeros(reward.shape, bool)
    theirs = scaled_by_gymnasium(reward, nothing, done, 0.95, AutoresetMode.SAME_STEP)
    normalizer = RewardNormalizer(4, 0.95, clip=1e9, episode_end="reset")
    ours = [normalizer(reward[t], done[t], ~nothing[t]) for t in range(200)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_carrying_the_last_reward_agrees_with_gymnasium_when_episodes_terminate():
    rng = np.random.default_rng(1)
    reward = rng.normal(1.0, 3.0, size=(200, 4)).astype(np.float32)
    done, nothing = rng.random(reward.shape) < 0.1, np.zeros(reward.shape, bool)
    for t in range(1, 200):  # the row behind an end only carries the reset
        done[t] &= ~done[t - 1]
    resetting = np.vstack([np.zeros((1, 4), bool), done[:-1]])
    theirs = scaled_by_gymnasium(reward, done, nothing, 0.95, AutoresetMode.NEXT_STEP)
    normalizer = RewardNormalizer(4, 0.95, clip=1e9, episode_end="carry_last")
    ours = [normalizer(reward[t], done[t], ~resetting[t]) for t in range(200)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
