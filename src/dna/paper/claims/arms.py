"""Claims about arms of a study: better, similar, best, apart, growing with a setting.

Arms are compared by their world's own score: Atari-5 and its relatives (section 5), the median
of 57 games, Procgen's mean, a proxy's mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from dna.paper.claims.compare import Sampled, combined, percent, rank_correlation
from dna.paper.claims.measures import score_of
from dna.paper.claims.verdicts import Finding, judged, judged_all, noted, spoken, trained
from dna.paper.experiments.plan import Check
from dna.paper.experiments.results import Results

#: What counts as "similar" or "small": relative difference in percent.
MARGIN = 15.0
#: What counts as "by a wide margin", "far below", "dramatic" or "great", in percent. The paper
#: says so of medians that are 34 and 39 % higher, and of curves without numbers.
WIDE = 25.0
#: What counts as growing with something: Spearman's ρ.
STRONG = 0.7


def _within(study: str, ours: str, theirs: str, low: float, high: float) -> Check:
    def judge(results: Results) -> Finding | None:
        found = compared(results, study, ours, theirs)
        effect = "" if found is None else f"{ours} against {theirs}: {spoken(found)}"
        return None if found is None else judged(found, effect, low, high)

    return trained(judge, study)


def better(study: str, ours: str, theirs: str, least: float = 0.0) -> Check:
    """`ours` scores higher than `theirs`, by more than so many percent."""
    words = f"more than {least:.0f} %" if least else ""
    return noted(_within(study, ours, theirs, least, inf), words)


def similar(study: str, ours: str, theirs: str, margin: float = MARGIN) -> Check:
    """`ours` and `theirs` are within a margin of each other."""
    return noted(_within(study, ours, theirs, -margin, margin), f"margin ±{margin:.0f} %")


def best(study: str, wanted: str, among: Sequence[str]) -> Check:
    """`wanted` scores higher than the best of the other arms."""

    def judge(results: Results) -> Finding | None:
        scores = scores_of(results, study, among)
        if scores is None:
            return None
        others = [score for arm, score in scores.items() if arm != wanted]
        lead = combined(_lead, scores[wanted], *others)
        first = max(scores, key=lambda arm: scores[arm].value)
        digits = results.study(study).world.digits
        words = ", ".join(f"{arm} {one.value:.{digits}f}" for arm, one in scores.items())
        effect = f"{words}; {wanted} against the best other: {spoken(lead)}"
        one = judged_all([combined(percent, scores[wanted], o) for o in others], lead, effect)
        said = [one.note] + [f"{first} is first"] * (first != wanted)
        return replace(one, note="; ".join(filter(None, said)))

    return trained(judge, study)


def _lead(ours: object, *others: object) -> object:
    return percent(ours, np.max(np.stack([np.asarray(one) for one in others]), axis=0))


def spread_of(results: Results, study: str, among: Sequence[str]) -> Sampled | None:
    """(highest − lowest) / highest of the arms' scores, in percent."""
    scores = scores_of(results, study, among)
    return None if scores is None else combined(_spread, *scores.values())


def _spread(*scores: object) -> object:
    values = np.stack([np.asarray(one, float) for one in scores])
    return -percent(values.min(axis=0), values.max(axis=0))


def spread(study: str, among: Sequence[str], low: float = -inf, high: float = inf) -> Check:
    """How far the arms' scores are apart lies in a range, in percent of the highest."""

    def judge(results: Results) -> Finding | None:
        found = spread_of(results, study, among)
        return (
            None
            if found is None
            else judged(found, f"spread {spoken(found, '.1f')}", low, high)
        )

    words = f"margin {high:.0f} %" if high < inf else f"over {low:.0f} %"
    return noted(trained(judge, study), words)


def monotone(
    values: Callable[[Results], tuple[Sequence[float], Sequence[Sampled]] | None],
    sign: int,
    *studies: str,
) -> Check:
    """One quantity grows (sign 1) or falls (−1) with another: |Spearman's ρ| above 0.7."""

    def judge(results: Results) -> Finding | None:
        found = values(results)
        if found is None or len(found[0]) < 3:
            return Finding("not tested", "", "too few measurements")
        x, y = found
        rho = combined(lambda *ys: _correlations(x, ys), *y)
        low, high = (STRONG, inf) if sign > 0 else (-inf, -STRONG)
        one = judged(rho, f"Spearman's ρ {spoken(rho, '+.2f', '')}", low, high)
        return replace(one, note="; ".join(filter(None, (one.note, f"beyond {STRONG:g}"))))

    return trained(judge, *studies)


def _correlations(x: Sequence[float], ys: Sequence[object]) -> object:
    return rank_correlation(x, np.stack([np.asarray(y, float) for y in ys], axis=-1))


def compared(results: Results, study: str, ours: str, theirs: str) -> Sampled | None:
    """Relative difference of the world's scores in percent; None where runs are missing."""
    scores = scores_of(results, study, (ours, theirs))
    return None if scores is None else combined(percent, *scores.values())


def scores_of(results: Results, study: str, among: Sequence[str]) -> dict[str, Sampled] | None:
    """Arm → the world's score; None where runs are missing."""
    scores = {arm: score_of(results, study, arm) for arm in among}
    known = {arm: score for arm, score in scores.items() if score is not None}
    return known if len(known) == len(scores) else None
