"""The noise of every phase is measured while training, and training does not notice."""

import json

import pytest
import torch

from dna.algorithm.noise_probe import NoiseProbe, measure
from dna.algorithm.noise_scale import Sizes
from dna.algorithm.phases import freeze, loss
from dna.algorithm.returns import estimate
from dna.common.errors import BadInput
from dna.common.randomness import generator
from dna.common.timing import Clock
from dna.config import Noise
from dna.config.overrides import digest, tweak
from dna.networks.batch import Experience
from dna.runs.setup import How
from dna.runs.train import train
from helpers import collector, tiny

NOISE = {"every": 2, "b_small": 8, "samples": 4}
HOW = How(tensorboard=False, threads=1)


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("algorithm", "phases"),
    [
        ("ppo", ["joint"]),
        ("dna", ["policy", "value", "distil"]),
        ("ppg", ["policy", "value", "aux"]),
    ],
)
def test_every_phase_is_measured_and_learning_is_the_same(algorithm, phases, tmp_path):
    config = tiny(algorithm, interactions=512)
    train(config, 0, tmp_path / "plain", how=HOW)
    train(tweak(config, noise=NOISE), 0, tmp_path / "noise", how=HOW)
    weights = [tmp_path / name / "policy/policy.safetensors" for name in ("plain", "noise")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    plain, noise = rows(tmp_path / "plain"), rows(tmp_path / "noise")
    learned = [{k: v for k, v in r.items() if not k.startswith("noise/")} for r in noise]
    assert learned == plain
    for phase in phases:
        seen = [row["iteration"] for row in noise if f"noise/{phase}/s" in row]
        assert seen == ([1, 5] if phase == "aux" else [0, 2, 4, 6])
        names = {k for row in noise for k in row if k.startswith(f"noise/{phase}/")}
        last = {name.rpartition("/")[2] for name in names}
        assert {"g2", "s", "b_simple_low", "g2_paired", "s_paired"} <= last
        for row in noise:
            g2, s = row.get(f"noise/{phase}/g2"), row.get(f"noise/{phase}/s")
            if g2 is not None:
                assert (f"noise/{phase}/b_simple" in row) == (g2 > 0 and s > 0)
    timings = (tmp_path / "noise" / "timings.jsonl").read_text()
    assert "time/noise" in timings


def test_the_first_iterations_are_measured_too(tmp_path):
    config = tiny("ppg", interactions=512, noise=NOISE | {"every": 3, "first": 2})
    train(config, 0, tmp_path, how=HOW)
    found = rows(tmp_path)
    seen = {
        phase: [row["iteration"] for row in found if f"noise/{phase}/s" in row]
        for phase in ("value", "aux")
    }
    assert seen == {"value": [0, 1, 3, 6], "aux": [1, 3, 7]}


def experience(config):
    acting = collector(config)
    rollout = acting.collect(0, Clock())
    return acting.networks, estimate(rollout, acting.networks, config.returns)[0]


def test_the_large_gradient_is_that_of_the_phases_loss():
    config = tiny("dna")
    networks, data = experience(config)
    for phase in config.phases:
        frozen = data.with_columns(freeze(phase, networks, data))
        found = measure(phase, networks, frozen, 0.0, Sizes(8, None, 4), generator(0, "x"))
        whole, _ = loss(phase, networks, frozen.rows(torch.arange(len(frozen))), 0.0)
        weights = networks.weights(phase.trains)
        gradients = torch.autograd.grad(whole, weights, allow_unused=True)
        square = sum(float(g.square().sum()) for g in gradients if g is not None)
        assert found.big == pytest.approx(square, rel=1e-4)
        assert found.b_big == config.batch


def test_rows_that_only_reset_are_not_drawn():
    config = tweak(tiny("dna"), noise=NOISE)
    networks, data = experience(config)
    weight = torch.ones(config.batch)
    weight[::2] = 0
    spoiled = torch.where(weight > 0, data["v_targ"], torch.nan)
    value = config.phases[1]
    holed = Experience(data.obs, data.columns | {"weight": weight, "v_targ": spoiled})
    found = measure(value, networks, holed, 0.0, Sizes(8, None, 4), generator(0, "x"))
    assert found.b_big == config.batch // 2
    assert all(x == x for x in (found.big, *found.small))


def test_a_rollout_with_hardly_a_real_row_says_nothing():
    config = tweak(tiny("dna"), noise=NOISE)
    networks, data = experience(config)
    probe = NoiseProbe(config, networks, 0)
    weight = torch.zeros(config.batch)
    weight[:8] = 1
    holed = Experience(data.obs, data.columns | {"weight": weight})
    assert probe(config.phases[1], holed, 0.0) == {}


def test_settings_of_the_noise_are_checked_and_runs_keep_their_names():
    config = tiny("dna")
    assert digest(tweak(config, noise=None)) == digest(config)
    assert digest(tweak(config, noise=NOISE)) != digest(config)
    assert tweak(config, **{"noise.every": 3}).noise == Noise(every=3)
    measured = tweak(config, noise=NOISE)
    assert digest(tweak(config, noise=NOISE | {"first": 10})) != digest(measured)
    assert digest(measured) == "5dac25653550"  # as before there was `first`
    with pytest.raises(BadInput, match=r"noise\.b_big: 65 is larger"):
        tweak(config, noise={"b_big": 65})
    with pytest.raises(BadInput, match=r"noise\.b_small: 64 must be smaller"):
        tweak(config, noise={"b_small": 64})
    with pytest.raises(BadInput, match=r"noise\.samples"):
        tweak(config, **{"noise.samples": 1})
