"""The Python API on real runs: the engine's bytes, acting, saving, going on, callbacks."""

import gc
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.envs import IdentityEnv
from stable_baselines3.common.evaluation import evaluate_policy
from torch import nn

import dna
from dna.common.errors import BadInput, Preempted
from dna.common.randomness import generator
from dna.config.overrides import tweak
from dna.envs.fake import Identity
from dna.runs.folder import RunFolder
from dna.runs.policy import load_policy
from dna.runs.setup import How
from dna.runs.train import train
from helpers import bytes_of, tiny

HOW = How(tensorboard=False, threads=1, compile="off")
LOGS = ("config.json", "metrics.jsonl", "episodes.csv")
ALL = (*LOGS, "policy/policy.json", "policy/policy.safetensors")
KINDS = {"dna": dna.DNA, "ppo": dna.PPO, "ppg": dna.PPG}


def agent(algorithm="dna", env="CartPole-v1", **arguments):
    arguments = {"preset": tiny(algorithm, None), "seed": 3} | arguments
    return KINDS[algorithm](env, **arguments)


def learned(*arguments, **named):
    return agent(*arguments, **named).learn(192, progress=False, how=HOW)


# ── the same bytes ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("algorithm", list(KINDS))
def test_learning_is_the_engines_run_to_the_byte(tmp_path, algorithm):
    found = learned(algorithm, folder=tmp_path / "api")
    config = tiny(algorithm, "CartPole-v1", interactions=192)
    train(config, 3, tmp_path / "engine", how=HOW)
    assert found.config == config
    assert bytes_of(tmp_path / "api", *ALL) == bytes_of(tmp_path / "engine", *ALL)
    result = RunFolder(tmp_path / "engine").result()
    assert (found.score, found.interactions) == (result["score"], result["interactions"])
    assert [row["iteration"] for row in found.history] == [0, 1, 2]
    assert found.folder == tmp_path / "api"


def test_an_instance_and_a_factory_learn_alike(tmp_path):
    def make():
        return gymnasium.make("CartPole-v1", disable_env_checker=True)

    learned(env=make, folder=tmp_path / "factory")
    learned(env=make(), folder=tmp_path / "instance")
    assert bytes_of(tmp_path / "factory", *ALL) == bytes_of(tmp_path / "instance", *ALL)
    again = learned(folder=tmp_path / "id")
    rows = bytes_of(tmp_path / "id", "metrics.jsonl")
    assert rows == bytes_of(tmp_path / "factory", "metrics.jsonl")
    assert again.learn(progress=False, how=HOW).interactions == 192  # there is nothing to do


@pytest.mark.parametrize("algorithm", list(KINDS))
def test_learning_twice_is_learning_once(tmp_path, algorithm):
    """Without schedules; the first length is no multiple of a rollout, but for PPG."""
    first = 128 if algorithm == "ppg" else 100
    twice = agent(algorithm, folder=tmp_path / "twice")
    twice.learn(first, progress=False, how=HOW)
    twice.learn(total_timesteps=256 - first, progress=False, how=HOW)
    agent(algorithm, folder=tmp_path / "once").learn(256, progress=False, how=HOW)
    assert bytes_of(tmp_path / "twice", *ALL) == bytes_of(tmp_path / "once", *ALL)
    machine = RunFolder(tmp_path / "twice").machine()
    assert (machine["exact"], machine["resumes"]) == (True, 1)


def test_going_on_with_a_schedule_is_said(tmp_path):
    rate = {"start": 1e-3, "end": 0.0}
    found = learned("ppo", folder=tmp_path / "run", joint__sgd__learning_rate=rate)
    with pytest.warns(UserWarning, match=r"joint\.sgd\.learning_rate is stretched"):
        found.learn(192, progress=False, how=HOW)
    machine = RunFolder(tmp_path / "run").machine()
    assert not machine["exact"]
    assert "joint.sgd.learning_rate was to change" in machine["why_not_exact"][0]
    rates = [row["joint/learning_rate"] for row in found.history]
    assert rates[0] > rates[2] < rates[3] > rates[5]  # it jumps at the fourth


def test_ppg_goes_on_only_behind_its_auxiliary_phase():
    found = agent("ppg").learn(64, progress=False, how=HOW)
    with pytest.raises(BadInput, match="learn multiples of 128 interactions"):
        found.learn(64, progress=False, how=HOW)


# ── acting ────────────────────────────────────────────────────────────────────────────────


def test_predicting_is_the_policy_acting(tmp_path):
    found = learned(folder=tmp_path / "run")
    policy = load_policy(tmp_path / "run" / "policy")
    obs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    rng = generator(3, "predict")
    wanted = policy.act(torch.from_numpy(obs), rng, deterministic=False)[:, 0].tolist()
    actions, state = found.predict(obs)
    assert (actions.tolist(), state) == (wanted, None)
    best = policy.act(torch.from_numpy(obs), rng, deterministic=True)[:, 0].tolist()
    one_by_one = [found.predict(row, deterministic=True)[0] for row in obs]
    assert one_by_one == best
    assert all(type(action) is int for action in one_by_one)
    with pytest.raises(BadInput, match=r"shape \(5,\)"):
        found.predict(np.zeros(5))
    for bad in (np.full(4, np.nan), [0, 0, np.inf, 0], np.full((2, 4), np.nan)):
        with pytest.raises(BadInput, match="a number that is not finite"):
            found.predict(bad)


def test_evaluating_has_a_mean_and_its_own_seed():
    found = learned()
    first, second = found.evaluate(5), found.evaluate(5)
    assert first == second
    assert found.evaluate(5, seed=9).scores != first.scores
    low, high = first.interval
    assert low <= first.mean <= high
    assert len(first.scores) == 5
    with pytest.raises(BadInput, match="episodes: given 0"):
        found.evaluate(0)


def test_sb3_evaluates_our_agents():
    found = learned()
    env = gymnasium.make("CartPole-v1")
    with pytest.warns(UserWarning, match="not wrapped with a ``Monitor``"):
        mean, _ = evaluate_policy(found, env, n_eval_episodes=3)
    assert mean > 0


def test_an_untrained_agent_acts():
    found = agent()
    obs = np.zeros((3, 4), np.float32)
    assert set(found.predict(obs)[0].tolist()) <= {0, 1}
    assert found.evaluate(2).mean > 0
    assert found.folder.exists() is False


class Robot(gymnasium.Env):
    """A camera, joints and a mask; it moves and grips. Illegal grips raise."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (12, 12, 3), np.uint8),
            "joints": spaces.Box(-5, 5, (3,), np.float64),
        }
    )
    action_space = spaces.Dict(
        {"move": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(3, start=1)}
    )

    def _seen(self):
        camera = self.np_random.integers(0, 256, (12, 12, 3)).astype(np.uint8)
        self.mask = np.array([True, *(self.np_random.random(2) < 0.5)])
        obs = {"camera": camera, "joints": self.np_random.uniform(-5, 5, 3)}
        return obs, {"action_mask": self.mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen()

    def step(self, action):
        assert self.action_space.contains(action), action
        assert self.mask[action["grip"] - 1]
        self.t += 1
        obs, info = self._seen()
        return obs, float(action["move"].sum()), self.t >= 6, False, info


@pytest.mark.parametrize("env", [Robot, Robot(), "vector"])
def test_dicts_masks_and_hybrid_actions_in_the_environments_own_terms(env, tmp_path):
    if env == "vector":
        env = gymnasium.vector.SyncVectorEnv([Robot] * 4)
    found = learned(env=env)
    robot = Robot()
    obs, info = robot.reset(seed=0)
    for _ in range(20):
        action, _ = found.predict(obs, action_mask=info["action_mask"])
        obs, _, done, _, info = robot.step(action)  # it refuses what is illegal
        if done:
            obs, info = robot.reset()
    batch = {name: np.stack([part] * 5) for name, part in obs.items()}
    masks = np.tile([True, False, False], (5, 1))
    actions, _ = found.predict(batch, action_mask=masks)
    assert actions["move"].shape == (5, 2)
    assert actions["grip"].tolist() == [1] * 5
    with pytest.raises(BadInput, match="pass action_mask="):
        found.predict(obs)
    with pytest.raises(BadInput, match="5 observations, but 2 masks"):
        found.predict(batch, action_mask=masks[:2])
    assert found.evaluate(4).lengths == (6, 6, 6, 6)
    found.save(tmp_path / "robot")
    alone = dna.load(tmp_path / "robot")
    verbs = {
        "predict": lambda: alone.predict(obs, action_mask=info["action_mask"]),
        "evaluate": lambda: alone.evaluate(2),
        "learn": lambda: alone.learn(64),
        "observation_space": lambda: alone.observation_space,
    }
    for verb, act in verbs.items():
        with pytest.raises(BadInput, match=f"^{verb}.*: .* came from Python; load with env="):
            act()
    with pytest.raises(BadInput, match="not those that the policy was trained with"):
        dna.load(tmp_path / "robot", env="CartPole-v1").predict(np.zeros(4))
    again = dna.load(tmp_path / "robot", env=Robot)
    mask = info["action_mask"]
    one, _ = again.predict(obs, deterministic=True, action_mask=mask)
    two, _ = found.predict(obs, deterministic=True, action_mask=mask)
    assert one["grip"] == two["grip"]
    assert one["move"].tolist() == two["move"].tolist()


def test_observations_that_are_not_of_the_space_are_one_line():
    found = agent(env=Robot)
    obs, _ = Robot().reset(seed=0)
    batch = {name: np.stack([part] * 5) for name, part in obs.items()}
    mask, masks = [True] * 3, np.ones((5, 3), bool)
    for name in obs:  # whichever is looked at first
        for given, legal in ((obs, mask), (batch, masks)):
            rest = {other: part for other, part in given.items() if other != name}
            with pytest.raises(BadInput, match=f"^predict: the observation has no '{name}'$"):
                found.predict(rest, action_mask=legal)
    with pytest.raises(BadInput, match="predict: "):
        found.predict(batch | {"joints": batch["joints"][:2]}, action_mask=masks)
    lost = obs | {"joints": np.array([0.0, np.nan, 0.0])}
    with pytest.raises(BadInput, match="a number that is not finite"):
        found.predict(lost, action_mask=mask)


class Pairs(gymnasium.Env):
    """Two groups of three choices."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.MultiDiscrete([3, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {"action_mask": np.ones(6, bool)}

    def step(self, action):
        return *self.reset()[:1], 0.0, True, False, {"action_mask": np.ones(6, bool)}


def test_masks_of_a_batch_are_read_row_by_row():
    found = agent(env=Pairs)
    obs = np.zeros((2, 2), np.float32)
    first = np.array([[1, 0, 0], [0, 1, 0]])
    second = np.array([[0, 0, 1], [0, 0, 1]])
    whole = np.concatenate([first, second], axis=1)
    rows = [(first[0], second[0]), (first[1], second[1])]
    legal = ((first, second), (first.tolist(), second.tolist()), whole, list(whole), rows)
    for masks in (*legal, tuple(rows)):
        assert found.predict(obs, action_mask=masks)[0].tolist() == [[0, 2], [1, 2]]
    three = (first[[0, 1, 0]], second[[0, 1, 0]])
    actions, _ = found.predict(np.zeros((3, 2), np.float32), action_mask=three)
    assert actions.tolist() == [[0, 2], [1, 2], [0, 2]]
    for masks in ([first, second], np.stack([first, second])):
        with pytest.raises(BadInput, match="per group or per observation"):
            found.predict(obs, action_mask=masks)
    with pytest.raises(BadInput, match="2 observations, but 3 masks"):
        found.predict(obs, action_mask=[whole[0]] * 3)


def test_atari_stacks_are_read_as_the_run_makes_them():
    pytest.importorskip("ale_py")
    changes = {"agents": 4, "horizon": 16, "warm_up": None}
    for phase in ("policy", "value", "distil"):
        changes |= {f"{phase}.sgd.minibatch": 32, f"{phase}.sgd.epochs": 1}
    found = dna.DNA("ALE/Pong-v5", **changes).learn(64, progress=False)
    stacks = np.zeros((2, 84, 84, 4), np.uint8)
    actions, _ = found.predict(stacks)
    assert actions.shape == (2,)
    assert 0 <= found.predict(stacks[0])[0] < 18
    assert found.observation_space.contains(stacks[0])
    assert found.action_space == spaces.Discrete(18)


# ── saving and loading ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("algorithm", list(KINDS))
def test_saved_and_loaded_it_acts_alike(tmp_path, algorithm):
    found = learned(algorithm)
    obs = np.random.default_rng(1).normal(size=(32, 4)).astype(np.float32)
    found.save(tmp_path / "saved")
    found.save(tmp_path / "saved")  # the same run again
    one, two = dna.load(tmp_path / "saved"), KINDS[algorithm].load(tmp_path / "saved")
    assert type(one) is type(two) is KINDS[algorithm]
    sampled = [it.predict(obs)[0].tolist() for it in (found, one, two)]
    assert sampled[0] == sampled[1] == sampled[2]
    assert bytes_of(tmp_path / "saved", *ALL) == bytes_of(found.folder, *ALL)
    assert one.history == found.history
    other = next(kind for kind in KINDS.values() if kind is not KINDS[algorithm])
    with pytest.raises(BadInput, match=r"load it with dna\.load"):
        other.load(tmp_path / "saved")
    with pytest.raises(BadInput, match="holds another run"):
        learned(algorithm, seed=4).save(tmp_path / "saved")
    learned(algorithm, seed=4).save(tmp_path / "saved", overwrite=True)
    assert dna.load(tmp_path / "saved").seed == 4


def test_what_was_loaded_stays_as_it_is(tmp_path):
    found = learned(folder=tmp_path / "run")
    before = bytes_of(tmp_path / "run", *ALL)
    loaded = dna.load(tmp_path / "run").learn(64, progress=False, how=HOW)
    assert loaded.interactions == 256
    assert loaded.folder != tmp_path / "run"
    assert bytes_of(tmp_path / "run", *ALL) == before
    found.learn(64, progress=False, how=HOW)
    logs = ("metrics.jsonl", "policy/policy.safetensors")
    assert bytes_of(tmp_path / "run", *logs) == bytes_of(loaded.folder, *logs)
    place = tmp_path / "run"
    dna.load(place, folder=place).learn(64, progress=False, how=HOW)
    assert dna.load(place).interactions == 320


def test_a_folder_that_holds_this_run_is_not_learned_again(tmp_path):
    learned(folder=tmp_path / "run")
    told = []
    again = agent(folder=tmp_path / "run")
    again.learn(192, progress=False, how=HOW, callback=lambda *what: told.append(what))
    assert told == []
    assert again.score is not None
    other = agent(folder=tmp_path / "run", seed=8)
    for _ in range(2):
        with pytest.raises(BadInput, match="other settings or seed"):
            other.learn(192, progress=False, how=HOW)


def test_an_agent_loaded_from_a_temporary_folder_keeps_it():
    found = learned()
    before = found.evaluate(episodes=2, seed=0)
    found = dna.load(found.folder)
    gc.collect()
    assert found.evaluate(episodes=2, seed=0).scores == before.scores
    source = found.folder
    found = dna.load(found.learn(192, progress=False, how=HOW).folder)
    gc.collect()
    assert not source.exists()
    assert found.folder.exists()


def test_a_loaded_run_that_is_gone_is_not_an_untrained_policy(tmp_path):
    learned(folder=tmp_path / "run")
    found = dna.load(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(BadInput, match=r"run: its run is gone; load or train again$"):
        found.evaluate(episodes=1)
    with pytest.raises(BadInput, match="its run is gone"):
        found.predict(np.zeros(4, np.float32))


def test_a_temporary_folder_goes_with_its_agent():
    found = learned()
    folder = found.folder
    assert (folder / "done").is_file()
    assert not (folder / "tensorboard").exists()
    del found
    assert not folder.exists()


def test_encoders_of_the_same_name_do_not_meet(tmp_path):
    small = learned(encoder=nn.Sequential(nn.Linear(4, 8), nn.Tanh()))
    large = agent(encoder=nn.Sequential(nn.Linear(4, 24), nn.ELU()))
    small.save(tmp_path / "small")
    large.learn(64, progress=False, how=HOW)
    obs = np.zeros((2, 4), np.float32)
    assert small.predict(obs)[0].shape == large.predict(obs)[0].shape == (2,)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    loaded = dna.load(tmp_path / "small", encoder=module)
    fresh = loaded.predict(obs, deterministic=True)[0].tolist()
    assert fresh == small.predict(obs, deterministic=True)[0].tolist()
    with pytest.raises(BadInput, match="the run has its own"):
        dna.load(tmp_path / "small", encoder="mlp")


# ── callbacks ─────────────────────────────────────────────────────────────────────────────


class Diary:
    def __init__(self, stop_at=None):
        self.lines, self.stop_at = [], stop_at

    def on_rollout_end(self, state):
        self.lines.append(("rollout", state.iteration, state.interactions))
        return self.stop_at != ("rollout", state.iteration)

    def on_phase_end(self, state, phase, metrics):
        assert metrics["loss"] == metrics["loss"]
        assert not any("/" in name for name in metrics)
        self.lines.append((phase, state.iteration))

    def on_iteration_end(self, state, row):
        assert state.scores.score == row.score
        assert state.config.algorithm == "dna"
        assert next(state.networks.parameters()).requires_grad
        self.lines.append(("iteration", row.iteration))
        return 0  # only False itself stops


def test_callbacks_are_told_in_order():
    diary = Diary()
    seen = []
    agent().learn(
        128, callback=[diary, lambda state, row: seen.append(row)], progress=False, how=HOW
    )
    names = ["rollout", "policy", "value", "distil", "iteration"]
    assert [line[0] for line in diary.lines] == names * 2
    assert [line[1] for line in diary.lines] == [0] * 5 + [1] * 5
    assert diary.lines[0] == ("rollout", 0, 64)
    assert [row.interactions for row in seen] == [64, 128]


def test_callbacks_change_nothing(tmp_path):
    learned(folder=tmp_path / "without")
    agent(folder=tmp_path / "with").learn(192, Diary(), progress=False, how=HOW)
    assert bytes_of(tmp_path / "with", *ALL) == bytes_of(tmp_path / "without", *ALL)


@pytest.mark.parametrize(
    ("answer", "reached"),
    [(np.bool_(False), 64), (np.float32(3) < 2, 64), (np.bool_(True), 192), (None, 192)],
)
def test_numpys_false_stops_too(answer, reached):
    found = agent().learn(192, lambda state, row: answer, progress=False, how=HOW)
    assert found.interactions == reached


def test_a_callback_stops_and_the_run_goes_on(tmp_path):
    diary = Diary(stop_at=("rollout", 1))
    found = agent(folder=tmp_path / "cut").learn(192, diary, progress=False, how=HOW)
    assert diary.lines[-1] == ("iteration", 1)  # the iteration was finished
    assert found.interactions == 128
    assert not (tmp_path / "cut" / "done").exists()
    obs = np.random.default_rng(1).normal(size=(32, 4)).astype(np.float32)
    now = found.predict(obs, deterministic=True)[0].tolist()
    loaded = dna.load(tmp_path / "cut")
    assert loaded.predict(obs, deterministic=True)[0].tolist() == now
    assert found.learn(progress=False, how=HOW).interactions == 192
    learned(folder=tmp_path / "whole")
    assert bytes_of(tmp_path / "cut", *ALL) == bytes_of(tmp_path / "whole", *ALL)


def test_more_of_a_stopped_run_counts_from_where_it_stands(tmp_path):
    found = agent().learn(256, lambda state, row: row.iteration < 1, progress=False, how=HOW)
    assert found.interactions == 128
    assert found.learn(64, progress=False, how=HOW).interactions == 192
    assert found.config.interactions == 192


def test_a_signal_is_told(tmp_path):
    def interrupt(state, row):
        os.kill(os.getpid(), signal.SIGINT)

    found = agent()
    with pytest.raises(Preempted, match="SIGINT"):
        found.learn(192, interrupt, progress=False, how=HOW)
    assert found.interactions == 64
    assert found.learn(progress=False, how=HOW).interactions == 192


# ── environments of others ────────────────────────────────────────────────────────────────


class GoLeftEnv(gymnasium.Env):
    """SB3's example of a custom environment: an agent that learns to go left."""

    metadata = {"render_modes": ["console"]}  # noqa: RUF012
    LEFT = 0
    RIGHT = 1

    def __init__(self, grid_size=10, render_mode="console"):
        super().__init__()
        self.render_mode = render_mode
        self.grid_size = grid_size
        self.agent_pos = grid_size - 1
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(
            low=0, high=self.grid_size, shape=(1,), dtype=np.float32
        )

    def reset(self, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.agent_pos = self.grid_size - 1
        return np.array([self.agent_pos]).astype(np.float32), {}

    def step(self, action):
        if action == self.LEFT:
            self.agent_pos -= 1
        elif action == self.RIGHT:
            self.agent_pos += 1
        else:
            raise ValueError(f"Received invalid action={action}")
        self.agent_pos = np.clip(self.agent_pos, 0, self.grid_size)
        terminated = bool(self.agent_pos == 0)
        reward = 1 if self.agent_pos == 0 else 0
        return np.array([self.agent_pos]).astype(np.float32), reward, terminated, False, {}

    def render(self):
        if self.render_mode == "console":
            print("." * self.agent_pos, end="")

    def close(self):
        pass


def test_sb3s_example_environment_learns_to_go_left():
    env = GoLeftEnv()
    check_env(env)
    env.reset()
    found = dna.PPO(env, agents=4, horizon=64).learn(8192, progress=False)
    assert env.agent_pos == 9  # copies were stepped
    assert found.predict(np.array([5], np.float32), deterministic=True) == (0, None)
    assert max(found.evaluate(4, deterministic=True).lengths) == 9


@pytest.mark.parametrize(
    "env",
    [
        IdentityEnv(dim=3),
        gymnasium.make("FrozenLake-v1"),
        gymnasium.make("Taxi-v4"),
        gymnasium.make("MountainCarContinuous-v0"),
        "FrozenLake-v1",
        "Taxi-v4",
        "MountainCarContinuous-v0",
    ],
    ids=str,
)
def test_environments_of_others_train_unchanged(env):
    changes = {"agents": 4, "horizon": 16, "warm_up": None, "env.max_episode_steps": 20}
    for phase in ("policy", "value", "distil"):
        changes |= {f"{phase}.sgd.minibatch": 32, f"{phase}.sgd.epochs": 1}
    found = dna.DNA(env, **changes).learn(192, progress=False)
    live = gymnasium.make(env) if isinstance(env, str) else env
    obs, info = live.reset(seed=0)
    mask = {"action_mask": info["action_mask"]} if "action_mask" in info else {}
    action, _ = found.predict(obs, **mask)
    assert live.action_space.contains(action)
    if mask:
        assert mask["action_mask"][action]
    assert len(found.evaluate(3).scores) == 3


def test_with_one_agent_the_instance_itself_is_stepped():
    class Counted(GoLeftEnv):
        steps = closed = 0

        def step(self, action):
            self.steps += 1
            return super().step(action)

        def close(self):
            self.closed += 1

    env = Counted()
    config = tweak(tiny("ppo", None), agents=1, horizon=64)
    found = dna.PPO(env, preset=config).learn(128, progress=False, how=HOW)
    assert env.steps == 128
    position, _ = env.reset()
    found.predict(position)
    assert env.agent_pos == 9  # predicting resets nothing
    found.evaluate(1, seed=2)
    assert env.steps > 128
    assert env.closed == 0


def test_a_vector_environment_stays_open():
    vector = gymnasium.make_vec("CartPole-v1", 4)
    found = learned(env=vector)
    obs, _ = vector.reset(seed=0)
    for _ in range(5):
        actions, _ = found.predict(obs)
        obs, *_ = vector.step(actions)
    assert found.evaluate(4).mean > 0
    assert found.learn(64, progress=False, how=HOW).interactions >= 256  # resets do not count
    vector.close()


# ── showing ───────────────────────────────────────────────────────────────────────────────


def test_what_notebooks_show():
    found = learned()
    html = found._repr_html_()
    assert "DNA" in html
    assert "192" in html
    assert "<svg" in html
    assert repr(found) == "<DNA on CartPole-v1: 192 interactions, seed 3>"
    figure = found.plot()
    assert figure.axes[0].get_title() == "CartPole-v1"


def test_progress_is_text_on_stderr(capfd):
    agent().learn(64, how=HOW)
    shown = capfd.readouterr()
    assert "64 interactions" in shown.err
    assert shown.out == ""
    agent().learn(64, progress=False, how=HOW)
    assert capfd.readouterr().err == ""


def test_a_budget_rounded_up_to_whole_rollouts_is_said_with_the_progress(capfd):
    found = agent()
    rollout = found.config.batch
    found.learn(rollout + 1, how=HOW)
    whole = f"{2 * rollout:,}, 2 rollouts of {rollout:,}\n"
    note = f"{rollout + 1:,} interactions are rounded up to {whole}"
    assert capfd.readouterr().err.count(note) == 1
    found.learn(how=HOW)  # already done: nothing is rounded again
    assert "are rounded" not in capfd.readouterr().err
    agent().learn(rollout + 1, progress=False, how=HOW)
    assert "are rounded" not in capfd.readouterr().err


def test_a_module_is_not_imported_for_a_folder_of_somebody_else(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(
        "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n"
    )
    monkeypatch.chdir(tmp_path)
    found = learned(env="theirs:make", folder=Path("run"))
    assert found.score is not None
    with pytest.raises(BadInput, match="would import the module theirs"):
        dna.load("run").evaluate(1)
    again = dna.load("run", env="theirs:make")
    assert again.evaluate(1).mean > 0
    assert again.learn(64, progress=False, how=HOW).interactions == 256


def test_a_loaded_agent_plays_elsewhere_but_does_not_learn_there(tmp_path):
    learned(folder=tmp_path / "run")

    def short():
        return gymnasium.make("CartPole-v1", max_episode_steps=5)

    elsewhere = dna.load(tmp_path / "run", env=short)
    assert elsewhere.evaluate(3).lengths == (5, 5, 5)
    with pytest.raises(BadInput, match="learned in CartPole-v1"):
        elsewhere.learn(64)


# ── environments that hang ────────────────────────────────────────────────────────────────


GATE = threading.Event()


class Hanging(Identity):
    """Waits at its 40th step until `GATE` is open."""

    def __init__(self):
        super().__init__()
        self.steps, self.closed = 0, False

    def step(self, action):
        self.steps += 1
        if self.steps == 40:
            GATE.wait(60)
        return super().step(action)

    def close(self):
        self.closed = True


@pytest.fixture
def gate():
    """Closed at first; at the end no thread waits at it any more."""
    GATE.clear()
    yield GATE
    GATE.set()
    for thread in threading.enumerate():
        if thread.name.startswith("environments"):
            thread.join(10)
            assert not thread.is_alive()


def test_a_hang_raises_in_the_caller_and_learning_goes_on_in_the_same_process(gate, tmp_path):
    made = []

    def make():
        made.append(Hanging())
        return made[-1]

    gate.set()
    agent("dna", Hanging, folder=tmp_path / "whole").learn(256, progress=False, how=HOW)
    gate.clear()
    found = agent("dna", make, folder=tmp_path / "run")
    how = replace(HOW, env_timeout=0.3, checkpoint_every=64)
    with pytest.raises(dna.EnvironmentTimeout) as hang:
        found.learn(256, progress=False, how=how)
    text = str(hang.value)
    assert "environment: no answer for 0.3 seconds" in text
    assert text.endswith("; learn() continues from the last checkpoint")
    assert "GATE.wait(60)" in (tmp_path / "run" / "hang.txt").read_text()
    assert "GATE.wait(60)" in hang.value.__notes__[0]
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    gate.set()  # the abandoned call returns after all
    while not all(env.closed for env in made):
        time.sleep(0.01)
    assert left == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found.learn(progress=False, how=how)  # the folder is not locked any more
    assert bytes_of(tmp_path / "run", *ALL) == bytes_of(tmp_path / "whole", *ALL)


def test_a_hang_before_the_first_checkpoint_is_told_what_learning_again_does(gate):
    def never():
        gate.wait(60)

    how = replace(HOW, env_timeout=0.3, checkpoint_every=10**6)
    for source in (Hanging, never):
        with pytest.raises(dna.EnvironmentTimeout) as hang:
            agent("dna", source).learn(256, progress=False, how=how)
        assert str(hang.value).endswith("; learn() starts from the beginning")


def test_an_environment_of_the_user_that_hung_is_not_used_again(gate, tmp_path):
    config = tweak(tiny("ppo", None), agents=1, horizon=64)
    found = dna.PPO(Hanging(), preset=config)
    how = replace(HOW, env_timeout=0.2)
    with pytest.raises(dna.EnvironmentTimeout, match=str(found.folder)) as hang:
        found.learn(192, progress=False, how=how)
    assert (found.folder / "hang.txt").is_file()
    assert str(hang.value).endswith("and dna.load(FOLDER, env=…) with a new environment")
    for use in (found.learn, found.evaluate):
        with pytest.raises(BadInput, match=r"not used again; save\(FOLDER\)"):
            use()
    saved = found.save(tmp_path / "saved")
    dna.load(saved, env=Identity()).learn(progress=False, how=how)


@pytest.mark.usefixtures("gate")
def test_a_second_interrupt_does_not_wait_for_the_environment():
    class Interrupted(Hanging):
        def step(self, action):
            if self.steps == 39 and not GATE.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.2)  # until the first has been seen, in any thread
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(action)

    with pytest.raises(KeyboardInterrupt):
        agent("ppo", Interrupted).learn(progress=False, how=replace(HOW, env_timeout=30.0))


@pytest.mark.parametrize("env_threads", [1, 2])
def test_a_time_limit_changes_nothing_that_is_computed(tmp_path, env_threads):
    for name, seconds in (("free", None), ("timed", 30.0)):
        how = replace(HOW, env_timeout=seconds, env_threads=env_threads)
        agent("dna", folder=tmp_path / name).learn(192, progress=False, how=how)
    assert bytes_of(tmp_path / "free", *ALL) == bytes_of(tmp_path / "timed", *ALL)


@pytest.mark.parametrize("seconds", [0, -1.0, 1e6 + 1, math.inf, math.nan, "2", True])
def test_a_time_limit_must_be_a_time(seconds, tmp_path):
    how = replace(HOW, env_timeout=seconds)
    with pytest.raises(BadInput, match=r"env_timeout: given .*, must be a number of seconds"):
        agent("ppo", folder=tmp_path / "run").learn(192, progress=False, how=how)
    assert list(tmp_path.iterdir()) == []


def test_after_a_hang_the_process_ends_in_peace_and_leaves_no_folder(tmp_path):
    code = (
        "import sys, time, dna\n"
        "from dna.envs.fake import Identity\n"
        "class Stuck(Identity):\n"
        "    def step(self, action):\n"
        "        time.sleep(3600)\n"
        "agent = dna.PPO(Stuck, agents=4)\n"
        "try:\n"
        "    how = dna.How(env_timeout=0.2, env_threads=2)\n"
        "    agent.learn(512, progress=False, how=how)\n"
        "except dna.EnvironmentTimeout as error:\n"
        "    print(agent.folder.is_dir(), error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.stdout.startswith("True environment: no answer for 0.2 seconds")
    assert done.stderr == ""
    assert list(tmp_path.glob("dna-*")) == []
