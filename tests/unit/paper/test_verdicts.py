"""Verdicts on results that were made up: each kind of test says what it should."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dna.paper.claims import proofs
from dna.paper.claims.kinds import WIDE, best, better, every, monotone, similar, spread
from dna.paper.claims.uncertainty import Sampled
from dna.paper.claims.verdicts import near
from dna.paper.experiments import EXPERIMENTS, experiment
from dna.paper.plan import ATARI_5, Arm, ArmStudy, Experiment, Limits, planned
from dna.paper.published import MUJOCO_BETTER
from dna.paper.reproduce import folder_of, verdicts
from dna.paper.results import Results
from dna.paper.tables import as_csv, caption, markdown, tables
from made import flat, outcome, raw, results_of

ARMS = (Arm("good", "tuned.dna"), Arm("bad", "tuned.ppo", "ppo"))
MADE = Experiment("figXX", "made", "Made up", (), (ArmStudy("s", ARMS, ATARI_5, 3),))
LEVEL = {"good": 20.0, "bad": 10.0}
DRAWN = np.random.default_rng(0).normal(size=2000)


def results(levels=LEVEL, scale="small", seeds=3):
    runs = [run for run in planned(MADE, scale) if run.seed < seeds]
    return Results(MADE, scale, tuple(outcome(run, levels[run.arm]) for run in runs))


def apart(good, bad, scatter):
    """Three seeds on every game, their scores a given way apart."""
    level = {"good": good, "bad": bad}
    runs = planned(MADE, "small")
    made = [flat(run, level[run.arm] + scatter * (run.seed - 1)) for run in runs]
    return Results(MADE, "small", tuple(made))


def test_better_needs_an_interval_above_zero():
    assert better("s", "good", "bad")(results()).status == "held"
    worse = better("s", "bad", "good")(results())
    assert (worse.status, worse.note) == ("not held", "proxy; the interval excludes it")
    even = better("s", "good", "bad")(results({"good": 10.0, "bad": 10.0}))
    assert even.status == "not tested"
    assert even.note.startswith("proxy; left open: ")
    nothing = better("s", "good", "bad")(replace(results(), outcomes=()))
    assert nothing.status == "not tested"


CHECKS = {
    "better": better("s", "good", "bad"),
    "similar": similar("s", "good", "bad"),
    "best": best("s", "good", ["good", "bad"]),
    "spread": spread("s", ["good", "bad"], high=15.0),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("levels", [(20.0, 10.0), (10.0, 20.0), (10.0, 10.0)])
def test_one_seed_decides_nothing_whatever_it_shows(check, levels):
    one = CHECKS[check](results(dict(zip(LEVEL, levels, strict=True)), seeds=1))
    assert one.status == "not tested"
    assert "left open: one seed, hence no interval" in one.note
    assert "(no interval)" in one.effect


@pytest.mark.parametrize("check", CHECKS)
def test_an_open_interval_decides_nothing(check):
    """Ahead, or alike, by the means; seeds are too far apart to tell."""
    good = 10.5 if check in ("similar", "spread") else 13.0
    found = CHECKS[check](apart(good, 10.0, scatter=9.0))
    assert found.status == "not tested"
    assert "left open: " in found.note
    assert "[" in found.effect
    clear = CHECKS[check](apart(good, 10.0, scatter=0.01))
    assert clear.status == "held"


def test_the_papers_number_needs_the_whole_interval_near_it():
    assert near(Sampled(10.0, 10 + 0.1 * DRAWN), 10.0, 1.0).status == "held"
    assert near(Sampled(20.0, 20 + 0.1 * DRAWN), 10.0, 1.0).status == "not held"
    vague = near(Sampled(10.0, 10 + 5.0 * DRAWN), 10.0, 1.0)
    assert (vague.status, vague.effect[:4]) == ("not tested", "10 [")
    assert near(Sampled(10.0, None, "one seed"), 10.0, 1.0).status == "not tested"


def test_similar_needs_an_interval_within_the_margin():
    assert similar("s", "good", "bad")(results({"good": 10.1, "bad": 10.0})).status == "held"
    assert similar("s", "good", "bad")(results()).status == "not held"


def test_best_and_spread():
    assert best("s", "good", ["good", "bad"])(results()).status == "held"
    second = best("s", "bad", ["good", "bad"])(results())
    assert second.status == "not held"
    assert "good is first" in second.note
    assert spread("s", ["good", "bad"], high=15)(results()).status == "not held"
    assert spread("s", ["good", "bad"], high=60)(results()).status == "held"


def test_what_is_left_open_on_a_proxy_is_called_one():
    made = replace(MADE, checks={"C001": better("s", "good", "bad")})
    found = verdicts(replace(results(seeds=1), experiment=made))["C001"]
    assert found.status == "not tested"
    assert found.note.startswith("proxy; ")


def test_every_is_no_better_than_its_worst():
    good, bad = better("s", "good", "bad"), better("s", "bad", "good")
    assert every(good, good)(results()).status == "held"
    assert every(good, bad)(results()).status == "not held"
    missing = better("s", "good", "bad")
    assert every(good, missing)(replace(results(), outcomes=())).status == "not tested"
    unclear = similar("s", "bad", "good", margin=50.0)  # half of it, give or take
    assert every(good, unclear)(results()).status == "not tested"
    assert every(unclear, bad)(results()).status == "not held"  # one that fails is enough


@pytest.mark.parametrize(
    ("values", "sign", "status"),
    [
        ([1, 2, 3, 4], 1, "held"),
        ([4, 3, 2, 1], -1, "held"),
        ([4, 3, 2, 1], 1, "not held"),
        ([1, 3, 2, 1], 1, "not held"),
    ],
)
def test_monotone(values, sign, status):
    rng = np.random.default_rng(0)

    def sampled(scatter):
        return [Sampled(v, v + scatter * rng.normal(size=2000)) for v in values]

    check = monotone(lambda results: ([1, 2, 3, 4], sampled(0.01)), sign)
    assert check(results()).status == status
    noisy = monotone(lambda results: ([1, 2, 3, 4], sampled(10.0)), sign)(results())
    assert noisy.status == "not tested"
    assert "left open" in noisy.note
    assert monotone(lambda results: None, 1)(results()).status == "not tested"


def test_smoke_and_proxies_are_said():
    made = replace(MADE, checks={"C001": better("s", "good", "bad")})
    smoke = replace(results(scale="smoke", seeds=1), experiment=made)
    assert verdicts(smoke)["C001"].status == "not tested"
    small = replace(results(), experiment=made)
    assert verdicts(small)["C001"].note.startswith("proxy")


PROOFS = [
    value
    for name, value in vars(proofs).items()
    if callable(value) and getattr(value, "__module__", "") == proofs.__name__
    and not name.startswith("_")
]  # fmt: skip


#: What the paper's own tables and networks contradict: three of PPO's models have half of the
#: weights, and the median of Rainbow's printed scores is 231.
CONTRADICTED = (proofs.parameter_counts, proofs.rainbows_median)


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
def test_what_is_mathematics_or_construction_holds(proof):
    good, effect = proof()
    assert effect
    assert good == (proof not in CONTRADICTED)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_smoothing_helps_whatever_the_dice(seed):
    assert proofs.smoothing_reduces(seed)[0]


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_claims_without_runs_are_not_tested_or_computed(scale):
    for one in EXPERIMENTS:
        for claim, found in verdicts(Results(one, scale, ())).items():
            assert found.status in ("held", "not held", "not tested"), claim
            assert found.note, claim
            if found.status != "not tested":
                assert found.note == "computed, not trained", claim


def test_tables_have_a_row_for_every_arm():
    (rows,) = tables(results()).values()
    assert [row["arm"] for row in rows] == ["good", "bad"]
    assert float(rows[0]["score"]) > float(rows[1]["score"])
    assert rows[0]["seeds"] == "3"
    assert "±" in rows[0]["MinAtar/Breakout-v1"]
    assert "–" in rows[0]["IQM 95 %"]
    text = markdown(rows)
    assert text.splitlines()[0].startswith("| arm | seeds | score")
    assert len(text.splitlines()) == 4
    assert as_csv(rows).count("\n") == 3


def test_curves_of_games_are_put_together_seed_by_seed():
    grid, curves = results().total_curve("s", "good")
    assert curves.shape == (3, len(grid))
    assert (curves[:, -1] > curves[:, 0]).all()


def test_a_part_of_a_benchmark_has_no_score():
    made = results()
    part = replace(
        made, outcomes=tuple(one for one in made.outcomes if "Asterix" not in one.run.env)
    )
    assert not part.whole("s")
    assert part.total("s", "good") is None
    assert len(part.total_curve("s", "good")[0]) == 0
    assert best("s", "good", ["good", "bad"])(part).status == "not tested"
    assert tables(part)["s"][0]["score"] == ""


def test_what_was_cut_short_is_said_and_stands_apart():
    checked = replace(MADE, checks={"C001": better("s", "good", "bad")})
    made = replace(results(), experiment=checked, limits=Limits(2, 5000))
    found = verdicts(made)["C001"]
    assert found.status == "held"
    assert "with 2 seeds of 5,000 interactions" in found.note
    assert folder_of(MADE, "small", Path("x"), made.limits) == Path("x/figXX-small-2seeds-5000")
    assert folder_of(MADE, "small", Path("x"), Limits()) == Path("x/figXX-small")
    assert verdicts(replace(made, scale="paper"))["C001"].status == "not tested"


@pytest.mark.parametrize(
    ("spreads", "status"),
    [((1, 1, 1), "held"), ((30, 1, 1), "not held"), ((1, 1, 300), "not tested")],
)
def test_noise_does_not_make_tasks_similar(spreads, status):
    chosen = experiment("mujoco")
    runs = [run for run in planned(chosen, "small") if run.study == "mujoco"]
    others = [
        e for e in chosen.studies[0].suite.envs["small"] if e.split("-")[0] not in MUJOCO_BETTER
    ]

    def level(run):
        if run.env not in others or run.arm == "PPO":
            return 1000.0
        spread = spreads[others.index(run.env)]
        # A shift in one direction, or seeds far apart.
        return 1000.0 + (10 * spread if spread < 100 else (run.seed - 1) * 1000.0)

    made = Results(chosen, "small", tuple(outcome(run, level(run)) for run in runs))
    assert chosen.checks["C113"](made).status == status


def test_seeds_are_counted_as_they_are_finished():
    """Two of three seeds, and one run of the second missing."""
    chosen = experiment("mujoco")
    runs = [run for run in planned(chosen, "small") if run.seed < 2]
    gone = next(r for r in runs if (r.study, r.arm, r.seed) == ("mujoco", "PPO", 1))
    made = Results(chosen, "small", tuple(outcome(r, 5.0) for r in runs if r is not gone))
    assert made.shortened_in("lambda") == "shortened: 2 of 30 seeds"
    assert made.shortened_in("mujoco") == "shortened: 1 to 2 of 30 seeds"
    note = chosen.checks["C114"](made).note
    said = "shortened: 2 of 30 seeds; MuJoCo's tasks are v5, the paper's v2; not finished: DNA"
    assert f"{said} (1 of 3 runs), DNA (λ_π=0.8)" in note
    assert caption(made).startswith(
        "mujoco shortened: 1 to 2 of 30 seeds; MuJoCo's tasks are v5, the paper's v2; "
        "lambda shortened: 2 of 30 seeds; not finished: "
    )
    proxy = better("s", "good", "bad")(results(seeds=2))
    assert "not finished: good (5 of 15 runs), bad (5 of 15 runs)" in proxy.note
    assert "not finished" not in better("s", "good", "bad")(results()).note


def test_a_wide_margin_has_a_least_size():
    wide = better("s", "good", "bad", WIDE)
    found = wide(apart(10.05, 10.0, scatter=0.001))
    assert better("s", "good", "bad")(apart(10.05, 10.0, scatter=0.001)).status == "held"
    assert found.status == "not held"  # +0.5 %, beyond doubt
    assert f"more than {WIDE:.0f} %" in found.note
    assert wide(apart(15.0, 10.0, scatter=0.001)).status == "held"
    assert wide(apart(12.6, 10.0, scatter=2.0)).status == "not tested"


@pytest.mark.parametrize(("gain", "status"), [(1.005, "not held"), (1.6, "held")])
@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("main", ("C055", "C056")),
        ("epochs", ("C035",)),
        ("ppo-tuning", ("C102",)),
        ("atari57", ("C132",)),
    ],
)
def test_claims_of_size_need_it(name, claims, gain, status):
    """Arms that the paper has ahead, by a little and by much."""
    ahead = {"DNA", "E_π=1", "E_π=2", "E=1"}
    scale = "paper" if name == "atari57" else "small"

    def make(run):
        percent = (gain if run.arm in ahead else 1.0) * 100
        score = raw(run.env, percent) if scale == "paper" else percent + 0.001 * run.seed
        return flat(run, score)

    for claim in claims:
        found = experiment(name).checks[claim](results_of(name, scale, make))
        assert found.status == status, claim
        assert "more than" in found.note, claim


def test_simulations_of_games_are_not_tests_of_them():
    found = verdicts(Results(experiment("settings"), "paper", ()))
    for claim in ("C004", "C064", "C065", "C068"):
        assert found[claim].status == "not tested", claim
        assert found[claim].effect, claim
        assert found[claim].note.startswith("simulated, not on Atari"), claim


@pytest.mark.parametrize(
    ("name", "scale", "limits", "said"),
    [
        ("noise", "small", Limits(), "shortened: 300,000 of 50,000,000 interactions"),
        (
            "procgen",
            "small",
            Limits(),
            "shortened: 200,000 of 100,000,000 interactions, 2 of 16 environments",
        ),
        ("mujoco", "small", Limits(), "shortened: 3 of 30 seeds"),
        (
            "mujoco",
            "paper",
            Limits(2, 5000),
            "shortened: 5,000 of 1,000,000 interactions, 2 of 30 seeds",
        ),
        ("mujoco", "paper", Limits(), ""),
        ("main", "small", Limits(), ""),  # a proxy, and called one
    ],
)
def test_what_the_paper_had_more_of_is_said(name, scale, limits, said):
    found = Results(experiment(name), scale, (), limits=limits)
    for study in experiment(name).studies:
        assert found.shortened_in(study.name) == said
