"""Claims of the paper as tests that a computer can do: held, not held, not tested.

Every row of `paper/claims.csv` is bound to an experiment. Comparisons are relative differences
of the games' normalized scores with a 95 % interval; a claim of "better" holds when the
interval lies above zero, a claim of "similar" when it lies within a stated margin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dna.experiments.compare import difference, mean, rank_correlation
from dna.experiments.plan import Check
from dna.experiments.results import Results, normalized_scores

Status = Literal["held", "not held", "not tested"]
#: What counts as "similar" or "small": relative difference in percent.
MARGIN = 15.0
#: The note of claims that need no training.
COMPUTED = "computed, not trained"


@dataclass(frozen=True)
class Finding:
    """What came of one claim."""

    status: Status
    effect: str = ""  # size and interval
    note: str = ""


def not_tested(why: str) -> Check:
    """A claim that no experiment of this package tests, and why."""
    return lambda results: Finding("not tested", "", why)


def identity(prove: Callable[[], tuple[bool, str]]) -> Check:
    """A claim that is mathematics or construction: computed on the spot at every scale."""

    def check(results: Results) -> Finding:
        good, effect = prove()
        return Finding("held" if good else "not held", effect, COMPUTED)

    return check


def spoken(value: float, span: tuple[float, float] | None) -> str:
    """`+12.3 % [+4.0, +20.1]`."""
    if span is None:
        return f"{value:+.1f} % (one seed: no interval)"
    return f"{value:+.1f} % [{span[0]:+.1f}, {span[1]:+.1f}]"


def better(study: str, ours: str, theirs: str) -> Check:
    """`ours` scores higher than `theirs`."""

    def check(results: Results) -> Finding:
        found = compared(results, study, ours, theirs)
        if found is None:
            return Finding("not tested", "", "runs are missing")
        value, span = found
        effect = f"{ours} against {theirs}: {spoken(value, span)}"
        if span is None:
            status: Status = "held" if value > 0 else "not held"
            return Finding(status, effect, "one seed: direction only")
        if span[0] > 0:
            return Finding("held", effect)
        note = "the interval includes zero" if span[1] > 0 else "the other way round"
        return Finding("not held", effect, note)

    return check


def similar(study: str, ours: str, theirs: str, margin: float = MARGIN) -> Check:
    """`ours` and `theirs` are within a margin of each other."""

    def check(results: Results) -> Finding:
        found = compared(results, study, ours, theirs)
        if found is None:
            return Finding("not tested", "", "runs are missing")
        value, span = found
        effect = f"{ours} against {theirs}: {spoken(value, span)}"
        low, high = span or (value, value)
        good = -margin < low and high < margin
        return Finding("held" if good else "not held", effect, f"margin ±{margin:.0f} %")

    return check


def every(*checks: Check) -> Check:
    """All of them hold."""

    def check(results: Results) -> Finding:
        found = [one(results) for one in checks]
        effect = "; ".join(one.effect for one in found if one.effect)
        notes = "; ".join(dict.fromkeys(one.note for one in found if one.note))
        states = {one.status for one in found}
        if "not tested" in states:
            return Finding("not tested", effect, notes)
        return Finding("held" if states == {"held"} else "not held", effect, notes)

    return check


def best(study: str, wanted: str, among: Sequence[str]) -> Check:
    """`wanted` has the highest score of these arms."""

    def check(results: Results) -> Finding:
        totals = scores_of(results, study, among)
        if totals is None:
            return Finding("not tested", "", "runs are missing")
        first = max(totals, key=lambda arm: totals[arm])
        effect = ", ".join(f"{arm} {score:.1f}" for arm, score in totals.items())
        note = "" if first == wanted else f"{first} is first"
        return Finding("held" if first == wanted else "not held", effect, note)

    return check


def spread_of(results: Results, study: str, among: Sequence[str]) -> float | None:
    """(highest − lowest) / highest of the arms' scores, in percent."""
    totals = scores_of(results, study, among)
    if totals is None:
        return None
    high, low = max(totals.values()), min(totals.values())
    return 100 * (high - low) / abs(high) if high else None


def small_spread(study: str, among: Sequence[str], margin: float = MARGIN) -> Check:
    """Whatever arm is taken, the score is about the same."""

    def check(results: Results) -> Finding:
        spread = spread_of(results, study, among)
        if spread is None:
            return Finding("not tested", "", "runs are missing")
        status: Status = "held" if spread < margin else "not held"
        return Finding(status, f"spread {spread:.1f} %", f"margin {margin:.0f} %")

    return check


def monotone(
    values: Callable[[Results], tuple[Sequence[float], Sequence[float]] | None], sign: int
) -> Check:
    """One quantity grows (sign 1) or falls (−1) with another: |Spearman's ρ| ≥ 0.7."""

    def check(results: Results) -> Finding:
        found = values(results)
        if found is None or len(found[0]) < 3:
            return Finding("not tested", "", "too few measurements")
        rho = rank_correlation(*found)
        return Finding("held" if sign * rho >= 0.7 else "not held", f"Spearman's ρ {rho:+.2f}")

    return check


def compared(
    results: Results, study: str, ours: str, theirs: str
) -> tuple[float, tuple[float, float] | None] | None:
    """Relative difference of the means of normalized scores; None where runs are missing."""
    left, right = (normalized_scores(results, study, arm) for arm in (ours, theirs))
    if not left or not right:
        return None
    return difference(mean, left, right)


def scores_of(results: Results, study: str, among: Sequence[str]) -> dict[str, float] | None:
    """Arm → the world's score; None where runs are missing."""
    totals = {arm: results.total(study, arm) for arm in among}
    known = {arm: total for arm, total in totals.items() if total is not None}
    return known if len(known) == len(totals) else None
