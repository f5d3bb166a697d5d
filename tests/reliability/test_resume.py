"""A run that was interrupted writes the bytes of one that was not."""

import threading
from contextlib import closing

import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

from dna.common.errors import Preempted, StorageFailure
from dna.common.storage import read_folder, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from
from dna.config.overrides import digest, tweak
from dna.networks.encoders import register_encoder
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import Run, train
from helpers import Stopper, environment, tiny

ENVS = ["CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v1", "HalfCheetah-v5", "ALE/Qbert-v5"]
FILES = ("config.json", "metrics.jsonl", "episodes.csv", "policy/policy.safetensors")


def configured(algorithm, env_id):
    noise = {"every": 2, "b_small": 8, "samples": 2}
    config = tiny(algorithm, env_id, interactions=768, noise=noise)
    if env_id.startswith("ALE/"):
        penalty = {"amount": 0.25, "after": 3}
        changes = {"env.atari": {}, "env.time_limit": "terminal", "repeat_penalty": penalty}
        # As many iterations of fewer images: a row costs a thousand times CartPole's.
        sizes = {"horizon": 8, "agents": 2, "interactions": 192}
        config = tweak(config, **changes, **sizes)
    return config


def everything(folder):
    """The bytes of all that a run computes, the newest checkpoint's tensors included."""
    newest = folder / "checkpoints" / checkpoint.names(folder)[-1] / "rank0.safetensors"
    return {name: (folder / name).read_bytes() for name in FILES} | {
        newest.parent.name: newest.read_bytes()
    }


@pytest.mark.parametrize("algorithm", ["ppo", "dna", "ppg"])
@pytest.mark.parametrize("env_id", ENVS)
def test_interrupted_and_uninterrupted_runs_are_the_same_bytes(algorithm, env_id, tmp_path):
    config = configured(algorithm, env_id)
    every = 3 * config.batch
    how = How(checkpoint_every=every, tensorboard=False, threads=1)
    train(config, 3, tmp_path / "whole", how=how)
    for iteration in (3, 4, 8):
        with pytest.raises(Preempted):
            train(config, 3, tmp_path / "cut", how=how, sinks=[Stopper(iteration)])
    train(config, 3, tmp_path / "cut", how=how)
    assert everything(tmp_path / "cut") == everything(tmp_path / "whole")
    machine = RunFolder(tmp_path / "cut").machine()
    assert (machine["resumes"], machine["exact"], machine["why_not_exact"]) == (3, True, [])


def test_another_number_of_torchs_threads_is_said(tmp_path):
    """Torch's own threads remain where an encoder is not known to work in pieces."""
    name = register_encoder(lambda spec: torch.nn.Linear(4, 8), "of_torchs_threads")
    config = tiny("dna", "CartPole-v1", interactions=768, **{"network.encoder": name})
    how = How(tensorboard=False, threads=1)
    with pytest.raises(Preempted):
        train(config, 3, tmp_path, how=how, sinks=[Stopper(3)])
    with pytest.warns(RuntimeWarning, match="not exact from here on: torch threads was 1"):
        train(config, 3, tmp_path, how=How(tensorboard=False, threads=2))
    machine = RunFolder(tmp_path).machine()
    assert machine["exact"] is False
    assert machine["why_not_exact"] == ["torch threads was 1, now 2"]


def test_moments_of_other_weights_are_refused(tmp_path):
    config = tiny("dna", "CartPole-v1", interactions=768)
    how = How(tensorboard=False, threads=1)
    with pytest.raises(Preempted):
        train(config, 3, tmp_path, how=how, sinks=[Stopper(3)])
    folder = tmp_path / "checkpoints" / checkpoint.names(tmp_path)[-1]
    files = read_folder(folder)
    tensors = tensors_from(files["rank0.safetensors"], "test")
    tensors["optimizer/value/0/exp_avg"] = tensors["optimizer/value/0/exp_avg"][:-1].clone()
    files |= {"rank0.safetensors": tensor_bytes(tensors)}
    write_folder(folder, files, {"digest": digest(config, 3)})
    saved = checkpoint.load(folder, digest(config, 3))
    with closing(environment(config)) as env:
        run = Run(config, 3, RunFolder(tmp_path), env, how)
        with pytest.raises(StorageFailure, match="value: its moments are not of these weights"):
            checkpoint.restore(saved, run.parts())


def test_environments_that_cannot_be_saved_are_restarted_and_said(tmp_path):
    config = tiny("dna", None, interactions=768)
    how = How(tensorboard=False, threads=1)
    with (
        pytest.warns(RuntimeWarning, match="a resumed run may not be exact: environment"),
        pytest.raises(Preempted),
    ):
        train(config, 3, tmp_path, how=how, sinks=[Stopper(3)], source=Locked)
    assert RunFolder(tmp_path).machine()["exact"] is False, "said before any resume"
    with pytest.warns(RuntimeWarning, match="not exact from here on: environments"):
        train(config, 3, tmp_path, how=how, source=Locked)
    machine = RunFolder(tmp_path).machine()
    assert machine["exact"] is False
    why = "environment: _thread.lock cannot be saved"
    assert machine["why_not_exact"] == [why, f"environments were restarted ({why})"]
    lengths = [int(line.split(",")[3]) for line in episodes(tmp_path)]
    assert all(length > 0 for length in lengths)


class Locked(CartPoleEnv):
    """Holds something that no file can hold."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def episodes(folder):
    return (folder / "episodes.csv").read_text().splitlines()[1:]
