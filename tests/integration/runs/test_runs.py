"""Whole runs: equal to the bit for equal (config, seed), complete, and resumable."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from safetensors.torch import load_file

from dna.common.errors import (
    BadInput,
    EnvironmentTimeout,
    FolderBusy,
    NonFinite,
    Preempted,
    StorageFailure,
)
from dna.common.lock import locked
from dna.common.randomness import generator
from dna.config.overrides import digest, tweak
from dna.envs.fake import Identity, Scripted
from dna.evaluation.evaluate import evaluate
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.policy import load_policy
from dna.runs.setup import How
from dna.runs.train import train
from helpers import Stopper, bytes_of, tiny

SAME = ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors")


def run(config, path, seed=0, **how):
    """One quiet run."""
    return train(config, seed, path, how=How(tensorboard=False, **how))


def metrics(path):
    """The rows of a run's metrics."""
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", ["ppo", "dna", "ppg"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v1"])
def test_equal_config_and_seed_are_equal_to_the_bit_and_another_seed_is_not(
    algorithm, env_id, tmp_path
):
    config = tiny(algorithm, env_id)
    for name, seed, threads in (("a", 7, 1), ("b", 7, 2), ("c", 8, 1)):
        run(config, tmp_path / name, seed, env_threads=threads)
    a, b, c = (bytes_of(tmp_path / name, *SAME) for name in "abc")
    assert a == b
    assert all(
        a[name] != c[name]
        for name in SAME
        if name != "episodes.csv" or a[name].count(b"\n") > 1
    )


def test_two_processes_write_the_same_bytes(tmp_path):
    """Another process has another hash seed, other addresses and another past."""
    command = [sys.executable, "-m", "dna", "train", "CartPole-v1", "--interactions", "1500"]
    command += ["--seed", "3", "--quiet", "policy.sgd.epochs=2"]
    for name, hash_seed in (("a", "1"), ("b", "2")):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        words = [*command, "--out", str(tmp_path / name)]
        subprocess.run(words, check=True, env=environment, timeout=120)
    last = "checkpoints/000000002048/rank0.safetensors"
    assert bytes_of(tmp_path / "a", *SAME, last) == bytes_of(tmp_path / "b", *SAME, last)


def test_a_run_leaves_a_complete_folder(tmp_path):
    config = tiny(interactions=1024)
    result = train(config, 0, tmp_path / "run")
    folder = RunFolder.of(tmp_path / "run")
    assert folder.read() == (config, 0)
    assert json.loads((folder.path / "config.json").read_text())["digest"] == digest(config, 0)
    machine = folder.machine()
    assert machine["versions"]["torch"]
    assert machine["exact"] is True
    rows = [
        json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()
    ]
    assert [row["iteration"] for row in rows] == list(range(16))
    assert [row["interactions"] for row in rows] == [64 * (i + 1) for i in range(16)]
    assert {"policy/loss", "value/loss", "distil/kl"} <= set(rows[-1])
    with (folder.path / "episodes.csv").open() as file:
        episodes = list(csv.DictReader(file))
    assert len(episodes) == result["episodes"] == rows[-1]["episodes"]
    scores = [float(e["score"]) for e in episodes]
    assert result["score"] == pytest.approx(np.mean(scores[-100:]))
    assert all(
        float(e["score"]) == float(e["length"]) for e in episodes
    )  # CartPole pays 1 a step
    assert folder.result() == result
    assert list((folder.path / "tensorboard").iterdir())
    assert not list(folder.path.rglob("*.pkl")) + list(folder.path.rglob("*.pt"))


def test_tensorboard_sees_the_tags_that_dashboards_know(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tiny("dna", interactions=1024), 0, tmp_path / "dna")
    train(tiny("ppg", interactions=1024), 0, tmp_path / "ppg")
    tags = {}
    for name in ("dna", "ppg"):
        events = EventAccumulator(str(tmp_path / name / "tensorboard"))
        events.Reload()
        tags[name] = set(events.Tags()["scalars"])
    everywhere = {
        "charts/episodic_return", "charts/episodic_length", "charts/avg_episodic_return",
        "rollout/ep_rew_mean", "rollout/ep_len_mean", "charts/SPS", "time/fps",
        "losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/approx_kl",
        "losses/clipfrac", "losses/explained_variance", "train/approx_kl",
        "charts/policy_learning_rate", "charts/value_learning_rate", "charts/learning_rate",
    }  # fmt: skip
    assert everywhere <= tags["dna"] & tags["ppg"]
    assert {"losses/distil/value", "losses/distil/kl", "losses/distil/total"} <= tags["dna"]
    assert {"losses/aux/kl_loss", "losses/aux/aux_value_loss"} <= tags["ppg"]


@pytest.mark.parametrize("algorithm", ["ppo", "dna", "ppg"])
def test_a_stopped_run_resumes_in_its_folder_without_overlap_or_gap(algorithm, tmp_path):
    config = tiny(algorithm, interactions=640)
    path = tmp_path / "run"

    class Stopper:
        def start(self):
            pass

        def write(self, row):
            if row.iteration == 5:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self):
            pass

    how = How(checkpoint_every=128, tensorboard=False)
    with pytest.raises(Exception, match="dna resume"):
        train(config, 0, path, how=how, sinks=[Stopper()])
    assert not RunFolder(path).done
    result = train(config, 0, path, how=how)
    rows = metrics(path)
    assert [row["iteration"] for row in rows] == list(range(10))
    assert result["interactions"] == 640
    machine = RunFolder(path).machine()
    assert machine["resumes"] == 1
    assert machine["exact"] is True
    assert machine["why_not_exact"] == []


def test_a_checkpoint_holds_every_weight_optimizer_and_statistic(tmp_path):
    config = tiny("dna")
    run(config, tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    tensors = load_file(newest / "rank0.safetensors")
    networks = {name for name in tensors if name.startswith("networks/")}
    assert {n.split("/")[1].split(".")[0] for n in networks} == {
        "preprocess",
        "policy",
        "value",
    }
    for phase in ("policy", "value", "distil"):
        slots = [n for n in tensors if n.startswith(f"optimizer/{phase}/")]
        assert {n.rsplit("/", 1)[1] for n in slots} == {"step", "exp_avg", "exp_avg_sq"}
    assert {"observation/mean", "observation/m2"} <= set(tensors)
    acting = {"reward/m2", "reward/running", "now/obs", "scores/returns", "scores/window"}
    assert {f"collector/{name}" for name in acting} <= set(tensors)
    assert any(name.startswith("env/") for name in tensors)


@pytest.mark.parametrize("manifest", ["[]", '{"format": 2}', '{"format":2,"files":{"a":[]}}'])
def test_a_strange_manifest_is_passed_over_too(manifest, tmp_path):
    config = tiny("ppo", interactions=640)
    path = tmp_path / "run"
    run(config, path, checkpoint_every=64)
    newest, second, *_ = sorted((path / "checkpoints").iterdir(), reverse=True)
    (newest / "manifest.json").write_text(manifest)
    found = checkpoint.latest(path, digest(config, 0))
    assert found is not None
    assert f"{found.interactions:012d}" == second.name
    (why,) = found.rejected
    assert str(newest) in why


def test_a_finished_run_is_not_touched_again(tmp_path):
    result = run(tiny("ppo"), tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert run(tiny("ppo"), tmp_path / "run") == result
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # somebody needed the space
    assert run(tiny("ppo"), tmp_path / "run") == result
    assert (tmp_path / "run" / "policy").is_dir()


def test_another_runs_folder_is_refused_from_python_too(tmp_path):
    run(tiny("ppo"), tmp_path / "run")
    with pytest.raises(BadInput, match="other settings or seed"):
        run(tiny("ppo"), tmp_path / "run", seed=5)
    with pytest.raises(BadInput, match="seed: given -1"):
        run(tiny("ppo"), tmp_path / "other", seed=-1)


def test_a_signal_in_the_warm_up_is_heeded_at_once(tmp_path):
    config = tiny("ppo", warm_up={"low": 10**6, "high": 10**6})

    class Impatient:
        def start(self):
            os.kill(os.getpid(), signal.SIGINT)

        def close(self):
            pass

    with pytest.raises(Preempted, match="dna resume"):
        train(config, 0, tmp_path / "run", how=How(tensorboard=False), sinks=[Impatient()])


@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (None, RuntimeError("never")),
        (None, SystemExit(3)),
        (30.0, SystemExit(3)),
        (30.0, KeyboardInterrupt()),
    ],
)
def test_an_environment_that_cannot_even_close_does_not_spoil_the_run(seconds, error, tmp_path):
    class Clingy(Identity):
        def close(self):
            raise error

    how = How(tensorboard=False, env_timeout=seconds, on_hang="exit")
    with pytest.warns(
        RuntimeWarning, match=rf"Clingy: close\(\) failed \({type(error).__name__}"
    ):
        result = train(tiny("ppo", "Clingy"), 0, tmp_path / "run", how=how, source=Clingy)
    assert RunFolder(tmp_path / "run").result() == result


def test_an_environment_is_closed_in_the_thread_that_stepped_it(tmp_path):
    threads = {}

    class Database(Identity):
        def step(self, action):
            threads.setdefault("step", set()).add(threading.get_ident())
            return super().step(action)

        def close(self):
            threads.setdefault("close", set()).add(threading.get_ident())

    for number, on_hang in enumerate(("exit", "raise")):
        threads.clear()
        how = How(tensorboard=False, env_timeout=30.0, on_hang=on_hang, verify=False)
        train(tiny("ppo", "Database"), 0, tmp_path / str(number), how=how, source=Database)
        assert len(threads["step"]) == 1
        assert threads["close"] == threads["step"]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="cannot block signals here")
@pytest.mark.parametrize(("stop", "code"), [(False, 0), (True, 75)])
def test_a_close_that_cannot_be_interrupted_ends_the_process_as_the_run_would(
    stop, code, tmp_path
):
    (tmp_path / "deaf.py").write_text(
        "import os, signal, time\n"
        "from dna.envs.fake import Identity\n"
        "class Deaf(Identity):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Deaf.steps += 1\n"
        f"        if Deaf.steps == 100 and {stop}: os.kill(os.getpid(), signal.SIGTERM)\n"
        "        return super().step(action)\n"
        "    def close(self):\n"
        "        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n"
        "        time.sleep(60)\n"
    )
    words = ["train", "deaf:Deaf", "--allow-import", "--out", "run", "--env-timeout", "1"]
    settings = ["--algo", "ppo", "--interactions", "4096", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "dna", *words, *settings],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert "deaf:Deaf: close() has not returned for 1 seconds; not waiting" in done.stderr
    assert done.returncode == code
    assert RunFolder(tmp_path / "run").done == (not stop)
    assert ("stopped by SIGTERM" in done.stderr) == stop


def test_a_hang_while_restoring_ends_like_any_other(tmp_path):
    gate = threading.Event()

    class Late(Identity):
        hang = False

        def reset(self, **how):
            if Late.hang:
                gate.wait(60)
            return super().reset(**how)

    config = tiny("ppo", None)
    how = How(tensorboard=False, checkpoint_every=64, env_timeout=0.3)
    with pytest.raises(Preempted):
        train(config, 0, tmp_path, how=how, source=Late, sinks=[Stopper(1)])
    Late.hang = True
    with pytest.raises(EnvironmentTimeout):
        train(config, 0, tmp_path, how=how, source=Late)
    gate.set()


@pytest.mark.parametrize("on_hang", ["exit", "raise"])
@pytest.mark.parametrize("sinks", [[], [Stopper(0)]], ids=["finished", "stopped"])
def test_a_hang_while_closing_keeps_how_the_run_ended(sinks, on_hang, tmp_path):
    gate = threading.Event()

    class Clingy(Identity):
        def close(self):
            gate.wait(60)

    how = How(tensorboard=False, env_timeout=0.2, on_hang=on_hang)
    stopped = pytest.raises(Preempted, match="stopped by SIGTERM")
    with (
        pytest.warns(RuntimeWarning, match=r"Clingy: close\(\) has not returned for 0.2 sec"),
        stopped if sinks else nullcontext(),
    ):
        train(tiny("ppo", "Clingy"), 0, tmp_path, how=how, source=Clingy, sinks=sinks)
    gate.set()
    assert RunFolder(tmp_path).done == (not sinks)


def test_a_damaged_checkpoint_is_passed_over_and_none_intact_is_an_error(tmp_path):
    config = tiny("ppo", interactions=640)
    path = tmp_path / "run"
    run(config, path, checkpoint_every=64)
    (path / "done").unlink()
    newest, *_ = sorted((path / "checkpoints").iterdir(), reverse=True)
    file = newest / "rank0.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    before = (path / "metrics.jsonl").read_text()
    with pytest.warns(RuntimeWarning, match="not used|resuming from"):
        run(config, path)
    # It went back one iteration and did it again.
    assert (path / "metrics.jsonl").read_text() == before
    for folder in (path / "checkpoints").iterdir():
        (folder / "state.json").write_text("{}")
    (path / "done").unlink()
    with pytest.raises(StorageFailure, match="none of its"):
        run(config, path)


def test_the_saved_policy_acts_as_the_run_did_and_needs_nothing_else(tmp_path):
    config = tiny("dna", interactions=640)
    run(config, tmp_path / "run")
    (tmp_path / "run" / "policy").rename(tmp_path / "policy")
    policy = load_policy(tmp_path / "policy")
    tensors = load_file(tmp_path / "policy" / "policy.safetensors")
    assert tensors["preprocess/shift"].abs().sum() > 0  # the normalizer came along
    played = [evaluate(policy, policy.env, episodes=6, seed=s) for s in (1, 1, 2)]
    assert played[0] == played[1]
    assert played[0] != played[2]
    assert len(played[0].scores) == 6


def test_a_damaged_policy_is_refused(tmp_path):
    run(tiny("ppo"), tmp_path / "run")
    path = tmp_path / "run" / "policy"
    (path / "policy.json").write_text(
        (path / "policy.json").read_text().replace("tanh", "relu")
    )
    with pytest.raises(StorageFailure, match="damaged"):
        load_policy(path)


def test_two_writers_cannot_share_a_folder(tmp_path):
    with locked(tmp_path / "run"), pytest.raises(FolderBusy, match="in use by pid"):
        run(tiny(), tmp_path / "run")


def test_a_run_trains_on_a_callable_and_on_a_vector_environment(tmp_path):
    config = tiny("dna", env_id="Identity")
    result = train(
        config, 0, tmp_path / "callable", source=Identity, how=How(tensorboard=False)
    )
    assert result["interactions"] >= 192
    episodes = [[(5, True), (3, False)]] * 4
    for mode in AutoresetMode:
        vector = Scripted(episodes, mode)
        result = train(
            config, 0, tmp_path / mode.name, source=vector, how=How(tensorboard=False)
        )
        assert result["interactions"] >= 192
    with pytest.raises(BadInput, match="agents: given 4, but the VectorEnv has 2"):
        train(config, 0, tmp_path / "x", source=Scripted(episodes[:2], AutoresetMode.DISABLED))
    assert not (tmp_path / "x").exists()


def test_a_learning_rate_that_explodes_stops_the_run_and_keeps_what_was_good(tmp_path):
    config = tweak(tiny("ppo", interactions=6400), **{"joint.sgd.learning_rate": 1e30})
    with pytest.raises(NonFinite, match="joint/"):
        run(config, tmp_path / "run")


def test_constraints_must_fit_the_actions(tmp_path):
    for env_id, constraint in (("CartPole-v1", "mean_mse"), ("Pendulum-v1", "logit_mse")):
        config = tiny("dna", env_id, **{"distil.constraint": constraint})
        with pytest.raises(BadInput, match=r"distil\.constraint"):
            run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("algorithm", ["ppo", "dna", "ppg"])
def test_identity_is_learned(algorithm, tmp_path):
    """Naming one of four symbols: chance is 4 of 16, a solved task 16."""
    changes = {"interactions": 6400, "returns.gamma": 0.5}
    result = run_identity(tiny(algorithm, "Identity", **changes), tmp_path)
    assert result["score"] > 14


def run_identity(config, tmp_path):
    """Train on the identity task with a brisk learning rate."""
    rates = {f"{phase.name}.sgd.learning_rate": 5e-3 for phase in config.phases}
    quick = tweak(config, **rates | {"normalize_observation": None})
    return train(quick, 0, tmp_path / "run", source=Identity, how=How(tensorboard=False))


def test_warm_up_pulls_environments_apart_and_counts_no_interactions(tmp_path):
    changes = {"warm_up": {"low": 3, "high": 40}, "horizon": 16}
    config = tiny("ppo", **changes)
    run(config, tmp_path / "run")
    expected = generator(0, "warm_up").integers(3, 41, size=4).sum()
    assert RunFolder(tmp_path / "run").machine()["warm_up_steps"] == expected


def test_a_killed_process_leaves_a_folder_that_resumes(tmp_path):
    """SIGKILL, at once and without a word."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "dna", "train", "CartPole-v1", "--out", str(path)]
    command += ["--interactions", "8192", "--checkpoint-every", "1024", "--quiet"]
    command += ["policy.sgd.epochs=1", "value.sgd.epochs=1", "distil.sgd.epochs=1"]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not list(path.glob("checkpoints/0*")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    resumed = subprocess.run(
        [*command[:3], "resume", str(path), "--json"], capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    rows = metrics(path)
    assert [row["iteration"] for row in rows] == list(range(len(rows)))
    assert rows[-1]["interactions"] >= 8192
