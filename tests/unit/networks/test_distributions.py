"""The policy's distributions against torch.distributions (section 4.4: ρ, S[π]; 4.3: KL)."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from dna.common.randomness import generator
from dna.envs.specs import ActionSpec
from dna.networks.distributions import Categorical, Gaussian, distribution

ROWS = 50
SIZES = [(6,), (3, 5, 2), (1, 4)]
DIMENSIONS = 3


def normal(*size: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return torch.from_numpy(scale * np.random.default_rng(seed).normal(size=size))


def choices(sizes: tuple[int, ...]) -> Tensor:
    rng = np.random.default_rng(9)
    return torch.from_numpy(np.stack([rng.integers(0, n, ROWS) for n in sizes], axis=-1))


def groups(params: Tensor, sizes: tuple[int, ...]) -> list[TorchCategorical]:
    starts = np.cumsum([0, *sizes])
    return [
        TorchCategorical(logits=params[:, a : a + n])
        for a, n in zip(starts, sizes, strict=False)
    ]


def torch_normal(params: Tensor) -> Normal:
    return Normal(params[:, :DIMENSIONS], params[:, DIMENSIONS:].exp())


@pytest.mark.parametrize("sizes", SIZES)
def test_log_prob_of_choices_is_torchs_for_each_column_and_jointly(sizes):
    params, action = normal(ROWS, sum(sizes)), choices(sizes)
    ours = Categorical(sizes).log_prob(params, action)
    columns = [d.log_prob(action[:, i]) for i, d in enumerate(groups(params, sizes))]
    assert ours.shape == (ROWS, len(sizes))
    torch.testing.assert_close(ours, torch.stack(columns, dim=-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.sum(-1), sum(columns), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
def test_entropy_of_choices_is_torchs_summed_over_groups(sizes):
    params = normal(ROWS, sum(sizes))
    expected = sum(d.entropy() for d in groups(params, sizes))
    torch.testing.assert_close(Categorical(sizes).entropy(params), expected)


@pytest.mark.parametrize("sizes", SIZES)
def test_kl_of_choices_is_torchs_from_old_to_new(sizes):
    old, new = normal(ROWS, sum(sizes)), normal(ROWS, sum(sizes), seed=1)
    pairs = zip(groups(old, sizes), groups(new, sizes), strict=True)
    expected = sum(kl_divergence(p, q) for p, q in pairs)
    ours = Categorical(sizes).kl(old, new)
    torch.testing.assert_close(ours, expected)
    assert not torch.allclose(ours, Categorical(sizes).kl(new, old)), "the order matters"


def test_normals_have_torchs_log_prob_per_dimension_and_jointly():
    params, action = normal(ROWS, 2 * DIMENSIONS, scale=1.0), normal(ROWS, DIMENSIONS, seed=1)
    ours = Gaussian(DIMENSIONS).log_prob(params, action)
    torch.testing.assert_close(ours, torch_normal(params).log_prob(action))
    joint = Independent(torch_normal(params), 1).log_prob(action)
    torch.testing.assert_close(ours.sum(-1), joint)


def test_normals_have_torchs_entropy_and_kl():
    old = normal(ROWS, 2 * DIMENSIONS, scale=1.0)
    new = normal(ROWS, 2 * DIMENSIONS, seed=1, scale=1.0)
    pi = Gaussian(DIMENSIONS)
    torch.testing.assert_close(pi.entropy(old), Independent(torch_normal(old), 1).entropy())
    expected = kl_divergence(torch_normal(old), torch_normal(new)).sum(-1)
    torch.testing.assert_close(pi.kl(old, new), expected)
    assert not torch.allclose(pi.kl(old, new), pi.kl(new, old)), "the order matters"


@pytest.mark.parametrize(
    "pi", [Categorical((6,)), Categorical((3, 5, 2)), Gaussian(DIMENSIONS)]
)
def test_kl_is_zero_and_flat_between_equals(pi):
    old = normal(ROWS, pi.parameters)
    new = old.clone().requires_grad_()
    kl = pi.kl(old, new)
    kl.sum().backward()
    torch.testing.assert_close(
        kl.detach(), torch.zeros(ROWS, dtype=torch.float64), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(new.grad, torch.zeros_like(old), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", SIZES)
def test_gradient_of_choices_log_prob_is_torchs(sizes):
    ours, theirs = (normal(ROWS, sum(sizes)).requires_grad_() for _ in range(2))
    action = choices(sizes)
    Categorical(sizes).log_prob(ours, action).sum().backward()
    sum(d.log_prob(action[:, i]).sum() for i, d in enumerate(groups(theirs, sizes))).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)


def test_gradient_of_normals_log_prob_is_torchs():
    ours, theirs = (normal(ROWS, 2 * DIMENSIONS, scale=1.0).requires_grad_() for _ in range(2))
    action = normal(ROWS, DIMENSIONS, seed=1)
    Gaussian(DIMENSIONS).log_prob(ours, action).sum().backward()
    torch_normal(theirs).log_prob(action).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)


def test_gumbel_max_draws_each_choice_as_often_as_softmax_says():
    pi, draws = Categorical((4, 3)), 40_000
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 0.0])
    noise = torch.from_numpy(pi.draw(generator(0, "test"), (draws,)))
    assert noise.shape == (draws, 7)
    actions = pi.sample(logits.expand(draws, -1), noise)
    assert actions.shape == (draws, 2)
    assert actions.dtype == torch.int64
    for column, part in enumerate((logits[:4], logits[4:])):
        expected = draws * part.double().softmax(-1).numpy()
        counted = np.bincount(actions[:, column], minlength=len(part))
        chi_square = np.sum((counted - expected) ** 2 / expected)
        assert chi_square < 16.3, "the 0.1 % point at three degrees of freedom"


def test_the_groups_of_a_choice_are_drawn_independently():
    pi, draws = Categorical((2, 2)), 40_000
    noise = torch.from_numpy(pi.draw(generator(1, "test"), (draws,)))
    actions = pi.sample(torch.zeros(draws, 4), noise).double()
    assert abs(torch.corrcoef(actions.T)[0, 1]) < 4 / np.sqrt(draws)


def test_normal_draws_have_the_mean_and_deviation_of_their_parameters():
    pi, draws = Gaussian(2), 40_000
    params = torch.tensor([1.0, -3.0, 0.5, -1.0])
    noise = torch.from_numpy(pi.draw(generator(0, "test"), (draws,)))
    actions = pi.sample(params.expand(draws, -1), noise)
    assert actions.dtype == torch.float32
    deviation = params[2:].exp()
    error = (actions.mean(0) - params[:2]) / (deviation / np.sqrt(draws))
    assert (error.abs() < 4).all()
    torch.testing.assert_close(actions.std(0), deviation, rtol=0.02, atol=0)


def test_the_mode_is_the_most_likely_action():
    params = normal(ROWS, 10)
    mode = Categorical((3, 5, 2)).mode(params)
    for column, group in enumerate(groups(params, (3, 5, 2))):
        assert torch.equal(mode[:, column], group.probs.argmax(-1))
    means = normal(ROWS, 2 * DIMENSIONS)
    assert torch.equal(Gaussian(DIMENSIONS).mode(means), torch_normal(means).mean)


@pytest.mark.parametrize(
    ("spec", "kind", "parameters"),
    [
        (ActionSpec("categorical", (18,)), Categorical, 18),
        (ActionSpec("categorical", (3, 5)), Categorical, 8),
        (ActionSpec("gaussian", (4,)), Gaussian, 8),
    ],
)
def test_each_space_of_actions_has_its_distribution(spec, kind, parameters):
    pi = distribution(spec)
    assert isinstance(pi, kind)
    assert pi.parameters == parameters
    action = pi.mode(torch.zeros(2, parameters))
    assert action.shape == (2, spec.width)


def test_extreme_logits_keep_everything_finite():
    pi = Categorical((3,))
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    total = (
        pi.entropy(logits) + pi.kl(logits, -logits) + pi.log_prob(logits, torch.tensor([[1]]))
    )
    total.sum().backward()
    assert torch.isfinite(total).all()
    assert torch.isfinite(logits.grad).all()
