"""Figure 4: DNA with other numbers of epochs (section 6.1).

E_V is swept first (E_π = E_D = 2), then E_π (E_V = 1, E_D = 2), then E_D, none included.
"""

from collections.abc import Sequence

import numpy as np

from dna.experiments.plan import Arm, Experiment, Study
from dna.experiments.results import Results
from dna.experiments.verdicts import (
    Finding,
    best,
    better,
    every,
    identity,
    monotone,
    small_spread,
    spread_of,
)
from dna.experiments.worlds import ATARI_3_VAL
from dna.presets import tuned

EPOCHS = (1, 2, 3, 4)
#: The sweeps of epochs came before that of λ: both are .95 (table 1).
BASE = {"returns.lambda_pi": 0.95}


def _arm(name: str, **epochs: int) -> Arm:
    changes = {f"{phase}.sgd.epochs": count for phase, count in epochs.items()}
    return Arm(name, "tuned.dna", changes=changes, paper=BASE)


def _study(name: str, arms: Sequence[Arm]) -> Study:
    return Study(name, tuple(arms), ATARI_3_VAL, seeds=3)


VALUE = [_arm(f"E_V={e}", policy=2, value=e, distil=2) for e in EPOCHS]
POLICY = [_arm(f"E_π={e}", policy=e, value=1, distil=2) for e in EPOCHS]
DISTIL = [_arm(f"E_D={e}", policy=2, value=1, distil=e) for e in (0, *EPOCHS)]
_V, _P = [arm.name for arm in VALUE], [arm.name for arm in POLICY]
_D = [arm.name for arm in DISTIL]


def most_sensitive(results: Results) -> Finding:
    """The range of scores is largest for E_π."""
    found = {
        name: spread_of(results, name, arms)
        for name, arms in (("policy", _P), ("value", _V), ("distil", _D[1:]))
    }
    known = {name: one for name, one in found.items() if one is not None}
    if len(known) < 3:
        return Finding("not tested", "", "runs are missing")
    effect = ", ".join(f"{name} {one:.1f} %" for name, one in known.items())
    first = max(known, key=lambda name: known[name]) == "policy"
    return Finding("held" if first else "not held", f"spread: {effect}")


def still_rising(results: Results) -> Finding:
    """The score of the chosen settings still grows in the last fifth."""
    grid, curves = results.total_curve("policy", "E_π=2")
    if not len(grid):
        return Finding("not tested", "", "runs are missing")
    last = slice(int(0.8 * len(grid)), None)
    slopes = [np.polyfit(grid[last] / grid[-1], curve[last], 1)[0] for curve in curves]
    good = float(np.mean(slopes)) > 0
    return Finding("held" if good else "not held", f"slope {np.mean(slopes):+.1f} per run")


def divergence(results: Results) -> tuple[list[float], list[float]] | None:
    """(E_π, how far π moved in a policy phase)."""
    moved = []
    for arm in _P:
        found = [one.metric("policy/approx_kl")[:, 1] for one in results.of("policy", arm)]
        if not found:
            return None
        moved.append(float(np.mean(np.concatenate(found))))
    return [float(e) for e in EPOCHS], moved


def _passes() -> tuple[bool, str]:
    epochs = {phase.name: phase.sgd.epochs for phase in tuned.DNA.phases}
    both = epochs["policy"] + epochs["distil"], epochs["value"]
    return both == (4, 1), f"policy network {both[0]} passes, value network {both[1]}"


def _cheaper() -> tuple[bool, str]:
    steps = [e * 16_384 // 2048 for e in EPOCHS]
    return steps == sorted(steps), f"policy steps of an iteration: {steps}"


EXPERIMENT = Experiment(
    name="fig04",
    alias="epochs",
    title="DNA with other numbers of epochs",
    covers=("fig:dna_tuning",),
    studies=(_study("value", VALUE), _study("policy", POLICY), _study("distil", DISTIL)),
    checks={
        "C035": every(better("policy", "E_π=2", "E_π=3"), better("policy", "E_π=1", "E_π=3")),
        "C036": best("policy", "E_π=2", _P),
        "C037": every(better("policy", "E_π=2", "E_π=3"), better("policy", "E_π=2", "E_π=4")),
        "C038": small_spread("value", _V),
        "C039": every(better("value", "E_V=1", "E_V=4"), small_spread("value", _V)),
        "C040": best("value", "E_V=1", _V),
        "C041": small_spread("distil", _D[1:]),
        "C042": every(*(better("distil", arm, "E_D=0") for arm in _D[1:])),
        "C043": best("distil", "E_D=2", _D),
        "C044": most_sensitive,
        "C045": identity(_cheaper),
        "C046": still_rising,
        "C047": identity(_passes),
        "C058": every(better("policy", "E_π=2", "E_π=4"), better("value", "E_V=1", "E_V=4")),
        "C059": monotone(divergence, 1),
        "C063": every(best("value", "E_V=1", _V), identity(_passes)),
    },
)
