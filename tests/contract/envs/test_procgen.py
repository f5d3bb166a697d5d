"""Procgen through EnvPool: games, levels, seeds, reset rows, and what would corrupt it."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dna.cli import doctor
from dna.common.errors import BadInput, EnvironmentFailure, MissingExtra
from dna.common.randomness import integer
from dna.config import EnvConfig, Procgen
from dna.envs import Making, make, procgen

NOTHING = 4  # the action that moves nothing


def vector(game="coinrun", agents=3, seed=0, threads=1, **levels):
    seeds = tuple(integer(seed, "env", agent, 0) for agent in range(agents))
    settings = Procgen(**levels) if levels else None
    config = EnvConfig(id=f"procgen/{game}", procgen=settings)
    return make(config, Making(agents, seeds, threads))


def still(env):
    return np.full((env.agents, 1), NOTHING)


def trace(env, steps=150):
    rng = np.random.default_rng(0)
    rows = [env.reset().tobytes()]
    for _ in range(steps):
        step = env.step(env.uniform(rng))
        ends = step.done.tobytes() + step.terminated.tobytes() + step.valid.tobytes()
        rows.append(step.obs.tobytes() + step.reward.tobytes() + ends)
    env.close()
    return rows


@pytest.mark.parametrize("game", procgen.GAMES)
def test_every_game_shows_colors_with_channels_last(game):
    env = vector(game)
    assert env.observation.shape == (64, 64, 3)
    assert (env.observation.kind, env.observation.dtype) == ("image", "uint8")
    assert (env.action.kind, env.action.sizes) == ("categorical", (15,))
    for obs in (env.reset(), env.step(still(env)).obs):
        assert (obs.shape, obs.dtype) == ((3, 64, 64, 3), np.uint8)
        # Neighboring pixels are more alike than neighboring numbers would be by chance.
        assert np.abs(np.diff(obs.astype(int), axis=1)).mean() < 40
        assert obs.std() > 5
    env.close()


def test_the_table_of_levels_is_envpools():
    vector().close()
    import envpool

    ours = {
        f"{game.capitalize()}{levels.capitalize()}-v0"
        for game in procgen.GAMES
        for levels in ("easy", "hard", *procgen._OTHERS[game])
    }
    known = envpool.list_all_envs()
    levels = ("Easy-v0", "Hard-v0", "Extreme-v0", "Memory-v0", "Exploration-v0")
    games = tuple(game.capitalize() for game in procgen.GAMES)
    assert ours == {e for e in known if e.startswith(games) and e.endswith(levels)}


def test_the_same_seed_is_equal_another_differs_and_threads_change_nothing():
    first = trace(vector(seed=7))
    assert trace(vector(seed=7)) == first
    assert trace(vector(seed=7, threads=2)) == first
    assert trace(vector(seed=7, threads=None)) == first
    assert trace(vector(seed=8)) != first


def test_runs_of_neighboring_seeds_share_no_environment():
    levels = [vector(agents=16, seed=seed).reset() for seed in (7, 8)]
    shown = {row.tobytes() for obs in levels for row in obs}
    assert len(shown) == 32


def test_a_second_reset_starts_from_the_seeds_again():
    env = vector()
    first = env.reset()
    for _ in range(5):
        env.step(env.uniform(np.random.default_rng(0)))
    np.testing.assert_array_equal(env.reset(), first)


def test_the_row_after_an_end_only_resets():
    """Maze ends after 500 steps: truncated, shown to its end, then a row that counts not."""
    env = vector("maze")
    env.reset()
    steps = [env.step(still(env)) for _ in range(503)]
    before, end, reset, after = steps[498], steps[499], steps[500], steps[501]
    assert [bool(step.done.all()) for step in (before, end, reset, after)] == [0, 1, 0, 0]
    assert not end.terminated.any()
    assert [bool(step.valid.any()) for step in (before, end, reset, after)] == [1, 1, 0, 1]
    assert not reset.reward.any()
    np.testing.assert_array_equal(end.obs, before.obs)  # still the old maze
    assert (reset.obs != end.obs).any(axis=(1, 2, 3)).all()  # and now a new one
    assert not any(step.final_obs for step in steps)


def test_settings_choose_the_levels():
    one = vector(num_levels=1, start_level=3).reset()
    assert all(np.array_equal(row, one[0]) for row in one)
    other = vector(num_levels=1, start_level=4).reset()
    assert not np.array_equal(one[0], other[0])
    easy = vector(distribution="easy").reset()
    assert not np.array_equal(easy, vector(distribution="hard").reset())
    np.testing.assert_array_equal(vector().reset(), vector(distribution="hard").reset())


@pytest.mark.parametrize("action", [-1, 15, 99])
def test_an_action_out_of_range_never_reaches_envpool(action):
    env = vector()
    env.reset()
    actions = still(env)
    actions[1] = action
    with pytest.raises(EnvironmentFailure, match=f"action {action} of agent 1 is not 0 to 14"):
        env.step(actions)
    with pytest.raises(EnvironmentFailure, match=r"shape \(2,\) are not \(3,\)"):
        env.step(actions[:2])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (EnvConfig(id="procgen/coinrum"), "coinrum: no such game; did you mean 'coinrun'"),
        (EnvConfig(id="procgen/xyzzy"), "no such game; known: bigfish, .*starpilot$"),
        (EnvConfig(id="procgen/"), "no such game; known"),
        (
            EnvConfig(id="procgen/coinrun", procgen=Procgen(distribution="memory")),
            "distribution: coinrun has no memory levels, only easy, hard, exploration",
        ),
        (
            EnvConfig(id="procgen/maze", procgen=Procgen(num_levels=9, start_level=2**31 - 9)),
            "start_level: start_level . num_levels must be below",
        ),
        (EnvConfig(id="procgen/maze", options={"a": 1}), r"options: .*keys of env\.procgen"),
        (EnvConfig(id="procgen/maze", max_episode_steps=9), "leave it null"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(config, words):
    with pytest.raises(BadInput, match=words) as refused:
        make(config, Making(1, (0,)))
    assert "\n" not in str(refused.value)


def test_its_state_cannot_be_saved_and_its_picture_is_what_it_shows():
    env = vector()
    env.reset()
    step = env.step(still(env))
    np.testing.assert_array_equal(env.picture(), step.obs[0])
    assert "EnvPool" in env.inexact
    with pytest.raises(EnvironmentFailure, match="procgen/coinrun: its state cannot be saved"):
        env.snapshot()
    with pytest.raises(EnvironmentFailure, match="cannot be saved"):
        env.restore({})


def test_qt_is_found_without_being_told_where_even_after_envpool():
    code = (
        "import envpool\n"  # on its own it does not find the Qt of a package
        "from dna.config import EnvConfig\n"
        "from dna.envs import Making, make\n"
        "print(make(EnvConfig(id='procgen/maze'), Making(1, (0,))).reset().shape)\n"
    )
    clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "(1, 64, 64, 3)\n", done.stderr


def test_without_its_packages_the_extra_is_named(monkeypatch):
    load = procgen.load_qt.__wrapped__
    monkeypatch.setattr(procgen, "_QT", "libNoSuchQt.so.5")
    with pytest.raises(BadInput, match=r"libNoSuchQt.*pip install 'ppo-dna\[procgen\]'"):
        load()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"Qt 5 needs .*'ppo-dna\[procgen\]'"):
        load()
    with pytest.raises(MissingExtra, match=r"Procgen needs .*'ppo-dna\[procgen\]'"):
        vector()


def test_the_doctor_says_how_qt_stands_and_checks_a_game(monkeypatch):
    assert any("Qt 5 for Procgen: " in check.text for check in doctor.installation())
    monkeypatch.setattr(doctor, "STEPS", 20)
    found = {check.text: check.level for check in doctor.conformance("procgen/starpilot")}
    assert "fail" not in found.values()
    why = "procgen/starpilot: EnvPool does not expose its state"
    assert found[f"{why}: a resumed run starts new episodes"] == "note"
    assert "no episode ended in 20 steps" in found

    def broken():
        raise BadInput("Procgen's Qt 5 is gone")

    monkeypatch.setattr("dna.envs.procgen.load_qt", broken)
    levels = {check.text: check.level for check in doctor.installation()}
    assert levels["Procgen's Qt 5 is gone"] == "note"
