"""Figure 1: two tasks learned by one network or by two, one of them noisy (section 3.1).

The toy problem itself is `dna.paper.toy`: it trains no agent, so it has no runs of its own.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from dna.paper.claims.verdicts import COMPUTED, Finding, Interval, all_of, judged
from dna.paper.experiments.plan import Check, Experiment
from dna.paper.experiments.results import Results
from dna.paper.toy import (
    DEEP,
    SCALES,
    Cell,
    Outcome,
    ToyResult,
    parameters,
    ratio,
    run_toy,
    toy_table,
    train,
)

#: Geometric means within these factors of each other are similar, and flat.
SIMILAR, FLAT = 1.25, 1.1
#: A model has learned a task below this error; the answer 0 everywhere costs ½.
LEARNED = 0.25


def measure(results: Results, folder: Path, told: Callable[[str], None]) -> dict[str, Any]:
    """Train the models that are not trained yet; their errors, and what follows from them."""

    def progress(done: int, total: int) -> None:
        told(f"toy problem: {done} of {total} cells")

    found = run_toy(folder / "toy", results.scale, progress, results.limits.seeds)
    return {"table": toy_table(found), "verdicts": toy_verdicts(found)}


def _of(claim: str) -> Check:
    def check(results: Results) -> Finding:
        found = results.extra.get("toy", {}).get("verdicts", {}).get(claim)
        if found is None:
            return Finding("not tested", "", "the toy problem was not run")
        return Finding(*found)

    return check


class _SameDice(Cell):
    """A cell whose dice do not depend on σ₁, unlike those of the sweep."""

    @property
    def name(self) -> str:
        return f"{self.model}-same-dice"


@cache
def same_dice() -> tuple[bool, str]:
    """L_T2 of a small dual model at the smallest and the largest σ₁, all else the same.

    No weight is shared and Adam works element by element: it must be equal to the bit.
    """
    settings = SCALES["smoke"]
    ends = (settings.sigmas[0], settings.sigmas[-1])
    low, high = (
        train(_SameDice("dual", sigma), settings, range(settings.seeds))[:, 1].tolist()
        for sigma in ends
    )
    what = "equal to the bit" if low == high else "not equal"
    sigmas = " and ".join(f"{sigma:g}" for sigma in ends)
    return low == high, f"small dual model, the same dice at σ₁ {sigmas}: L_T2 {what}"


def _flat_dual(results: Results) -> Finding:
    """C008: computed on the spot, and as the cells found it, each with dice of its own."""
    good, words = same_dice()
    cells = _of("C008")(results)
    if results.scale == "smoke" or not cells.effect:
        return Finding("held" if good else "not held", words, COMPUTED)
    held = good and cells.status != "not held"
    why = "by construction: no weight is shared"
    note = f"{why}; the cells alone, whose dice differ: {cells.status}, {cells.note}"
    return Finding("held" if held else "not held", f"{words}; {cells.effect}", note)


def _shallow(results: Results) -> Finding:
    """C010, with what we chose where the paper is silent."""
    found, ours = _of("C010")(results), SCALES[results.scale]
    if not found.effect:
        return found
    rate = ours.shallow_learning_rate / ours.learning_rate
    steps = ours.shallow_steps / ours.steps
    note = (
        f"our choice, on which the paper is silent: shallow networks train with {rate:g} times "
        f"the learning rate and {steps:g} times the steps of deep ones"
    )
    return replace(found, note="; ".join(filter(None, (found.note, note))))


def toy_verdicts(result: ToyResult) -> dict[str, tuple[str, str, str]]:
    """The claims of section 3.1, C006 to C010: status, effect, note.

    Errors of task 2 are compared as ratios of geometric means over seeds, with Welch's 95 %
    interval of the difference of logarithms. C006: joint and dual are similar at the smallest
    σ₁. C007: joint is worse at the largest σ₁ than at the smallest. C008: dual is flat, as far
    as the cells can tell.
    C010: shallow joint and dual are similar at both ends. C009 counts parameters.
    """
    joint, dual = result.of("joint"), result.of("dual")
    wide, apart = result.of("shallow-joint"), result.of("shallow-dual")
    ends = all_of([_alike(wide[k:][:1], apart[k:][:1], SIMILAR) for k in (0, -1)])
    risen = _compared(joint[-1:], joint[:1], 1.0, inf)
    found = {
        "C006": _unless_untaught(_alike(joint[:1], dual[:1], SIMILAR), joint, dual),
        "C007": _unless_untaught(risen, joint),
        "C008": _unless_untaught(_alike(dual[-1:], dual[:1], FLAT), dual),
        "C009": _counted(),
        "C010": _unless_untaught(ends, wide, apart),
    }
    return {claim: (one.status, one.effect, one.note) for claim, one in found.items()}


def _alike(one: list[Outcome], other: list[Outcome], factor: float) -> Finding:
    found = _compared(one, other, 1 / factor, factor)
    return replace(found, note=f"{found.note}; margin: a factor {factor:g}")


def _compared(above: list[Outcome], below: list[Outcome], low: float, high: float) -> Finding:
    """L_T2 of one cell over that of another, named, and whether it is in a range."""
    if not above or not below:
        return Finding("not tested", "–", "not among the cells")
    a, b = above[0], below[0]
    found, seeds = ratio(a.l_t2, b.l_t2), f"{len(a.l_t2)} and {len(b.l_t2)} seeds"
    effect = f"L_T2 of {_name(a.cell)} / {_name(b.cell)}: {found}"
    known = min(len(a.l_t2), len(b.l_t2)) > 1
    span = (found.low, found.high) if known else None
    one = judged(
        Interval(found.value, span, "seeds" if known else "one seed"), effect, low, high
    )
    return replace(one, note="; ".join(filter(None, (one.note, seeds))))


def _name(cell: Cell) -> str:
    return f"{cell.model.replace('-', ' ')} at σ₁ {cell.sigma:g}"


def _unless_untaught(verdict: Finding, *first: Sequence[Outcome]) -> Finding:
    """No verdict where a model has not learned task 2 even at its smallest σ₁."""
    for cells in first:
        if cells and (error := statistics.fmean(cells[0].l_t2)) > LEARNED:
            reason = f"{_name(cells[0].cell)} has not learned task 2 (mean L_T2 {error:.3g})"
            return Finding("not tested", verdict.effect, reason)
    return verdict


def _counted() -> Finding:
    counts = [parameters(model, SCALES["paper"]) for model in DEEP]
    return Finding(
        "held" if counts[0] == counts[1] else "not held",
        f"joint {counts[0]:,}, dual {counts[1]:,} parameters",
        "counted, so without an interval",
    )


EXPERIMENT = Experiment(
    name="fig01",
    alias="toy",
    title="Destructive interference on a toy problem",
    covers=("fig:toy_noise",),
    extra={"toy": measure},
    checks={
        "C006": _of("C006"),
        "C007": _of("C007"),
        "C008": _flat_dual,
        "C009": _of("C009"),
        "C010": _shallow,
    },
)
