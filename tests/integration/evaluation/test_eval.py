"""`dna eval`: an episode depends on its number alone, several runs, what the JSON says."""

import json

import numpy as np
import pytest
from scipy import stats

from dna.cli import main
from dna.envs import Making, make
from dna.evaluation.evaluate import Playing, evaluate
from untrained import SHORT, settings, untrained


@pytest.mark.parametrize("env_id", SHORT)
@pytest.mark.parametrize("who", ["policy", "random"])
def test_scores_do_not_depend_on_how_many_play_side_by_side(env_id, who, tmp_path):
    policy = untrained(tmp_path / "run", settings(env_id))
    player = policy if who == "policy" else None

    def played(parallel):
        how = Playing(parallel=parallel)
        return evaluate(player, policy.env, episodes=5, seed=1, how=how)

    alone = played(1)
    assert played(2) == alone
    assert played(5) == alone
    assert len(set(zip(alone.scores, alone.lengths, strict=True))) > 1 or "Pong" in env_id
    fewer = evaluate(player, policy.env, episodes=3, seed=1)
    assert fewer.scores == alone.scores[:3]


@pytest.mark.parametrize("env_id", [name for name in SHORT if "procgen" not in name])
def test_an_episode_from_a_new_seed_is_that_of_an_environment_just_made(env_id):
    env = settings(env_id).env
    used, fresh = make(env, Making(1, (3,))), make(env, Making(1, (4,)))
    rng = np.random.default_rng(0)
    try:
        used.reset()
        used.reseed(0, 4)
        while not (step := used.step(used.uniform(rng))).ended[0]:
            pass
        assert np.array_equal(step.obs, fresh.reset())
        for _ in range(12):
            action = used.uniform(rng)
            step, other = used.step(action), fresh.step(action)
            assert np.array_equal(step.obs, other.obs)
            assert np.array_equal(step.reward, other.reward)
            assert np.array_equal(step.done, other.done)
            if step.done[0]:
                break
    finally:
        used.close()
        fresh.close()


def test_games_in_worker_processes_are_the_same(tmp_path):
    policy = untrained(tmp_path / "run", settings("ALE/Pong-v5"), spread=100)
    played = [
        evaluate(policy, policy.env, episodes=12, seed=1, how=Playing(parallel=n))
        for n in (3, 12)
    ]
    assert played[0] == played[1]


def test_progress_counts_every_episode(tmp_path):
    policy = untrained(tmp_path / "run", settings("CartPole-v1"))
    told = []
    evaluate(policy, policy.env, episodes=7, seed=1, how=Playing(progress=told.append))
    assert told == list(range(1, 8))


def test_progress_is_lines_on_stderr_when_not_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("dna.cli.progress.QUIET_FOR", 0.0)
    run = tmp_path / "run"
    untrained(run, settings("CartPole-v1"))
    assert main(["eval", str(run), "--episodes", "3", "--json"]) == 0
    often = capsys.readouterr()
    told = [f"{run}, policy, episodes played: {n} of 3" for n in (1, 2, 3)]
    assert often.err.splitlines() == told
    assert json.loads(often.out)["policy"]["episodes"] == 3
    monkeypatch.setattr("dna.cli.progress.QUIET_FOR", 1000.0)
    assert main(["eval", str(run), "--episodes", "3"]) == 0
    seldom = capsys.readouterr()
    assert seldom.err.splitlines() == [told[0], told[2]]
    assert len(seldom.out.splitlines()) == 1


def test_one_run_as_json_has_every_field(tmp_path, capsys):
    untrained(tmp_path / "run", settings("CartPole-v1"))
    words = ["eval", str(tmp_path / "run"), "--episodes", "6", "--json", "--random"]
    assert main([*words, "--parallel", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    fields = {"episodes", "mean", "std", "low", "high", "interval", "median", "iqm"}
    for who in ("policy", "random"):
        assert set(result[who]) == fields | {"min", "max", "length"}
    assert json.loads((tmp_path / "run" / "eval.json").read_text()) == result
    assert main([*words, "--parallel", "6"]) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_several_runs_are_a_table_with_the_mean_of_their_seeds(tmp_path, capsys):
    config = settings("CartPole-v1")
    for seed in (0, 1, 2):
        untrained(tmp_path / "many" / f"seed{seed}", config, seed, spread=100)
    untrained(tmp_path / "other", settings("CartPole-v1", "ppo"))
    words = ["eval", str(tmp_path / "many"), str(tmp_path / "other"), "--episodes", "4"]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [run["run"].rpartition("/")[2] for run in result["runs"]] == [
        "seed0",
        "seed1",
        "seed2",
        "other",
    ]
    dna, ppo = result["configurations"]
    means = [run["policy"]["mean"] for run in result["runs"][:3]]
    assert dna["mean"] == pytest.approx(np.mean(means))
    low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    assert (dna["low"], dna["high"]) == pytest.approx((low, high))
    assert (ppo["algorithm"], ppo["low"], len(ppo["runs"])) == ("ppo", None, 1)
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 4 + 1
    assert lines[-1].startswith("mean of 3 runs")
    assert f"{np.mean(means):.2f}" in lines[-1]
    for seed in (0, 1, 2):
        assert (tmp_path / "many" / f"seed{seed}" / "eval.json").is_file()
