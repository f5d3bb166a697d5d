"""Claims of the paper as tests that a computer can do: held, not held, not tested.

Every row of `paper/claims.csv` is bound to an experiment. A claim holds when the whole 95 %
interval of a number lies in the range that it speaks of; `dna.experiments.arms` has the claims
that compare arms.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isnan
from typing import Literal

from dna.experiments.compare import Sampled
from dna.experiments.plan import Check
from dna.experiments.results import Results

Status = Literal["held", "not held", "not tested"]
#: The note of claims that need no training.
COMPUTED = "computed, not trained"


@dataclass(frozen=True)
class Finding:
    """What came of one claim."""

    status: Status
    effect: str = ""  # size and interval
    note: str = ""


#: What a test makes of results; None where runs are missing.
Judge = Callable[[Results], Finding | None]


def not_tested(why: str) -> Check:
    """A claim that no experiment of this package tests, and why."""
    return lambda results: Finding("not tested", "", why)


def identity(prove: Callable[[], tuple[bool, str]]) -> Check:
    """A claim that is mathematics or construction: computed on the spot at every scale."""

    def check(results: Results) -> Finding:
        good, effect = prove()
        return Finding("held" if good else "not held", effect, COMPUTED)

    return check


def trained(judge: Judge, *studies: str) -> Check:
    """A claim that rests on the runs of these studies; says so where they are shortened."""

    def check(results: Results) -> Finding:
        found = judge(results)
        if found is None:
            return Finding("not tested", "", "runs are missing")
        cut = dict.fromkeys(results.shortened_in(study) for study in studies)
        said = [*cut, found.note] if found.effect else [found.note]
        return replace(found, note="; ".join(word for word in said if word))

    return check


def at_paper_scale(why: str, judge: Judge, *studies: str) -> Check:
    """A claim that only runs of the paper's own size can be asked about, and why."""

    def at_scale(results: Results) -> Finding | None:
        return judge(results) if results.scale == "paper" else Finding("not tested", "", why)

    return trained(at_scale, *studies)


def spoken(found: Sampled, form: str = "+.1f", unit: str = " %") -> str:
    """`+12.3 % [+4.0, +20.1]`."""
    if found.span is None:
        return f"{found.value:{form}}{unit} (no interval)"
    low, high = (f"{end:{form}}" for end in found.span)
    return f"{found.value:{form}}{unit} [{low}, {high}]"


def judged(found: Sampled, effect: str, low: float = -inf, high: float = inf) -> Finding:
    """Whether the whole interval, or the number where it has none, lies in a range."""
    if isnan(found.value):
        return Finding("not tested", "", "the score compared with is zero")
    if found.span is None:
        inside = low < found.value < high
        return Finding("held" if inside else "not held", effect, _drawn(found))
    begin, end = found.span
    if low < begin and end < high:
        return Finding("held", effect, _drawn(found))
    outside = end <= low or begin >= high
    why = "the interval excludes it" if outside else "the interval leaves it open"
    return Finding("not held", effect, "; ".join(filter(None, (why, _drawn(found)))))


def _drawn(found: Sampled) -> str:
    """Seeds are what an interval is over, unless something else is said."""
    if found.span is None:
        return f"no interval: {found.over}"
    return "" if found.over == "seeds" else f"interval over {found.over}"


def near(found: Sampled, theirs: float, within: float, form: str = ".0f") -> Finding:
    """Whether a number is the paper's; its interval is shown but does not decide."""
    good = abs(found.value - theirs) <= within
    effect = f"{spoken(found, form, '')} against {theirs:{form}}"
    notes = [f"within {within:.2g}", _drawn(found)]
    if found.span and not found.span[0] <= theirs <= found.span[1]:
        notes.append("the paper's number is outside the interval")
    return Finding("held" if good else "not held", effect, "; ".join(filter(None, notes)))


def noted(check: Check, words: str) -> Check:
    """The same finding with more to say, unless it was not tested."""

    def more(results: Results) -> Finding:
        found = check(results)
        said = words if found.effect else ""
        return replace(found, note="; ".join(filter(None, (found.note, said))))

    return more


def every(*checks: Check) -> Check:
    """All of them hold."""

    def check(results: Results) -> Finding:
        found = [one(results) for one in checks]
        effect = "; ".join(dict.fromkeys(one.effect for one in found if one.effect))
        notes = "; ".join(dict.fromkeys(one.note for one in found if one.note))
        states = {one.status for one in found}
        if "not tested" in states:
            return Finding("not tested", effect, notes)
        return Finding("held" if states == {"held"} else "not held", effect, notes)

    return check
