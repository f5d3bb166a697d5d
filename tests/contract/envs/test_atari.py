"""Atari as table 3 and appendix A have it: marks, ends, seeds, snapshots, dead workers."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import atari
import dna.envs.atari.workers
from dna.algorithm.rollout import Collector
from dna.common.errors import BadInput, EnvironmentFailure
from dna.common.timing import Clock
from dna.config import EnvConfig
from dna.config.environments import Atari
from dna.envs import Making, make
from dna.envs.atari.time_bar import draw_time
from dna.networks.networks import Networks
from helpers import tiny
from snapshots import SHORT, continued

# ── against an implementation that is not ours ────────────────────────────────────────────


@pytest.mark.parametrize("game", atari.PARITY_GAMES)
@pytest.mark.parametrize("life_loss", [False, True], ids=["hard", "easy"])
def test_frames_rewards_and_ends_are_gymnasiums(game, life_loss):
    assert atari.disagreements(game, 150, life_loss=life_loss) == []


@pytest.mark.worlds
@pytest.mark.parametrize("game", atari.PARITY_GAMES)
@pytest.mark.parametrize("life_loss", [False, True], ids=["hard", "easy"])
def test_frames_rewards_and_ends_are_gymnasiums_for_2000_steps(game, life_loss):
    assert atari.disagreements(game, 2000, life_loss=life_loss) == []


# ── what the agent sees ───────────────────────────────────────────────────────────────────


def test_hard_and_easy_have_the_papers_spaces():
    hard, easy = atari.vector("Breakout", 1), atari.vector("Breakout", 1, actions="minimal")
    assert hard.observation.shape == (84, 84, 4)
    assert hard.observation.dtype == "uint8"
    assert (hard.action.sizes, easy.action.sizes) == ((18,), (4,))


def test_the_last_action_is_marked_on_every_frame_but_the_first():
    env = atari.vector("Breakout", 1, time="hidden")
    plain = atari.vector("Breakout", 1, time="hidden", last_action="hidden")
    assert np.array_equal(env.reset(), plain.reset())
    for action in (17, 3, 0):
        seen, bare = (v.step(np.array([[action]])).obs[0, ..., -1] for v in (env, plain))
        assert (seen[4 * action : 4 * action + 4, :4] == 255).all()
        differ = np.argwhere(seen != bare)
        assert ((differ // 4) == [action, 0]).all(), "nothing else is touched"


def test_the_time_bar_is_on_the_oldest_frame_only_and_fills():
    env = atari.vector("Breakout", 1, max_frames=400, last_action="hidden", sticky=0.0)
    plain = atari.vector("Breakout", 1, max_frames=400, last_action="hidden", sticky=0.0,
                         time="hidden")  # fmt: skip
    env.reset()
    plain.reset()
    for _ in range(40):
        step, bare = env.step(np.zeros((1, 1), int)), plain.step(np.zeros((1, 1), int))
        assert np.array_equal(step.obs[0, ..., 1:], bare.obs[0, ..., 1:])
        assert np.array_equal(step.obs[0, :80], bare.obs[0, :80])
    reached = 3 + 78 * step.elapsed[0] / 400
    bar = step.obs[0, 80:, :, 0]
    assert (bar[[0, 3]] == 0).all()
    assert (bar[1:3, :3] == 0).all()
    assert (bar[1:3, 3 : int(reached)] == 255).all()
    assert (bar[1:3, int(reached)] == 64 + int(191 * (reached - int(reached)))).all()
    assert (bar[1:3, int(reached) + 1 : 81] == 64).all()


def test_the_first_stack_repeats_the_first_frame():
    env = atari.vector("Pong", 2, time="hidden")
    obs = env.reset()
    assert (obs == obs[..., :1]).all()


def test_games_begin_after_one_to_thirty_noops_that_count_in_the_limit():
    env = atari.vector("Pong", 24, seed=3)
    env.reset()
    elapsed = env.step(np.zeros((24, 1), int)).elapsed - 4
    assert elapsed.min() >= 1
    assert elapsed.max() <= 30
    assert len(set(elapsed)) > 8


# ── ends ──────────────────────────────────────────────────────────────────────────────────


def test_the_time_limit_truncates_and_shows_the_true_last_frames():
    env = atari.vector("Pong", 1, max_frames=50, noops=None)
    before = env.reset()
    for t in range(13):
        step = env.step(np.zeros((1, 1), int))
        if t < 12:
            assert not step.done[0]
            before = step.obs
    assert step.done[0]
    assert not step.terminated[0]
    last = step.final_obs[0]
    assert np.array_equal(last[:80, 4:, :-1], before[0, :80, 4:, 1:])
    assert step.elapsed[0] == 0
    assert (step.obs[0, 4:80] == step.obs[0, 4:80, :, :1]).all(), "a new stack"


def play_lives(seed: int, steps: int = 700):
    env = atari.vector("Breakout", 1, seed=seed, sticky=0.0, actions="minimal",
                       life_loss="terminal")  # fmt: skip
    env.reset()
    return [env.step(action) for action in atari.actions(env, seed, steps)]


def test_a_lost_life_ends_the_episode_but_not_the_game():
    steps = play_lives(0)
    ends = [bool(s.over[0]) for s in steps if s.done[0]]
    assert ends[:5] == [False, False, False, False, True], "five lives of Breakout"
    assert all(s.terminated[0] for s in steps if s.done[0])
    assert all(s.elapsed[0] == 0 for s in steps if s.done[0])
    lost = next(t for t, s in enumerate(steps) if s.done[0])
    assert steps[lost + 1].elapsed[0] > 8, "the game's clock went on"


def test_the_score_is_that_of_the_whole_game_with_what_nobody_decided():
    from dna.algorithm.episodes import Scores

    scores, steps = Scores(1), play_lives(1, 1500)
    for step in steps:
        scores.add(step)
    games = np.cumsum([s.over[0] for s in steps])
    total = [float(s.reward[0] + s.unseen[0]) for s in steps]
    first = sum(
        r for r, g in zip(total, games - [s.over[0] for s in steps], strict=True) if g == 0
    )
    assert scores.episodes == games[-1] >= 1
    assert scores.window[0][0] == first


def test_a_training_run_counts_games_and_learns_from_lives(tmp_path):
    changes = {"env.atari.life_loss": "terminal", "env.atari.actions": "minimal"}
    config = tiny("dna", "ALE/Breakout-v5", **changes)
    env = make(config.env, Making(4, (1, 2, 3, 4)))
    collector = Collector(env, Networks(config, env.observation, env.action), config, 0)
    lives = 0
    for i in range(16):
        rollout = collector.collect(i, Clock())
        lives += int(rollout.done.sum())
    assert lives > 4 * collector.scores.episodes > 0


# ── frames stored once, on the real thing ─────────────────────────────────────────────────


def test_a_rollout_gives_back_every_observation_the_agent_saw():
    changes = {"env.atari.life_loss": "terminal", "env.atari.max_frames": 120}
    config = tiny("dna", "ALE/Breakout-v5", horizon=64, **changes)
    env = make(config.env, Making(4, (1, 2, 3, 4)))
    collector = Collector(env, Networks(config, env.observation, env.action), config, 0)
    seen = []
    act = collector.actor
    collector.actor = lambda obs, noise: (seen.append(obs.copy()), act(obs, noise))[1]
    for i in range(2):
        seen.clear()
        rollout = collector.collect(i, Clock())
        shown = torch.from_numpy(np.stack([*seen, collector.obs])).flatten(0, 1)
        assert rollout.done.any()
        assert torch.equal(rollout.obs[:], shown)


def test_games_that_are_held_keep_their_stacks_while_others_move():
    config = EnvConfig(id="ALE/Pong-v5", atari=Atari())
    env, other = (make(config, Making(3, (1, 2, 3))) for _ in range(2))
    before, _ = env.reset(), other.reset()
    held = np.array([True, False, True])
    rng, actions = np.random.default_rng(0), []
    for t in range(7):
        actions.append(rng.integers(0, 18, (3, 1)))
        shown = env.step(actions[-1], held if t % 2 else None).obs
        if t % 2:
            assert np.array_equal(shown[1], before[1])
            assert not np.array_equal(shown[0], before[0])
        before = shown.copy()
    for action in actions[::2]:  # the steps that the second game took
        alone = other.step(action, np.array([False, True, False])).obs
    assert np.array_equal(alone[1], shown[1]), "as if it had never been held"
    env.close(), other.close()


def test_the_last_observation_of_a_game_shows_its_time_and_its_frames():
    rules = Atari(max_frames=120, sticky=0.0, noops=None)
    env = make(EnvConfig(id="ALE/Pong-v5", atari=rules), Making(1, (1,)))
    seen, last = [env.reset()[0]], None
    while last is None:
        step = env.step(np.array([[2]]))
        last = step.final_obs.get(0)
        seen.append(step.obs[0])
    # Channel k of the last stack is channel k + 1 of the one before it, but for the bar.
    for k in range(3):
        assert np.array_equal(last[:80, :, k], seen[-2][:80, :, k + 1])
    bar = np.zeros((1, 84, 84), dtype=np.uint8)
    draw_time(bar, np.array([120]), 120)
    assert np.array_equal(last[80:, :, 0], bar[0, 80:]), "full"
    assert not np.array_equal(seen[-2][80:, :, 0], last[80:, :, 0])
    env.close()


# ── seeds, workers, snapshots ─────────────────────────────────────────────────────────────


def test_the_number_of_workers_changes_nothing():
    vectors = [atari.vector("Seaquest", 8, threads) for threads in (1, 2)]
    first = [v.reset().tobytes() for v in vectors]
    assert first[0] == first[1]
    for action in atari.actions(vectors[0], 0, 150):
        one, two = (atari.trace(v.step(action)) for v in vectors)
        assert one == two
    for v in vectors:
        v.close()


def test_seeds_repeat_differ_and_share_no_environment():
    def frames(seed):
        env = atari.vector("Pong", 3, seed=seed)
        env.reset()
        return [[step.obs[a].tobytes() for step in map(env.step, atari.actions(env, 0, 30))]
                for a in range(3)]  # fmt: skip

    one, again, next_one = frames(0), frames(0), frames(1)
    assert one == again
    assert all(a != b for a in one for b in next_one), "adjacent seeds share no environment"
    assert one[0] != one[1] != one[2]


@pytest.mark.parametrize("game", ["Qbert", "Tetris", "Breakout", "Pong"])
def test_a_snapshot_goes_on_to_the_bit(game):
    config = EnvConfig(id=f"ALE/{game}-v5", atari=Atari(max_frames=300))
    result = continued(config, SHORT, agents=4)
    assert result.mismatches == []
    assert result.ends > 0


def test_a_snapshot_goes_on_in_another_process(tmp_path):
    config = EnvConfig(id="ALE/Qbert-v5", atari=Atari(life_loss="terminal"))
    assert continued(config, SHORT, agents=8, threads=2, folder=tmp_path).mismatches == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state | {"stacks": state["stacks"][:1]}, "with other settings"),
        (lambda state: state | {"stacks": state["stacks"] * 1.0}, "with other settings"),
        (lambda state: {k: v for k, v in state.items() if k != "counters"}, "other settings"),
        (lambda state: state | {"counters": state["counters"] + 20}, "another action set"),
    ],
)
def test_a_snapshot_of_something_else_is_refused_before_anything_changes(change, message):
    env = atari.vector("Pong", 2)
    env.reset()
    state = env.snapshot()
    for action in atari.actions(env, 0, 5):
        env.step(action)
    before = env.snapshot()
    with pytest.raises(EnvironmentFailure, match=message):
        env.restore(change(state))
    after = env.snapshot()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_size_without_room_for_the_marks_is_refused():
    with pytest.raises(ValueError, match="at least 76 for the marks"):
        Atari(size=75)
    assert Atari(size=75, last_action="hidden").size == 75


# ── rules of a game, on an emulator that says what it was told ────────────────────────────


class Told:
    """An emulator with a script: remembers actions, pays for no-ops, loses lives."""

    def __init__(self, lives=(3,), pay=0, over_after=10**9):
        self.actions, self.script, self.pay, self.over_after = [], list(lives), pay, over_after

    def act(self, action):
        self.actions.append(action)
        return self.pay if action == 0 else 0

    def game_over(self, with_truncation):
        assert with_truncation is False
        return len(self.actions) >= self.over_after

    def lives(self):
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def getScreenGrayscale(self, buffer):
        buffer.fill(9)

    def reset_game(self):
        self.actions.append("reset")


def told(emulator: Told, **settings):
    """One game of Breakout whose emulator is replaced after its start."""
    env = atari.vector("Breakout", 1, noops=None, **settings)
    env.reset()
    game = env.runner.games.games[0]
    game.ale = emulator
    game.lives = emulator.lives()
    return env, game


def test_sticky_actions_repeat_a_quarter_of_the_frames():
    from dna.envs.atari.game import Game

    game = Game("pong", Atari(), 5, np.zeros((2, 210, 160), np.uint8))
    sticky_frames = np.array([game._draw_sticky(block) for block in range(5)]).reshape(-1)
    assert abs(np.mean(sticky_frames) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(sticky_frames))


@pytest.mark.parametrize("sticky", [0.0, 0.25, 1.0])
def test_a_sticky_frame_repeats_the_action_before_it(sticky):
    emulator = Told()
    env, game = told(emulator, sticky=sticky)
    wanted = [3, 5, 7, 2, 4] * 20
    for action in wanted:
        env.step(np.array([[action]]))
    sticky_frames = np.array(game._draw_sticky(0)[: len(wanted)]).reshape(-1)
    expected, held = [], 0
    for chosen, repeats in zip(np.repeat(wanted, 4), sticky_frames, strict=True):
        held = held if repeats else chosen
        expected.append(held)
    assert emulator.actions == expected
    if sticky == 1.0:
        assert set(emulator.actions) == {0}, "before the first action there was none"


def test_behind_a_lost_life_one_noop_is_played_marked_and_paid_to_the_score():
    from dna.algorithm.episodes import Scores

    emulator = Told(lives=[3, 2, 2], pay=7)
    env, _ = told(emulator, sticky=0.0, life_loss="terminal", time="hidden")
    step = env.step(np.array([[5]]))
    assert emulator.actions == [5] * 4 + [0] * 4
    assert (step.done[0], step.terminated[0], step.over[0]) == (True, True, False)
    assert (step.reward[0], step.unseen[0]) == (0.0, 28.0)
    assert (step.obs[0, :4, :4] == 255).all(), "the no-op's mark, on every frame of the stack"
    assert (step.final_obs[0][20:24, :4, -1] == 255).all(), "the last action's mark"
    assert step.elapsed[0] == 0
    scores = Scores(1)
    scores.add(step)
    assert scores.returns[0] == 28.0
    assert scores.episodes == 0


def test_no_lives_left_is_not_yet_the_end_of_the_game():
    env, _ = told(Told(lives=[1, 0, 0]), life_loss="terminal")
    assert not env.step(np.array([[5]])).done[0]


def test_a_game_that_ends_amid_the_noop_is_over_and_scored():
    emulator = Told(lives=[3, 2, 2], pay=7, over_after=6)
    env, _ = told(emulator, sticky=0.0, life_loss="terminal")
    step = env.step(np.array([[5]]))
    assert emulator.actions == [5] * 4 + [0] * 2 + ["reset"]
    assert (step.over[0], step.unseen[0]) == (True, 14.0)


def test_lives_do_not_matter_with_hard_settings():
    env, _ = told(Told(lives=[3, 2, 1, 1]))
    assert not any(env.step(np.array([[5]])).done[0] for _ in range(3))


# ── never a hang, never an orphan ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("action", [-1, 18, 99])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_action_out_of_range_is_an_error_that_names_the_agent(action, threads):
    env = atari.vector("Pong", 8, threads)
    env.reset()
    actions = np.zeros((8, 1), dtype=np.int64)
    actions[5] = action
    with pytest.raises(EnvironmentFailure, match=rf"agent 5: action {action} is not one of"):
        env.step(actions)
    env.close()


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("ALE/Brakout-v5", "did you mean 'ALE/Breakout-v5'"),
        ("ALE/Breakout-v4", "did you mean 'ALE/Breakout-v5'"),
        ("ALE/../../etc-v5", "no such Atari game"),
    ],
)
def test_an_unknown_game_is_one_line(env_id, message):
    with pytest.raises(BadInput, match=message):
        make(EnvConfig(id=env_id, atari=Atari()), Making(1, (0,)))


def workers_of(env) -> list[int]:
    return [worker.process.pid for worker in env.runner.workers]


def test_a_killed_worker_is_an_error_at_once():
    env = atari.vector("Pong", 8, 2)
    env.reset()
    os.kill(workers_of(env)[1], signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"agents 4 to 7: the worker process died"):
        env.step(np.zeros((8, 1), int))
    assert time.monotonic() - start < 5
    env.close()


def test_a_frozen_worker_is_an_error_not_a_hang(monkeypatch):
    monkeypatch.setattr(dna.envs.atari.workers, "STEP", 1.0)
    env = atari.vector("Pong", 8, 2)
    env.reset()
    os.kill(workers_of(env)[0], signal.SIGSTOP)
    with pytest.raises(EnvironmentFailure, match=r"agents 0 to 3: no answer for 1 seconds"):
        env.step(np.zeros((8, 1), int))
    env.close()


def test_being_suspended_as_a_whole_is_no_failure(tmp_path):
    code = SUSPENDED.format(tests=str(Path(__file__).parents[2]))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        everyone = [parent.pid, *(int(pid) for pid in parent.stdout.readline().split())]
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4)  # twice as long as a worker may take
        for pid in reversed(everyone):
            os.kill(pid, signal.SIGCONT)
        assert parent.stdout.readline() == b"went on\n"
        assert parent.wait() == 0


def test_an_error_inside_a_worker_is_told_in_one_line():
    env = atari.vector("Pong", 8, 2)
    env.reset()
    state = env.snapshot()
    state["length"][6] = 3
    wrong = "ALE/Pong-v5, agents 4 to 7: the emulator does not take this snapshot"
    with pytest.raises(EnvironmentFailure, match=wrong):
        env.restore(state)
    env.close()


def test_a_module_in_the_users_folder_does_not_get_in_the_way(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(tmp_path)
    env = atari.vector("Pong", 8, 2)
    assert env.reset().shape == (8, 84, 84, 4)
    env.close()


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(dna.envs.atari.workers.sys, "executable", "/bin/false")
    with pytest.raises(EnvironmentFailure, match=r"worker process died \(exit code 1\)"):
        atari.vector("Pong", 8, 2)
    monkeypatch.setattr(dna.envs.atari.workers.sys, "executable", "/nowhere/python")
    with pytest.raises(EnvironmentFailure, match="no worker process"):
        atari.vector("Pong", 8, 2)


def test_a_failure_is_remembered_and_nothing_is_left_open():
    gc.collect()  # what earlier tests left behind
    before = len(os.listdir("/proc/self/fd"))
    env = atari.vector("Pong", 8, 2)
    env.reset()
    os.kill(workers_of(env)[1], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(EnvironmentFailure, match=r"agents 4 to 7"):
            env.step(np.zeros((8, 1), int))
    env.close()
    del env  # with it goes the shared memory
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_ends_the_workers():
    env = atari.vector("Pong", 8, 2)
    pids = workers_of(env)
    env.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


SUSPENDED = """
import sys, time; sys.path.insert(0, {tests!r})
import atari, dna.envs.atari.workers, numpy
dna.envs.atari.workers.STEP = 2.0
env = atari.vector("Pong", 8, 2)
env.reset()
print(*[w.process.pid for w in env.runner.workers], flush=True)
start = time.monotonic()
while time.monotonic() - start < 5:
    env.step(env.uniform(numpy.random.default_rng(0)))
print("went on", flush=True)
env.close()
"""
PARENT = """
import sys; sys.path.insert(0, {tests!r})
import atari
env = atari.vector("Pong", 8, 2)
env.reset()
print(*[w.process.pid for w in env.runner.workers], flush=True)
while True:
    env.step(env.uniform(__import__("numpy").random.default_rng(0)))
"""


def test_a_killed_parent_leaves_no_orphan():
    code = PARENT.format(tests=str(Path(__file__).parents[2]))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """Not counting a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
