"""How a verdict on a claim is reached: held, not held, or not tested.

One rule, `judged`, decides: a claim holds when the whole 95 % interval of a number lies in the
range that the claim states, and fails when the interval excludes the range. Anything in between
is left open, which counts as not tested.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan
from typing import Literal

import numpy as np

from dna.paper.claims.uncertainty import LEVEL, Sampled, combined

Status = Literal["held", "not held", "not tested"]
#: Note on claims that need no training.
COMPUTED = "computed, not trained"
#: Beginning of the note on claims that were only simulated.
SIMULATED = "simulated, not on Atari"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one claim."""

    status: Status
    effect: str = ""  # size and interval
    note: str = ""

    def noted(self, *words: str) -> "Verdict":
        """Append to the note."""
        return replace(self, note=joined(self.note, *words))


@dataclass(frozen=True)
class Interval:
    """A number whose 95 % interval was not found by resampling."""

    value: float
    span: tuple[float, float] | None
    over: str = "seeds"  # what the interval is over, or why there is none


def joined(*words: str) -> str:
    """Join the parts of a note, without empty and repeated ones."""
    return "; ".join(dict.fromkeys(word for word in words if word))


def spoken(found: Sampled | Interval, form: str = "+.1f", unit: str = " %") -> str:
    """Format as `+12.3 % [+4.0, +20.1]`."""
    if found.span is None:
        return f"{found.value:{form}}{unit} (no interval)"
    low, high = (f"{end:{form}}" for end in found.span)
    return f"{found.value:{form}}{unit} [{low}, {high}]".replace("inf", "∞")


def judged(
    found: Sampled | Interval, effect: str, low: float = -inf, high: float = inf
) -> Verdict:
    """Decide whether a number lies in a range, as far as its interval can tell."""
    if isnan(found.value):
        return Verdict("not tested", "", "the score compared with is zero")
    if found.span is None:
        return Verdict("not tested", effect, f"left open: {found.over}, hence no interval")
    begin, end = found.span
    drawn = "" if found.over == "seeds" else f"interval over {found.over}"
    if low < begin and (end < high or high == inf):  # noise may have no upper end
        return Verdict("held", effect, drawn)
    if end <= low or begin >= high:
        return Verdict("not held", effect, joined("the interval excludes it", drawn))
    why = "left open: the interval reaches beyond what is claimed"
    return Verdict("not tested", effect, joined(why, drawn))


def judged_all(
    parts: Sequence[Sampled], worst: Sampled, effect: str, low: float = 0.0
) -> Verdict:
    """Decide whether all of several numbers exceed a bound; `worst` is the smallest of them.

    The smallest of several noisy numbers is biased downwards, so its interval alone would
    refute too often: one number must also be below on its own, at a level corrected for their
    count.
    """
    one = judged(worst, effect, low)
    spans = [part.between(1 - (1 - LEVEL) / len(parts)) for part in parts]
    if one.status == "not held" and not any(span and span[1] <= low for span in spans):
        return Verdict("not tested", effect, "left open: none is below the bound on its own")
    return one


def lead(
    wanted: Sampled, others: Sequence[Sampled], effect: Callable[[Sampled], str]
) -> Verdict:
    """Decide whether one number exceeds each of several others."""
    ahead = combined(lambda first, *rest: first - np.max(rest, axis=0), wanted, *others)
    gaps = [combined(np.subtract, wanted, other) for other in others]
    return judged_all(gaps, ahead, effect(ahead))


def how_many(gaps: Sequence[Sampled], total: int) -> Interval:
    """Count how many of `total` numbers are above zero, with simultaneous 95 % bounds.

    By partial conjunctions (Benjamini and Heller, 2008): at least u of n are above zero if u of
    them are, each at a level divided by n − u + 1. A number without an interval decides
    nothing.
    """
    count = sum(gap.value > 0 for gap in gaps)
    if all(gap.draws is None for gap in gaps):
        return Interval(count, None, gaps[0].over)

    def at_least(side: Callable[[tuple[float, float]], bool]) -> int:
        for least in range(total, 0, -1):
            spans = [gap.between(1 - (1 - LEVEL) / (total - least + 1)) for gap in gaps]
            if sum(span is not None and side(span) for span in spans) >= least:
                return least
        return 0

    above = at_least(lambda span: span[0] > 0)
    below = at_least(lambda span: span[1] <= 0)
    return Interval(count, (float(above), float(total - below)))


def near(found: Sampled, theirs: float, within: float, form: str = ".0f") -> Verdict:
    """Decide whether a number agrees with the paper's within a tolerance."""
    effect = f"{spoken(found, form, '')} against {theirs:{form}}"
    one = judged(found, effect, theirs - within, theirs + within)
    apart = found.span is not None and not found.span[0] <= theirs <= found.span[1]
    words = "the paper's number is outside the interval" if apart else ""
    return one.noted(f"within {within:.2g}", words)


def all_of(found: Sequence[Verdict]) -> Verdict:
    """Combine: any *not held* decides; without one, any *not tested* leaves the claim open."""
    order: tuple[Status, ...] = ("not held", "not tested", "held")
    status = min((one.status for one in found), key=order.index)
    notes = [one.note.split("; ") for one in found]
    shared = [word for word in notes[0] if all(word in note for note in notes)]
    effects = []
    for one, note in zip(found, notes, strict=True):
        own = joined(*(word for word in note if word not in shared))
        # A note on one condition stands behind its number, not at the end of them all.
        effects.append(f"{one.effect} ({own})" if one.effect and own else one.effect or own)
    return Verdict(status, joined(*effects), joined(*shared))
