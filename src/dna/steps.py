"""Which step each phase gets: by torch's operators, or compiled where that pays."""

import functools
import math
import os
import shlex
import shutil
import warnings
from collections.abc import Mapping
from typing import Literal

from dna.clock import Clock
from dna.compiled import Compiled
from dna.config import AnyPhase, Config
from dna.flat import FlatWeights
from dna.networks import Networks
from dna.optimise import Eager, Step
from dna.phases import is_mean_over_rows

#: A network's compilation takes about twenty seconds, which a step gives back by a
#: millisecond at a time.
WORTHWHILE = 40_000
#: Mini-batches in one compiled call: more are hardly faster, but take longer to compile.
MOST_STEPS = 4
#: Rows of images whose activations stay in the caches and in memory that is mapped already.
MICRO = 512
#: Weights beyond which arithmetic, not dispatch, takes the time.
SMALL = 200_000


def make_steps(
    config: Config,
    networks: Networks,
    weights: FlatWeights,
    compile: Literal["auto", "off", "on"] = "auto",
    clock: Clock | None = None,
) -> dict[str, Step]:
    """One step, with an Adam of its own, for each phase (section 4.4)."""
    able = functools.cache(_able)  # asked for every phase, said once
    steps: dict[str, Step] = {}
    for phase in config.phases:
        if compile == "on" or (compile == "auto" and pays(config, phase, networks) and able()):
            whole = config.batch * _rollouts(phase) // phase.sgd.minibatch
            walked = steps_per_call(whole)
            steps[phase.name] = Compiled(phase, networks, weights, walked, clock)
        else:
            micro = MICRO if networks.obs.images else None
            steps[phase.name] = Eager(phase, networks, weights, micro, clock)
    return steps


def compiled_phases(steps: Mapping[str, Step]) -> list[str]:
    """Those whose steps are compiled, or are going to be."""
    return [n for n, step in steps.items() if isinstance(step, Compiled) and not step.failed]


def pays(config: Config, phase: AnyPhase, networks: Networks) -> bool:
    """Whether a run of this length is over sooner with a compiled step."""
    small = (
        networks.obs.kind == "vector" and sum(p.numel() for p in networks.parameters()) < SMALL
    )
    iterations = math.ceil(config.interactions / config.batch) // phase.every
    steps = config.batch * _rollouts(phase) // phase.sgd.minibatch * phase.sgd.epochs
    known = is_mean_over_rows.dispatch(type(phase)) is not is_mean_over_rows.dispatch(object)
    return small and known and iterations * steps >= WORTHWHILE


def _able() -> bool:
    found = has_compiler()
    if not found:
        text = "no C++ compiler (g++ or clang++): going on without compiled steps"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return found


def _rollouts(phase: AnyPhase) -> int:
    return phase.every if phase.reads == "replay" else 1


def steps_per_call(minibatches: int) -> int:
    """As many steps as fit, so that every call of an epoch is alike."""
    return max(n for n in range(1, MOST_STEPS + 1) if minibatches % n == 0)


def has_compiler() -> bool:
    """Whether the C++ compiler that torch would call is there."""
    wanted = shlex.split(os.environ.get("CXX", ""))[:1]
    return any(shutil.which(name) for name in wanted or ["g++", "clang++"])
