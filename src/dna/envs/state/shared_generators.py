"""Do environments draw from the generators that a whole process shares?

`np.random` and `random` are seeded by nobody here and are no part of a snapshot: a run that
depends on them is not a function of its seed, and a resumed one is not exact.
"""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dna.envs.state.generators import plain

#: How many calls are watched: who draws from them mostly does so at once.
CALLS = 100


class SharedDice:
    """Looks at the process's generators before and after an environment's first calls."""

    def __init__(self, name: str) -> None:
        self.name, self.left = name, CALLS
        self.drawn: str | None = None  # whose generator it is

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around a call; costs nothing once the first ones are over."""
        if not self.left:
            yield
            return
        before = _states()
        yield
        self.left -= 1
        moved = [name for name, state in _states().items() if state != before[name]]
        if moved and self.drawn is None:
            self.drawn, self.left = moved[0], 0
            text = f"{self.name} draws from {moved[0]}, which no seed reaches: runs of the same"
            text += " seed differ, and a resumed one is not exact; draw from self.np_random"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    @property
    def inexact(self) -> str | None:
        """Why the environments cannot be saved, if that is why."""
        return f"{self.name}: the state of {self.drawn} cannot be saved" if self.drawn else None


def _states() -> dict[str, Any]:
    return {
        "np.random": plain(np.random.get_state(legacy=False)),  # noqa: NPY002 it is what we ask
        "random": random.getstate(),
    }
