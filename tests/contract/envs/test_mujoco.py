"""MuJoCo's tasks: restored from a snapshot they go on to the bit, here or in another process.

`make test` plays a short way; `FULL` steps of every task are part of `make worlds`.
"""

import ctypes.util
import os

import gymnasium
import numpy as np
import pytest

from dna.cli import doctor
from dna.common.errors import BadInput, EnvironmentFailure, MissingExtra
from dna.common.randomness import integer
from dna.config import EnvConfig
from dna.envs import Making, make, mujoco
from snapshots import FULL, SHORT, continued

#: Pusher-v4 wants a MuJoCo before 3.
IDS = [f"{task}-v{version}" for task in mujoco.TASKS for version in (4, 5)]
IDS.remove("Pusher-v4")
PAPER = [f"{task}-v5" for task in mujoco.PAPER]
LAGGING = ["Ant-v5", "Reacher-v4", "Humanoid-v5"]  # read derived arrays before they step

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")


def limited(env_id, steps=37):
    """Gymnasium's own time limit, short enough to end episodes of tasks that never fall."""
    return EnvConfig(id=env_id, options={"max_episode_steps": steps})


def vector(env_id="Hopper-v5", agents=2, seed=0, threads=1):
    seeds = tuple(integer(seed, "env", agent, 0) for agent in range(agents))
    return make(EnvConfig(id=env_id), Making(agents, seeds, threads))


@pytest.mark.parametrize("env_id", sorted({*PAPER, *LAGGING}))
def test_a_restored_task_goes_on_to_the_bit(env_id):
    result = continued(limited(env_id), SHORT)
    assert result.mismatches == []
    assert result.ends >= 3


@pytest.mark.worlds
@pytest.mark.parametrize("env_id", IDS)
def test_a_restored_task_goes_on_to_the_bit_for_long(env_id):
    result = continued(limited(env_id, 70), FULL)
    assert result.mismatches == []
    assert result.ends >= 15


def test_a_restored_task_goes_on_in_another_process(tmp_path):
    result = continued(limited("Ant-v5"), SHORT, folder=tmp_path)
    assert result.mismatches == []
    assert result.ends >= 3


def test_our_own_step_limit_and_threads_go_on_as_well():
    config = EnvConfig(id="HalfCheetah-v5", max_episode_steps=33)
    result = continued(config, SHORT, agents=4, threads=2)
    assert result.mismatches == []
    assert result.ends == 4 * 2  # after 66 and 99 of the 45 + 60 steps


@pytest.mark.parametrize("env_id", LAGGING)
def test_the_simulators_own_state_alone_is_not_enough(env_id, monkeypatch):
    """If this fails, derived arrays need no saving any more; the check above is sharp."""
    monkeypatch.setattr(mujoco, "_derived", lambda *_: [])
    assert "reward of step 0" in continued(limited(env_id), 3).mismatches


def test_a_snapshot_is_plain_numbers_with_a_row_for_each_agent():
    env = vector(agents=2)
    env.reset()
    state = env.snapshot()
    assert {array.dtype.kind for array in state.values()} <= set("fiu")
    assert {len(array) for array in state.values()} == {2}
    assert not np.array_equal(state["random"][0], state["random"][1])
    before = {name: array.copy() for name, array in state.items()}
    for _ in range(3):
        env.step(env.uniform(np.random.default_rng(0)))
    assert all(np.array_equal(state[name], before[name]) for name in state)
    env.close()


def test_a_snapshot_that_does_not_fit_is_refused_in_one_line():
    env, other = vector("Hopper-v5"), vector("Walker2d-v5")
    alone, state = vector("Hopper-v5", agents=1), env.snapshot()
    for wrong in (other, alone):
        with pytest.raises(EnvironmentFailure, match=r"snapshot does not fit.*another task"):
            wrong.restore(state)
    with pytest.raises(EnvironmentFailure, match="does not fit"):
        env.restore({name: state[name] for name in state if name != "random"})


def test_what_may_hold_more_state_is_not_exact():
    def wrapped():
        return gymnasium.wrappers.NormalizeObservation(gymnasium.make("Hopper-v5"))

    env = make(EnvConfig(), Making(1, (0,)), wrapped)
    assert "cannot be saved" in env.inexact
    with pytest.raises(EnvironmentFailure, match="cannot be saved"):
        env.snapshot()


def test_a_factory_of_gymnasiums_own_task_is_exact():
    assert (
        make(EnvConfig(), Making(1, (0,)), lambda: gymnasium.make("Hopper-v5")).inexact is None
    )


@pytest.mark.parametrize("env_id", ["Ant-v2", "Hopper-v3", "Reacher-v2"])
def test_versions_that_are_gone_name_the_one_there_is(env_id):
    new = env_id[:-1] + "5"
    with pytest.raises(BadInput, match=rf"use {new} \(pip install 'ppo-dna\[mujoco\]'\)"):
        vector(env_id)


def test_without_mujoco_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(mujoco, "_PACKAGES", ("no_such_package",))
    with pytest.raises(MissingExtra, match=r"Ant-v5 needs .* pip install 'ppo-dna\[mujoco\]'"):
        vector("Ant-v5")


def test_building_prints_nothing_and_leaves_no_file(capfd, tmp_path, monkeypatch):
    """HalfCheetah's model makes MuJoCo complain on stderr and into ./MUJOCO_LOG.TXT."""
    monkeypatch.chdir(tmp_path)
    vector("HalfCheetah-v5").close()
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_other_warnings_of_the_simulator_become_pythons():
    import mujoco as simulator

    with pytest.warns(UserWarning, match="lava") as heard, mujoco.building("Ant-v5"):
        simulator.get_mju_user_warning()("the floor is lava")
    assert [str(warning.message) for warning in heard] == ["Ant-v5: the floor is lava"]


@pytest.mark.parametrize("env_id", PAPER)
def test_steps_return_what_gymnasiums_do_to_the_bit(env_id):
    ours = make(limited(env_id), Making(2, (5, 6), 1))
    theirs = [gymnasium.make(env_id, max_episode_steps=37) for _ in range(2)]
    rng = np.random.default_rng(0)
    seen = ours.reset()
    for row, env, seed in zip(seen, theirs, (5, 6), strict=True):
        assert np.array_equal(row, env.reset(seed=seed)[0].astype(np.float32))
    for _ in range(80):
        action = rng.normal(0, 2, (2, *theirs[0].action_space.shape)).astype(np.float32)
        step = ours.step(action)
        for i, env in enumerate(theirs):
            space = env.action_space
            bounded = np.clip(action[i], space.low, space.high)
            obs, reward, terminated, truncated, _ = env.step(bounded)
            assert step.reward[i] == np.float32(reward)
            assert (step.terminated[i], step.done[i]) == (terminated, terminated or truncated)
            if step.done[i]:
                assert np.array_equal(step.final_obs[i], obs.astype(np.float32))
                obs = env.reset()[0]
            assert np.array_equal(step.obs[i], obs.astype(np.float32))
    ours.close()


def test_the_same_seed_is_equal_another_differs_and_threads_change_nothing():
    def trace(**keys):
        env, rng = vector("Walker2d-v5", **keys), np.random.default_rng(0)
        shown = [env.reset().tobytes()]
        for _ in range(60):
            step = env.step(env.uniform(rng))
            shown.append(step.obs.tobytes() + step.reward.tobytes() + step.done.tobytes())
        env.close()
        return shown

    assert trace(seed=7) == trace(seed=7) == trace(seed=7, threads=2)
    assert trace(seed=7) != trace(seed=8)


def test_the_doctor_tries_a_snapshot(monkeypatch):
    monkeypatch.setattr(doctor, "STEPS", 20)
    found = {check.text: check.level for check in doctor.conformance("Ant-v5")}
    assert found["continues bit for bit after a snapshot was restored"] == "ok"
    monkeypatch.setattr(mujoco, "_derived", lambda *_: [])
    found = {check.text: check.level for check in doctor.conformance("Ant-v5")}
    assert found["continues differently after a snapshot was restored"] == "fail"


@pytest.mark.skipif(
    not os.environ.get("DISPLAY") and ctypes.util.find_library("EGL") is None,
    reason="neither a screen nor EGL to draw on",
)
def test_pictures_need_no_screen(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "")  # so that what is set below is undone
    monkeypatch.delenv("MUJOCO_GL")
    env = make(EnvConfig(id="Ant-v5"), Making(1, (0,), render=True))
    env.reset()
    picture = env.picture()
    assert (picture.shape, picture.dtype) == ((480, 480, 3), np.uint8)
    assert picture.std() > 1
    env.close()
