"""Code of yours that is told how a run is going, and may stop it.

A callback is a callable, or an object with any of the methods of `METHODS`. It is given a
small frozen view of the run; when one returns False, the run saves itself at the end
of the iteration and stops, to be continued by `dna resume` or another `learn`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dna.algorithm.episodes import Scores
from dna.algorithm.rollout import Collector
from dna.common.errors import BadInput
from dna.common.process import Stop
from dna.config import Config
from dna.networks.networks import Networks
from dna.runs.metrics import Row, Sink

#: What is called when: behind a rollout, behind each phase, behind an iteration.
METHODS = ("on_rollout_end", "on_phase_end", "on_iteration_end")


@dataclass(frozen=True)
class State:
    """Where a run stands."""

    config: Config
    networks: Networks
    scores: Scores
    iteration: int
    interactions: int


class Running(Protocol):
    """What callbacks see of a run."""

    config: Config
    networks: Networks
    collector: Collector
    iteration: int


class Callbacks:
    """Calls them; a sink of the run, which is how they come into it."""

    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = [_methods(callback) for callback in callbacks]
        self.stopped = False  # whether one of them stopped the run
        self.networks: Networks | None = None  # of the run; they stay when it is over
        self._run: Running | None = None
        self._stop = Stop()

    def follow(self, run: Running, stop: Stop) -> "Callbacks":
        """From now on, speak of this run."""
        self._run, self._stop, self.stopped = run, stop, False
        self.networks = run.networks
        return self

    def start(self) -> None:
        """Nothing has happened yet."""

    def rollout_end(self) -> None:
        """A rollout has been collected; nothing was learned from it so far."""
        self._tell("on_rollout_end")

    def phase_end(self, phase: str, metrics: Mapping[str, float]) -> None:
        """A phase is over; its own metrics, without its name before them."""
        own = {
            name.removeprefix(f"{phase}/"): value
            for name, value in (metrics.items() if self.callbacks else ())
            if name.startswith(f"{phase}/")
        }
        self._tell("on_phase_end", phase, own)

    def write(self, row: Row) -> None:
        """An iteration is over."""
        self._tell("on_iteration_end", row)

    def close(self) -> None:
        """Let go of the run."""
        self._run = None

    def _tell(self, method: str, *what: Any) -> None:
        for methods in self.callbacks:
            if method in methods and _is_false(methods[method](self._state(), *what)):
                self.stopped = True
                self._stop.asked = self._stop.asked or "a callback"

    def _state(self) -> State:
        run = self._run
        assert run is not None, "a callback is told of a run that it follows"
        scores = run.collector.scores
        return State(run.config, run.networks, scores, run.iteration, scores.interactions)


def _is_false(answer: Any) -> bool:
    """False itself, of Python's or of numpy's comparisons; neither None nor 0."""
    return isinstance(answer, bool | np.bool_) and not answer


def among(sinks: Sequence[Sink], run: Running, stop: Stop) -> Callbacks:
    """The callbacks among a run's sinks; none, if there are none."""
    for sink in sinks:
        if isinstance(sink, Callbacks):
            return sink.follow(run, stop)
    return Callbacks()


def _methods(callback: Any) -> dict[str, Callable[..., Any]]:
    """Method → what is called; a plain callable is told of iterations."""
    found = {n: getattr(callback, n) for n in METHODS if callable(getattr(callback, n, None))}
    if not found and callable(callback):
        found = {"on_iteration_end": callback}
    if not found:
        raise BadInput(
            f"callback: a {type(callback).__name__} is no callable and has none of "
            f"{', '.join(METHODS)}"
        )
    return found
