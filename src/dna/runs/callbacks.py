"""User callbacks, which follow a run and may stop it.

A callback is a callable, or an object with any of the methods named in `METHODS`. It gets a
small frozen view of the run; when one returns False, the run saves a checkpoint at the end of
the iteration and stops. `dna resume` or another `learn` continues it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dna.algorithm.episodes import Scores
from dna.algorithm.rollout import Collector
from dna.common.errors import BadInput
from dna.common.messages import refuse_sb3_callback
from dna.common.process import Stop
from dna.config import Config
from dna.networks.networks import Networks
from dna.runs.metrics import Row, Sink

#: Called after a rollout, after each phase, after an iteration.
METHODS = ("on_rollout_end", "on_phase_end", "on_iteration_end")


@dataclass(frozen=True)
class State:
    """The view of a run that a callback gets."""

    config: Config
    networks: Networks
    scores: Scores
    iteration: int
    interactions: int


class Running(Protocol):
    """What callbacks need from a run."""

    config: Config
    networks: Networks
    collector: Collector
    iteration: int


class Callbacks:
    """Calls the callbacks of a run; passed to it as one of its sinks."""

    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = [_methods(callback) for callback in callbacks]
        self.stopped = False  # whether one of them stopped the run
        self.networks: Networks | None = None  # of the run; kept after its end
        self._run: Running | None = None
        self._stop = Stop()

    def follow(self, run: Running, stop: Stop) -> "Callbacks":
        """Report on this run from now on."""
        self._run = run
        self._stop = stop
        self.stopped = False
        self.networks = run.networks
        return self

    def start(self) -> None:
        """Do nothing: no iteration has ended yet."""

    def rollout_end(self) -> None:
        """Call `on_rollout_end`: a rollout was collected but not yet learned from."""
        self._call("on_rollout_end")

    def phase_end(self, phase: str, metrics: Mapping[str, float]) -> None:
        """Call `on_phase_end` with the phase's metrics, without its name as a prefix."""
        own = {
            name.removeprefix(f"{phase}/"): value
            for name, value in (metrics.items() if self.callbacks else ())
            if name.startswith(f"{phase}/")
        }
        self._call("on_phase_end", phase, own)

    def write(self, row: Row) -> None:
        """Call `on_iteration_end`."""
        self._call("on_iteration_end", row)

    def close(self) -> None:
        """Release the run."""
        self._run = None

    def _call(self, method: str, *arguments: Any) -> None:
        for methods in self.callbacks:
            if method in methods and _is_false(methods[method](self._state(), *arguments)):
                self.stopped = True
                self._stop.asked = self._stop.asked or "a callback"

    def _state(self) -> State:
        run = self._run
        assert run is not None, "callbacks are called only while they follow a run"
        scores = run.collector.scores
        return State(run.config, run.networks, scores, run.iteration, scores.interactions)


def _is_false(answer: Any) -> bool:
    """Whether an answer is False (Python's or NumPy's), as opposed to None or 0."""
    return isinstance(answer, bool | np.bool_) and not answer


def callbacks_in(sinks: Sequence[Sink], run: Running, stop: Stop) -> Callbacks:
    """Find the callbacks among a run's sinks; empty callbacks if there are none."""
    for sink in sinks:
        if isinstance(sink, Callbacks):
            return sink.follow(run, stop)
    return Callbacks()


def _methods(callback: Any) -> dict[str, Callable[..., Any]]:
    """Map method names to functions; a plain callable is called after iterations."""
    refuse_sb3_callback(callback)
    found = {n: getattr(callback, n) for n in METHODS if callable(getattr(callback, n, None))}
    if found and isinstance(callback, type):
        name = callback.__name__
        raise BadInput(f"callback: {name:.60} is a class; pass {name:.60}()")
    if not found and callable(callback):
        found = {"on_iteration_end": callback}
    if not found:
        raise BadInput(
            f"callback: {type(callback).__name__} is not callable and has none of "
            f"{', '.join(METHODS)}"
        )
    return found
