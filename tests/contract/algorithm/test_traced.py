"""Losses recorded as TorchScript: the bits of eager ones, or eager ones."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from dna.algorithm import traced
from dna.algorithm.engine import EagerStep, run_phase
from dna.algorithm.phases import is_recordable
from dna.algorithm.traced import Traced
from dna.config import SGD, Auxiliary, Config, Distil, Joint, Linear, Network, Policy, Value
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.batch import Experience
from dna.networks.encoders import register_encoder
from dna.networks.networks import FlatWeights, Networks

ROWS = 24
STEPS = SGD(epochs=4, minibatch=8, learning_rate=1e-2)
PHASES = {
    "policy": Policy(sgd=STEPS),
    "per column": Policy(sgd=STEPS, surrogate="per_dimension", normalize_advantage="minibatch"),
    "joint": Joint(sgd=STEPS),
    "value": Value(sgd=STEPS),
    "distil": Distil(sgd=STEPS),
    "features": Distil(sgd=STEPS, target="features"),
    "projection": Distil(sgd=STEPS, target="projection"),
    "aux": Auxiliary(sgd=STEPS, every=1),
    "authors' aux": Auxiliary(sgd=STEPS, every=1, variant="authors"),
}
SPACES = {
    "image": (ObservationSpec("image", (10, 10, 4), "bool"), ActionSpec("categorical", (4,))),
    "pixels": (ObservationSpec("image", (9, 9, 3), "uint8"), ActionSpec("categorical", (2, 3))),
    "vector": (ObservationSpec("vector", (5,), "float32"), ActionSpec("gaussian", (2,))),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(traced, "PATIENCE", 0)


def build(phase, space="vector", **network):
    obs, action = SPACES[space]
    others = (
        ()
        if isinstance(phase, Joint)
        else (Policy(sgd=STEPS, name="other"), Value(sgd=STEPS, name="another"))
    )
    settings = Network.model_validate({"width": 8, **network})
    config = Config(phases=(phase, *others), horizon=ROWS, agents=1, network=settings)
    torch.manual_seed(0)
    networks = Networks(config, obs, action)
    rng = torch.Generator().manual_seed(1)
    seen = torch.randn((ROWS, *obs.shape), generator=rng)
    seen = {"bool": seen > 0, "uint8": (128 + 40 * seen).byte()}.get(obs.dtype, seen)
    networks.observe(seen.numpy())
    width, choices = action.width, min(action.choices, default=0)
    columns = {
        "action": torch.randint(choices, (ROWS, width), generator=rng)
        if choices
        else torch.randn(ROWS, width, generator=rng),
        "log_prob": -torch.rand(ROWS, width, generator=rng),
        "advantage": torch.randn(ROWS, generator=rng),
        "v_targ": torch.randn(ROWS, generator=rng),
        "weight": (torch.rand(ROWS, generator=rng) > 0.2).float(),
    }
    return networks, Experience(seen, columns)


def learned(phase, space, piece, **network):
    """Metrics, weights, and whether the loss was recorded."""
    networks, data = build(phase, space, **network)
    weights = FlatWeights(networks)
    step = EagerStep(phase, networks, weights, piece)
    metrics = run_phase(phase, networks, step, data, np.random.default_rng(3), 0.5)
    return metrics, weights.theta, step.recorded.recorded is not None


@pytest.mark.parametrize("piece", [8, 3], ids=["whole", "pieces"])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", PHASES)
def test_a_recorded_loss_has_the_bits_of_the_eager_one(name, space, piece, monkeypatch):
    with warnings.catch_warnings(action="error"):
        recorded = learned(PHASES[name], space, piece)
    monkeypatch.setattr(traced, "PATIENCE", 10**6)
    eager = learned(PHASES[name], space, piece)
    assert (recorded[2], eager[2]) == (True, False)
    assert recorded[0] == eager[0]
    assert torch.equal(recorded[1], eager[1])


def test_a_recording_in_bfloat16_has_the_same_bits(monkeypatch):
    recorded = learned(PHASES["joint"], "image", 8, precision="bfloat16")
    monkeypatch.setattr(traced, "PATIENCE", 10**6)
    eager = learned(PHASES["joint"], "image", 8, precision="bfloat16")
    assert recorded[2]
    assert recorded[0] == eager[0]
    assert torch.equal(recorded[1], eager[1])


def test_what_may_differ_from_call_to_call_is_not_recorded():
    class Mine(Value):
        """May decide as it likes."""

    assert all(map(is_recordable, PHASES.values()))
    assert not is_recordable(Mine(sgd=STEPS))
    assert not is_recordable(Policy(sgd=STEPS, epsilon=Linear(start=0.1)))
    assert not is_recordable(Joint(sgd=STEPS, entropy_bonus=Linear(start=0.1)))
    annealed = STEPS.model_copy(update={"learning_rate": Linear(start=0.1)})
    assert is_recordable(Value(sgd=annealed))
    name = register_encoder(nn.Sequential(nn.Linear(5, 8), nn.ReLU()), "own_for_tracing")
    assert not learned(PHASES["value"], "vector", 8, encoder=name, width=None)[2]
    assert not learned(PHASES["value"], "vector", None)[2]


class Counting(nn.Module):
    """Not a function of its inputs."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class Failing(nn.Module):
    """Cannot be recorded."""

    def forward(self, x):
        if torch.jit.is_tracing():
            raise RuntimeError("not in here")
        return x + 1


@pytest.mark.parametrize("module", [Counting(), Failing()])
def test_what_recording_does_not_repeat_stays_eager(module):
    call = Traced(module, 3)
    x = torch.zeros(3)
    with warnings.catch_warnings(action="error"):
        found = [call(3, x) for _ in range(3)]
    assert call.tried
    assert call.recorded is None
    if isinstance(module, Failing):
        assert all(torch.equal(one, x + 1) for one in found)


def test_nothing_is_recorded_before_it_pays(monkeypatch):
    monkeypatch.setattr(traced, "PATIENCE", 5)
    call = Traced(nn.Identity(), 3)
    for _ in range(5):
        call(3, torch.zeros(3))
        call(2, torch.zeros(2))
    assert not call.tried
    call(3, torch.zeros(3))
    assert call.recorded is not None
