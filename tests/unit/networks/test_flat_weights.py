"""All weights in one vector, whose views the networks' parameters are."""

import pytest
import torch

from dna.config import ObservationNorm
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.networks import FlatWeights, Networks, in_memory_order, laid_out_as
from helpers import tiny

IMAGE = ObservationSpec("image", (40, 44, 3), "uint8")


@pytest.fixture
def networks():
    config = tiny("dna", None, **{"network.width": 16})
    config = config.model_copy(update={"normalize_observation": ObservationNorm()})
    torch.manual_seed(0)
    return Networks(config, IMAGE, ActionSpec("categorical", (3,)))


def test_weights_keep_their_values_and_layout(networks):
    before = {name: p.detach().clone() for name, p in networks.named_parameters()}
    strides = {name: p.stride() for name, p in networks.named_parameters()}
    x = torch.randint(0, 256, (5, *IMAGE.shape), dtype=torch.uint8)
    out = networks.pi(x).pi
    FlatWeights(networks)
    for name, p in networks.named_parameters():
        assert torch.equal(p, before[name])
        assert p.stride() == strides[name]
        assert p.grad.stride() == p.stride()
    assert torch.equal(networks.pi(x).pi, out)


def test_the_vector_is_the_networks_memory(networks):
    weights = FlatWeights(networks)
    with torch.no_grad():
        weights.vector("value").zero_()
    assert all(not p.any() for p in networks.weights("value"))
    assert all(p.any() for p in networks.weights("policy") if p.dim() > 1)
    networks.load_state_dict({k: torch.ones_like(v) for k, v in networks.state_dict().items()})
    assert torch.equal(weights.theta, torch.ones_like(weights.theta))


def test_gradients_arrive_in_the_vector(networks):
    weights = FlatWeights(networks)
    x = torch.randint(0, 256, (5, *IMAGE.shape), dtype=torch.uint8)
    networks.pi(x).pi.square().sum().backward()
    vector = weights.vector("policy")
    squares = sum(float(p.grad.square().sum()) for p in networks.weights("policy"))
    assert float(vector.grad.square().sum()) == pytest.approx(squares, rel=1e-5)
    assert squares > 0
    assert not weights.vector("value").grad.any()
    assert torch.equal(weights.vector("both").grad, weights.gradient)


def test_cutting_and_joining_are_inverse(networks):
    weights = FlatWeights(networks)
    for which in ("policy", "value", "both"):
        vector = torch.randn_like(weights.vector(which))
        cut = weights.parameters_of(vector, which)
        assert {name.split(".")[0] for name in cut} <= {"policy", "value"}
        assert torch.equal(weights.vector_of(cut), vector)
        contiguous = {name: part.contiguous() for name, part in cut.items()}
        assert torch.equal(weights.vector_of(contiguous), vector), "whatever the layout"


def test_a_layout_is_that_of_its_model():
    like = torch.empty(4, 3, 5, 2).to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 5, 2).to(memory_format=torch.channels_last)
    vector = in_memory_order(x, like)
    assert torch.equal(laid_out_as(vector, like), x)
    assert laid_out_as(vector, like).stride() == like.stride()
    assert laid_out_as(vector, like).data_ptr() == vector.data_ptr()
