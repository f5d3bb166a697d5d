"""Acting through numpy says and draws what acting through torch does."""

import numpy as np
import pytest
import torch
from torch import nn

from dna.algorithm.returns import estimate
from dna.common.errors import BadInput
from dna.common.timing import Clock
from dna.config import ObservationNorm
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.actors import FEW, NumpyActor, TorchActor, make_actor
from dna.networks.encoders import register_encoder
from dna.networks.networks import FlatWeights, Networks
from helpers import collector, tiny

VECTOR = ObservationSpec("vector", (7,), "float32")
ACTIONS = {
    "one choice": ActionSpec("categorical", (4,)),
    "choices": ActionSpec("categorical", (3, 2, 5)),
    "numbers": ActionSpec("gaussian", (3,)),
}


def build(action, *, norm, activation="tanh", obs=VECTOR):
    config = tiny("dna", None, **{"network.activation": activation})
    config = config.model_copy(update={"normalize_observation": norm})
    torch.manual_seed(0)
    networks = Networks(config, obs, action)
    networks.observe((3 + 2 * torch.randn(50, *obs.shape)).numpy())
    with torch.no_grad():
        for p in networks.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return networks


@pytest.mark.parametrize(
    "norm", [None, ObservationNorm(clip=1.0, gain=3.0)], ids=["raw", "norm"]
)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_both_actors_agree(action, activation, norm):
    networks = build(action, norm=norm, activation=activation)
    rng = np.random.default_rng(0)
    obs = (3 + 2 * rng.standard_normal((20, 7))).astype(np.float32)
    noise = networks.distribution.draw(rng, (20,))
    assert NumpyActor(networks)(obs, noise)[2] is TorchActor(networks)(obs, noise)[2] is None
    ours = NumpyActor(networks, values=True)(obs, noise)
    theirs = TorchActor(networks, values=True)(obs, noise)
    for mine, yours in zip(ours, theirs, strict=True):
        assert (mine.shape, mine.dtype) == (yours.shape, yours.dtype)
        np.testing.assert_allclose(mine, yours, rtol=2e-4, atol=2e-5)


def test_it_follows_the_weights_and_statistics():
    networks = build(ACTIONS["numbers"], norm=ObservationNorm())
    weights = FlatWeights(networks)
    actor = make_actor(networks, 1)
    assert isinstance(actor, NumpyActor)
    obs, noise = np.ones((1, 7), np.float32), np.zeros((1, 3), np.float32)
    seen = [actor(obs, noise)[0]]
    with torch.no_grad():
        weights.vector("policy").mul_(0.5)
    seen.append(actor(obs, noise)[0])
    networks.observe(np.full((500, 7), 9, np.float32))
    seen.append(actor(obs, noise)[0])
    assert not np.allclose(seen[0], seen[1])
    assert not np.allclose(seen[1], seen[2])
    np.testing.assert_allclose(seen[2], TorchActor(networks)(obs, noise)[0], rtol=1e-4)


def test_large_batches_and_images_go_through_torch():
    networks = build(ACTIONS["numbers"], norm=None)
    assert isinstance(make_actor(networks, FEW), NumpyActor)
    assert isinstance(make_actor(networks, FEW + 1), TorchActor)
    image = ObservationSpec("image", (10, 10, 4), "float32")
    assert isinstance(
        make_actor(build(ACTIONS["numbers"], norm=None, obs=image), 1), TorchActor
    )


@pytest.mark.parametrize("agents", [4, 2 * FEW])
def test_values_of_acting_are_those_of_a_pass_afterwards(agents):
    """Without statistics on the move, when V is computed makes no difference."""
    found = {}
    for values in (None, "acting"):
        config = tiny("ppo", normalize_observation=None, **{"returns.values": values})
        config = config.model_copy(update={"agents": agents})
        one = collector(config)
        rollout = one.collect(0, Clock())
        assert (rollout.value is None) == (values is None)
        found[values], _ = estimate(rollout, one.networks, config.returns)
        one.env.close()
    for name in ("advantage", "v_targ"):
        torch.testing.assert_close(found["acting"][name], found[None][name])


def test_two_networks_are_evaluated_afterwards():
    with pytest.raises(BadInput, match=r"returns.values: acting is for one network"):
        tiny("dna", **{"returns.values": "acting"})


@pytest.mark.parametrize(
    "layers",
    [[nn.Linear(7, 9), nn.ReLU()], [nn.Linear(7, 9)], [nn.Linear(7, 9), nn.Linear(9, 5)]],
    ids=["rectified", "linear", "two"],
)
def test_an_encoder_of_ones_own_acts_as_it_learns(layers):
    """Its layers look like those of the built-in encoder, but what is between them differs."""
    name = register_encoder(nn.Sequential(*layers), "own_for_acting")
    config = tiny("dna", None, **{"network.encoder": name})
    networks = Networks(config, VECTOR, ACTIONS["numbers"])
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((4, 7)).astype(np.float32)
    noise = networks.distribution.draw(rng, (4,))
    pi = make_actor(networks, 4)(obs, noise)[0]
    expected = networks.pi(torch.from_numpy(obs)).pi.detach().numpy()
    np.testing.assert_allclose(pi, expected, rtol=1e-5, atol=1e-6)
