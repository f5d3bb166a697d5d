"""Claims of the paper as tests that a computer can do: held, not held, not tested.

Every row of `paper/claims.csv` is bound to an experiment. One rule, `judged`, decides: a claim
holds when the whole 95 % interval of a number lies in the range that it speaks of, fails when
the interval excludes it, and is left open, which is not tested, by anything between.
`dna.paper.claims.arms` has the claims that compare arms.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan
from typing import Literal

from dna.paper.claims.compare import LEVEL, Sampled
from dna.paper.experiments.finished import unfinished
from dna.paper.experiments.plan import Check
from dna.paper.experiments.results import Results

Status = Literal["held", "not held", "not tested"]
#: The note of claims that need no training.
COMPUTED = "computed, not trained"
#: How that of a simulation begins.
SIMULATED = "simulated, not on Atari"


@dataclass(frozen=True)
class Finding:
    """What came of one claim."""

    status: Status
    effect: str = ""  # size and interval
    note: str = ""


@dataclass(frozen=True)
class Interval:
    """A number whose 95 % interval was not found by drawing."""

    value: float
    span: tuple[float, float] | None
    over: str = "seeds"  # what the interval is over, or why there is none


#: What a test makes of results; None where runs are missing.
Judge = Callable[[Results], Finding | None]


def not_tested(why: str) -> Check:
    """A claim that no experiment of this package tests, and why."""
    return lambda results: Finding("not tested", "", why)


def identity(prove: Callable[[], tuple[bool, str]]) -> Check:
    """A claim that is mathematics or construction: computed once, the same at every scale."""
    once = functools.cache(prove)

    def check(results: Results) -> Finding:
        good, effect = once()
        return Finding("held" if good else "not held", effect, COMPUTED)

    return check


def simulated(prove: Callable[[], tuple[bool, str]]) -> Check:
    """A claim on games that is only shown with made-up rewards: a hint, not a test."""
    once = functools.cache(prove)

    def check(results: Results) -> Finding:
        good, effect = once()
        words = "agrees" if good else "contradicts it"
        return Finding("not tested", effect, f"{SIMULATED}: the simulation {words}")

    return check


def trained(judge: Judge, *studies: str) -> Check:
    """A claim that rests on the runs of these studies; says what they are short of."""

    def check(results: Results) -> Finding:
        found = judge(results)
        if found is None:
            return Finding("not tested", "", "runs are missing")
        short = [results.short_of(study) for study in studies]
        short += [unfinished(results, study) for study in studies]
        said = [*short, found.note] if found.effect else [found.note]
        return replace(found, note=_joined(*said))

    return check


def at_paper_scale(why: str, judge: Judge, *studies: str) -> Check:
    """A claim that only runs of the paper's own size can be asked about, and why."""

    def at_scale(results: Results) -> Finding | None:
        return judge(results) if results.scale == "paper" else Finding("not tested", "", why)

    return trained(at_scale, *studies)


def spoken(found: Sampled | Interval, form: str = "+.1f", unit: str = " %") -> str:
    """`+12.3 % [+4.0, +20.1]`."""
    if found.span is None:
        return f"{found.value:{form}}{unit} (no interval)"
    low, high = (f"{end:{form}}" for end in found.span)
    return f"{found.value:{form}}{unit} [{low}, {high}]".replace("inf", "∞")


def judged(
    found: Sampled | Interval, effect: str, low: float = -inf, high: float = inf
) -> Finding:
    """Whether a number lies in a range, as far as its interval can tell."""
    if isnan(found.value):
        return Finding("not tested", "", "the score compared with is zero")
    if found.span is None:
        return Finding("not tested", effect, f"left open: {found.over}, hence no interval")
    begin, end = found.span
    drawn = "" if found.over == "seeds" else f"interval over {found.over}"
    if low < begin and (end < high or high == inf):  # noise may have no upper end
        return Finding("held", effect, drawn)
    if end <= low or begin >= high:
        return Finding("not held", effect, _joined("the interval excludes it", drawn))
    why = "left open: the interval reaches beyond what is claimed"
    return Finding("not tested", effect, _joined(why, drawn))


def judged_all(
    parts: Sequence[Sampled], worst: Sampled, effect: str, low: float = 0.0
) -> Finding:
    """Whether all of several numbers are above a bound; `worst` is the smallest of them.

    The smallest of noisy numbers is too small on average, so its interval would say *not held*
    too often: for that, one of them must be below on its own, at a level shared out among all.
    """
    one = judged(worst, effect, low)
    spans = [part.between(1 - (1 - LEVEL) / len(parts)) for part in parts]
    if one.status == "not held" and not any(span and span[1] <= low for span in spans):
        return Finding("not tested", effect, "left open: no single one is surely below")
    return one


def how_many(gaps: Sequence[Sampled], total: int) -> Interval:
    """How many of `total` numbers are above zero, with bounds that hold in 95 of 100 studies.

    By partial conjunctions (Benjamini and Heller, 2008): at least u of n are above zero if u of
    them are, each at a level shared out among n − u + 1. What has no interval decides nothing.
    """
    count = sum(gap.value > 0 for gap in gaps)
    if all(gap.draws is None for gap in gaps):
        return Interval(count, None, gaps[0].over)

    def surely(side: Callable[[tuple[float, float]], bool]) -> int:
        for least in range(total, 0, -1):
            spans = [gap.between(1 - (1 - LEVEL) / (total - least + 1)) for gap in gaps]
            if sum(span is not None and side(span) for span in spans) >= least:
                return least
        return 0

    above, below = surely(lambda span: span[0] > 0), surely(lambda span: span[1] <= 0)
    return Interval(count, (float(above), float(total - below)))


def _joined(*words: str) -> str:
    return "; ".join(dict.fromkeys(word for word in words if word))


def near(found: Sampled, theirs: float, within: float, form: str = ".0f") -> Finding:
    """Whether a number is the paper's, give or take."""
    effect = f"{spoken(found, form, '')} against {theirs:{form}}"
    one = judged(found, effect, theirs - within, theirs + within)
    apart = found.span is not None and not found.span[0] <= theirs <= found.span[1]
    words = "the paper's number is outside the interval" if apart else ""
    return replace(one, note=_joined(one.note, f"within {within:.2g}", words))


def noted(check: Check, words: str) -> Check:
    """The same finding with more to say, unless it was not tested."""

    def more(results: Results) -> Finding:
        found = check(results)
        return replace(found, note=_joined(found.note, words if found.effect else ""))

    return more


def every(*checks: Check) -> Check:
    """All of them hold."""
    return lambda results: all_of([one(results) for one in checks])


def all_of(found: Sequence[Finding]) -> Finding:
    """One that fails is enough to fail; one that is not tested leaves the rest open."""
    order: tuple[Status, ...] = ("not held", "not tested", "held")
    status = min((one.status for one in found), key=order.index)
    notes = [one.note.split("; ") for one in found]
    shared = [word for word in notes[0] if all(word in note for note in notes)]
    effects = []
    for one, note in zip(found, notes, strict=True):
        own = _joined(*(word for word in note if word not in shared))
        # What is said of one condition stands behind its number, not at the end of them all.
        effects.append(f"{one.effect} ({own})" if one.effect and own else one.effect or own)
    return Finding(status, _joined(*effects), _joined(*shared))
