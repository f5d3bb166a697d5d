"""The paper's worlds through the command line: train, evaluate, film, look, resume."""

import json

import pytest
import torch

from dna.algorithm.returns import estimate
from dna.algorithm.rollout import Collector, Replay
from dna.cli import main
from dna.common.tensor_files import numbered
from dna.common.timing import Clock
from dna.envs import Making, make
from dna.networks.networks import Networks
from dna.runs.setup import How
from dna.runs.train import train
from helpers import tiny

SMALL = ["agents=4", "horizon=16", "interactions=128", "network.width=8", "warm_up.high=5"]
WALKS = [f"{p}.sgd.minibatch=32" for p in ("policy", "value", "distil")]
#: Id → settings that make its episodes short.
WORLDS = {
    "ALE/Breakout-v5": ["env.atari.max_frames=200"],
    "HalfCheetah-v5": ["env.max_episode_steps=40"],
    "procgen/bossfight": [],  # its episodes are short by themselves
}


def dna(*words: str) -> int:
    """The exit code of a command."""
    return main(list(words))


@pytest.mark.filterwarnings("ignore:a resumed run may not be exact")  # Procgen's state
@pytest.mark.parametrize("env_id", WORLDS)
def test_train_eval_and_record(env_id, tmp_path, capsys):
    run = str(tmp_path / "run")
    train_words = ["train", env_id, *SMALL, *WALKS, *WORLDS[env_id], "--out", run, "--json"]
    train_words += ["--threads", "1"]
    assert dna(*train_words, "--quiet") == 0
    assert json.loads(capsys.readouterr().out)["interactions"] >= 128
    assert dna("eval", run, "--episodes", "2", "--parallel", "2", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert ("human_normalized" in str(result)) == env_id.startswith("ALE/")
    assert dna("record", run) == 0
    assert (tmp_path / "run/episode.mp4").stat().st_size > 500


@pytest.mark.parametrize(
    "env_id",
    [
        pytest.param("ALE/Breakout-v5", marks=pytest.mark.long),
        "ALE/Tetris-v5",
        "HalfCheetah-v5",
        "procgen/bigfish",
    ],
)
def test_the_doctor_finds_nothing_wrong(env_id, capsys):
    assert dna("doctor", env_id) == 0
    report = capsys.readouterr().out
    assert "FAIL" not in report
    assert "the same seed and actions give the same episode" in report
    exact = "continues bit for bit after a snapshot was restored"
    assert (exact in report) == (not env_id.startswith("procgen"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ALE/Breakot-v5"], "did you mean 'ALE/Breakout-v5'"),
        (["procgen/coinrunn"], "coinrun"),
        (["Pong-v5"], "did you mean 'ALE/Pong-v5'"),
        (["coinrun"], "did you mean 'procgen/coinrun'"),
        (["ALE/Pong-v5", "env.atari.size=60"], "env.atari.size: given 60"),
        (["ALE/Breakout-v5", "env.atari.stick=1"], "did you mean 'sticky'"),
        (["ALE/Breakout-v5", "env.atari.noops=[0,3]"], "env.atari.noops: given [0, 3]"),
        (["ALE/Breakout-v5", "env.atari.size=3"], "env.atari.size: given 3"),
        (["ALE/Breakout-v5", "env.options.frameskip=2"], "env.options: not beside env.atari"),
        (["procgen/coinrun", "env.procgen.distribution=nightmare"], "env.procgen.distribution"),
        (["CartPole-v1", "--preset", "tuned.dna"], "is for ids that begin with ALE/"),
        (["HalfCheetah-v2"], "v5"),
    ],
)
def test_a_mistake_is_one_line(words, complaint, tmp_path, capsys):
    assert dna("train", *words, "--out", str(tmp_path / "run")) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert complaint in captured.err
    assert not (tmp_path / "run").exists()


def test_two_runs_on_atari_are_the_same_to_the_byte_whatever_the_workers(tmp_path):
    config = tiny("dna", "ALE/Breakout-v5", agents=8, horizon=8, interactions=128,
                  **{"env.atari.max_frames": 200, "env.atari.sticky": 0.25,
                     "repeat_penalty.after": 3})  # fmt: skip
    for threads in (1, 2):
        how = How(threads=1, env_threads=threads, tensorboard=False)
        train(config, 0, tmp_path / str(threads), how=how)
    for name in ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors"):
        one, two = ((tmp_path / str(n) / name).read_bytes() for n in (1, 2))
        assert one == two
        assert one


def test_a_checkpoint_keeps_ppgs_frames(tmp_path):
    config = tiny("ppg", "ALE/Pong-v5", **{"env.atari.max_frames": 60})
    env = make(config.env, Making(4, (1, 2, 3, 4)))
    networks = Networks(config, env.observation, env.action)
    collector = Collector(env, networks, config, 0)
    experience, _ = estimate(collector.collect(0, Clock()), networks, config.returns)
    kept, loaded = Replay(1), Replay(1)
    kept.add(experience)
    state = {f"replay/{name}": tensor for name, tensor in kept.state().items()}
    loaded.load(numbered(state, "replay"))
    (again,) = loaded.rollouts
    assert len(again.obs) == len(experience)
    assert torch.equal(again.obs[:], experience.obs[:])
    assert torch.equal(again["v_targ"], experience["v_targ"])
