"""Figure 4: DNA with other numbers of epochs (section 6.1).

E_V is swept first (E_π = E_D = 2), then E_π (E_V = 1, E_D = 2), then E_D, none included.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dna.config.presets import preset
from dna.paper.claims.arms import (
    MARGIN,
    WIDE,
    best,
    better,
    monotone,
    scores_of,
    spread,
    spread_of,
)
from dna.paper.claims.compare import LEVEL, Sampled, combined, percent, quotient, sampled_rows
from dna.paper.claims.measures import paired, time_of
from dna.paper.claims.verdicts import (
    Finding,
    at_paper_scale,
    every,
    identity,
    judged,
    judged_all,
    noted,
    spoken,
    trained,
)
from dna.paper.experiments.plan import Arm, Experiment, Study
from dna.paper.experiments.results import Outcome, Results
from dna.paper.experiments.worlds import ATARI_3_VAL

EPOCHS = (1, 2, 3, 4)
#: The sweeps of epochs came before that of λ: both are .95 (table 1), on the proxy as well.
BASE = {"returns.lambda_pi": 0.95}


def _arm(name: str, **epochs: int) -> Arm:
    changes: dict[str, Any] = {f"{p}.sgd.epochs": count for p, count in epochs.items()}
    return Arm(name, "tuned.dna", changes=BASE | changes)


def _study(name: str, arms: Sequence[Arm]) -> Study:
    return Study(name, tuple(arms), ATARI_3_VAL, seeds=3)


VALUE = [_arm(f"E_V={e}", policy=2, value=e, distil=2) for e in EPOCHS]
POLICY = [_arm(f"E_π={e}", policy=e, value=1, distil=2) for e in EPOCHS]
DISTIL = [_arm(f"E_D={e}", policy=2, value=1, distil=e) for e in (0, *EPOCHS)]
_V, _P = [arm.name for arm in VALUE], [arm.name for arm in POLICY]
_D = [arm.name for arm in DISTIL]
SWEEPS = {"policy": _P, "value": _V, "distil": _D[1:]}


def most_sensitive(results: Results) -> Finding | None:
    """The range of scores is largest for E_π."""
    found = [spread_of(results, name, arms) for name, arms in SWEEPS.items()]
    known = [one for one in found if one is not None]
    if len(known) < len(SWEEPS):
        return None
    words = ", ".join(f"{n} {spoken(one, '.1f')}" for n, one in zip(SWEEPS, known, strict=True))
    lead = combined(lambda policy, *others: policy - np.maximum(*others), *known)
    effect = f"spread: {words}; policy ahead by {spoken(lead, unit=' points')}"
    policy, *others = known
    return judged_all([combined(np.subtract, policy, o) for o in others], lead, effect)


def still_rising(results: Results) -> Finding | None:
    """The score of the chosen settings still grows in the last fifth."""
    grid, curves = results.total_curve("policy", "E_π=2")
    if not len(grid):
        return None
    last = slice(int(0.8 * len(grid)), None)
    x = grid[last] / grid[-1] - np.mean(grid[last] / grid[-1])
    slope = sampled_rows(curves, lambda c: c[..., last] @ x / (x @ x), "slope")
    return judged(slope, f"slope {spoken(slope, '+.1f', ' per run')}", 0.0)


def by_epochs(
    number: Callable[[Results, str], Sampled | None],
) -> Callable[[Results], tuple[list[float], list[Sampled]] | None]:
    """(E_π, some number of the runs with so many policy epochs)."""

    def values(results: Results) -> tuple[list[float], list[Sampled]] | None:
        found = [one for arm in _P if (one := number(results, arm)) is not None]
        return ([float(e) for e in EPOCHS], found) if len(found) == len(_P) else None

    return values


def divergence(results: Results, arm: str) -> Sampled | None:
    """How far π moved in a policy phase: the mean over its mini-batches."""

    def moved(one: Outcome) -> float:
        return float(one.metric("policy/approx_kl")[:, 1].mean())

    return paired(results, "policy", arm, moved, "kl")


def _time(results: Results, arm: str) -> Sampled | None:
    return time_of(results, "policy", arm)


def cheaper(results: Results) -> Finding | None:
    """A run with one policy epoch takes less time than one with four."""
    few, many = _time(results, "E_π=1"), _time(results, "E_π=4")
    if few is None or many is None:
        return None
    ratio = quotient(few, many)
    return judged(ratio, f"E_π=1 takes {spoken(ratio, '.2f', ' ×')} the time of E_π=4", high=1)


def updates(results: Results) -> Finding | None:
    """The best E_V is 1, the best E_π and E_D add up to 4."""
    sweeps, known = SWEEPS | {"distil": _D}, []
    for name, arms in sweeps.items():
        scores = scores_of(results, name, arms)
        if scores is None:
            return None
        known += [scores[arm] for arm in arms]
    right = combined(lambda *all_scores: _right(sweeps, all_scores), *known)
    first = _first(sweeps, [one.value for one in known])
    names = ", ".join(arms[int(first[name])] for name, arms in sweeps.items())
    draws = right.draws
    share = "" if draws is None else f" (so in {draws.mean():.0%} of draws)"
    effect = f"best: {names}; 1 and 4: {bool(right.value)}{share}"
    one = judged(right, effect, 0.5)
    if one.status == "not held" and not _refuted(sweeps, known):
        return Finding("not tested", effect, "left open: no arm is surely worse than another")
    return one


def _refuted(sweeps: Mapping[str, Sequence[str]], known: Sequence[Sampled]) -> bool:
    """Whether E_V = 1, or every E_π and E_D that add up to 4, surely lose to another arm.

    The best of noisy arms is often another one: being first in few draws refutes nothing.
    """
    scores = dict(zip((arm for arms in sweeps.values() for arm in arms), known, strict=True))
    level = 1 - (1 - LEVEL) / sum(len(arms) - 1 for arms in sweeps.values())

    def beaten(arm: str) -> bool:
        (rivals,) = (arms for arms in sweeps.values() if arm in arms)
        gaps = [combined(percent, scores[arm], scores[o]) for o in rivals if o != arm]
        return any(span[1] <= 0 for gap in gaps if (span := gap.between(level)))

    pairs = [(p, d) for p in _P for d in _D if int(p[-1]) + int(d[-1]) == 4]
    return beaten("E_V=1") or all(beaten(p) or beaten(d) for p, d in pairs)


def _first(sweeps: Mapping[str, Sequence[str]], scores: Sequence[object]) -> dict[str, Any]:
    """Sweep → the number of its best arm, for one set of scores or many."""
    rest = iter([np.asarray(one, float) for one in scores])
    return {
        name: np.argmax([next(rest) for _ in arms], axis=0) for name, arms in sweeps.items()
    }


def _right(sweeps: Mapping[str, Sequence[str]], scores: Sequence[object]) -> object:
    first = _first(sweeps, scores)
    counts = {
        name: np.array([int(arm.partition("=")[2]) for arm in arms])[first[name]]
        for name, arms in sweeps.items()
    }
    both = counts["policy"] + counts["distil"]
    return ((counts["value"] == 1) & (both == 4)).astype(float)


def _passes() -> tuple[bool, str]:
    epochs = {phase.name: phase.sgd.epochs for phase in preset("tuned.dna").phases}
    both = epochs["policy"] + epochs["distil"], epochs["value"]
    return both == (4, 1), f"policy network {both[0]} passes, value network {both[1]}"


EXPERIMENT = Experiment(
    name="fig04",
    alias="epochs",
    title="DNA with other numbers of epochs",
    covers=("fig:dna_tuning",),
    studies=(_study("value", VALUE), _study("policy", POLICY), _study("distil", DISTIL)),
    checks={
        "C035": every(
            *(better("policy", few, many, WIDE) for few in _P[:2] for many in _P[2:]),
        ),
        "C036": best("policy", "E_π=2", _P),
        "C037": every(better("policy", "E_π=2", "E_π=3"), better("policy", "E_π=2", "E_π=4")),
        "C038": spread("value", _V, high=MARGIN),
        "C039": every(better("value", "E_V=1", "E_V=4"), spread("value", _V, high=MARGIN)),
        "C040": best("value", "E_V=1", _V),
        "C041": spread("distil", _D[1:], high=MARGIN),
        "C042": every(*(better("distil", arm, "E_D=0") for arm in _D[1:])),
        "C043": best("distil", "E_D=2", _D),
        "C044": trained(most_sensitive, *SWEEPS),
        "C045": noted(
            every(monotone(by_epochs(_time), 1, "policy"), trained(cheaper, "policy")),
            "wall-clock time",
        ),
        "C046": at_paper_scale("the claim is on 200 million frames", still_rising, "policy"),
        "C047": identity(_passes),
        "C058": every(better("policy", "E_π=2", "E_π=4"), better("value", "E_V=1", "E_V=4")),
        "C059": noted(
            monotone(by_epochs(divergence), 1, "policy"),
            "mean over the mini-batches of the phase, not after it",
        ),
        "C063": trained(updates, *SWEEPS),
    },
)
