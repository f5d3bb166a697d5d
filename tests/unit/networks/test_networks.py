"""The networks of section 4.1: shapes, sizes, initialization, preprocessing, independence."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dna.common.errors import BadInput
from dna.config import (
    SGD,
    Config,
    Distil,
    Joint,
    Network,
    ObservationNorm,
    Policy,
    Value,
    json_tree,
)
from dna.config.overrides import digest, from_tree, tweak
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.networks import PROJECTION, Networks
from dna.networks.normalizers import Preprocess
from helpers import tiny

STEPS = SGD(epochs=1, minibatch=2)
DNA = (Policy(sgd=STEPS), Value(sgd=STEPS), Distil(sgd=STEPS))
PPO = (Joint(sgd=STEPS),)
ATARI = ObservationSpec("image", (84, 84, 4), "uint8")
PROCGEN = ObservationSpec("image", (64, 64, 3), "uint8")
MINATAR = ObservationSpec("image", (10, 10, 4), "bool")
VECTOR = ObservationSpec("vector", (5,), "float32")
EIGHTEEN = ActionSpec("categorical", (18,))


def build(
    obs=VECTOR, action=EIGHTEEN, phases=DNA, norm: ObservationNorm | None = None, **network
):
    torch.manual_seed(0)
    config = Config(phases=phases, network=Network(**network), normalize_observation=norm)
    return Networks(config, obs, action)


def observations(spec: ObservationSpec, rows: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    if spec.dtype == "uint8":
        return torch.from_numpy(rng.integers(0, 256, (rows, *spec.shape)).astype(np.uint8))
    x = rng.normal(size=(rows, *spec.shape))
    return torch.from_numpy(x > 0 if spec.dtype == "bool" else x.astype(np.float32))


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


# ── sizes and shapes ──────────────────────────────────────────────────────────────────────


def test_the_nature_networks_have_the_papers_number_of_weights():
    networks = build(ATARI, init="authors")
    assert count(networks.policy) == 1_693_875
    assert count(networks.value) == 1_684_641
    assert count(networks) == 3_378_516


def test_ppo_with_twice_the_channels_has_the_papers_number_of_weights():
    networks = build(ATARI, phases=PPO, channels=2, init="authors")
    assert networks.value is None
    assert count(networks) == 3_516_755


@pytest.mark.parametrize(
    ("obs", "encoder", "width"),
    [
        (VECTOR, "auto", 64),
        (VECTOR, "mlp", 64),
        (MINATAR, "auto", 128),
        (MINATAR, "mlp", 64),
        (MINATAR, "small", 128),
        (MINATAR, "impala", 256),
        (PROCGEN, "impala", 256),
        (PROCGEN, "auto", 512),
        (ATARI, "auto", 512),
        (ATARI, "small", 128),
        (ObservationSpec("image", (7, 9, 2), "float32"), "impala", 256),
        (ObservationSpec("image", (36, 50, 1), "uint8"), "auto", 512),
    ],
)
def test_every_encoder_gives_a_policy_a_value_and_features(obs, encoder, width):
    networks = build(obs, encoder=encoder, init="authors", norm=ObservationNorm())
    states = observations(obs, 3)
    output = networks.pi(states)
    assert output.pi.shape == (3, 18)
    assert output.value.shape == networks.v(states).shape == (3,)
    assert output.features.shape == (3, width)
    assert all(torch.isfinite(part).all() for part in output)


@pytest.mark.parametrize("encoder", ["mlp", "small", "impala"])
def test_the_width_can_be_chosen(encoder):
    networks = build(MINATAR, encoder=encoder, width=32, depth=3)
    assert networks.pi(observations(MINATAR, 2)).features.shape == (2, 32)


@pytest.mark.parametrize(
    ("action", "columns"),
    [
        (ActionSpec("categorical", (6,)), 6),
        (ActionSpec("categorical", (3, 2)), 5),
        (ActionSpec("gaussian", (3,)), 6),
    ],
)
def test_the_policy_head_has_a_column_for_each_parameter(action, columns):
    networks = build(action=action)
    assert networks.pi(observations(VECTOR, 4)).pi.shape == (4, columns)
    assert networks.distribution.parameters == columns


def test_the_gaussians_deviation_is_one_at_first_and_the_same_everywhere():
    networks = build(action=ActionSpec("gaussian", (3,)))
    log_std = networks.pi(observations(VECTOR, 4)).pi[:, 3:]
    assert torch.equal(log_std, torch.zeros(4, 3))
    assert any(p is networks.policy.log_std for p in networks.weights("policy"))


# ── one or two networks ───────────────────────────────────────────────────────────────────


def test_a_value_network_exists_where_a_phase_trains_it():
    assert build(phases=DNA).value is not None
    single = build(phases=PPO)
    assert single.value is None
    states = observations(VECTOR, 4)
    assert torch.equal(single.v(states), single.pi(states).value)


def test_with_two_networks_the_value_is_the_value_networks():
    networks, states = build(), observations(VECTOR, 5000)
    with torch.no_grad():
        assert torch.equal(networks.v(states), networks.value(states))
        assert not torch.allclose(networks.v(states), networks.pi(states).value)
        torch.testing.assert_close(networks.v_of_all(states), networks.v(states))
    assert not networks.v_of_all(states).requires_grad


def test_policy_and_value_share_no_memory_and_no_numbers():
    networks = build(MINATAR)
    policy = {p.data_ptr() for p in networks.policy.parameters()}
    assert not policy & {p.data_ptr() for p in networks.value.parameters()}
    pairs = zip(
        networks.policy.encoder.parameters(), networks.value.encoder.parameters(), strict=True
    )
    for ours, theirs in pairs:
        assert ours.shape == theirs.shape
        assert not ours.any() or not torch.equal(ours, theirs)


def test_moving_the_policy_leaves_the_value_where_it_was():
    networks, states = build(), observations(VECTOR, 4)
    before = networks.v(states)
    with torch.no_grad():
        for p in networks.policy.parameters():
            p.add_(1.0)
    assert torch.equal(networks.v(states), before)


def test_weights_are_those_of_the_networks_named():
    networks = build()
    ids = {
        which: [id(p) for p in networks.weights(which)] for which in ("policy", "value", "both")
    }
    assert ids["policy"] == [id(p) for p in networks.policy.parameters()]
    assert ids["value"] == [id(p) for p in networks.value.parameters()]
    assert ids["both"] == ids["policy"] + ids["value"]
    assert build(phases=PPO).weights("value") == []


def test_the_teachers_random_projection_is_fixed_and_the_students_learns():
    phases = (Policy(sgd=STEPS), Value(sgd=STEPS), Distil(sgd=STEPS, target="projection"))
    networks = build(phases=phases)
    assert networks.value.projection.weight.shape == (PROJECTION, 64) == (16, 64)
    assert not any(p.requires_grad for p in networks.value.projection.parameters())
    fixed = {id(p) for p in networks.value.projection.parameters()}
    assert not fixed & {id(p) for p in networks.weights("both")}
    learned = {id(p) for p in networks.policy.projection.parameters()}
    assert learned <= {id(p) for p in networks.weights("policy")}
    assert build().policy.projection is None


# ── initialization ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("obs", "encoder"), [(VECTOR, "mlp"), (MINATAR, "small"), (ATARI, "nature")]
)
def test_orthogonal_layers_have_orthogonal_rows_and_no_bias(obs, encoder):
    networks = build(obs, encoder=encoder, phases=PPO)
    layers = [
        m for m in networks.policy.encoder.modules() if isinstance(m, nn.Linear | nn.Conv2d)
    ]
    assert layers
    for layer in layers:
        flat = layer.weight.detach().flatten(1)
        small = flat if len(flat) <= flat.shape[1] else flat.T
        torch.testing.assert_close(
            small @ small.T, 2 * torch.eye(len(small)), rtol=0, atol=1e-4
        )
        assert not layer.bias.any()


def test_the_orthogonal_start_is_a_nearly_uniform_policy():
    networks = build(phases=PPO)
    policy = networks.policy
    singular = torch.linalg.svdvals(policy.policy_head.weight.detach())
    torch.testing.assert_close(singular, torch.full_like(singular, 0.01))
    assert policy.value_head.weight.norm().item() == pytest.approx(1.0, rel=1e-5)
    assert not policy.policy_head.bias.any()
    assert not policy.value_head.bias.any()
    probabilities = networks.pi(observations(VECTOR, 10)).pi.softmax(-1)
    assert (probabilities - 1 / 18).abs().max() < 0.01


def test_the_authors_heads_are_uniform_within_their_bound():
    networks = build(ATARI, init="authors")
    bound = 0.1 / math.sqrt(512)
    heads = (networks.policy.policy_head, networks.policy.value_head, networks.value.value_head)
    for head in heads:
        size = head.weight.abs()
        assert 0.9 * bound < size.max() <= bound
        assert size.mean().item() == pytest.approx(bound / 2, rel=0.15)
        assert head.bias.abs().max() <= 1 / math.sqrt(512)
    assert networks.policy.policy_head.bias.abs().max() > bound, "torch's own default"


def test_the_authors_mlp_is_orthogonal_with_the_gain_of_tanh():
    layers = [m for m in build(init="authors").policy.encoder if isinstance(m, nn.Linear)]
    assert len(layers) == 2
    singular = torch.linalg.svdvals(layers[1].weight.detach())
    torch.testing.assert_close(
        singular, torch.full_like(singular, nn.init.calculate_gain("tanh"))
    )


def test_impala_filters_have_the_norms_of_ppgs_encoder():
    encoder = build(PROCGEN, encoder="impala", phases=PPO).policy.encoder
    layers = [m for m in encoder.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 3 * 5 + 1
    block = math.sqrt(1 / math.sqrt(3) / math.sqrt(2))
    norms = 3 * [1.0, block, block, block, block] + [1.4]
    for layer, norm in zip(layers, norms, strict=True):
        rows = layer.weight.detach().flatten(1).norm(dim=1)
        torch.testing.assert_close(rows, torch.full_like(rows, norm))
        assert not layer.bias.any()


# ── preprocessing ─────────────────────────────────────────────────────────────────────────


def test_preprocessing_is_the_formula_of_appendix_a():
    networks = build(norm=ObservationNorm(clip=1.5, gain=3.0))
    seen = 4 + 2 * observations(VECTOR, 100)
    networks.observe(seen[:60].numpy())
    networks.observe(seen[60:].numpy())
    data, fresh = seen.numpy().astype(float), (4 + 6 * observations(VECTOR, 30, seed=1)).numpy()
    expected = 3.0 * np.clip((fresh - data.mean(0)) / (data.std(0) + 1e-5), -1.5, 1.5)
    ours = networks.preprocess(torch.from_numpy(fresh)).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(ours).max() == pytest.approx(4.5), "some elements were clipped"


def test_pixels_become_fractions_before_they_are_normalized():
    spec = ObservationSpec("image", (3, 5, 2), "uint8")
    preprocess, states = Preprocess(spec, None, 1.0), observations(spec, 4)
    expected = np.moveaxis(states.numpy() / 255, -1, 1)
    np.testing.assert_allclose(preprocess(states), expected, rtol=1e-6)
    networks = build(spec, encoder="mlp", norm=ObservationNorm(clip=100.0))
    networks.observe(states.numpy())
    scaled = states.numpy() / 255
    expected = np.moveaxis((scaled - scaled.mean(0)) / (scaled.std(0) + 1e-5), -1, 1)
    np.testing.assert_allclose(networks.preprocess(states), expected, rtol=1e-3, atol=1e-4)


def test_pixels_are_clipped_and_scaled_up_as_any_observation():
    spec = ObservationSpec("image", (3, 5, 2), "uint8")
    networks = build(spec, encoder="mlp", norm=ObservationNorm(clip=0.8, gain=3.0))
    seen, fresh = observations(spec, 40), observations(spec, 50, seed=1)
    networks.observe(seen.numpy())
    scaled, new = seen.numpy() / 255, fresh.numpy() / 255
    normal = (new - scaled.mean(0)) / (scaled.std(0) + 1e-5)
    expected = np.moveaxis(3.0 * np.clip(normal, -0.8, 0.8), -1, 1)
    np.testing.assert_allclose(networks.preprocess(fresh), expected, rtol=1e-4, atol=1e-4)
    assert (np.abs(normal) > 0.8).mean() > 0.2
    assert np.abs(expected).max() == pytest.approx(2.4)


def test_without_normalization_vectors_pass_unchanged():
    networks, states = build(norm=None), 100 * observations(VECTOR, 4)
    networks.observe(states.numpy())
    assert torch.equal(networks.preprocess(states), states)


def test_without_any_statistics_states_are_only_clipped():
    networks, states = build(norm=ObservationNorm(clip=1.0)), observations(VECTOR, 20)
    torch.testing.assert_close(
        networks.preprocess(states), states.clamp(-1, 1), rtol=1e-4, atol=0
    )


def test_both_networks_read_the_same_statistics():
    networks, states = build(norm=ObservationNorm()), 5 + observations(VECTOR, 20)
    before = networks.pi(states).value, networks.v(states)
    networks.observe(states.numpy())
    assert not torch.allclose(networks.pi(states).value, before[0])
    assert not torch.allclose(networks.v(states), before[1])


def test_images_are_convolved_as_in_an_ordinary_channels_first_network():
    spec = ObservationSpec("image", (40, 52, 3), "uint8")
    networks, states = (
        build(spec, encoder="nature", width=16, phases=PPO),
        observations(spec, 2),
    )
    first, second, third, dense = (
        m for m in networks.policy.encoder if isinstance(m, nn.Conv2d | nn.Linear)
    )
    x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(states.numpy(), -1, 1))).float() / 255
    for layer, stride in ((first, 4), (second, 2), (third, 1)):
        weight = layer.weight.detach().contiguous()
        x = F.conv2d(x, weight, layer.bias.detach(), stride=stride).relu()
    x = torch.from_numpy(np.moveaxis(x.numpy(), 1, -1).reshape(2, -1))
    expected = x @ dense.weight.detach().T + dense.bias.detach()
    features = networks.pi(states).features.detach()
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert features.min() < 0, "features are read before their activation"


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_mlp_is_linear_layers_with_the_activation_between_and_behind(activation):
    networks, states = build(activation=activation, depth=2), observations(VECTOR, 4)
    act = getattr(torch, activation)
    first, second = (m for m in networks.policy.encoder if isinstance(m, nn.Linear))
    features = act(states @ first.weight.T + first.bias) @ second.weight.T + second.bias
    output = networks.pi(states)
    head = networks.policy.policy_head
    torch.testing.assert_close(output.features, features)
    torch.testing.assert_close(output.pi, act(features) @ head.weight.T + head.bias)


# ── mismatches ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("encoder", ["small", "nature", "impala"])
def test_an_image_encoder_refuses_vectors(encoder):
    with pytest.raises(BadInput, match=r"network\.encoder.*use mlp or auto"):
        build(VECTOR, encoder=encoder)


def test_the_nature_encoder_refuses_small_images():
    with pytest.raises(BadInput, match=r"network\.encoder.*36 pixels.*use small or auto"):
        build(ObservationSpec("image", (35, 84, 4), "uint8"), encoder="nature")


def test_the_small_encoder_refuses_images_smaller_than_its_filter():
    tiny = ObservationSpec("image", (2, 9, 1), "uint8")
    with pytest.raises(BadInput, match=r"network\.encoder"):
        build(tiny, encoder="small")
    assert build(tiny).pi(torch.zeros((1, 2, 9, 1), dtype=torch.uint8)).pi.shape[0] == 1


@pytest.mark.parametrize("spec", [ATARI, VECTOR, EIGHTEEN, ActionSpec("gaussian", (3,))])
def test_a_space_survives_json(spec):
    assert type(spec).from_json(spec.to_json()) == spec


# ── precision ─────────────────────────────────────────────────────────────────────────────


def test_an_encoder_may_compute_in_bfloat16_and_answers_in_float32():
    spec = ObservationSpec("image", (40, 44, 3), "uint8")
    config = tweak(tiny("dna", None), **{"network.precision": "bfloat16"})
    torch.manual_seed(0)
    rough = Networks(config, spec, ActionSpec("categorical", (3,)))
    torch.manual_seed(0)
    fine = Networks(tiny("dna", None), spec, ActionSpec("categorical", (3,)))
    x = observations(spec, 6)
    ours, theirs = rough.pi(x), fine.pi(x)
    assert {ours.pi.dtype, ours.value.dtype, ours.features.dtype} == {torch.float32}
    torch.testing.assert_close(ours.features, theirs.features, rtol=0.05, atol=0.02)
    assert not torch.equal(ours.features, theirs.features)
    ours.features.square().mean().backward()
    touched = [p.grad for p in rough.policy.encoder.parameters()]
    assert all(g is not None and g.dtype == torch.float32 for g in touched)


def test_float32_leaves_every_run_its_name():
    config = tiny("dna", "CartPole-v1")
    tree = json_tree(config)
    assert tree["network"].pop("precision") is None
    assert digest(from_tree(tree)) == digest(config)
    assert digest(tweak(config, **{"network.precision": "bfloat16"})) != digest(config)
