"""Check while training that a resume would be exact, by stepping restored environments.

At the first, second, fourth, eighth … checkpoint of a process, the snapshot of the environments
is kept and the next steps of the run are recorded. Then newly made environments continue
from the snapshot with the same actions, and must return the same results, also without what
the program has put into its caches. This happens in a
forked copy of the process, where files cannot be written, processes not started and connections
not opened: environments that try cannot be checked, and a resume of them may not be exact.
"""

import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dna.algorithm.rollout import Collector
from dna.common.errors import DnaError, Unsaveable
from dna.common.forked_copy import OutsideEffect, can_fork, in_forked_copy, refuse_effects
from dna.envs import Array, State, Step, VectorEnv
from dna.envs.factory import KeptEnv
from dna.envs.gym import GymVector, VectorAdapter
from dna.envs.state.caches import Caches, Inserted
from dna.envs.state.comparison import SHARING, difference
from dna.envs.state.program_state import ProgramState

#: Number of steps that are compared, and of agents where they share nothing.
STEPS = 64
AGENTS = 2
#: Seconds after which no further step is compared, and after which the copy is killed.
SECONDS = 10.0
PATIENCE = 20.0
#: Seconds that making the environments to restore into may take.
MAKING = 30.0
#: What the copy sends when it has made the environments to restore into.
MADE = b"."


@dataclass(frozen=True)
class _Seen:
    """One step of the run."""

    action: Array
    step: Step


class _Recording:
    """Environments whose first steps are remembered; everything else is passed on."""

    def __init__(self, env: VectorEnv, caches: Caches) -> None:
        self.env = env
        self.caches = caches
        self.cached = caches.contents()
        self.inserted: Inserted = {}
        self.seen: list[_Seen] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """Step the environments, and remember what they showed."""
        taken = action.copy()
        step = self.env.step(action, active)
        if len(self.seen) < STEPS:
            self.seen.append(_Seen(taken, _copied(step)))
            self.inserted = self.caches.inserted(self.cached)
        return step


def _copied(step: Step) -> Step:
    return Step(
        obs=step.obs.copy(),
        reward=step.reward.copy(),
        terminated=step.terminated.copy(),
        done=step.done.copy(),
        valid=step.valid.copy(),
        final_obs={agent: last.copy() for agent, last in step.final_obs.items()},
    )


class RestoreCheck:
    """The check of one process: `begin` at a checkpoint, `during` the next rollout.

    Either all ranks make the check or none does; each checks its own environments.
    """

    def __init__(
        self, collector: Collector, env_timeout: float | None = None, *, wanted: bool
    ) -> None:
        """`env_timeout`: seconds that a call into the environments may take."""
        env = collector.env
        self.patience = min(PATIENCE, env_timeout or PATIENCE)
        # The snapshots of other families, and of MuJoCo, have tests of their own.
        python = isinstance(env, VectorAdapter) or (
            isinstance(env, GymVector) and not env.mujoco
        )
        self.collector = collector
        self.wanted = wanted and python and can_fork()
        self.checkpoints = 0
        self.due = False
        self.state: State = {}
        self.reasons: list[str] = []
        first = env.envs[0] if isinstance(env, GymVector) else getattr(env, "env", None)
        self.program: ProgramState | None = None
        if wanted and python:
            one_thread = not getattr(env, "pool", ())
            make = partial(
                ProgramState, first, one_thread=one_thread, caches_checked=self.wanted
            )
            self.program = collector.call(make)

    def changed_program(self) -> list[str]:
        """Name the variables of classes and modules that have changed, but only once."""
        if self.program is None:
            return []
        names = self.collector.call(self.program.changed)
        if not names:
            return []
        self.program = None
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return [f"environments change {names[0]}{more}, which checkpoints do not hold"]

    def begin(self) -> None:
        """Keep a snapshot of the environments as they are at this checkpoint."""
        self.checkpoints += 1
        power_of_two = self.checkpoints & (self.checkpoints - 1) == 0
        if not self.wanted or not power_of_two:
            return
        self.due = True
        self.state = {}
        self.reasons = []
        try:
            self.state = self.collector.call(self.collector.env.snapshot)
        except Unsaveable as error:
            self.reasons = [str(error).partition(";")[0]]

    @contextmanager
    def during(self) -> Iterator[Callable[[], list[str]] | None]:
        """Record an iteration; yield a function for the differences, or None if not due."""
        if not self.due:
            yield None
            return
        env = self.collector.env
        recording: Any = _Recording(env, self.program.caches if self.program else Caches())
        self.collector.env = recording
        self.due = False
        try:
            yield lambda: self.reasons + compare(env, self.state, recording, self.patience)
        finally:
            self.collector.env = env


def compare(
    env: VectorEnv, state: State, run: _Recording, patience: float = PATIENCE
) -> list[str]:
    """Continue from a snapshot in a forked copy, and return what differs from the run."""
    if not state:
        return []

    def work(send: Callable[[bytes], None]) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)  # its other threads are not in the copy
        attempts = refuse_effects()
        reasons = []
        with suppress(OutsideEffect):
            run.caches.put_back()
            reasons = _differences(env, state, run, lambda: send(MADE))
        if attempts:  # also if the environments went on without
            reasons = [f"environments {attempts[0]}, and checkpoints do not hold that"]
        send(json.dumps(reasons).encode())

    begun = time.monotonic()
    sent = in_forked_copy(work, patience, start=MAKING)
    if not sent and time.monotonic() - begun < MAKING:
        return ["the process that makes environments a second time to check it died"]
    if not sent:
        return [f"environments were not made a second time within {MAKING:g} s to check it"]
    text = sent.removeprefix(MADE)
    if not text:
        return ["restored environments do not answer"]
    reasons: list[str] = json.loads(text)
    return reasons


def _differences(
    env: VectorEnv, state: State, run: _Recording, made: Callable[[], None]
) -> list[str]:
    """What differs; `made` is called once the environments to restore into exist."""
    try:
        other, agents = _alike(env, state, together=bool(run.inserted))
    except DnaError as error:
        return [f"environments cannot be made a second time to check it ({error})"]
    made()
    end = time.monotonic() + SECONDS
    if isinstance(env, GymVector) and agents < env.agents:
        state = env.first(state, agents)
    try:
        other.restore(state)
        if found := difference(state, other.snapshot()):
            return [f"environments restored from a checkpoint differ ({found})"]
    except DnaError as error:
        return [f"environments cannot be restored from a checkpoint ({error})"]
    try:
        for number, one in enumerate(run.seen, 1):
            step = other.step(one.action[:agents])
            if found := _differing(one.step, step, agents):
                return [f"restored environments continue differently ({found}, step {number})"]
            if time.monotonic() > end:
                return []
    except DnaError as error:
        return [f"restored environments fail ({error})"]
    if found := run.caches.lacking(run.inserted):
        return [f"what environments put into {found} cannot be computed again"]
    return []


def _alike(env: VectorEnv, state: State, *, together: bool) -> tuple[VectorEnv, int]:
    """Environments to restore into, and how many: new ones, or the copies of a user's own.

    `together`: all of them, because they use the same caches.
    """
    if not isinstance(env, GymVector) or _is_kept(env.envs[0]):
        return env, env.agents
    shared = together or (SHARING in state and state[SHARING].tobytes() != b"[]")
    agents = env.agents if shared else min(env.agents, AGENTS)
    return env.made_again(agents), agents


def _is_kept(env: Any) -> bool:
    """Whether an environment is the user's own instance, perhaps wrapped to add its masks."""
    return isinstance(env, KeptEnv) or isinstance(getattr(env, "env", None), KeptEnv)


def _differing(expected: Step, found: Step, agents: int) -> str | None:
    for name in ("obs", "reward", "terminated", "done", "valid"):
        one, other = getattr(expected, name)[:agents], getattr(found, name)
        wrong = np.flatnonzero(
            [a.tobytes() != b.tobytes() for a, b in zip(one, other, strict=True)]
        )
        if len(wrong):
            names = {"obs": "observation", "reward": "reward"}
            return f"{names.get(name, 'end of an episode')} of agent {wrong[0]}"
    for agent, last in expected.final_obs.items():
        if agent < agents and found.final_obs[agent].tobytes() != last.tobytes():
            return f"last observation of agent {agent}"
    return None
