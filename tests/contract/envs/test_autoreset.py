"""One set of episodes, three autoreset modes, one result (Gymnasium's vector API).

Reset rows of NEXT_STEP must count nowhere: not in losses, statistics, scores or interactions.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from dna.algorithm.returns import estimate
from dna.common.errors import BadInput
from dna.common.timing import Clock
from dna.config import EnvConfig
from dna.envs import Making, make
from dna.envs.fake import Countdown, Scripted
from helpers import collector, shaped

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
EPISODES = [[(3, True), (5, False), (1, True)], [(4, False), (2, False)], [(7, True)]]


def play(mode, horizon=40, **changes):
    """(collector, batch) after one rollout of the scripted episodes."""
    config = shaped(horizon, 3, **changes)
    player = collector(config, Scripted(EPISODES, mode))
    rollout = player.collect(0, Clock())
    batch, _ = estimate(rollout, player.networks, config.returns)
    return player, batch


def rows_by_state(batch):
    """(agent, episode, step) → (v_targ, advantage) of the rows that count."""
    return {
        tuple(obs.tolist()): (float(v), float(a))
        for obs, v, a, w in zip(
            batch.obs, batch["v_targ"], batch["advantage"], batch["weight"], strict=True
        )
        if w
    }


@pytest.mark.parametrize("time_limit", ["bootstrap", "terminal"])
def test_the_same_episodes_have_the_same_returns_in_every_mode(time_limit):
    off = {"normalize_reward": None, "normalize_observation": None}
    played = {m: play(m, **off, **{"env.time_limit": time_limit}) for m in MODES}
    rows = {mode: rows_by_state(batch) for mode, (_, batch) in played.items()}
    shared = set.intersection(*(set(r) for r in rows.values()))
    # The last episode of each rollout is cut at another place in another mode.
    whole = {state for state in shared if state[1] < min(s[1] for s in _cut(played, state[0]))}
    assert len(whole) > 60
    for state in whole:
        for mode in MODES[1:]:
            assert rows[mode][state] == pytest.approx(rows[MODES[0]][state], abs=1e-6)


def _cut(played, agent):
    """The first unfinished episode of this agent in each mode."""
    for player, _ in played.values():
        yield (agent, float(player.obs[int(agent), 1]))


@pytest.mark.parametrize("mode", MODES)
def test_scores_are_counted_from_true_ends(mode):
    player, _ = play(mode)
    script = Scripted(EPISODES, mode)
    expected = []
    for agent, number in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)):
        length = EPISODES[agent][number][0]
        score = 0.0
        for t in range(1, length + 1):
            script.number[agent], script.t[agent] = number, t
            score += float(script.reward()[agent])
        expected.append((agent, length, score))
    finished = player.scores.take()
    seen = {}
    for episode in finished:
        seen.setdefault(episode.agent, []).append(episode)
    for agent, length, score in expected:
        episode = seen[agent].pop(0)
        assert (episode.length, episode.score) == (length, pytest.approx(score, abs=1e-5))


def test_reset_rows_are_no_interactions_and_have_no_weight():
    player, batch = play(AutoresetMode.NEXT_STEP)
    resets = int((batch["weight"] == 0).sum())
    assert resets > 10
    assert player.scores.interactions == 3 * 40 - resets
    ended = player.scores.episodes
    assert ended - 3 <= resets <= ended


def test_statistics_do_not_see_reset_rows():
    """The same 60 real steps of one agent, with and without reset rows between them."""
    moments = []
    for mode in MODES:
        config = shaped(1, 1)
        player = collector(config, Scripted(EPISODES[:1], mode))
        iteration = 0
        while player.scores.interactions < 60:
            player.collect(iteration, Clock())
            iteration += 1
        assert player.networks.normalizer is not None
        assert player.reward_normalizer is not None
        both = (player.networks.normalizer.moments, player.reward_normalizer.moments)
        moments.append([np.append(m.mean, [*np.atleast_1d(m.m2), m.count]) for m in both])
    for other in moments[1:]:
        np.testing.assert_allclose(other[0], moments[0][0], rtol=1e-12)
        np.testing.assert_allclose(other[1], moments[0][1], rtol=1e-12)


def test_a_reset_row_at_the_start_of_a_rollout_is_still_masked():
    config = shaped(4, 1)
    player = collector(config, Scripted([[(4, False)]], AutoresetMode.NEXT_STEP))
    weights = [player.collect(i, Clock()).weight[:, 0].tolist() for i in range(3)]
    assert weights == [[1, 1, 1, 1], [0, 1, 1, 1], [1, 0, 1, 1]]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_gymnasiums_own_vector_environment_agrees_with_ours(mode):
    """SyncVectorEnv in both of its modes against our vector of single environments."""
    config = shaped(30, 2, normalize_observation=None)

    def sync():
        return SyncVectorEnv([lambda: Countdown(4)] * 2, autoreset_mode=mode)

    theirs, ours = collector(config, sync()), collector(config, lambda: Countdown(4))
    finished = []
    for player in (theirs, ours):
        player.collect(0, Clock())
        finished.append([(e.agent, e.score, e.length) for e in player.scores.take()])
    assert finished[0] == finished[1][: len(finished[0])]
    assert len(finished[0]) >= 10


def test_a_truncated_step_bootstraps_from_its_true_last_observation():
    """V(s) = the step number: only the true final observation gives the right target."""
    off = {"normalize_reward": None, "normalize_observation": None}
    for mode in MODES:
        config = shaped(9, 1, **off)
        player = collector(config, Scripted([[(4, False)]], mode))
        player.networks.v = lambda obs: obs[:, 2]  # type: ignore[method-assign]
        rollout = player.collect(0, Clock())
        batch, _ = estimate(
            rollout,
            player.networks,
            config.returns.model_copy(update={"lambda_pi": 0.0, "lambda_v": 0.0}),
        )
        expected = float(rollout.reward[3, 0]) + config.returns.gamma * 4.0
        assert float(batch["v_targ"][3]) == pytest.approx(expected, abs=1e-6)


def test_gymnasiums_vectorized_cartpole_trains_with_its_single_seed():
    """A vector environment with one random generator takes an integer, not a list."""
    env = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point")
    player = collector(shaped(60, 4), env)
    player.collect(0, Clock())
    assert player.scores.episodes > 0
    env.close()


def test_a_vector_environment_must_say_its_mode():
    env = Scripted(EPISODES, AutoresetMode.NEXT_STEP)
    env.metadata = {}
    with pytest.raises(BadInput, match="autoreset_mode"):
        make(EnvConfig(), Making(3, (0, 1, 2)), env)


def test_the_value_of_every_state_is_exact_on_countdown():
    """With λ = 1 and whole episodes, V_targ(s_t) = γ^(k−1−t)."""
    off = {"normalize_reward": None, "normalize_observation": None}
    config = shaped(20, 4, **off, **{"returns.lambda_v": 1})
    player = collector(config, lambda: Countdown(5))
    batch, _ = estimate(player.collect(0, Clock()), player.networks, config.returns)
    t = batch.obs[:, 0]
    torch.testing.assert_close(batch["v_targ"], 0.9 ** (4 - t))
