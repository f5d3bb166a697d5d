"""One iteration is algorithm 1: policy, then value, then distillation, on fresh experience."""

import torch

import dna.algorithm.engine
import dna.runs.train
from dna.config.overrides import tweak
from dna.config.presets import preset
from dna.runs.setup import How

SMALL = {
    "env.id": "CartPole-v1",
    "horizon": 16,
    "agents": 2,
    "interactions": 64,
    "warm_up": None,
    **{f"{phase}.sgd.minibatch": 16 for phase in ("policy", "value", "distil")},
}
CONFIG = tweak(preset("small.dna"), **SMALL)
HOW = How(device="cpu", threads=1, tensorboard=False)


def copied(networks):
    return {name: weight.clone() for name, weight in networks.named_parameters()}


def changed(before, after):
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def test_an_iteration_runs_the_phases_in_order_each_on_its_own_network(tmp_path, monkeypatch):
    seen = []
    run_phase = dna.runs.train.run_phase

    def watched(phase, networks, step, batch, rng, progress):
        before = copied(networks)
        metrics = run_phase(phase, networks, step, batch, rng, progress)
        seen.append((phase.name, changed(before, copied(networks)), len(batch["weight"])))
        return metrics

    monkeypatch.setattr(dna.runs.train, "run_phase", watched)
    dna.runs.train.train(CONFIG, 0, tmp_path / "run", how=HOW)
    rows = CONFIG.horizon * CONFIG.agents
    once = [
        ("policy", {"policy"}, rows),
        ("value", {"value"}, rows),
        ("distil", {"policy"}, rows),
    ]
    assert seen == 2 * once


def test_targets_of_distillation_are_the_networks_after_both_other_phases(
    tmp_path, monkeypatch
):
    after_value, frozen = [], []
    run_phase, freeze = dna.runs.train.run_phase, dna.algorithm.engine.freeze

    def watched(phase, networks, step, batch, rng, progress):
        metrics = run_phase(phase, networks, step, batch, rng, progress)
        if phase.name == "value":
            with torch.no_grad():
                after_value.append((networks.pi(batch.obs).pi, networks.v(batch.obs)))
        return metrics

    def remembered(phase, networks, batch):
        columns = freeze(phase, networks, batch)
        if phase.name == "distil":
            frozen.append((columns["pi_old"], columns["teacher"]))
        return columns

    monkeypatch.setattr(dna.runs.train, "run_phase", watched)
    monkeypatch.setattr(dna.algorithm.engine, "freeze", remembered)
    dna.runs.train.train(CONFIG, 0, tmp_path / "run", how=HOW)
    assert len(frozen) == 2
    torch.testing.assert_close(frozen, after_value)
