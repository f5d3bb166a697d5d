"""Verdicts on several numbers at once: counts, the best of many, ties, how sure they are."""

import numpy as np
import pytest

from dna.paper.claims.kinds import best, mujoco_gaps
from dna.paper.claims.uncertainty import (
    Sampled,
    combined,
    percent,
    quotient,
    same,
    sampled_rows,
)
from dna.paper.claims.verdicts import how_many, judged_all
from dna.paper.experiments import experiment
from dna.paper.plan import ATARI_5, SOLVED, Arm, ArmStudy, Experiment, planned
from dna.paper.results import Results
from dna.paper.tables import tables
from made import flat, results_of

NAMES = ("a", "b", "c", "d", "e")
MANY = Experiment(
    "figXX",
    "many",
    "Many arms",
    (),
    (ArmStudy("s", tuple(Arm(name, "tuned.dna") for name in NAMES), ATARI_5, 3),),
)


def mujoco(share, keep=lambda run: True):
    """Figure 13: (run) → part of the way from uniform actions to solved."""

    def make(run):
        low, high = SOLVED[run.env]
        found = flat(run, low + share(run) * (high - low))
        return found if run.study == "mujoco" and keep(run) else None

    return results_of("mujoco", "small", make)


def judged_mujoco(share, keep=lambda run: True):
    return experiment("mujoco").checks["C112"](mujoco(share, keep))


def ahead(count, scatter=0.01):
    """DNA ahead on the first tasks, behind on the others."""

    def share(run):
        gain = 0.1 if list(SOLVED).index(run.env) < count else -0.1
        return 0.5 + gain * (run.arm == "DNA") + scatter * (run.seed - 1)

    return share


@pytest.mark.parametrize("gone", [0, 1])
def test_a_tie_is_no_win(gone):
    """InvertedPendulum ends at 1000 for all; the mean of three such scores is a digit off."""

    def share(run):
        tied = run.env == "InvertedPendulum-v5"
        return 1.0529100529100529 if tied else ahead(5)(run)

    lost = {("PPO", seed) for seed in range(gone)}
    found = judged_mujoco(share, lambda run: (run.arm, run.seed) not in lost)
    assert "InvertedPendulum +0.0 % [+0.0, +0.0]" in found.effect
    assert found.effect.startswith("higher on 4 of 8 [4, 4]")
    assert found.status == "not held"


def test_a_task_without_an_interval_or_runs_may_go_either_way():
    def keep(run):
        return run.env != "Walker2d-v5" and (run.env, run.seed) not in (
            ("Ant-v5", 1),
            ("Ant-v5", 2),
        )

    found = judged_mujoco(ahead(7), keep)
    assert found.effect.startswith("higher on 7 of 8 [6, 8]")
    assert found.status == "held"  # six are enough
    assert judged_mujoco(ahead(5), keep).status == "not tested"
    assert judged_mujoco(ahead(2), keep).status == "not held"


def test_significant_tasks_are_named():
    note = judged_mujoco(ahead(2)).note
    assert "significant: higher on Ant, HalfCheetah (2 of the five that" in note
    assert ", lower on Hopper, InvertedDoublePendulum" in note


def test_one_seed_counts_without_an_interval():
    found = judged_mujoco(ahead(5), lambda run: run.seed == 0)
    assert found.effect.startswith("higher on 5 of 8 (no interval)")
    assert "left open: one seed, hence no interval" in found.note


def test_the_table_says_what_the_verdict_says():
    rng = np.random.default_rng(1)
    results = mujoco(lambda run: 0.5 + 0.1 * rng.random())
    effect = experiment("mujoco").checks["C112"](results).effect
    gaps = mujoco_gaps(results)
    for row in tables(results)["mujoco"]:
        words = row["DNA against PPO [95 %]"]
        assert f"{row['task'].partition('-v')[0]} {words}" in effect
    assert len(gaps) == 8


def noisy(true, rng):
    """Means of three measurements each, of numbers that are so large."""
    return [sampled_rows(t + rng.normal(size=3), same, f"{rng.random()}") for t in true]


@pytest.mark.parametrize("true", [[0.0] * 8, [3.0] * 4 + [0.0] * 4, [50.0] * 5 + [0.0] * 3])
def test_bounds_of_a_count_hold_in_95_of_100_studies(true):
    """Ties are the hard case: what is zero is not above zero, and not below it."""
    rng = np.random.default_rng(0)
    positive = sum(t > 0 for t in true)
    wrong = [how_many(noisy(true, rng), 8).span[0] > positive for _ in range(40)]
    assert np.mean(wrong) <= 0.1


def test_what_is_clear_is_counted():
    rng = np.random.default_rng(0)
    found = how_many(noisy([100.0] * 5 + [-100.0] * 3, rng), 8)
    assert (found.value, found.span) == (5, (5.0, 5.0))


def test_the_best_of_equals_is_seldom_said_not_to_be():
    """The largest of four noisy rivals is ahead of the truth: that alone refutes little."""
    rng, said, runs = np.random.default_rng(0), [], planned(MANY, "small")
    for _ in range(40):
        made = tuple(
            flat(run, 10.0 * (1 + 0.1 * rng.normal() + 0.001 * (run.arm == "a")))
            for run in runs
        )
        said.append(best("s", "a", NAMES)(Results(MANY, "small", made)).status)
    assert said.count("not held") <= 3
    assert said.count("held") <= 1


def test_an_arm_that_loses_to_another_is_not_the_best():
    made = [
        flat(run, {"a": 10.0, "b": 12.0}.get(run.arm, 8.0) + 0.1 * run.seed)
        for run in planned(MANY, "small")
    ]
    results = Results(MANY, "small", tuple(made))
    assert best("s", "a", NAMES)(results).status == "not held"
    assert best("s", "b", NAMES)(results).status == "held"


def test_the_smallest_of_many_refutes_only_with_one_that_does():
    draws = np.random.default_rng(0).normal(size=(4, 20_000))
    parts = [Sampled(0.2, 0.2 + row) for row in draws]
    worst = combined(lambda *rows: np.min(rows, axis=0) - 2.5, *parts)
    found = judged_all(parts, worst, "effect")
    assert (found.status, found.note) == (
        "not tested",
        "left open: none is below the bound on its own",
    )
    assert judged_all([*parts, Sampled(-9.0, draws[0] - 9.0)], worst, "").status == "not held"


def test_the_ends_do_not_depend_on_which_draws_there_were():
    """The same six numbers, drawn under eight names."""
    ours, theirs = np.array([10.0, 11.0, 12.0]), np.array([8.0, 9.0, 9.5])
    lows = []
    for name in "abcdefgh":
        pair = (sampled_rows(x, same, f"{name}{k}") for k, x in enumerate((ours, theirs)))
        lows.append(combined(percent, *pair).span[0])
    assert np.ptp(lows) < 1.0  # of an interval that is about 40 wide


def test_a_quotient_of_what_cannot_be_negative_is_not():
    """∞ / ∞ may be anything, but nothing below zero."""
    endless = Sampled(np.inf, np.full(1000, np.inf))
    some = Sampled(2.0, np.r_[np.ones(900), np.full(100, np.inf)])
    assert quotient(endless, some).span == (0.0, np.inf)
    wide = Sampled(1.0, np.linspace(-3, 5, 1000), freedom=1)
    assert quotient(wide, Sampled(1.0, np.ones(1000))).span[0] == 0.0
