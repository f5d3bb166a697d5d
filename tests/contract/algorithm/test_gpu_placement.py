"""The path of a run on a GPU, with torch's fake tensors in place of one (`fake_gpu`).

Shows where tensors are, what is read back from the GPU and by which function, what is copied
to it, and how much memory its tensors take. No kernel runs: numbers, speed and races of
asynchronous copies are not tested.
"""

import functools
import json
from itertools import islice

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from dna.algorithm import engine
from dna.common.errors import Preempted
from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets.atari import TUNED
from dna.envs.specs import ActionSpec, ObservationSpec, Stack
from dna.networks.batch import Rollout
from dna.networks.encoders import InBfloat16, register_encoder
from dna.networks.frames import Frames
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import Run, train
from fake_gpu import GPU, Mixed, UnexpectedRead, fake_gpu
from helpers import Stopper, tiny

ACTING = "networks.actors.TorchActor._forward"  # π's parameters, and V_π where it is asked for
VALUES = "networks.networks.Networks.v_of_all"  # once per rollout, and once for final states
MEANS = "algorithm.engine.Meter.means"  # once per metric of a phase, after its last step
FINITE = "runs.nonfinite.check_finite"  # once per tensor, after an iteration
SAVING = "common.tensor_files.tensor_bytes"  # checkpoints and the policy
#: Everything that may make the host wait for the GPU.
READERS = {ACTING, VALUES, MEANS, FINITE, SAVING}
#: What is copied to the GPU from memory that is not pinned: weights at the start of a run or of
#: a resumed one, and the statistics of observations.
LOADING = {"runs.setup.build_networks", "networks.networks._assign"}
PINNED = {"networks.frames.moved"}
HOW = How(tensorboard=False, threads=1, verify=False, compile="off")
SHORT = {"horizon": 4, "agents": 4, "interactions": 32}


@pytest.fixture(autouse=True)
def _a_gpu(monkeypatch):
    """What a run asks about the GPU itself."""
    monkeypatch.setattr("dna.runs.train.choose_device", lambda name, world: GPU)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a fake")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    # It looks at every file of every package, and none of them is on the GPU.
    monkeypatch.setattr("dna.runs.train.packages_of", lambda env, name: ())
    # Or torch would switch autocast off.
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)


class Anything(gymnasium.Env):
    """Random observations of any space; every third step ends an episode, in both ways."""

    def __init__(self, observation: spaces.Space, action: spaces.Space) -> None:
        self.observation_space = observation
        self.action_space = action
        self.t = 0

    def _seen(self):
        seen = self.observation_space.sample()
        if isinstance(seen, dict) and "action_mask" in seen:
            seen["action_mask"][0] = 1
        return seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        return self._seen(), 1.0, self.t % 6 == 3, self.t % 6 == 0, {}


VECTOR = spaces.Box(-1, 1, (5,), np.float32)
TWO = spaces.Discrete(2)
REALS = spaces.Box(-1, 1, (3,), np.float32)
DICT = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (12, 12, 3), np.uint8),
        "speed": spaces.Box(-1, 1, (4,), np.float32),
        "action_mask": spaces.MultiBinary(3),
    }
)


def image(size: int) -> spaces.Box:
    return spaces.Box(0, 255, (size, size, 3), np.uint8)


def played(config: Config, folder, observation=VECTOR, action=TWO, readers=READERS, how=HOW):
    """Train on the GPU from the first step to the saved policy; return it and the metrics."""
    with fake_gpu(readers) as gpu:
        train(config, 0, folder, how=how, source=lambda: Anything(observation, action))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert set(gpu.uploads) <= PINNED
    assert set(gpu.pageable) <= LOADING
    assert gpu.live == 0, "what a run has put on the GPU is freed with it"
    return gpu, rows


# ── placement and reads ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("algorithm", ["dna", "ppo", "ppg"])
def test_what_an_algorithm_reads_does_not_depend_on_its_mini_batches(algorithm, tmp_path):
    phases = {"dna": "policy value distil", "ppo": "joint", "ppg": "policy value aux"}
    sizes = {f"{name}.sgd.minibatch": 8 for name in phases[algorithm].split()}
    config = tiny(algorithm, None, **SHORT, **sizes)
    gpu, rows = played(config, tmp_path / "run")
    measured = [
        key
        for row in rows
        for key in row
        if key.split("/")[0] in phases[algorithm].split() and not key.endswith("/learning_rate")
    ]
    assert len(rows) == 2
    assert gpu.reads[ACTING] == 2 * config.horizon
    assert gpu.reads[MEANS] == len(measured)
    assert gpu.reads[VALUES] == 2 + 1, "each rollout, and the truncated states of one of them"
    assert gpu.reads.keys() == READERS


ENCODERS = {
    "mlp": (VECTOR, {"network.encoder": "mlp"}),
    "small": (image(8), {"network.encoder": "small"}),
    "nature": (image(36), {"network.encoder": "nature"}),
    "impala": (image(12), {"network.encoder": "impala"}),
    "combined, with a mask": (DICT, {"network.encoder": "small"}),
    "raw": (image(8), {"normalize_observation": None}),
    "bfloat16": (image(12), {"network.encoder": "impala", "network.precision": "bfloat16"}),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_each_encoder_stays_on_the_gpu(name, tmp_path):
    observation, settings = ENCODERS[name]
    action = spaces.Discrete(3) if name.startswith("combined") else TWO
    config = tiny("dna", None, **SHORT | {"interactions": 16}, **settings)
    played(config, tmp_path / "run", observation, action)


def test_a_custom_encoder_stays_on_the_gpu(tmp_path):
    name = register_encoder(nn.Sequential(nn.Linear(5, 8), nn.ReLU()), "on_gpu")
    played(tiny("dna", None, **SHORT, **{"network.encoder": name}), tmp_path / "run")


def test_an_encoder_in_bfloat16_asks_for_autocast_on_the_gpu():
    """Whether its layers then compute in bfloat16 is torch's affair: fakes are not cast."""
    found = []

    def look(layer, inputs):
        found.append((torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")))

    with fake_gpu():
        inner = nn.Linear(5, 8).to(GPU)
        inner.register_forward_pre_hook(look)
        features = InBfloat16(inner)(on(GPU, 2, 5))
        assert (features.device, features.dtype) == (GPU, torch.float32)
    assert found == [(True, torch.bfloat16)]


VARIANTS = {
    "features": (TWO, "dna", {"distil.target": "features"}),
    "projection": (TWO, "dna", {"distil.target": "projection"}),
    "logits": (TWO, "dna", {"distil.constraint": "logit_mse"}),
    "means": (REALS, "dna", {"distil.constraint": "mean_mse"}),
    "scaled means": (REALS, "dna", {"distil.constraint": "mean_mse_scaled"}),
    "several choices": (spaces.MultiDiscrete([2, 3]), "dna", {}),
    "hybrid": (spaces.Dict({"choice": TWO, "force": REALS}), "dna", {}),
    "authors' PPG": (REALS, "ppg", {"aux.variant": "authors"}),
    "per mini-batch": (TWO, "ppo", {"joint.normalize_advantage": "minibatch"}),
    "per dimension": (REALS, "ppo", {"joint.surrogate": "per_dimension"}),
    "values while acting": (TWO, "ppo", {"returns.values": "acting"}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_stays_on_the_gpu(name, tmp_path):
    action, algorithm, settings = VARIANTS[name]
    length = 32 if algorithm == "ppg" else 16
    config = tiny(algorithm, None, **SHORT | {"interactions": length}, **settings)
    played(config, tmp_path / "run", VECTOR, action)


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
def test_a_resumed_run_is_loaded_onto_the_gpu(tmp_path):
    config = tiny("ppg", None, **SHORT | {"interactions": 64})
    source = functools.partial(Anything, VECTOR, TWO)
    with fake_gpu(READERS), pytest.raises(Preempted):  # with a rollout in the replay
        train(config, 0, tmp_path, how=HOW, source=source, sinks=[Stopper(0)])
    with fake_gpu(READERS) as gpu:
        train(config, 0, tmp_path, how=HOW, source=source)
    assert set(gpu.uploads) == PINNED
    assert set(gpu.pageable) == LOADING | {"runs.checkpoint.restore"}


# ── what is caught ────────────────────────────────────────────────────────────────────────


def on(device, *shape):
    return torch.zeros(shape, device=device)


MISTAKES = {
    "a sum of both": (Mixed, lambda x: x + on("cpu", 4)),
    "an index of the host": (Mixed, lambda x: x[torch.tensor([0, 1])]),
    "a row of the host": (Mixed, lambda x: x.index_select(0, torch.tensor([0]))),
    "a result on the host": (Mixed, lambda x: torch.add(x, x, out=on("cpu", 4))),
    "item": (UnexpectedRead, lambda x: x.sum().item()),
    "float": (UnexpectedRead, lambda x: float(x.max())),
    "bool": (UnexpectedRead, lambda x: bool((x > 0).all())),
    "cpu": (UnexpectedRead, lambda x: x.cpu()),
    "a copy to the host": (UnexpectedRead, lambda x: on("cpu", 4).copy_(x)),
    "a comparison": (DataDependentOutputException, lambda x: torch.equal(x, x)),
    "a choice of rows": (DynamicOutputShapeException, lambda x: x[x > 0]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_waits_for_a_gpu_or_fails_on_it_is_an_error(name):
    error, function = MISTAKES[name]
    with fake_gpu(readers=set()), pytest.raises(error):
        function(on(GPU, 4))


def test_memory_is_counted_once_and_until_it_is_freed():
    with fake_gpu() as gpu:
        x = on(GPU, 1000)
        views = x[1:], x.view(10, 100).T
        assert gpu.live == 4096, "a multiple of 512"
        y = x + 1
        del x, y
        assert gpu.live == 4096, "held by the views"
        del views
        assert (gpu.live, gpu.peak) == (0, 8192)


# ── memory at the paper's size ────────────────────────────────────────────────────────────


class Screens:
    """Stands for 128 Atari games whose rollout is made up."""

    observation = ObservationSpec("image", (84, 84, 4), "uint8", Stack(108_000))
    action = ActionSpec("categorical", (18,))
    can_hold = can_reseed = False
    fps = 60
    inexact = None

    def __init__(self, agents: int) -> None:
        self.agents = agents

    def reset(self):
        return np.zeros((self.agents, 84, 84, 4), np.uint8)


def rollout_of(config: Config) -> Rollout:
    """A rollout of black screens, with one truncated episode."""
    size = (config.horizon, config.agents)
    ages = torch.full((config.horizon + 1, config.agents), 3)
    screens = torch.zeros((config.horizon + 4, config.agents, 84, 84), dtype=torch.uint8)
    no = torch.zeros(size, dtype=torch.bool)
    return Rollout(
        obs=Frames(screens, ages, ages, 108_000, ages.numel()),
        action=torch.zeros((*size, 1), dtype=torch.int64),
        log_prob=torch.zeros((*size, 1)),
        reward=torch.zeros(size),
        terminated=no,
        done=no,
        weight=torch.ones(size),
        final_obs=torch.zeros((1, 84, 84, 4), dtype=torch.uint8),
        final_index=torch.zeros((1, 2), dtype=torch.int64),
    )


def peak_of(config: Config, folder, monkeypatch) -> int:
    """Peak bytes on a GPU up to and including an iteration in which every phase runs.

    A phase takes only its first two steps: the others allocate the same again.
    """
    every = engine.Epochs.__iter__
    monkeypatch.setattr(engine.Epochs, "__iter__", lambda self: islice(every(self), 2))
    rollout = rollout_of(config)
    with fake_gpu(READERS) as gpu:
        run = Run(config, 0, RunFolder(folder), Screens(config.agents), HOW)
        run.collector.collect = lambda iteration, clock: rollout
        for _ in range(max(phase.every for phase in config.phases)):
            metrics = run.iterate()
            run.iteration += 1
        assert set(gpu.pageable) <= LOADING
        del run
    assert all(f"{phase.name}/loss" in metrics for phase in config.phases)
    return gpu.peak


#: Most MB of a run at the paper's size; docs/performance.md states what was found.
BOUNDS = {"dna": 410, "ppo": 465, "ppg": 465}


@pytest.mark.parametrize(
    "algorithm",
    ["dna", *(pytest.param(name, marks=pytest.mark.long) for name in ("ppo", "ppg"))],
)
def test_the_memory_of_a_gpu_at_the_papers_size(algorithm, tmp_path, monkeypatch):
    config = TUNED[algorithm]
    if algorithm == "ppg":  # each of the other 31 rollouts adds 80 bytes per row
        config = tweak(config, **{"aux.every": 1})
    screens = (config.horizon + 4) * config.agents * 84 * 84
    peak = peak_of(config, tmp_path / "run", monkeypatch)
    assert 3 * screens < peak < 1e6 * BOUNDS[algorithm]
