"""The toy problem of section 3.1: its functions, models, sweep, table and verdicts."""

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dna.common.errors import BadInput, StorageFailure
from dna.common.intervals import student_quantile
from dna.paper import toy
from dna.paper.claims.verdicts import Interval
from dna.paper.costs import toy_cost
from dna.paper.experiments import experiment
from dna.paper.figures import draw_toy
from dna.paper.plan import Limits
from dna.paper.reproduce import Where, reproduce
from dna.paper.results import Results
from dna.paper.tables import caption
from dna.paper.toy import (
    SCALES,
    Cell,
    CellResult,
    ToyResult,
    cells_of,
    clean,
    errors,
    first_weights,
    log_spaced,
    parameters,
    predict,
    ratio,
    run_toy,
    samples,
    sweep,
    toy_table,
    toy_verdicts,
    train,
)

SMOKE = SCALES["smoke"]
MODELS = ("joint", "dual", "shallow-joint", "shallow-dual")


# --- The problem and the models -----------------------------------------------------------


@pytest.mark.parametrize("model", ["joint", "dual"])
def test_deep_models_have_the_papers_number_of_parameters(model):
    assert parameters(model, SCALES["paper"]) == 2_105_346
    layers = first_weights(Cell(model, 1.0), SCALES["paper"], [0])
    assert sum(p.numel() for layer in layers for p in layer) == 2_105_346


def test_shallow_models_have_equally_many():
    for settings in SCALES.values():
        counts = {parameters(model, settings) for model in ("shallow-joint", "shallow-dual")}
        assert counts == {6 * settings.shallow_width + 2}


def test_targets_are_the_functions_with_noise_of_their_own():
    cell = Cell("joint", 10.0)
    x, y = samples(cell, [0, 1], 50_000, step=0)
    assert x.shape == (2, 50_000)
    assert y.shape == (2, 2, 50_000)
    assert float(x.min()) >= -math.pi
    assert float(x.max()) <= math.pi
    assert float(x.std()) == pytest.approx(math.pi / math.sqrt(3), rel=0.01)
    x64 = x.double().numpy()
    truth = np.stack([np.sin(5 * x64), np.cos(5 * x64)], axis=1)
    assert np.allclose(clean(x), truth, atol=1e-5)
    noise = y.double().numpy() - truth
    assert noise.std(axis=-1) == pytest.approx(np.array([[10.0, 1.0]] * 2), rel=0.02)
    assert np.abs(noise.mean(axis=-1) / [10.0, 1.0]).max() < 0.02
    assert abs(np.corrcoef(noise[0])[0, 1]) < 0.02


def test_no_two_seeds_steps_or_cells_share_a_sample():
    drawn = [
        samples(Cell(model, sigma), [seed], 4, step)[0]
        for model in ("joint", "dual")
        for sigma in (0.1, 1.0)
        for seed in (0, 1)
        for step in (0, 1)
    ]
    assert len({float(x[0, 0]) for x in drawn}) == len(drawn)
    again = samples(Cell("dual", 1.0), [1], 4, 1)[0]
    assert torch.equal(again, drawn[-1])


def test_sigmas_are_log_spaced_and_the_small_ones_are_among_the_papers():
    assert log_spaced(-1, 2, 1) == (0.1, 1.0, 10.0, 100.0)
    assert len(SCALES["small"].sigmas) == 7
    assert set(SCALES["small"].sigmas) < set(SCALES["paper"].sigmas)
    steps = np.diff(np.log10(SCALES["paper"].sigmas))
    assert steps == pytest.approx(np.full(30, 0.1), abs=1e-3)


def as_modules(cell, settings, seed):
    """A seed's networks as ordinary torch modules."""
    layers = first_weights(cell, settings, [seed])
    networks = []
    for k in range(len(layers[0][0])):
        parts = []
        for weight, bias in layers:
            linear = nn.Linear(weight.shape[1], weight.shape[2])
            linear.weight.data = weight[k].detach().T.clone()
            linear.bias.data = bias[k, 0].detach().clone()
            parts += [linear, nn.ReLU()]
        networks.append(nn.Sequential(*parts[:-1]))
    return networks


@pytest.mark.parametrize("model", MODELS)
def test_training_is_that_of_ordinary_modules(model):
    cell, settings, seed = Cell(model, 3.0), replace(SMOKE, steps=20, shallow_steps=20), 1
    networks = as_modules(cell, settings, seed)
    shallow = model.startswith("shallow")
    rate = settings.shallow_learning_rate if shallow else settings.learning_rate
    optimizers = [torch.optim.Adam(net.parameters(), lr=rate) for net in networks]

    def outputs(x):
        return torch.cat([net(x[:, None]) for net in networks], dim=1).T

    for step in range(20):
        x, y = samples(cell, [seed], settings.batch, step)
        loss = sum(nn.functional.mse_loss(outputs(x[0])[k], y[0, k]) for k in (0, 1))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    x = torch.linspace(-math.pi, math.pi, settings.grid)
    with torch.no_grad():
        expected = (outputs(x) - clean(x[None])[0]).square().mean(dim=1)
    torch.testing.assert_close(train(cell, settings, [seed])[0], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_among_others_is_the_seed_alone(model):
    cell = Cell(model, 100.0)
    together = train(cell, SMOKE, [0, 1, 7])
    alone = torch.cat([train(cell, SMOKE, [seed]) for seed in (0, 1, 7)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-5)
    assert len(set(together[:, 1].tolist())) == 3


@pytest.mark.parametrize(("model", "shared"), [("joint", True), ("dual", False)])
def test_only_the_joint_model_shares_weights_between_tasks(model, shared):
    layers = first_weights(Cell(model, 1.0), SMOKE, [0, 1])
    x = torch.linspace(-3, 3, 50).expand(2, 50)
    predict(layers, x)[:, 0].sum().backward()
    of_task_1 = layers[0][0].grad != 0
    layers[0][0].grad = None
    predict(layers, x)[:, 1].sum().backward()
    of_task_2 = layers[0][0].grad != 0
    assert bool((of_task_1 & of_task_2).any()) is shared


def test_a_deep_model_learns_what_has_little_noise():
    settings = replace(SMOKE, width=128, steps=500, learning_rate=3e-3)
    cell = Cell("joint", 0.1)
    before = errors(first_weights(cell, settings, [0]), 1, 101)
    after = train(cell, settings, [0])
    assert float(before.min()) > 0.4
    assert float(after[0, 0]) < 0.25


# --- The sweep ----------------------------------------------------------------------------


class Killed(Exception):
    pass


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch):
    trained = []

    def counted(cell, settings, seeds):
        trained.append(cell)
        return train(cell, settings, seeds)

    monkeypatch.setattr(toy, "train", counted)

    def killed_after_three(done, total):
        if done == 3:
            raise Killed

    with pytest.raises(Killed):
        run_toy(tmp_path / "a", "smoke", killed_after_three)
    assert trained == cells_of(SMOKE)[:3]
    told = []
    resumed = run_toy(tmp_path / "a", "smoke", lambda done, total: told.append((done, total)))
    assert trained == cells_of(SMOKE)
    assert told == [(k, 8) for k in range(1, 9)]
    assert resumed == run_toy(tmp_path / "b", "smoke")
    assert run_toy(tmp_path / "b", "smoke") == resumed
    assert len(trained) == 16


def test_a_cell_of_other_settings_or_none_of_ours_is_refused(tmp_path):
    tiny = replace(SMOKE, sigmas=(1.0,), shallow_sigmas=(), steps=2)
    sweep(tmp_path, tiny)
    with pytest.raises(BadInput, match="other settings"):
        sweep(tmp_path, replace(tiny, steps=3))
    sweep(tmp_path, replace(tiny, sigmas=(1.0, 2.0)))  # more cells are no other settings
    path = tmp_path / "joint-1.json"
    text = path.read_text()
    for damage in (text[:40], "[]", "{}", text.replace("l_t2", "l_t3")):
        path.write_text(damage)
        with pytest.raises(StorageFailure, match="joint-1"):
            sweep(tmp_path, tiny)


def test_the_smoke_run_is_quick_and_gives_a_table_verdicts_and_a_figure(tmp_path):
    start = time.monotonic()
    result = run_toy(tmp_path, "smoke")
    assert time.monotonic() - start < 20
    rows = toy_table(result)
    assert [(row["model"], row["sigma_1"], row["seeds"]) for row in rows] == [
        (model, sigma, 2) for model in MODELS for sigma in (0.1, 100.0)
    ]
    first, outcome = rows[0], result.of("joint")[0]
    a, b = outcome.l_t2
    assert first["l_t2"] == pytest.approx((a + b) / 2)
    assert first["l_t2_se"] == pytest.approx(abs(a - b) / 2)
    assert set(first) == {
        *("model", "sigma_1", "seeds", "l_t1", "l_t1_se", "l_t2", "l_t2_se"),
    }
    verdicts = toy_verdicts(result)
    assert list(verdicts) == ["C006", "C007", "C008", "C009", "C010"]
    assert verdicts["C009"][0] == "held"
    assert verdicts["C006"][0] == "not tested"  # nothing is learned in 60 steps
    assert "not learned" in verdicts["C006"][2]
    pytest.importorskip("matplotlib")
    assert draw_toy(result).startswith(b"\x89PNG")


# --- The claims ---------------------------------------------------------------------------


def test_the_interval_is_welchs():
    a, b = [2.0, 3.0, 5.0], [1.0, 1.5, 1.1, 1.3]
    found = ratio(a, b)
    assert found.value == pytest.approx((2 * 3 * 5) ** (1 / 3) / (1.5 * 1.1 * 1.3) ** (1 / 4))
    v_a, v_b = np.var(np.log(a), ddof=1) / 3, np.var(np.log(b), ddof=1) / 4
    nu = (v_a + v_b) ** 2 / (v_a**2 / 2 + v_b**2 / 3)
    half = student_quantile(nu) * math.sqrt(v_a + v_b)
    assert math.log(found.span[1] / found.value) == pytest.approx(half)
    assert math.log(found.value / found.span[0]) == pytest.approx(half)
    back = ratio(b, a)
    assert (1 / back.span[1], 1 / back.span[0]) == pytest.approx(found.span)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        a, b = np.exp(rng.normal(0.5, 0.3, 10)), np.exp(rng.normal(0.0, 0.1, 10))
        found = ratio(a, b)
        held += found.span[0] <= math.exp(0.5) <= found.span[1]
    assert 930 <= held <= 970


def test_one_seed_or_no_spread_gives_no_nonsense():
    assert ratio([2.0], [1.0]) == Interval(2.0, None, "one seed")
    assert ratio([2.0, 2.0], [2.0, 2.0]) == Interval(1.0, (1.0, 1.0))


def made_up(
    joint, dual, shallow_joint=(0.05, 0.05), shallow_dual=(0.05, 0.05), scatter=0.03, seeds=10
):
    """Ten seeds with these L_T2 at the smallest and the largest σ₁, give or take 3 %."""
    rng = np.random.default_rng(3)
    outcomes = []
    for model, ends in zip(MODELS, (joint, dual, shallow_joint, shallow_dual), strict=True):
        for sigma, level in zip((100.0, 0.1), reversed(ends or ()), strict=False):
            l_t2 = tuple(level * np.exp(rng.normal(0, scatter, seeds)))
            outcomes.append(CellResult(Cell(model, sigma), l_t2, l_t2))
    return ToyResult(SMOKE, tuple(outcomes))


def statuses(result):
    return {claim: verdict[0] for claim, verdict in toy_verdicts(result).items()}


def test_the_papers_result_would_hold_every_claim():
    found = statuses(made_up(joint=(0.05, 0.4), dual=(0.05, 0.05)))
    assert set(found.values()) == {"held"}


def test_an_interval_that_holds_1_and_more_decides_nothing():
    """As C008 was: 1.17 [0.907, 1.52] is neither flat nor rising."""
    found = toy_verdicts(made_up((0.05, 0.05), (0.05, 0.055), scatter=0.3))
    for claim in ("C006", "C007", "C008", "C010"):
        assert found[claim][0] == "not tested", claim
        assert "left open: " in found[claim][2], claim
    one = toy_verdicts(made_up((0.05, 0.4), (0.05, 0.05), seeds=1))
    assert {one[claim][0] for claim in ("C006", "C007", "C008", "C010")} == {"not tested"}
    assert "hence no interval" in one["C007"][2]


def test_verdicts_follow_the_cells_and_not_what_was_said_of_them_before(tmp_path):
    where = Where(tmp_path / "runs", tmp_path / "out")
    reproduce(experiment("toy"), "smoke", where)
    path = tmp_path / "out/fig01-smoke/experiment.json"
    tree = json.loads(path.read_text())
    tree["extra"]["toy"]["verdicts"]["C007"] = ["held", "old", "old"]
    path.write_text(json.dumps(tree))
    again = reproduce(experiment("toy"), "smoke", where)
    assert again["extra"]["toy"]["verdicts"]["C007"][0] == "not tested"


def test_each_claim_can_fail():
    assert statuses(made_up((0.08, 0.4), (0.05, 0.05)))["C006"] == "not held"
    assert statuses(made_up((0.05, 0.04), (0.05, 0.05)))["C007"] == "not held"
    assert statuses(made_up((0.05, 0.4), (0.05, 0.07)))["C008"] == "not held"
    for shallow in ((0.05, 0.2), (0.1, 0.05)):
        result = made_up((0.05, 0.4), (0.05, 0.05), shallow_joint=shallow)
        assert statuses(result)["C010"] == "not held"


def test_what_was_not_learned_or_not_run_is_not_tested():
    found = statuses(made_up((0.5, 0.9), (0.05, 0.05), None, None))
    assert found == {
        "C006": "not tested",
        "C007": "not tested",
        "C008": "held",
        "C009": "held",
        "C010": "not tested",
    }
    unlearned = made_up((0.05, 0.4), (0.05, 0.05), (0.45, 0.45), (0.45, 0.45))
    assert statuses(unlearned)["C010"] == "not tested"


def test_effects_are_told_with_their_interval():
    _, effect, note = toy_verdicts(made_up((0.05, 0.4), (0.05, 0.05)))["C007"]
    found = ratio(*(o.l_t2 for o in reversed(made_up((0.05, 0.4), (0.05, 0.05)).of("joint"))))
    low, high = found.span
    shown = f"{found.value:.3g} [{low:.3g}, {high:.3g}]"
    assert effect == f"L_T2 of joint at σ₁ 100 / joint at σ₁ 0.1: {shown}"
    assert "10 and 10 seeds" in note


def judged(claim, result, scale="small"):
    """A claim of the experiment, of cells that were made up."""
    extra = {"toy": {"table": [], "verdicts": toy_verdicts(result)}}
    one = experiment("toy")
    return one.checks[claim](Results(one, scale, (), extra=extra))


def test_noise_of_task_1_cannot_reach_task_2_of_the_dual_model():
    """C008 is exact: with the same random numbers only the joint model's L_T2 changes."""
    assert toy.same_random_numbers() == (
        True,
        "small dual model, same random numbers at σ₁ 0.1 and 100: L_T2 equal to the bit",
    )
    ends = [train(toy._SharedStream("joint", sigma), SMOKE, [0]) for sigma in (0.1, 100.0)]
    assert ends[0][0, 1] != ends[1][0, 1]
    own = [train(Cell("dual", sigma), SMOKE, [0]) for sigma in (0.1, 100.0)]
    assert own[0][0, 1] != own[1][0, 1]  # the sweep's cells draw other random numbers


def test_c008_is_held_by_computing_and_shows_what_the_cells_found(monkeypatch):
    open_cells = made_up((0.05, 0.4), (0.05, 0.055), scatter=0.3)
    found = judged("C008", open_cells)
    assert found.status == "held"
    assert "equal to the bit" in found.effect
    assert "L_T2 of dual at σ₁ 100 / dual at σ₁ 0.1: " in found.effect
    assert (
        "the cells alone, which use different random numbers: not tested, left open"
        in found.note
    )
    risen = made_up((0.05, 0.4), (0.05, 0.07))
    assert judged("C008", risen).status == "not held"  # the cells can still refute it
    one = experiment("toy")
    alone = one.checks["C008"](Results(one, "small", ()))
    assert (alone.status, alone.note) == ("held", "computed, not trained")
    monkeypatch.setattr(toy, "same_random_numbers", lambda: (False, "x"))
    assert judged("C008", open_cells).status == "not held"


def test_c010_says_what_the_paper_does_not():
    note = judged("C010", made_up((0.05, 0.4), (0.05, 0.05))).note
    assert "10 times the learning rate and 4 times the steps of deep ones" in note
    assert "on which the paper is silent" in note


def test_fewer_seeds_are_fewer_seeds(tmp_path):
    """`--seeds 1`: runs, plan, caption and the folder agree."""
    where, limits = Where(tmp_path / "runs", tmp_path / "out"), Limits(seeds=1)
    tree = reproduce(experiment("toy"), "smoke", where, limits)
    assert {row["seeds"] for row in tree["extra"]["toy"]["table"]} == {1}
    assert {row["l_t2_se"] for row in tree["extra"]["toy"]["table"]} == {None}
    folder = tmp_path / "out/fig01-smoke-1seeds"
    assert "NaN" not in (folder / "experiment.json").read_text()
    assert "nan" not in (folder / "toy.md").read_text().lower()
    cells = tmp_path / "out/fig01-smoke-1seeds/toy"
    assert {len(json.loads(path.read_text())["l_t2"]) for path in cells.iterdir()} == {1}
    assert "1 of 100 seeds" in tree["caption"]
    assert "3 of 100 seeds" in caption(Results(experiment("toy"), "small", (), 0, Limits(3)))
    bill = toy_cost("small", tmp_path, measure=lambda cell, settings: settings.seeds, seeds=3)
    assert (bill.seeds, bill.hours) == (3, 18 * 3 / 3600)
