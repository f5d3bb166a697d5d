"""The same bits on any number of threads: pieces of mini-batches, phases side by side."""

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from dna.algorithm.engine import EagerStep, concurrent, run_phase
from dna.algorithm.phases import can_be_cut, loss
from dna.algorithm.traced import Traced
from dna.common.threads import Workers
from dna.config import SGD, Auxiliary, Config, Distil, Joint, Network, Policy, Value
from dna.config.overrides import tweak
from dna.config.phases import Phase
from dna.config.presets import preset
from dna.envs.specs import ActionSpec, ObservationSpec, Part
from dna.networks.batch import Experience
from dna.networks.encoders import Pieces, pieces_of, register_encoder
from dna.networks.networks import FlatWeights, Networks
from dna.runs.folder import RunFolder
from dna.runs.setup import How, pieces_for
from dna.runs.train import train
from helpers import Stopper, tiny

STEPS = SGD(epochs=2, minibatch=16, learning_rate=1e-2)
CPU = torch.device("cpu")


@pytest.fixture
def small_pieces(monkeypatch):
    """Cut what is usually too small to be cut."""
    monkeypatch.setattr("dna.runs.setup.pieces_of", lambda network, obs: Pieces(6, 6, 3))
    monkeypatch.setattr("dna.algorithm.traced.PATIENCE", 5)


def how(threads, **options):
    return How(threads=threads, tensorboard=False, verify=False, **options)


def bytes_of(folder):
    names = ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors")
    return [(folder / name).read_bytes() for name in names]


class Camera(gymnasium.Env):
    """A Dict of an image, a vector and a mask of legal actions."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (12, 12, 3), np.uint8),
            "speed": spaces.Box(-1, 1, (4,), np.float32),
            "action_mask": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Discrete(3)

    def __init__(self):
        self.t = 0

    def _seen(self):
        return {
            "camera": self.np_random.integers(0, 256, (12, 12, 3), np.uint8),
            "speed": self.np_random.uniform(-1, 1, 4).astype(np.float32),
            "action_mask": np.array([1, self.t % 2, 1], np.int8),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), float(action == 2), self.t % 7 == 0, False, {}


SOURCES = {
    "CartPole-v1": None,
    "Pendulum-v1": None,
    "MinAtar/Breakout-v1": None,
    "dict": Camera,
}


@pytest.mark.parametrize("algorithm", ["ppo", "dna", "ppg"])
@pytest.mark.parametrize("name", SOURCES)
def test_any_number_of_threads_gives_the_same_bits(
    name, algorithm, small_pieces, monkeypatch, tmp_path
):
    recorded = []
    record = Traced._record

    def noted(self, inputs):
        record(self, inputs)
        recorded.append(self.recorded is not None)

    monkeypatch.setattr(Traced, "_record", noted)
    env_id = None if name == "dict" else name
    config = tiny(algorithm, env_id, noise={"every": 2, "b_small": 8, "samples": 3})
    if algorithm != "ppg":
        config = tweak(config, noise=None)
    for threads in (1, 2, 3):
        folder = tmp_path / str(threads)
        train(config, 0, folder, how=how(threads), source=SOURCES[name])
        assert bytes_of(folder) == bytes_of(tmp_path / "1")
    assert recorded
    assert all(recorded) == (name != "dict")  # of which TorchScript has no recording
    machine = json.loads((folder / "machine.json").read_text())
    assert machine["threads"] == 3
    assert all(machine["pieces"][phase.name] == 6 for phase in config.phases)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ppo", "dna", "ppg"])
@pytest.mark.parametrize(
    ("env_id", "name", "changes"),
    [
        ("MinAtar/Breakout-v1", "minatar", {}),
        ("HalfCheetah-v5", "mujoco", {}),
        ("CartPole-v1", "cartpole", {}),
        ("ALE/Breakout-v5", "tuned", {"horizon": 16}),
    ],
)
def test_presets_give_the_same_bits_on_any_number_of_threads(
    algorithm, env_id, name, changes, tmp_path
):
    config = preset(f"{name}.{algorithm}")
    config = tweak(config, **{"env.id": env_id, "warm_up": None} | changes)
    if algorithm == "ppg":
        config = tweak(config, **{"aux.every": 2})
    config = tweak(config, interactions=2 * config.batch)
    for threads in (1, 2, 3):
        folder = tmp_path / str(threads)
        train(config, 0, folder, how=how(threads, compile="off"))
        assert bytes_of(folder) == bytes_of(tmp_path / "1")


def test_a_resume_on_another_number_of_threads_is_exact(small_pieces, tmp_path):
    config = tiny("dna", "MinAtar/Breakout-v1", interactions=384)
    train(config, 3, tmp_path / "whole", how=how(2))
    with warnings.catch_warnings(action="error"):
        from dna.common.errors import Preempted

        with pytest.raises(Preempted):
            train(config, 3, tmp_path / "cut", how=how(1), sinks=[Stopper(2)])
        train(config, 3, tmp_path / "cut", how=how(3))
    assert bytes_of(tmp_path / "cut") == bytes_of(tmp_path / "whole")
    machine = RunFolder(tmp_path / "cut").machine()
    assert (machine["exact"], machine["resumes"], machine["threads"]) == (True, 1, 3)


def test_pieces_by_cores_are_recorded_and_another_number_of_them_is_inexact(tmp_path):
    from dna.common.errors import Preempted

    config = tiny("dna", "MinAtar/Breakout-v1", interactions=384)
    with pytest.raises(Preempted):
        train(config, 3, tmp_path, how=how(3, pieces="cores"), sinks=[Stopper(2)])
    machine = RunFolder(tmp_path).machine()
    assert machine["pieces"] == {"policy": 6, "value": 6, "distil": 6, "acting": 2}
    assert machine["exact"]
    with pytest.warns(RuntimeWarning, match="not exact from here on: pieces was"):
        train(config, 3, tmp_path, how=how(2, pieces="cores"))
    assert not RunFolder(tmp_path).machine()["exact"]


def test_pieces_depend_on_the_encoder_alone():
    image = ObservationSpec("image", (10, 10, 4), "bool")
    vector = ObservationSpec("vector", (17,), "float32")
    parts = (
        Part("camera", "image", (84, 84, 4), "uint8"),
        Part("x", "vector", (3,), "float32"),
    )
    both = ObservationSpec("packed", (84 * 84 * 4 + 16,), "uint8", parts=parts)
    assert pieces_of(Network(), image) == pieces_of(Network(encoder="small"), image)
    assert pieces_of(Network(), both) == pieces_of(
        Network(encoder="nature"), ObservationSpec("image", (84, 84, 4), "uint8")
    )
    small = pieces_of(Network(width=64), vector)
    large = pieces_of(Network(width=1024), vector)
    assert small is not None
    assert large is not None
    assert small.least > 4096 > large.least  # a piece is worth a call
    name = register_encoder(lambda spec: torch.nn.Flatten(), "own_for_pieces")
    assert pieces_of(Network(encoder=name), image) is None


@pytest.mark.parametrize("name", ["tuned.dna", "tuned.ppo", "minatar.ppg", "procgen.dna"])
def test_presets_with_images_are_cut(name):
    obs = ObservationSpec("image", (10, 10, 4) if "minatar" in name else (84, 84, 4), "uint8")
    config = preset(name)
    pieces = pieces_for(How(), config, obs, CPU)
    assert pieces is not None
    assert pieces.acting <= config.agents
    assert all(pieces.of(phase.sgd.minibatch) < phase.sgd.minibatch for phase in config.phases)
    assert pieces_for(How(), config, obs, torch.device("cuda")) is None


def test_images_in_a_phase_that_cannot_be_cut_are_left_to_torchs_threads():
    config = tiny("ppo", **{"joint.normalize_advantage": "minibatch"})
    image = ObservationSpec("image", (10, 10, 4), "bool")
    assert pieces_for(How(), config, image, CPU) is None
    assert pieces_for(How(), config, ObservationSpec("vector", (4,), "float32"), CPU)


# ── phases side by side ─────────────────────────────────────────────────────────────────────


class Curious(Phase):
    """A phase of one's own that does not say what it evaluates."""

    kind: str = "curious"
    name: str = "curious"
    trains: str = "policy"
    reads: str = "rollout"
    every: int = 1


POLICY, VALUE, DISTIL = Policy(sgd=STEPS), Value(sgd=STEPS), Distil(sgd=STEPS)
AUX, JOINT = Auxiliary(sgd=STEPS), Joint(sgd=STEPS)


@pytest.mark.parametrize(
    ("phases", "groups"),
    [
        ([POLICY, VALUE, DISTIL], [["policy", "value"], ["distil"]]),
        ([VALUE, POLICY, DISTIL], [["value", "policy"], ["distil"]]),
        ([POLICY, VALUE, AUX], [["policy", "value"], ["aux"]]),
        ([POLICY, DISTIL, VALUE], [["policy"], ["distil"], ["value"]]),
        ([JOINT], [["joint"]]),
        ([POLICY, Curious(), VALUE], [["policy"], ["curious"], ["value"]]),
        ([Curious(), VALUE], [["curious"], ["value"]]),
        ([], []),
    ],
)
def test_phases_run_together_if_neither_needs_what_the_other_trains(phases, groups):
    assert [[p.name for p in group] for group in concurrent(phases)] == groups


def test_policy_and_value_run_at_the_same_time_and_compute_the_same(
    small_pieces, monkeypatch, tmp_path
):
    config = tiny("dna", "MinAtar/Breakout-v1")
    train(config, 0, tmp_path / "one", how=how(1))
    meeting = threading.Barrier(2, timeout=30)
    seen = []

    def together(phase, *arguments):
        seen.append(phase.name)
        if phase.name in ("policy", "value"):
            meeting.wait()
        return run_phase(phase, *arguments)

    monkeypatch.setattr("dna.runs.train.run_phase", together)
    train(config, 0, tmp_path / "two", how=how(2))
    assert seen.count("policy") == seen.count("value") == seen.count("distil") == 3
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")


def test_a_step_adds_the_gradients_of_its_pieces_in_order():
    config = Config(
        phases=(POLICY, VALUE), horizon=16, agents=1, network=Network(encoder="mlp", width=8)
    )
    obs, action = ObservationSpec("vector", (5,), "float32"), ActionSpec("gaussian", (2,))
    rng = torch.Generator().manual_seed(1)
    columns = {"v_targ": torch.randn(16, generator=rng), "weight": torch.ones(16)}
    data = Experience(torch.randn(16, 5, generator=rng), columns)
    found = []
    for threads in (1, 2, 4):
        torch.manual_seed(0)
        networks = Networks(config, obs, action)
        networks.workers = Workers(threads)
        weights = FlatWeights(networks)
        step = EagerStep(VALUE, networks, weights, 5)
        run_phase(VALUE, networks, step, data, np.random.default_rng(3), 0.0)
        assert len(step.gradients) == (1 if threads == 1 else 4)
        found.append(weights.theta.clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


CORES = """
import os, sys
os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[: int(sys.argv[1])]))
import hashlib, tempfile
from pathlib import Path
import gymnasium, numpy as np
from gymnasium import spaces
from dna.config.overrides import tweak
from dna.runs.setup import How
from dna.runs.train import train
from helpers import tiny


class Wide(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (348,), np.float32)
    action_space = spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 348).astype(np.float32), {}

    def step(self, action):
        seen = self.np_random.uniform(-1, 1, 348).astype(np.float32)
        return seen, float(action.sum()), False, False, {}


with tempfile.TemporaryDirectory() as folder:
    config = tiny("dna", None, agents=32, horizon=16, interactions=1024)
    config = tweak(config, **{"network.width": 256})
    train(config, 0, folder, how=How(tensorboard=False, verify=False), source=Wide)
    print(hashlib.sha256((Path(folder) / "metrics.jsonl").read_bytes()).hexdigest())
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_the_number_of_cores_does_not_matter_to_numpy_either():
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", CORES, cores],
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
        )
        for cores in ("1", "2")
    ]
    found = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert found[0] == found[1]


class Mine(Policy):
    """A phase derived from a built-in one, whose loss may evaluate anything."""

    kind: str = "mine"


def test_a_derived_phase_with_functions_of_its_own_does_not_inherit_what_is_safe():
    mine = Mine(sgd=STEPS)
    assert [[p.name for p in group] for group in concurrent([mine, VALUE])] == [
        ["policy"],
        ["value"],
    ]
    assert can_be_cut(mine)  # as long as its loss is the policy's
    loss.register(Mine, lambda *_: (torch.zeros(()), {}))
    assert not can_be_cut(mine)
    assert can_be_cut(POLICY)
