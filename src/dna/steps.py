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
from dna.errors import BadInput
from dna.flat import FlatWeights
from dna.launch import check_divides
from dna.networks import Networks
from dna.optimise import Eager, Step
from dna.phases import is_mean_over_rows
from dna.world import SOLO, World

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
    world: World = SOLO,
) -> dict[str, Step]:
    """One step, with an Adam of its own, for each phase (section 4.4)."""
    able = functools.cache(_able)  # asked for every phase, said once
    if world.size > 1:
        able = functools.cache(_not_with_ranks)
    steps: dict[str, Step] = {}
    for phase in config.phases:
        if compile == "on" or (compile == "auto" and pays(config, phase, networks) and able()):
            whole = config.batch * _rollouts(phase) // phase.sgd.minibatch
            walked = steps_per_call(whole)
            steps[phase.name] = Compiled(phase, networks, weights, walked, clock)
        else:
            micro = MICRO if networks.obs.images else None
            steps[phase.name] = Eager(phase, networks, weights, micro, clock, world)
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


def _not_with_ranks() -> bool:
    text = "steps are not compiled on several ranks: going on without"
    warnings.warn(text, RuntimeWarning, stacklevel=3)
    return False


def check_ranks(config: Config, compile: str, world: World) -> None:
    """Refuse what several ranks cannot do exactly as one."""
    if world.size == 1:
        return
    check_divides(config.agents, world.size)
    for phase in config.phases:
        if not is_mean_over_rows(phase):
            key = f"{phase.name}.normalize_advantage: 'minibatch'"
            what = key if hasattr(phase, "normalize_advantage") else f"{phase.name}: its loss"
            raise BadInput(f"{what} is no mean over rows, which {world.size} ranks need")
    if config.noise is not None:
        raise BadInput(f"noise: is measured on one rank, not on {world.size}; leave it out")
    if compile == "on":
        raise BadInput(f"--compile on: is for one rank, not for {world.size}; leave it out")


def _rollouts(phase: AnyPhase) -> int:
    return phase.every if phase.reads == "replay" else 1


def steps_per_call(minibatches: int) -> int:
    """As many steps as fit, so that every call of an epoch is alike."""
    return max(n for n in range(1, MOST_STEPS + 1) if minibatches % n == 0)


def has_compiler() -> bool:
    """Whether the C++ compiler that torch would call is there."""
    wanted = shlex.split(os.environ.get("CXX", ""))[:1]
    return any(shutil.which(name) for name in wanted or ["g++", "clang++"])
