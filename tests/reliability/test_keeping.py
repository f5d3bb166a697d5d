"""When a run saves, what it keeps, what it says; and that its state is complete."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_resume import Stopper, everything

from dna.algorithm.rollout import Collector
from dna.common import syscalls
from dna.common.errors import NonFinite, Preempted, StorageFailure
from dna.common.storage import PARTIAL
from dna.common.tensor_files import tensors_from
from dna.config import Linear
from dna.config.overrides import digest, tweak
from dna.envs.fake import Identity
from dna.networks.networks import Networks
from dna.networks.normalizers import RunningMoments
from dna.runs import checkpoint, retention
from dna.runs.folder import RunFolder
from dna.runs.retention import Mark, Saver, kept
from dna.runs.setup import How, build_environments
from dna.runs.train import Run, train
from helpers import environment, tiny

QUIET = How(tensorboard=False, threads=1, verify=False)


# --- what is kept ---------------------------------------------------------------------------


def marks(*interactions, **scores):
    return {f"{i:012d}": Mark(i, scores.get(f"at{i}"), 0) for i in interactions}


def names(*interactions):
    return {f"{i:012d}" for i in interactions}


def test_the_newest_three_are_kept():
    assert kept(marks(1, 2, 3, 4, 5), 1000) == names(1, 3, 4, 5)  # 1: the first tenth's first


def test_the_best_score_is_kept_the_later_of_equals():
    found = marks(1, 2, 3, 4, 5, 6, 7, at2=9.0, at3=9.0, at4=1.0)
    assert kept(found, 1000) == names(1, 3, 5, 6, 7)


def test_one_of_every_tenth_is_kept():
    steps = range(25, 1001, 25)
    firsts = [min(i for i in steps if i * 10 // 1000 == tenth) for tenth in range(11)]
    assert kept(marks(*steps), 1000) == names(*firsts, 950, 975, 1000)


def test_a_replay_is_kept_only_among_the_newest():
    found = marks(1, 2, 3, 4, 5) | {"000000000001": Mark(1, 99.0, replay=3)}
    assert kept(found, 1000) == names(2, 3, 4, 5)


def test_a_run_keeps_what_the_rule_says(tmp_path):
    train(tiny("ppo", interactions=1280), 0, tmp_path, how=How(checkpoint_every=64, threads=1))
    there = set(checkpoint.names(tmp_path))
    assert len(there) >= 10
    assert names(1152, 1216, 1280) <= there


# --- when the disk refuses ------------------------------------------------------------------


def refusing(monkeypatch, times):
    """Creating files fails so many times with a full disk."""
    create, left = syscalls.create, [times]

    def full(path):
        if left[0] and "checkpoints" in str(path):
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(path)

    monkeypatch.setattr(syscalls, "create", full)


@pytest.mark.filterwarnings("default")
def test_a_disk_that_is_full_for_a_moment_costs_nothing(tmp_path, monkeypatch):
    config = tiny("dna", interactions=768)
    how = How(checkpoint_every=64, tensorboard=False, threads=1, verify=False)
    train(config, 0, tmp_path / "whole", how=how)
    refusing(monkeypatch, 2)
    with pytest.warns(RuntimeWarning, match="not saved, trying again.*No space left on device"):
        train(config, 0, tmp_path / "run", how=how)
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")


@pytest.mark.filterwarnings("default")
def test_the_third_failure_ends_the_run_and_keeps_what_was_saved(tmp_path, monkeypatch):
    config = tiny("dna", interactions=768)
    how = How(checkpoint_every=64, tensorboard=False, threads=1, verify=False)
    train(config, 0, tmp_path / "whole", how=how)
    with pytest.raises(Preempted):
        train(config, 0, tmp_path / "run", how=how, sinks=[Stopper(4)])
    before = checkpoint.names(tmp_path / "run")
    refusing(monkeypatch, 1000)
    with pytest.raises(StorageFailure, match="No space left on device"):
        train(config, 0, tmp_path / "run", how=how)
    assert checkpoint.names(tmp_path / "run") == before
    monkeypatch.undo()
    train(config, 0, tmp_path / "run", how=how)
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")


@pytest.mark.filterwarnings("default")
def test_a_stop_tries_again_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "PAUSES", (0.0, 0.0))
    refusing(monkeypatch, 2)
    with pytest.raises(Preempted):
        train(tiny("dna", interactions=768), 0, tmp_path, how=QUIET, sinks=[Stopper(3)])
    assert len(checkpoint.names(tmp_path)) == 1


# --- what is put aside ----------------------------------------------------------------------


def stopped(path, config, iteration=8):
    how = How(checkpoint_every=64, tensorboard=False, threads=1, verify=False)
    with pytest.raises(Preempted):
        train(config, 0, path, how=how, sinks=[Stopper(iteration)])
    return how


def test_a_damaged_checkpoint_is_named_put_aside_and_the_one_before_used(tmp_path):
    config = tiny("dna", interactions=768)
    train(config, 0, tmp_path / "whole", how=QUIET)
    how = stopped(tmp_path / "run", config)
    *_, before, newest = checkpoint.names(tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / newest / "rank0.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning) as said:
        train(config, 0, tmp_path / "run", how=how)
    words = [str(one.message) for one in said]
    assert any("not used" in text and str(path) in text for text in words)
    assert any("resuming from" in text and before in text for text in words)
    aside = list((tmp_path / "run" / "checkpoints").glob(f"damaged-{newest}-*"))
    assert len(aside) == 1
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")


def test_half_written_checkpoints_are_not_seen(tmp_path):
    config = tiny("dna", interactions=768)
    how = stopped(tmp_path, config)
    seen = checkpoint.names(tmp_path)
    left = tmp_path / "checkpoints" / f"{PARTIAL}99999999"
    left.mkdir()
    (left / "rank0.safetensors").write_bytes(b"half")
    assert checkpoint.names(tmp_path) == seen
    train(config, 0, tmp_path, how=how)
    assert not left.exists()  # swept away


# --- nothing is forgotten -------------------------------------------------------------------

#: Attributes that no checkpoint holds, and why that is right.
NOT_SAVED = {
    "Run.config": "in config.json",
    "Run.seed": "in config.json",
    "Run.folder": "where the checkpoint is",
    "Run.how": "how, not what; threads and device are in `setting`",
    "Run.networks": "saved by its own",
    "Run.clock": "wall-clock",
    "Run.learner": "saved by its own",
    "Run.check_held": "of this process",
    "Run.restore_check": "checks the snapshots of this process",
    "Learner.weights": "the memory of the networks' weights",
    "Learner.steps": "hold an optimizer each, which is saved, and what was compiled",
    "Run.collector": "saved by its own",
    "Learner.replay": "saved by its own",
    "Run.saver": "next save follows from the interactions; failures are of this process",
    "Run.machine": "saved by its own",
    "MachineRecord.folder": "where the checkpoint is",
    "MachineRecord.how": "how, not what; threads and device are in `setting`",
    "MachineRecord.device": "in `setting`",
    "MachineRecord.packages": "in `setting`",
    "MachineRecord.compiled": "in `setting`",
    "Networks.workers": "threads of this process",
    "MachineRecord.threads": "how, not what; in machine.json",
    "MachineRecord.pieces": "in `setting`",
    "MachineRecord.facts": "in machine.json, written anew by every process",
    "MachineRecord.not_resumable": "in machine.json",
    "Run.recorder": "the lengths and hashes of its files are saved",
    "Run.callbacks": "the user's own, given anew to every process",
    "Run.world": "of this process; how many ranks there are is in `setting`",
    "Collector.call": "of this process",
    "Collector.world": "of this process",
    "Collector.share": "follows from the configuration and the rank",
    "Collector.env": "saved by its own where it can be",
    "Collector.networks": "saved by its own",
    "Collector.config": "in config.json",
    "Collector.seed": "in config.json",
    "Collector.actor": "reads the networks' weights",
    "Collector.values": "in config.json",
    "Replay.length": "follows from the configuration",
    "Probe.settings": "in config.json",
    "Probe.networks": "saved by its own",
    "Probe.seed": "in config.json",
    "Probe.iteration": "told at the start of every iteration",
    "NoiseScale.alpha": "in config.json",
    "Networks.obs": "follows from the environment",
    "Networks.action": "follows from the environment",
    "Networks.distribution": "follows from the environment",
    "Networks.training": "torch's own flag; no layer of ours looks at it",
    "Networks.preprocess": "read off the normalizer's moments when they are loaded",
    "Normalizer.divisor": "follows from the moments",
    "GymVector.config": "in config.json",
    "GymVector.create": "follows from the settings, or is passed again",
    "GymVector.observation": "follows from the environment",
    "GymVector.action": "follows from the environment",
    "GymVector.agents": "in config.json",
    "GymVector._obs": "follows from the environment",
    "GymVector._action": "follows from the environment",
    "GymVector.name": "in config.json",
    "GymVector.fps": "of the films",
    "GymVector.limit": "follows from the environment",
    "GymVector.mujoco": "which way the environments are saved",
    "GymVector.draws": "watches the first calls of this process",
    "GymVector.pool": "of this process",
    "GymVector.threads": "of this process",
    "GymVector.seeds": "follow from the run's seed and are used by the first reset",
    "GymVector.upcoming": "seeds of an evaluation's episodes, never of a run",
    "GymVector.legal": "none here; saved where there are masks (test_own_environments)",
}
#: Attributes of the state that a checkpoint holds, and under which name.
SAVED = {
    "Run.iteration": "iteration",
    "Run.resumes": "resumes",
    "MachineRecord.inexact": "inexact",
    "Collector.reward_normalizer": "collector/reward/",
    "Collector.penalty": "collector/penalty/",
    "Collector.scores": "collector/scores/",
    "Collector.obs": "collector/now/obs",
    "Collector.elapsed": "collector/now/elapsed",
    "Collector.resetting": "collector/now/resetting",
    "Replay.rollouts": "replay/",
    "Learner.probe": "noise/",
    "Probe.scales": "noise/",
    "Probe.measured": "noise/",
    "NoiseScale.averages": "noise/",
    "Networks.policy": "networks/policy.",
    "Networks.value": "networks/value.",
    "Networks.normalizer": "observation/",
    "Normalizer.moments": "observation/",
    "GymVector.envs": "env/0/",
    "GymVector.elapsed": "env/elapsed",
}


def attributes(one):
    """What an object holds; a torch module keeps its parts in dictionaries of its own."""
    if not isinstance(one, torch.nn.Module):
        return set(vars(one))
    plain = {name for name in vars(one) if not name.startswith("_")}
    return plain | one._modules.keys() | one._buffers.keys() | one._parameters.keys()


def test_every_attribute_is_saved_or_has_a_reason(tmp_path):
    more = {"repeat_penalty": {"amount": 0.25, "after": 3}}
    more |= {"noise": {"every": 2, "b_small": 8, "samples": 2}}
    config = tiny("ppg", "CartPole-v1", interactions=768, **more)
    stopped(tmp_path, config, iteration=4)  # an odd one: the replay is not empty
    folder = tmp_path / "checkpoints" / checkpoint.names(tmp_path)[-1]
    tensors = tensors_from((folder / "rank0.safetensors").read_bytes(), "test")
    state = (folder / "state.json").read_text()
    env = build_environments(config, 0, 0, QUIET, None)
    run = Run(config, 0, RunFolder(tmp_path), env, QUIET)
    learner = run.learner
    assert learner.probe is not None
    objects = {"Run": run, "MachineRecord": run.machine, "Learner": learner}
    objects |= {"Collector": run.collector, "Replay": learner.replay}
    objects |= {"Probe": learner.probe, "NoiseScale": learner.probe.scales["policy"]}
    objects |= {"Networks": run.networks, "Normalizer": run.networks.normalizer}
    objects |= {"GymVector": env}
    found = {f"{kind}.{name}" for kind, one in objects.items() for name in attributes(one)}
    assert found == SAVED.keys() | NOT_SAVED.keys()
    assert not SAVED.keys() & NOT_SAVED.keys()
    for name, where in SAVED.items():
        assert any(key.startswith(where) for key in tensors) or f'"{where}"' in state, name
    env.close()


#: Of the parts that save themselves: attribute → key of their state; None: a constant.
PARTS = {
    "scores": {
        "agents": None,
        "returns": "returns",
        "lengths": "lengths",
        "window": "window",
        "interactions": "counts",
        "episodes": "counts",
        "fresh": None,  # taken by the row of its iteration, before any save
    },
    "reward_normalizer": {
        "moments": "m2",
        "world": None,
        "gamma": None,
        "clip": None,
        "episode_end": None,
        "running": "running",
    },
    "penalty": {"amount": None, "after": None, "last": "last", "repeats": "repeats"},
}


@pytest.mark.parametrize("part", PARTS)
def test_what_a_part_saves_is_all_that_it_has(part):
    config = tiny("ppg", "CartPole-v1", repeat_penalty={"amount": 0.25, "after": 3})
    env = environment(config)
    one = getattr(
        Collector(env, Networks(config, env.observation, env.action), config, 0), part
    )
    assert set(vars(one)) == set(PARTS[part])
    assert {key for key in PARTS[part].values() if key} <= set(one.state())
    env.close()


def test_moments_save_all_that_they_have():
    moments = RunningMoments((2,))
    assert set(vars(moments)) == set(moments.state())


def test_schedules_go_on_where_they_were(tmp_path):
    rate = Linear(start=1e-3, end=0.0).model_dump()
    config = tweak(tiny("ppo", interactions=768), **{"joint.sgd.learning_rate": rate})
    train(config, 3, tmp_path / "whole", how=QUIET)
    for iteration in (3, 7):
        with pytest.raises(Preempted):
            train(config, 3, tmp_path / "cut", how=QUIET, sinks=[Stopper(iteration)])
    train(config, 3, tmp_path / "cut", how=QUIET)
    assert everything(tmp_path / "cut") == everything(tmp_path / "whole")
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["joint/learning_rate"] for line in lines]
    assert rates == [1e-3 * (1 - i / 12) for i in range(12)]


def test_neighboring_runs_share_no_environment():
    def first(seed):
        env = build_environments(tiny("ppo"), seed, 0, QUIET, None)
        rows = {tuple(row) for row in env.reset()}
        env.close()
        return rows

    seen = [first(seed) for seed in range(6)]
    assert all(len(rows) == 4 for rows in seen)
    assert len(set.union(*seen)) == 24


# --- what is said and left to look at -------------------------------------------------------


def test_tensorboard_has_neither_gap_nor_overlap_after_a_kill(tmp_path):
    config, how = tiny("dna", interactions=768), How(threads=1, checkpoint_every=192)
    for iteration in (4, 7):
        with pytest.raises(Preempted):
            train(config, 0, tmp_path, how=how, sinks=[Stopper(iteration)])
        # As if the process had gone on a little before it was killed:
        newest = max((tmp_path / "tensorboard").iterdir())
        newest.write_bytes(newest.read_bytes() + b"half a record")
    train(config, 0, tmp_path, how=how)
    steps = []
    for path in sorted((tmp_path / "tensorboard").iterdir()):
        events = EventAccumulator(str(path))
        events.Reload()
        steps += [one.step for one in events.Scalars("losses/policy_loss")]
    assert steps == list(range(64, 769, 64))


def test_the_batch_of_a_bad_number_is_written_down(tmp_path):
    config = tweak(tiny("ppo", interactions=6400), **{"joint.sgd.learning_rate": 1e30})
    with pytest.raises(NonFinite, match=r"the batch is in .*nonfinite.safetensors") as caught:
        train(config, 0, tmp_path, how=QUIET)
    assert "checkpoints are untouched" in str(caught.value)
    batch = tensors_from((tmp_path / "nonfinite.safetensors").read_bytes(), "test")
    assert batch


def test_a_mini_batch_is_found_again(tmp_path, monkeypatch):
    """The rows written down are those whose loss was not a number."""
    import dna.algorithm.engine

    loss, seen = dna.algorithm.engine.loss, []

    def spoiled(phase, networks, mb, progress):
        total, metrics = loss(phase, networks, mb, progress)
        seen.append(mb)
        return (total * float("nan") if len(seen) == 7 else total), metrics

    monkeypatch.setattr(dna.algorithm.engine, "loss", spoiled)
    with pytest.raises(NonFinite, match="in mini-batch 7 of 8"):
        train(tiny("ppo", interactions=640), 0, tmp_path, how=QUIET)
    batch = tensors_from((tmp_path / "nonfinite.safetensors").read_bytes(), "test")
    assert torch.equal(batch["obs"], seen[6]["obs"])
    assert torch.equal(batch["advantage"], seen[6]["advantage"])


def test_a_signal_while_starting_is_heard(tmp_path):
    words = [
        sys.executable,
        "-m",
        "dna",
        "train",
        "CartPole-v1",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    time.sleep(1.0)  # python has started, torch is being loaded
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert "stopped by SIGTERM" in said


def test_a_step_that_hangs_ends_the_process_with_its_stack(tmp_path):
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from helpers import tiny\n"
        "from dna.envs.fake import Identity\n"
        "from dna.runs.setup import How\n"
        "from dna.runs.train import train\n"
        "class Stuck(Identity):\n"
        "    def step(self, action):\n"
        "        time.sleep(3600)\n"
        "how = How(tensorboard=False, threads=1, env_timeout=1.0, on_hang='exit')\n"
        "train(tiny('dna', None), 0, sys.argv[2], how=how, source=Stuck)\n"
    )
    folder = os.path.dirname(os.path.dirname(__file__))
    words = [sys.executable, "-c", code, folder, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    assert "no answer for 1 seconds" in done.stderr
    assert 'File "<string>", line 8, in step' in (tmp_path / "run" / "hang.txt").read_text()


@pytest.mark.parametrize("on_hang", ["exit", "raise"])
def test_the_watch_leaves_slow_but_moving_environments_alone(on_hang, tmp_path):
    class Slow(Identity):
        def step(self, action):
            time.sleep(0.02)
            return super().step(action)

    how = How(tensorboard=False, threads=1, env_timeout=1.0, on_hang=on_hang)
    train(tiny("ppo", None, interactions=64), 0, tmp_path, how=how, source=Slow)
    assert RunFolder(tmp_path).done


def test_nothing_listens_while_a_run_trains(tmp_path):
    class Listening:
        def __init__(self):
            self.found = []

        def start(self):
            pass

        def write(self, row):
            inodes = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                      if os.path.islink(f"/proc/self/fd/{fd}")}  # fmt: skip
            for name in ("tcp", "tcp6", "udp", "udp6"):
                for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                    if f"socket:[{line.split()[9]}]" in inodes:
                        self.found.append(line)

        def close(self):
            pass

    sink = Listening()
    train(tiny("dna", "ALE/Pong-v5", **{"env.atari": {}}), 0, tmp_path, sinks=[sink], how=QUIET)
    assert sink.found == []


def test_a_checkpoint_is_due_by_interactions(tmp_path):
    saver = Saver(tmp_path, total=1000, every=None)
    saver.begin(None)
    assert [saver.due(i) for i in (99, 100, 999, 1000)] == [False, True, True, False]
    assert digest(tiny(), 0) != digest(tiny(), 1)
