"""The environment that all patterns extend, and the list of patterns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Hidden(gymnasium.Env[Any, Any]):
    """Short episodes in which observations and rewards are functions of a hidden state.

    A subclass keeps its state in one unusual way: `begin` is called by every reset, `advance`
    moves the state on by one step and returns a number that depends on it.
    """

    metadata: ClassVar[dict[str, Any]] = {}
    iterations: ClassVar[int] = 8  # of a run
    observation_space: spaces.Space[Any] = spaces.Box(-1, 2, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def begin(self) -> None:
        """Start an episode."""

    def advance(self, action: Any) -> float:
        """Move the hidden state on, and return a number that depends on it."""
        raise NotImplementedError

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.begin()
        return np.array([0.5, 0.0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        value = folded(self.advance(action))
        self.steps += 1
        seen = np.array([value, self.steps / 10], np.float32)
        return seen, value, value > 0.93, self.steps >= 9, {}


def folded(value: float) -> float:
    """Map a number to [0, 1) such that neighboring integers are far apart."""
    return float((float(value) * 0.6180339887498949 + 0.1) % 1.0)


def mixed(state: int, change: int = 0) -> int:
    """Return the next number of a linear congruential sequence."""
    return (int(state) * 1103515245 + 12345 + int(change)) % 2**31


@dataclass(frozen=True)
class Pattern:
    """A way to keep state; `build` returns what is passed to an agent as its environment."""

    name: str
    what: str
    build: Callable[[], Any]
    iterations: int


PATTERNS: dict[str, Pattern] = {}


def pattern(made: Any) -> Any:
    """Register an environment class, or a function that makes one environment."""
    return _register(made, lambda: made)


def built(make: Callable[[], Any]) -> Callable[[], Any]:
    """Register a function that returns the environment argument of an agent."""
    return _register(make, make)


def _register(made: Any, build: Callable[[], Any]) -> Any:
    name = made.__name__
    assert name not in PATTERNS, name
    iterations = getattr(made, "iterations", Hidden.iterations)
    PATTERNS[name] = Pattern(name, (made.__doc__ or "").strip(), build, iterations)
    return made
