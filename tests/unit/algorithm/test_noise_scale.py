"""The noise scale against distributions with known gradients (section 3.2, algorithm 2)."""

import math
import statistics

import numpy as np
import pytest
import torch

from dna.algorithm.noise_probe import named
from dna.algorithm.noise_scale import (
    Estimate,
    NoiseRatio,
    NoiseReading,
    NoiseScale,
    Sizes,
    Spread,
    gradient,
    pooled,
    rows_of,
    unbiased,
)
from dna.common.errors import BadInput

#: ½|θ − x|² has the gradient θ − x: G = θ − μ, and Σ is the covariance of x.
G, VARIANCES = (3.0, 4.0), (1.0, 3.0)
TRACE, NORM = sum(VARIANCES), sum(g * g for g in G)


def quadratic(theta):
    return lambda x: 0.5 * (theta - x).square().sum(-1).mean()


def estimates(repeats, rows, sizes=None, center=G, seed=0):
    rng = np.random.default_rng(seed)
    theta = torch.tensor(center, dtype=torch.float64, requires_grad=True)
    for number in range(repeats):
        x = rng.normal(size=(rows, 2)) * np.sqrt(VARIANCES)
        yield NoiseScale.measure(quadratic(theta), [theta], torch.from_numpy(x), sizes, number)


def within(values, truth, errors=4.0):
    """Whether their mean is as near to the truth as their scatter lets expect."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return abs(statistics.fmean(values) - truth) < errors * error


@pytest.fixture(scope="module")
def many():
    """Two million draws: 434 estimates of 4,096 and 16 · 32 samples."""
    return list(estimates(434, 4096))


def test_both_estimates_are_without_bias(many):
    assert within([one.g2 for one in many], NORM)
    assert within([one.s for one in many], TRACE)


def test_the_paired_form_is_without_bias_too_and_scatters_less(many):
    """|G_small − G_big|² knows which way the noise points: what G adds to norms cancels."""
    assert within([one.paired.g2 for one in many], NORM)
    assert within([one.paired.s for one in many], TRACE)
    assert min(one.paired.s for one in many) > 0
    scatter = [
        statistics.stdev(x) for x in zip(*((e.s, e.paired.s) for e in many), strict=True)
    ]
    assert scatter[1] < 0.25 * scatter[0]


def test_the_paired_form_is_without_bias_where_the_large_batch_is_not_all_rows():
    found = [one.paired for one in estimates(300, 256, Sizes(8, 64))]
    assert within([one.g2 for one in found], NORM)
    assert within([one.s for one in found], TRACE)


def test_the_authors_form_is_low(many):
    """The square of a mean norm is less than the mean square: worst in two dimensions."""
    lost = [one.s - one.authors[1] for one in many]
    assert min(lost) > 0
    assert statistics.fmean(lost) == pytest.approx(0.5 * TRACE, rel=0.15)  # of 4, 1.9 remain


def test_standard_errors_are_those_of_repetition(many):
    seen = [statistics.variance(one.g2 for one in many), statistics.variance(e.s for e in many)]
    told = [statistics.fmean(one.spread.g2 for one in many)]
    told += [statistics.fmean(one.spread.s for one in many)]
    assert told == pytest.approx(seen, rel=0.25)


def test_intervals_hold_the_truth_as_often_as_they_say(many):
    held = 0
    for one in many:
        low, high = one.reading().interval
        held += low <= TRACE / NORM <= (math.inf if high is None else high)
    assert 0.91 < held / len(many) < 0.99


def test_b_simple_of_a_linear_model_is_the_closed_form():
    """y = w*·x + ε, x ~ N(0, I_d): B_simple = d + 1 + s² d / |w − w*|²."""
    d, s, delta = 8, 2.0, 0.5
    rng, readings = np.random.default_rng(1), []
    w = torch.full((d,), delta / math.sqrt(d), dtype=torch.float64, requires_grad=True)
    for number in range(60):
        x = torch.from_numpy(rng.normal(size=(8192, d)))
        y = torch.from_numpy(s * rng.normal(size=8192))  # w* = 0

        def loss(rows):
            inputs, targets = rows
            return (inputs @ w - targets).square().mean()

        sizes = Sizes(b_small=64, samples=32)
        readings.append(NoiseScale.measure(loss, [w], (x, y), sizes, number))
    truth = d + 1 + s**2 * d / delta**2
    found = pooled(readings)
    low, high = found.interval
    assert found.b_simple == pytest.approx(truth, rel=0.1)
    assert low < truth < high


def test_a_gradient_of_zero_is_admitted():
    """At the minimum |𝒢|² is as often negative as not: there is no B_simple then."""
    readings = [one.reading() for one in estimates(200, 256, center=(0.0, 0.0))]
    negative = [one for one in readings if one.g2 <= 0]
    assert len(negative) > 40
    assert all(one.b_simple is None and one.sigma is None for one in negative)
    assert all(one.interval[1] is None for one in negative)
    assert all(math.isfinite(one.interval[0]) for one in readings)
    unbounded = sum(one.interval[1] is None for one in readings)
    assert unbounded > 0.85 * len(readings)


def test_noise_that_is_too_small_to_tell_is_admitted():
    """𝒮 = −2 of a gradient of length 1: no B_simple, and no interval of nothing."""
    spread = Spread(0.01, 0.25, 0.0)
    found = NoiseReading(NoiseRatio(1.0, -2.0, spread), NoiseRatio(1.0, 0.5, spread), -2.0)
    assert (found.b_simple, found.sigma, found.authors_sigma) == (None, None, None)
    assert found.interval == found.paired.interval
    assert found.interval[1] > 1.0
    logged = named("value", found)
    assert not {"noise/value/sigma", "noise/value/b_simple"} & set(logged)
    assert logged["noise/value/b_simple_high"] > 1.0


def along_the_gradient(repeats, rare):
    """B_simple = 4, all noise along G; `rare`: one row in a hundred errs a hundred times."""
    rng, theta = np.random.default_rng(0), torch.tensor([1.0], requires_grad=True)
    for number in range(repeats):
        scale = np.where(rng.random(4096) < 0.01, 10.0, 0.1) / 1.005 if rare else 1.0
        x = torch.from_numpy(2 * scale * rng.normal(size=4096)).float()[:, None]
        yield NoiseScale.measure(quadratic(theta), [theta], x, None, number).reading()


@pytest.mark.parametrize(("rare", "least"), [(False, 0.9), (True, 0.83)])
def test_intervals_of_little_noise(rare, least):
    """𝒮 is negative in a quarter of them; what is said then is the paired form's."""
    found = list(along_the_gradient(250, rare))
    negative = [one for one in found if one.s <= 0]
    assert len(negative) > 40
    assert all(one.b_simple is None for one in negative)
    assert all(one.interval[1] is None or one.interval[1] > 0 for one in found)
    ends = [
        (low, math.inf if high is None else high) for low, high in (o.interval for o in found)
    ]
    assert least < statistics.fmean(low <= 4 <= high for low, high in ends)
    old = [one.ours.interval for one in found]
    assert rare is False or any(high == 0 for _, high in old)


def test_algorithm_2_smooths_the_gradient_and_not_the_noise():
    scale = NoiseScale(alpha=0.75)
    first = Estimate(2, 8, big=4.0, small=(10.0, 12.0), along=(1.0, 2.0))
    second = Estimate(2, 8, big=2.0, small=(20.0, 22.0), along=(1.0, 3.0))
    one, two = scale.update(first), scale.update(second)
    assert (one.g2, one.s) == unbiased(4.0, 11.0, 8, 2)
    g2, s = unbiased(2.0, 21.0, 8, 2)
    assert two.g2 == pytest.approx(0.75 * one.g2 + 0.25 * g2)
    assert two.s == s
    assert two.ours.spread.g2 == pytest.approx(
        0.75**2 * first.spread.g2 + 0.25**2 * second.spread.g2
    )
    theirs = [0.75 * a + 0.25 * b for a, b in zip(first.authors, second.authors, strict=True)]
    assert two.authors == pytest.approx(theirs[1] / max(theirs[0], 1e-4))
    assert two.paired.g2 == pytest.approx(0.75 * first.paired.g2 + 0.25 * second.paired.g2)
    assert two.paired.s == second.paired.s


def test_averages_are_kept_by_a_checkpoint():
    whole, cut = NoiseScale(), NoiseScale()
    for number, one in enumerate(estimates(6, 256)):
        reading, again = whole.update(one), cut.update(one)
        assert reading == again
        if number == 2:
            state, cut = cut.state(), NoiseScale()
            cut.load(state)


def test_averages_of_a_checkpoint_without_the_paired_form_go_on():
    """What was not averaged before begins with the first estimate, not with zero."""
    scale, (one, two) = NoiseScale(), estimates(2, 256)
    scale.update(one)
    state = {name: value for name, value in scale.state().items() if "paired" not in name}
    old = NoiseScale()
    old.load(state)
    assert old.update(two).paired == two.paired
    assert old.averages["g2"] == scale.update(two).g2


def test_more_small_batches_and_smoothing_scatter_less():
    """What appendix N says of averaging and smoothing, on a known noise scale."""
    few = [e.s / e.g2 for e in estimates(150, 512, Sizes(samples=2), seed=2)]
    more = [e.s / e.g2 for e in estimates(150, 512, Sizes(samples=32), seed=2)]
    assert statistics.stdev(more) < 0.5 * statistics.stdev(few)
    scale = NoiseScale(alpha=0.9)
    smoothed = [scale.update(e).g2 for e in estimates(150, 512, seed=3)][20:]
    plain = [e.g2 for e in estimates(150, 512, seed=3)][20:]
    assert statistics.stdev(smoothed) < 0.6 * statistics.stdev(plain)


def test_measuring_moves_nothing():
    model = torch.nn.Linear(3, 1)
    before = [p.clone() for p in model.parameters()]
    data = {"x": torch.randn(64, 3), "y": torch.randn(64, 1)}
    NoiseScale.measure(
        lambda rows: (model(rows["x"]) - rows["y"]).square().mean(), model.parameters(), data
    )
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_a_gradient_in_pieces_is_the_gradient():
    model = torch.nn.Linear(3, 2)
    data = rows_of(torch.randn(50, 3))
    params, index = list(model.parameters()), torch.arange(50)

    def loss(x):
        return model(x)[:, 0].square().mean()

    whole = gradient(loss, params, data, index)
    assert torch.allclose(whole, gradient(loss, params, data, index, 16), atol=1e-7)
    expected = torch.autograd.grad(loss(data[index]), params)
    flat = torch.cat([g.flatten() for g in expected]).double()
    assert torch.allclose(whole, flat, atol=1e-7)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (Sizes(b_small=64), "b_small = 64 < b_big = 64"),
        (Sizes(b_big=65), "b_big = 65 ≤ 64 rows"),
        (Sizes(samples=1), "samples = 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes, words):
    theta = torch.zeros(2, requires_grad=True)
    with pytest.raises(BadInput, match=words):
        NoiseScale.measure(quadratic(theta), [theta], torch.randn(64, 2), sizes)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(BadInput, match="columns have"):
        rows_of((torch.zeros(3), torch.zeros(4)))


def test_a_mean_of_estimates_scatters_less():
    one = Spread(4.0, 2.0, -1.0)
    assert one.times(0.25) == Spread(1.0, 0.5, -0.25)
    same = next(iter(estimates(1, 256)))
    assert pooled([same] * 4).ours.spread.g2 == pytest.approx(same.spread.g2 / 4)
    assert pooled([same] * 4).g2 == pytest.approx(same.g2)
