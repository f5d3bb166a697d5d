"""Single claims on made-up runs: each can fail, and says what it rests on."""

from pathlib import Path

import numpy as np
import pytest

from dna.algorithm.noise_scale import Estimate
from dna.config.overrides import tweak
from dna.config.presets import preset
from dna.paper.claims import noise, proofs
from dna.paper.claims.noise import KEYS, LAMBDAS, METHOD, resolved, sigmas_by_lambda
from dna.paper.experiments import EXPERIMENTS, experiment
from dna.paper.plan import SOLVED
from dna.paper.published import MUJOCO_BETTER
from dna.paper.reproduce import verdicts
from dna.paper.results import Results, RunResult
from made import RANGES, flat, game_of, outcome, raw, results_of, table


def epochs(best=("E_V=1", "E_π=2", "E_D=2"), seconds=lambda e: 10.0 + e):
    """Figure 4: the best arm of each sweep, and how long policy epochs take."""

    def make(run):
        count = int(run.arm.partition("=")[2])
        time = seconds(count) + 0.01 * run.seed
        return flat(run, 20.0 + run.seed / 10 if run.arm in best else 10.0, time)

    return results_of("epochs", "small", make)


def test_fewer_policy_epochs_must_take_less_time():
    check = experiment("epochs").checks["C045"]
    found = check(epochs())
    assert found.status == "held"
    assert f"{11.01 / 14.01:.2f} × [" in found.effect
    assert check(epochs(seconds=lambda e: 20.0 - e)).status == "not held"
    assert check(epochs(seconds=lambda e: 10.0)).status != "held"
    assert check(Results(experiment("epochs"), "small", ())).status == "not tested"


@pytest.mark.parametrize(
    ("best", "status"),
    [
        (("E_V=1", "E_π=2", "E_D=2"), "held"),
        (("E_V=1", "E_π=1", "E_D=3"), "held"),  # four updates of the policy network as well
        (("E_V=2", "E_π=2", "E_D=2"), "not held"),
        (("E_V=1", "E_π=4", "E_D=2"), "not held"),
        (("E_V=1", "E_π=2", "E_D=0"), "not held"),
    ],
)
def test_the_best_numbers_of_updates_come_from_the_sweeps(best, status):
    found = experiment("epochs").checks["C063"](epochs(best))
    assert found.status == status
    assert all(arm in found.effect for arm in best)


def test_ranks_that_seeds_do_not_settle_are_left_open():
    """The best arms by their means, but by less than seeds differ."""

    def make(run):
        ahead = 0.5 * (run.arm in ("E_V=1", "E_π=2", "E_D=2"))
        return flat(run, 10.0 + ahead + 5.0 * (run.seed - 1))

    made, checks = results_of("epochs", "small", make), experiment("epochs").checks
    for claim in ("C036", "C040", "C043", "C063"):
        found = checks[claim](made)
        assert found.status == "not tested", claim
        assert "left open" in found.note, claim


@pytest.mark.parametrize(
    ("ahead", "scatter", "status"),
    [(5, 0.01, "held"), (4, 0.01, "not held"), (5, 0.2, "not tested"), (0, 0.01, "not held")],
)
def test_five_of_eight_tasks_must_be_better_beyond_doubt(ahead, scatter, status):
    def make(run):
        low, high = SOLVED[run.env]
        better = list(SOLVED).index(run.env) < ahead
        share = 0.5 + (0.1 if better else -0.1) * (run.arm == "DNA") + scatter * (run.seed - 1)
        return flat(run, low + share * (high - low)) if run.study == "mujoco" else None

    found = experiment("mujoco").checks["C112"](results_of("mujoco", "small", make))
    assert found.status == status


@pytest.mark.parametrize(
    ("seeds", "levels", "status"),
    [(3, 1.5, "held"), (3, 0.5, "not held"), (1, 1.5, "not tested")],
)
def test_games_above_rainbow_are_counted_with_an_interval(seeds, levels, status):
    rainbow = {r["game"]: float(r["rainbow"]) for r in table("atari57_easy")}

    def make(run):
        low = RANGES[game_of(run.env)][0]
        above = low + levels * (rainbow[game_of(run.env)] - low)
        return flat(run, above) if run.seed < seeds else None

    assert experiment("main").checks["C002"](results_of("main", "paper", make)).status == status


def test_all_models_have_three_and_a_half_million_weights_or_not(monkeypatch):
    good, text = proofs.parameter_counts()
    assert not good
    assert "not: PPO (1x), PPO (basic), PPO (orig)" in text
    three = {k: v for k, v in proofs.COMPARED.items() if "(" not in k or "2x" in k}
    monkeypatch.setattr(proofs, "COMPARED", three)
    assert proofs.parameter_counts()[0]


def test_frames_are_counted_by_the_emulator(monkeypatch):
    pytest.importorskip("ale_py")
    assert proofs.frames_and_interactions()[0]

    def other(name):
        return tweak(preset(name), **{"env.atari.skip": 3})

    monkeypatch.setattr(proofs, "preset", other)
    good, text = proofs.frames_and_interactions()
    assert not good
    assert "× 3 = 150,000,000" in text


def readings(sigmas):
    return {
        env: {"sigma": s, "b_simple": s and s**2, "low": s and 0.9 * s**2, "high": high}
        for env, (s, high) in sigmas.items()
    }


def lambda_noise(curve, gone):
    """σ of two games by λ; the third game is far noisier, and not resolved at some λ."""
    found = {}
    for i, value in enumerate(LAMBDAS):
        own = {"a": curve(i), "b": 2 * curve(i), "c": 100.0}
        known = {env: (s, 1.1 * s**2) for env, s in own.items()}
        if i in gone:
            known["c"] = (None, None)
        found[str(value)] = readings(known)
    return {"lambda_noise": {"policy": found, "value": found}}


@pytest.mark.parametrize("gone", [(), (0, 1, 2), (5, 6, 7)])
def test_noise_is_compared_between_lambdas_on_the_same_games(gone):
    """Whatever λ the third game is lost at, the others decide, and it is named."""
    checks = experiment("noise").checks
    rising = results_of("noise", "small", lambda run: None)
    rising = Results(
        rising.experiment, "small", (), extra=lambda_noise(lambda i: 5.0 + 2 * i, gone)
    )
    policy, value = checks["C053"](rising), checks["C054"](rising)
    assert (policy.status, value.status) == ("held", "not held")
    assert ("not resolved at every λ: c" in policy.note) == bool(gone)
    mean = np.exp(np.mean(np.log([5.0, 10.0] + ([] if gone else [100.0]))))
    assert f"σ {mean:.1f} at λ=0.6" in policy.effect
    assert "[" in policy.effect
    assert "shortened" in policy.note


def test_without_a_game_resolved_at_every_lambda_the_ends_are_said_and_nothing_is_judged():
    extra = lambda_noise(lambda i: 5.0, (0,))
    for phase in extra["lambda_noise"].values():
        for env in "ab":
            phase["0.6"][env]["high"] = None
    made = Results(experiment("noise"), "small", (), extra=extra)
    found = experiment("noise").checks["C053"](made)
    assert found.status == "not tested"
    assert found.note == f"not resolved at every λ: a, b, c; {METHOD}"
    assert found.effect == "known σ at λ=0.6: a 5.0, b 10.0; at λ=1: a 5.0, b 10.0, c 100.0"
    for phase in extra["lambda_noise"].values():
        phase["0.6"] = readings(dict.fromkeys("abc", (None, None)))
    found = experiment("noise").checks["C053"](made)
    assert found.effect.startswith("known σ at λ=0.6: none; at λ=1: a 5.0")


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_noise_against_lambda_says_how_it_was_measured_at_every_scale(scale):
    extra = lambda_noise(lambda i: 5.0 + 2 * i, ())
    made = Results(experiment("noise"), scale, (), extra=extra)
    for claim in ("C053", "C054"):
        note = experiment("noise").checks[claim](made).note
        assert "one policy's weights" in note
        assert "the paper trained a run for each λ" in note


def test_a_lower_bound_of_zero_is_a_bound():
    """A game whose B_simple may be as small as zero is judged with the others."""
    extra = lambda_noise(lambda i: 5.0 + 2 * i, ())
    for readings_of in extra["lambda_noise"]["policy"].values():
        for one in readings_of.values():
            one["low"], one["high"] = 0.0, 1.2 * one["b_simple"]
    made = Results(experiment("noise"), "small", (), extra=extra)
    kept, lost = resolved(made, "policy")
    assert (set(kept[0.6]), lost) == ({"a", "b", "c"}, [])
    x, levels = sigmas_by_lambda(made, "policy")
    assert x == list(LAMBDAS)
    for one in levels:
        assert np.isfinite(one.draws).all()
        assert 0 <= one.span[0] < one.value < one.span[1]
    # One game alone comes to its own ends: towards zero, and the root of 1.2 times as much.
    for value, readings_of in extra["lambda_noise"]["policy"].items():
        extra["lambda_noise"]["policy"][value] = {"a": readings_of["a"]}
    first = sigmas_by_lambda(made, "policy")[1][0]
    assert 0 <= first.span[0] < 2.0
    assert first.span[1] == pytest.approx(5.0 * 1.2**0.5, rel=0.01)
    assert experiment("noise").checks["C053"](made).effect.startswith("Spearman's ρ")


def test_noise_against_lambda_is_measured_once_for_both_figures(tmp_path, monkeypatch):
    measured = []

    def measuring(folder, scale):
        measured.append(folder)
        one = Estimate(32, 1024, 1.0, (3.0, 4.0), (1.0, 1.1))
        return {(phase, value): [one] for phase in KEYS for value in LAMBDAS}

    def finished(run):
        return flat(run, 1.0) if run.study == "noise" else None

    monkeypatch.setattr(noise, "_measure_run", measuring)
    found = []
    for name in ("noise", "lambda", "noise"):
        one = experiment(name)
        made = results_of(
            name, "small", lambda run: flat(run, 1.0) if run.study == "noise" else None
        )
        found.append(one.extra["lambda_noise"](made, tmp_path / one.name, lambda words: None))
    assert found[0] == found[1] == found[2]
    assert len(measured) == 3  # games
    assert {len(games) for by in found[0].values() for games in by.values()} == {3}


def test_easy_settings_gain_modestly_or_not():
    """C084 at the paper's size: figure 9's runs beside figure 6's."""
    check = experiment("easy").checks["C084"]

    def made(factor):
        def make(run):
            percent = (factor if run.study == "easy" else 1.0) * 200 + run.seed
            return flat(run, raw(run.env, percent))

        return results_of("easy", "paper", make)

    assert check(made(1.4)).status == "held"
    assert check(made(1.0)).status == "not tested"  # no gain to be seen, none excluded
    assert check(made(0.8)).status == "not held"
    assert check(made(4.0)).status == "not held"
    small = check(results_of("easy", "small", lambda run: flat(run, 1.0)))
    assert (small.status, small.note) == ("not tested", "the proxy has no easy settings")


def test_mujocos_tasks_are_counted_with_an_interval():
    def make(run):
        task = run.env.partition("-")[0]
        low, high = SOLVED[run.env]
        share = 0.6 if run.arm == "DNA" and task in MUJOCO_BETTER else 0.5
        return flat(run, low + (share + 0.01 * run.seed) * (high - low))

    made = results_of(
        "mujoco", "small", lambda run: make(run) if run.study == "mujoco" else None
    )
    found = experiment("mujoco").checks["C112"](made)
    assert found.status == "held"
    assert found.effect.startswith("higher on 5 of 8 [5, ")
    assert "Reacher +19.6 % [" in found.effect  # 61 of the way against 51
    assert "shortened: 3 of 30 seeds" in found.note


def test_orig_levels_off_only_where_there_are_frames():
    check = experiment("alternatives").checks["C108"]
    assert check(results_of("alternatives", "small", lambda r: outcome(r, 1.0))).note == (
        "the proxy has no frames of Atari"
    )


def test_every_claim_judged_by_runs_shows_an_effect_and_an_interval():
    """At the small scale with three seeds: no number without its interval."""
    ranks = {"C063"}
    for one in EXPERIMENTS:
        if one.name in ("fig01", "fig02", "tab01"):
            continue
        rng = np.random.default_rng(0)
        made = results_of(
            one.name,
            "small",
            lambda run, rng=rng: outcome(
                run,
                10 + rng.random(),
                10 + rng.random(),
                **{"policy/approx_kl": rng.random(20)},
            ),
        )
        for claim, found in verdicts(made).items():
            if found.status == "not tested" or "computed" in found.note or claim in ranks:
                continue
            one_seed = one.name == "fig14"
            assert "[" in found.effect or one_seed, (claim, found)


#: Claims that nothing here can test, each with its reason.
UNTESTED = {
    "C031", "C032", "C062", "C066", "C069", "C071", "C082", "C088", "C099", "C101",
    "C106", "C117", "C118", "C120", "C121", "C125",
}  # fmt: skip


def test_what_is_never_tested_is_known_and_has_its_own_reason():
    seen = {}
    for one in EXPERIMENTS:
        for claim, check in one.checks.items():
            if "not_tested" in check.__qualname__:
                seen[claim] = check(Results(one, "paper", ())).note
    assert set(seen) == UNTESTED
    assert all(seen.values())


@pytest.mark.parametrize(("end", "status"), [(9.9, "not held"), (5.0, "held")])
def test_the_original_settings_must_end_far_below(end, status):
    """Ahead at first; at the end a little, or far, below the reference."""

    def make(run):
        first, last = (6.0, end) if run.arm == "PPO (orig)" else (4.0, 10.0)
        rows = tuple(
            {
                "interactions": 1000 * (i + 1),
                "score": (first if i < 50 else last) + run.seed / 1e3,
            }
            for i in range(100)
        )
        return RunResult(run, Path("nowhere"), rows, 1.0) if run.study != "ppg" else None

    found = experiment("alternatives").checks["C093"](results_of("alternatives", "small", make))
    assert found.status == status
