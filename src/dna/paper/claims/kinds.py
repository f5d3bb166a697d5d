"""Kinds of claims, each a function from parameters to a test of the results.

Arms are compared by the score of their suite: Atari-5 and related sets (section 5), the median
of 57 games, Procgen's mean, the proxy's mean. A test that lacks runs returns *not tested*.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf
from typing import Any

import numpy as np

from dna.envs.benchmark_scores import atari_game
from dna.paper import published
from dna.paper.claims.measures import (
    Array,
    compared,
    curve_of,
    first_above,
    million_frames,
    reached,
    score_of,
    scores_of,
    spread_of,
    time_of,
)
from dna.paper.claims.uncertainty import (
    LEVEL,
    Sampled,
    combined,
    percent,
    picks,
    quotient,
    rank_correlation,
    same,
    sampled_rows,
)
from dna.paper.claims.verdicts import (
    COMPUTED,
    SIMULATED,
    Verdict,
    all_of,
    how_many,
    joined,
    judged,
    judged_all,
    lead,
    near,
    spoken,
)
from dna.paper.plan import MUJOCO, Check, relative
from dna.paper.results import GRID, Results

#: What counts as "similar" or "small": relative difference in percent.
MARGIN = 15.0
#: What counts as "by a wide margin", "far below", "dramatic" or "great", in percent. The paper
#: says so of medians that are 34 and 39 % higher, and of curves without numbers.
WIDE = 25.0
#: What counts as growing with something: Spearman's ρ.
STRONG = 0.7

#: Judges results; None where runs are missing.
Judge = Callable[[Results], Verdict | None]
#: Computes a number from results; None where runs are missing.
Measure = Callable[[Results], Sampled | None]


# --- Conditions and combinations ----------------------------------------------------------


def not_tested(why: str) -> Check:
    """A claim that no experiment of this package tests, and why."""
    return lambda results: Verdict("not tested", "", why)


def identity(prove: Callable[[], tuple[bool, str]]) -> Check:
    """A claim about mathematics or construction: computed once, the same at every scale."""
    once = cache(prove)

    def check(results: Results) -> Verdict:
        good, effect = once()
        return Verdict("held" if good else "not held", effect, COMPUTED)

    return check


def simulated(prove: Callable[[], tuple[bool, str]]) -> Check:
    """A claim about games that is only simulated with synthetic rewards: a hint, not a test."""
    once = cache(prove)

    def check(results: Results) -> Verdict:
        good, effect = once()
        words = "agrees" if good else "contradicts it"
        return Verdict("not tested", effect, f"{SIMULATED}: the simulation {words}")

    return check


def trained(judge: Judge, *studies: str, note: str = "", paper_only: str = "") -> Check:
    """A claim that rests on the runs of these studies.

    `note` is added to any verdict with an effect; `paper_only` says why runs of a smaller scale
    cannot test the claim.
    """

    def check(results: Results) -> Verdict:
        if paper_only and results.scale != "paper":
            return Verdict("not tested", "", paper_only)
        found = judge(results)
        if found is None:
            return Verdict("not tested", "", "runs are missing")
        if not found.effect:
            return found
        short = [results.short_of(study) for study in studies]
        short += [results.unfinished(study) for study in studies]
        return replace(found, note=joined(*short, found.note, note))

    return check


def noted(check: Check, words: str) -> Check:
    """The same verdict with an addition to its note, if it has an effect to show."""

    def more(results: Results) -> Verdict:
        found = check(results)
        return found.noted(words) if found.effect else found

    return more


def proxy_noted(check: Check, study: str, arm: str) -> Check:
    """The same verdict with the caveat of an arm that differs on the proxy."""

    def more(results: Results) -> Verdict:
        (one,) = (one for one in results.study(study).arms if one.name == arm)
        return noted(check, one.proxy_note if results.scale != "paper" else "")(results)

    return more


def every(*checks: Check) -> Check:
    """All of several claims hold."""
    return lambda results: all_of([one(results) for one in checks])


def measured(
    measure: Measure,
    effect: str,
    low: float = -inf,
    high: float = inf,
    *studies: str,
    form: str = "+.1f",
    unit: str = " %",
    note: str = "",
    paper_only: str = "",
) -> Check:
    """A number lies in a range; `effect` describes it, with `{}` for the number itself."""

    def judge(results: Results) -> Verdict | None:
        found = measure(results)
        if found is None:
            return None
        return judged(found, effect.format(spoken(found, form, unit)), low, high)

    return trained(judge, *studies, note=note, paper_only=paper_only)


# --- Scores of arms -----------------------------------------------------------------------


def better(study: str, ours: str, theirs: str, least: float = 0.0) -> Check:
    """`ours` scores higher than `theirs`, by more than `least` percent."""
    return measured(
        lambda results: compared(results, study, ours, theirs),
        f"{ours} against {theirs}: {{}}",
        least,
        inf,
        study,
        note=f"more than {least:.0f} %" if least else "",
    )


def similar(study: str, ours: str, theirs: str, margin: float = MARGIN) -> Check:
    """`ours` and `theirs` are within a margin of each other, in percent."""
    return measured(
        lambda results: compared(results, study, ours, theirs),
        f"{ours} against {theirs}: {{}}",
        -margin,
        margin,
        study,
        note=f"margin ±{margin:.0f} %",
    )


def gain(arm: str, study: str, other_study: str, most: float, paper_only: str) -> Check:
    """An arm scores higher in one study than in another, by at most `most` percent."""
    return measured(
        lambda results: compared(results, study, arm, arm, other_study),
        f"{arm}, {study} against {other_study}: {{}}",
        0.0,
        most,
        study,
        other_study,
        paper_only=paper_only,
    )


def best(study: str, wanted: str, arms: Sequence[str]) -> Check:
    """`wanted` scores higher than the best of the other arms."""

    def ahead(ours: Any, *others: Any) -> Any:
        return percent(ours, np.max(others, axis=0))

    def judge(results: Results) -> Verdict | None:
        scores = scores_of(results, study, arms)
        if scores is None:
            return None
        others = [score for arm, score in scores.items() if arm != wanted]
        gap = combined(ahead, scores[wanted], *others)
        digits = results.study(study).suite.digits
        words = ", ".join(f"{arm} {one.value:.{digits}f}" for arm, one in scores.items())
        effect = f"{words}; {wanted} against the best other: {spoken(gap)}"
        found = judged_all(
            [combined(percent, scores[wanted], other) for other in others], gap, effect
        )
        first = max(scores, key=lambda arm: scores[arm].value)
        return found.noted(f"{first} is first" if first != wanted else "")

    return trained(judge, study)


def spread(study: str, arms: Sequence[str], low: float = -inf, high: float = inf) -> Check:
    """The range of the arms' scores, in percent of the highest, is itself in a range."""
    return measured(
        lambda results: spread_of(results, study, arms),
        "spread {}",
        low,
        high,
        study,
        form=".1f",
        note=f"margin {high:.0f} %" if high < inf else f"over {low:.0f} %",
    )


def widest_spread(sweeps: dict[str, Sequence[str]], wanted: str) -> Check:
    """Scores differ most between the arms of one of several sweeps."""

    def judge(results: Results) -> Verdict | None:
        found = {name: spread_of(results, name, arms) for name, arms in sweeps.items()}
        known = {name: one for name, one in found.items() if one is not None}
        if len(known) < len(sweeps):
            return None
        words = ", ".join(f"{name} {spoken(one, '.1f')}" for name, one in known.items())
        others = [one for name, one in known.items() if name != wanted]
        return lead(
            known[wanted],
            others,
            lambda gap: f"spread: {words}; {wanted} ahead by {spoken(gap, unit=' points')}",
        )

    return trained(judge, *sweeps)


def narrower_spread(
    study: str, arms: Sequence[str], other_study: str, other_arms: Sequence[str]
) -> Check:
    """PPO's scores differ less between the arms of a sweep than DNA's do."""

    def judge(results: Results) -> Verdict | None:
        ours = spread_of(results, study, arms)
        theirs = spread_of(results, other_study, other_arms)
        if ours is None or theirs is None:
            return None
        gap = combined(lambda ppo, dna: dna - ppo, ours, theirs)
        words = f"PPO {spoken(ours, '.1f')}, DNA {spoken(theirs, '.1f')}"
        return judged(gap, f"spread: {words}; {spoken(gap, unit=' points')} apart", 0.0)

    return trained(judge, study, other_study)


def smallest_loss(study: str, wanted: str, others: Sequence[str], reference: str) -> Check:
    """Against a reference, one ablation loses less than each of the others."""

    def judge(results: Results) -> Verdict | None:
        found = {arm: compared(results, study, arm, reference) for arm in (*others, wanted)}
        lost = {arm: change for arm, change in found.items() if change is not None}
        if len(lost) < len(found):
            return None
        words = ", ".join(f"{arm} {spoken(change)}" for arm, change in lost.items())
        return lead(
            lost[wanted],
            [lost[arm] for arm in others],
            lambda gap: f"{words}; distillation matters less by {spoken(gap, unit=' points')}",
        )

    return trained(judge, study)


def score_near(
    study: str, arm: str, theirs: float, within: float, paper_only: str, form: str = ".0f"
) -> Check:
    """An arm's score is the paper's, within a tolerance."""

    def judge(results: Results) -> Verdict | None:
        total = score_of(results, study, arm)
        return None if total is None else near(total, theirs, within, form)

    return trained(judge, study, paper_only=paper_only)


def score_below(study: str, arm: str, theirs: float, whose: str, paper_only: str) -> Check:
    """An arm's score is lower than a published one."""
    return measured(
        lambda results: score_of(results, study, arm),
        f"{arm} {{}} against {theirs} of {whose}",
        -inf,
        theirs,
        study,
        form=".2f",
        unit="",
        paper_only=paper_only,
    )


def monotone(
    values: Callable[[Results], tuple[Sequence[float], Sequence[Sampled]] | None],
    sign: int,
    *studies: str,
) -> Check:
    """One quantity grows (sign 1) or falls (−1) with another: |Spearman's ρ| above 0.7."""

    def judge(results: Results) -> Verdict | None:
        found = values(results)
        if found is None or len(found[0]) < 3:
            return Verdict("not tested", "", "too few measurements")
        x, y = found
        rho = combined(lambda *ys: rank_correlation(x, np.stack(ys, axis=-1)), *y)
        low, high = (STRONG, inf) if sign > 0 else (-inf, -STRONG)
        effect = f"Spearman's ρ {spoken(rho, '+.2f', '')}"
        return judged(rho, effect, low, high).noted(f"beyond {STRONG:g}")

    return trained(judge, *studies)


def by_arm(
    number: Callable[[Results, str, str], Sampled | None], study: str, arms: dict[str, float]
) -> Callable[[Results], tuple[list[float], list[Sampled]] | None]:
    """(settings, a number for each arm of a study) for `monotone`; `arms` has the settings."""

    def values(results: Results) -> tuple[list[float], list[Sampled]] | None:
        found = [one for arm in arms if (one := number(results, study, arm)) is not None]
        return (list(arms.values()), found) if len(found) == len(arms) else None

    return values


# --- Times and curves ---------------------------------------------------------------------


def time_ratio(
    study: str,
    ours: str,
    theirs: str,
    effect: str,
    low: float = -inf,
    high: float = inf,
    *,
    note: str = "",
    paper_only: str = "",
) -> Check:
    """The training time of one arm over that of another is in a range."""

    def ratio(results: Results) -> Sampled | None:
        first = time_of(results, study, ours)
        second = time_of(results, study, theirs)
        return None if first is None or second is None else quotient(first, second)

    return measured(
        ratio, effect, low, high, study,
        form=".2f", unit=" ×", note=note, paper_only=paper_only,
    )  # fmt: skip


def papers_time_ratio(arm: str, paper_only: str) -> Check:
    """The training time of an arm over DNA's is the paper's, within a quarter."""
    hours = published.hours()
    theirs = hours[published.TIMED[arm]] / hours["DNA"]
    return time_ratio(
        "time",
        arm,
        "DNA",
        f"{{}} DNA's time; the paper's {theirs:.2f}",
        0.75 * theirs,
        1.33 * theirs,
        note="within a quarter; on this machine",
        paper_only=paper_only,
    )


def hours_here(results: Results) -> Verdict | None:
    """Hours that a run of the paper's length takes here; the paper used another machine."""
    found = time_of(results, "time", "DNA")
    if found is None:
        return None
    here = combined(lambda seconds: 50 * seconds / 3600, found)
    effect = f"{spoken(here, '.1f', ' hours')} per 50 million interactions; the paper's 4"
    return Verdict(
        "not tested", effect, "hours of one kind of GPU: C096 to C098 compare ratios"
    )


def still_rising(study: str, arm: str, paper_only: str) -> Check:
    """The score still grows in the last fifth of training."""

    def slope(grid: Array, curves: Array) -> Any:
        last = slice(int(0.8 * len(grid)), None)
        x = grid[last] / grid[-1] - np.mean(grid[last] / grid[-1])
        return curves[..., last] @ x / (x @ x)

    return measured(
        lambda results: curve_of(results, study, arm, slope, "slope"),
        "slope {}", 0.0, inf, study, unit=" per run", paper_only=paper_only,
    )  # fmt: skip


def _part_lead(
    study: str, arm: str, reference: str, part: slice, words: str, low: float, high: float
) -> Check:
    """In a part of training, the arm's lead over the reference (percent) is in a range."""

    def gap(results: Results) -> Sampled | None:
        ours, theirs = (
            curve_of(results, study, name, lambda grid, c: c[..., part].mean(axis=-1))
            for name in (arm, reference)
        )
        return None if ours is None or theirs is None else combined(percent, ours, theirs)

    return measured(gap, f"{words} {{}}", low, high, study)


def early_and_late(
    study: str, arm: str, reference: str, early: float = 0.0, late: float = 0.0
) -> Check:
    """Ahead of a reference by `early` % in the first fifth, behind by `late` % at the end."""
    first_fifth = slice(None, GRID // 5)
    end = slice(-GRID // 20, None)
    return every(
        _part_lead(study, arm, reference, first_fifth, "first fifth", early, inf),
        _part_lead(study, arm, reference, end, "end", -inf, -late),
    )


def levels_off(
    study: str, arm: str, low: float, high: float, note: str, paper_only: str
) -> Check:
    """An arm reaches 95 % of its level at 40 M frames after `low` to `high` million."""

    def plateau(grid: Array, curves: Array) -> Array:
        frames = million_frames(grid)
        part = frames <= 40
        return reached(frames[part], curves[..., part], 0.95)

    return measured(
        lambda results: curve_of(results, study, arm, plateau, "plateau"),
        "after {}", low, high, study,
        form=".0f", unit=" M frames", note=note, paper_only=paper_only,
    )  # fmt: skip


def plateau_of(results: Results, study: str, arm: str) -> Sampled | None:
    """Share of the run after which the mean curve has 95 % of its final score."""
    return curve_of(
        results, study, arm, lambda grid, curves: reached(grid / grid[-1], curves, share=0.95)
    )


# --- Rainbow DQN --------------------------------------------------------------------------

NO_RAINBOW = "Rainbow has no score on the proxy's games"


def games_above_rainbow(study: str, least: int) -> Check:
    """DNA's mean is above Rainbow's on at least `least` of the five games."""

    def judge(results: Results) -> Verdict | None:
        if not results.whole(study):
            return None
        printed = published.games("easy")
        gaps = {}
        for env, found in results.scores(study, "DNA").items():
            game = str(atari_game(env))
            mean = sampled_rows(np.array(found), same, f"{study}/{env}")
            gaps[game] = combined(partial(_less, printed[game][published.RAINBOW]), mean)
        count = how_many(list(gaps.values()), len(gaps))
        above = ", ".join(game for game, gap in gaps.items() if gap.value > 0)
        return judged(count, f"{spoken(count, '.0f', ' of 5')}: {above}", least - 0.5)

    return trained(judge, study, paper_only=NO_RAINBOW)


def _less(level: float, score: Any) -> Any:
    return score - level


def total_above_rainbow(study: str, arm: str) -> Check:
    """The Atari-5 score is above Rainbow's."""

    def judge(results: Results) -> Verdict | None:
        total = score_of(results, study, arm)
        if total is None:
            return None
        theirs = published.rainbow_atari5()[published.RAINBOW]
        found = combined(lambda ours: percent(ours, theirs), total)
        return judged(found, f"{total.value:.0f} against {theirs:.0f}: {spoken(found)}", 0.0)

    return trained(judge, study, paper_only=NO_RAINBOW)


def passes_rainbow(study: str, low: float, high: float, note: str, paper_only: str) -> Check:
    """DNA's Atari-5 curve passes Rainbow's score after `low` to `high` million frames."""

    def crossing(grid: Array, curves: Array) -> Array:
        theirs = published.rainbow_atari5()[published.RAINBOW]
        return first_above(million_frames(grid), curves, theirs)

    return measured(
        lambda results: curve_of(results, study, "DNA", crossing, "easy"),
        "after {}", low, high, study,
        form=".0f", unit=" M frames", note=note, paper_only=paper_only,
    )  # fmt: skip


# --- Epochs (C063) ------------------------------------------------------------------------


def best_updates(sweeps: dict[str, Sequence[str]]) -> Check:
    """The best E_V is 1, and the best E_π and E_D add up to 4."""

    def judge(results: Results) -> Verdict | None:
        known: dict[str, Sampled] = {}
        for name, arms in sweeps.items():
            scores = scores_of(results, name, arms)
            if scores is None:
                return None
            known |= {arm: scores[arm] for arm in arms}

        def right(*scores: Any) -> Any:
            first = _first_arms(sweeps, scores)
            counts = {
                name: np.array([int(arm.partition("=")[2]) for arm in arms])[first[name]]
                for name, arms in sweeps.items()
            }
            both = counts["policy"] + counts["distil"]
            return ((counts["value"] == 1) & (both == 4)).astype(float)

        found = combined(right, *known.values())
        first = _first_arms(sweeps, [one.value for one in known.values()])
        names = ", ".join(arms[int(first[name])] for name, arms in sweeps.items())
        share = "" if found.draws is None else f" (so in {found.draws.mean():.0%} of draws)"
        effect = f"best: {names}; 1 and 4: {bool(found.value)}{share}"
        one = judged(found, effect, 0.5)
        if one.status == "not held" and not _refuted(sweeps, known):
            why = "left open: no arm is worse than another beyond doubt"
            return Verdict("not tested", effect, why)
        return one

    return trained(judge, *sweeps)


def _first_arms(sweeps: dict[str, Sequence[str]], scores: Sequence[Any]) -> dict[str, Any]:
    """Sweep → index of its best arm, for one set of scores or many."""
    rest = iter([np.asarray(one, float) for one in scores])
    return {
        name: np.argmax([next(rest) for _ in arms], axis=0) for name, arms in sweeps.items()
    }


def _refuted(sweeps: dict[str, Sequence[str]], scores: dict[str, Sampled]) -> bool:
    """Whether E_V = 1, or every E_π and E_D that add up to 4, significantly lose to another.

    With noise, the best arm often does not come first, so being first in few draws refutes
    nothing.
    """
    level = 1 - (1 - LEVEL) / sum(len(arms) - 1 for arms in sweeps.values())

    def beaten(arm: str) -> bool:
        (rivals,) = (arms for arms in sweeps.values() if arm in arms)
        gaps = [combined(percent, scores[arm], scores[o]) for o in rivals if o != arm]
        return any(span[1] <= 0 for gap in gaps if (span := gap.between(level)))

    pairs = [
        (policy, distil)
        for policy in sweeps["policy"]
        for distil in sweeps["distil"]
        if int(policy[-1]) + int(distil[-1]) == 4
    ]
    return beaten("E_V=1") or all(beaten(policy) or beaten(distil) for policy, distil in pairs)


# --- MuJoCo (appendix K) ------------------------------------------------------------------


def task_of(env: str) -> str:
    """`Ant-v5` → `Ant`."""
    return env.partition("-v")[0]


def mujoco_gaps(results: Results) -> dict[str, Sampled]:
    """Task → DNA's return relative to PPO's, both above uniform actions', in percent."""
    found = {}
    for env in results.envs("mujoco"):
        ours, theirs = (
            sampled_rows(np.array(results.normalized("mujoco", arm)[env]), same, f"{arm}/{env}")
            for arm in ("DNA", "PPO")
        )
        found[task_of(env)] = combined(percent, ours, theirs)
    return found


def mujoco_better(results: Results) -> Verdict | None:
    """DNA's mean return is higher on at least five tasks of eight.

    A task whose runs are missing may go either way.
    """
    found = mujoco_gaps(results)
    if not found:
        return None
    count = how_many(list(found.values()), len(MUJOCO))
    theirs = sum(found[env].value > 0 for env in published.MUJOCO_BETTER if env in found)
    gaps = ", ".join(f"{env} {spoken(one)}" for env, one in found.items())
    effect = (
        f"higher on {spoken(count, '.0f', ' of 8')}, {theirs} of them the paper's five: {gaps}"
    )
    higher = [env for env, gap in found.items() if gap.span and gap.span[0] > 0]
    lower = [env for env, gap in found.items() if gap.span and gap.span[1] < 0]
    named = len(set(higher) & set(published.MUJOCO_BETTER))
    note = "individually significant: "
    if higher:
        note += f"higher on {', '.join(higher)} ({named} of the five that the paper names)"
    else:
        note += "none higher"
    if lower:
        note += f", lower on {', '.join(lower)}"
    return judged(count, effect, 4.5).noted(note)


def mujoco_similar(results: Results) -> Verdict | None:
    """On each of the other three tasks DNA is within the margin of what is similar."""
    gaps = mujoco_gaps(results)
    found = {env: one for env, one in gaps.items() if env not in published.MUJOCO_BETTER}
    if len(found) < 3:
        return None
    return all_of(
        [judged(one, f"{env} {spoken(one)}", -MARGIN, MARGIN) for env, one in found.items()]
    )


# --- 57 games (appendix M) ----------------------------------------------------------------

ALL_57 = "needs the 57 games of the paper"
#: Percent within which a median is the paper's; share of scores that are as printed.
MEDIAN_WITHIN = 10.0
MOST = 0.75


def median_near(study: str, arm: str, whose: str = "") -> Check:
    """The median human-normalized score is the paper's (or Rainbow's), within a tenth.

    The comparison is game by game with the paper's table: two equal columns have equal medians
    whichever games are drawn.
    """

    def judge(results: Results) -> Verdict | None:
        total = results.total(study, arm)
        if total is None or not results.whole(study):
            return None
        ours, theirs = _columns(results, study, arm, whose)
        chosen = picks(len(ours), f"{study}/games")
        drawn = percent(np.median(ours[chosen], axis=1), np.median(theirs[chosen], axis=1))
        gap = Sampled(float(percent(total, np.median(theirs))), drawn, "games")
        effect = f"{total:.0f} against {np.median(theirs):.0f}: {spoken(gap)}"
        return judged(gap, effect, -MEDIAN_WITHIN, MEDIAN_WITHIN)

    return trained(judge, study, note=f"within {MEDIAN_WITHIN:.0f} %", paper_only=ALL_57)


def _columns(results: Results, study: str, arm: str, whose: str = "") -> tuple[Array, Array]:
    """Human-normalized scores of an arm in every game, and those of the paper's table."""
    printed = published.games(study)
    table = results.scores(study, arm)
    ours = [relative(env, float(np.mean(found))) for env, found in table.items()]
    theirs = [relative(env, printed[str(atari_game(env))][whose or arm]) for env in table]
    return np.array(ours), np.array(theirs)


def wide_margin_57(results: Results) -> Verdict | None:
    """DNA's median is above PPO's by a wide margin in both modes."""
    found = {}
    for study in ("easy", "hard"):
        gap = compared(results, study, "DNA", "PPO (2x)")
        if gap is None:
            return None
        found[study] = gap
    effect = ", ".join(f"{spoken(gap)} {study}" for study, gap in found.items())
    return judged(combined(np.minimum, *found.values()), effect, WIDE)


def passes_rainbow_57(results: Results) -> Verdict | None:
    """DNA passes Rainbow's median, 223, after about 85.5 million frames."""
    if not results.whole("easy"):
        return None
    grid, _ = results.total_curve("easy", "DNA")
    lines = []
    for env in results.envs("easy"):
        x, scores = results.curves("easy", "DNA", env)
        lines.append(np.interp(grid, x, np.asarray(relative(env, scores.mean(axis=0)))))
    games = np.stack(lines)

    def frames(chosen: Array) -> float:
        return float(first_above(million_frames(grid), np.median(chosen, axis=0), 223.0))

    draws = [frames(games[row]) for row in picks(len(games), "easy/games")]
    found = Sampled(frames(games), np.array(draws), "games")
    return judged(found, f"after {spoken(found, '.1f', ' M frames')}", 65.0, 105.0)


def scores_as_printed(study: str) -> Check:
    """Most scores are those of the paper's table, within a quarter of it or of a human's."""

    def judge(results: Results) -> Verdict | None:
        if not results.whole(study):
            return None
        dna = _columns(results, study, "DNA")
        ppo = _columns(results, study, "PPO (2x)")
        close = np.mean(
            [np.abs(x - y) <= 0.25 * np.maximum(np.abs(y), 100) for x, y in (dna, ppo)], axis=0
        )
        drawn = close[picks(len(close), f"{study}/games")].mean(axis=1)
        share = Sampled(float(close.mean()), drawn, "games")
        ahead, printed = (int(np.sum(dna[who] > ppo[who])) for who in (0, 1))
        effect = f"{spoken(share, '.2f', '')} of the scores; DNA ahead on {ahead} games"
        return judged(share, f"{effect}, in the table on {printed}", MOST)

    note = f"more than {MOST:g}, each within a quarter of the table's score or of a human's"
    return trained(judge, study, note=note, paper_only=ALL_57)
