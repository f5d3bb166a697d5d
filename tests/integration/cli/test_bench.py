"""`dna bench`: turns, ratios, the limit; peers answer the same protocol."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dna.cli import main
from dna.cli.bench import (
    FAMILIES,
    PEER_PYTHON,
    PEERS,
    Case,
    Contestant,
    Result,
    cases,
    contest,
    figures,
    ratios,
    work_of,
)
from dna.cli.bench.serve import Bench
from dna.common.errors import BadInput, EnvironmentFailure
from dna.config.overrides import tweak
from dna.config.presets import for_environment
from helpers import tiny

PEER_SCRIPTS = Path(__file__).parents[3] / "benchmarks/peers"


@pytest.fixture
def bench(tmp_path):
    config = tiny("dna", "CartPole-v1", **{"network.width": 32, "network.depth": 1})
    made = Bench(Case("tiny", config, 2), tmp_path / "run", "off")
    yield made
    made.run.collector.env.close()


def test_a_turn_says_how_much_was_done_in_what_time_and_where(bench):
    turn = bench.turn()
    assert turn["interactions"] == 2 * 16 * 4
    assert turn["seconds"] > 0
    assert {"inference", "env", "returns", "policy", "value", "distil"} <= set(turn["split"])
    assert {"optimizer", "frozen columns"} <= set(turn["split"])
    assert 0 < sum(turn["split"].values()) <= turn["seconds"]
    assert turn["memory"] > 10**7


def test_the_limit_counts_the_operations_of_the_algorithm(bench):
    limit = bench.limit()
    assert limit["matmul"] > 1e9
    assert limit["env"] > 100
    # CartPole: 4 inputs, 32 units, heads of 2 + 1 and of 1; a product of m × n takes 2mn.
    policy, value = 2 * (4 * 32 + 32 * 3), 2 * (4 * 32 + 32)
    operations = limit["operations"]
    assert operations["inference"] == policy
    assert operations["returns"] == pytest.approx(value * 17 / 16)
    # Backward: weights of every layer, and inputs of all but the first; V_π's head is idle.
    trained = policy + 2 * (4 * 32 + 2 * 32 * 2)
    assert operations["policy"] == 2 * trained
    frozen = policy + value
    distilled = policy + 2 * (4 * 32 + 2 * 32 * 3)
    assert operations["distil"] == frozen + 2 * distilled


def test_counting_moves_no_weight(bench):
    before = bench.run.learner.weights.theta.clone()
    bench.limit()
    assert bool((bench.run.learner.weights.theta == before).all())
    assert not bench.run.learner.weights.gradient.any()


def turn(rate, **more):
    return {
        "interactions": rate,
        "seconds": 1.0,
        "memory": 10**9,
        "split": {"env": 0.25},
        **more,
    }


def test_figures_are_ratios_within_a_round():
    limit = {"matmul": 1e6, "env": 1000.0, "operations": {"policy": 500.0, "value": 500.0}}
    case = Case("PPO", for_environment("CartPole-v1", "ppo"), 1)
    result = Result(case, {"ours": [turn(200), turn(400), turn(300)]}, [limit] * 3)
    result.turns["sb3"] = [turn(100), turn(100), turn(300)]
    assert result.bounds() == [500.0] * 3  # 1 ms of products and 1 ms of stepping
    found = ratios(result.rates("ours"), result.rates("sb3"))
    assert found == {"median": 2.0, "min": 1.0, "max": 4.0}
    (found,) = figures("minatar", [result])["cases"]
    assert found["ratios"]["sb3"] == {"median": 2.0, "min": 1.0, "max": 4.0}
    assert found["of_limit"]["median"] == pytest.approx(0.6)
    assert found["split"] == {"env": 0.25, "other": 0.75}
    assert found["rates"]["ours"]["turns"] == 3
    json.dumps(found)


def test_cases_are_compared_within_a_round_too():
    config = for_environment("CartPole-v1", "ppo")
    limit = {"matmul": 1e6, "env": 1000.0, "operations": {"policy": 500.0}}
    first = Result(Case("PPO", config, 1), {"ours": [turn(100)], "sb3": [turn(50)]}, [limit])
    dna = Result(Case("DNA", config, 1, hours=4.0), {"ours": [turn(80)]}, [limit])
    ppg = Result(Case("PPG", config, 1, beside=("sb3",)), {"ours": [turn(40)]}, [limit])
    found = figures("minatar", [first, dna, ppg])["cases"]
    assert [case["time"]["median"] for case in found] == [0.8, 1.0, 2.0]  # DNA's being 1
    assert [case["beside"] for case in found[:2]] == [{}, {}]
    assert found[2]["beside"]["sb3"]["median"] == 0.8


def test_a_contestant_that_dies_is_an_error_with_its_last_words():
    code = "import sys; input(); print('{}'); input(); sys.exit('out of luck')"
    contestant = Contestant("peer", [sys.executable, "-uc", code], {})
    assert contestant.ask() == {}
    with pytest.raises(EnvironmentFailure, match=r"^peer: ended \(out of luck\)$"):
        contestant.ask()
    contestant.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_name_work_that_peers_can_do(family):
    found = cases(family)
    assert found[0].peers, "the first case is what peers are compared on"
    for case in found:
        assert set(case.peers) <= set(PEERS)
        asked = work_of(case, family, 1)
        batch = asked["agents"] * asked["horizon"]
        assert case.config.batch == batch
        assert batch % asked["minibatch"] == 0
    assert len({case.name for case in found}) == len(found)


def test_the_cases_of_atari_are_the_papers_configurations():
    by_name = {case.name: case for case in cases("atari")}
    ppo = by_name["PPO (1x)"].config
    assert (ppo.agents, ppo.horizon, ppo.network.channels) == (128, 128, 1)
    assert (ppo.phases[0].sgd.epochs, ppo.phases[0].sgd.minibatch) == (1, 2048)
    dna = tweak(for_environment("ALE/Breakout-v5"), **{"warm_up.low": 0, "warm_up.high": 8})
    assert by_name["DNA"].config == dna
    assert [case.hours for case in by_name.values()] == [None, 4.0, 3.0, 4.5, 7.5]


def answers(command, folder):
    done = subprocess.run(
        command, input="go\ngo\n", capture_output=True, text=True, timeout=120, cwd=folder
    )
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(turns) == 2, done.stderr
    assert all(one["seconds"] > 0 for one in turns)
    return turns


@pytest.mark.parametrize("script", ["sb3", "cleanrl_style"])
def test_a_peer_does_the_work_it_is_asked_for(script, tmp_path):
    asked = {"family": "mujoco", "env": "Pendulum-v1", "agents": 2, "horizon": 32}
    asked |= {"epochs": 1, "minibatch": 16, "iterations": 2, "threads": 1}
    command = [sys.executable, PEER_SCRIPTS / f"run_{script}.py", json.dumps(asked)]
    assert [one["interactions"] for one in answers(command, tmp_path)] == [128, 128]


@pytest.mark.parametrize("peer", PEERS)
def test_every_peer_has_a_script_and_a_case(peer):
    assert (PEER_SCRIPTS / f"run_{peer.replace('-', '_')}.py").is_file()
    assert any(peer in case.peers for family in FAMILIES for case in cases(family))


@pytest.mark.parametrize("family", ["minatar", "mujoco"])
@pytest.mark.parametrize("peer", ["torchrl", "tianshou", "skrl"])
def test_a_library_from_make_peers_does_the_work_it_is_asked_for(peer, family, tmp_path):
    python = PEER_SCRIPTS.parents[1] / PEER_PYTHON
    if not python.exists():
        pytest.skip("needs `make peers`")
    env = "MinAtar/Breakout-v1" if family == "minatar" else "Pendulum-v1"
    asked = {"family": family, "env": env, "agents": 2, "horizon": 32}
    asked |= {"epochs": 1, "minibatch": 16, "iterations": 2, "threads": 1}
    turns = answers([python, PEER_SCRIPTS / f"run_{peer}.py", json.dumps(asked)], tmp_path)
    assert [one["interactions"] for one in turns] == [128, 128]


def test_peers_that_are_not_there_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="make peers"):
        contest("minatar", ["sb3"], 1)
    assert main(["bench", "minatar", "--against", "cleanrl"]) == 2
    assert "did you mean 'cleanrl-style'?" in capsys.readouterr().err
    assert main(["bench", "nowhere"]) == 2


def test_our_server_answers_turns(monkeypatch):
    ours = Contestant("ours", [sys.executable, "-m", "dna.cli.bench.serve", "minatar", "0"], {})
    try:
        found = ours.ask()
    finally:
        ours.close()
    assert found["interactions"] == 8 * 64 * 64
    assert ours.process.returncode == 0
