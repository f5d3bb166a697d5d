"""Failures of environments: their exceptions, non-finite numbers, state that cannot be saved.

Each becomes one line that names the environment and, where it is known, the agent.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dna.common.errors import DnaError, EnvironmentFailure, NonFinite, Unsaveable

Array = npt.NDArray[Any]


class guard:
    """Context manager around every call into an environment: `with guard("CartPole-v1", 3):`.

    A class, not a generator: it is entered at every single step. This package's own errors
    pass; even a `sys.exit()` inside an environment becomes a failure of that environment.
    """

    def __init__(self, name: str, agent: int | None = None) -> None:
        self.name = name
        self.agent = agent

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception | SystemExit) and not isinstance(error, DnaError):
            where = self.name if self.agent is None else f"{self.name}, agent {self.agent}"
            raise EnvironmentFailure(f"{where}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    first = (str(error).splitlines() or [""])[0][:120]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def check_finite(what: str, array: Array, agents: Sequence[int] | Array | None = None) -> None:
    """Stop at the first non-finite number, naming the agent."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        agent = int(rows[0] if agents is None else agents[rows[0]])
        text = f"the environment gave a {what} that is not finite (agent {agent})"
        raise NonFinite(text, {what.replace(" ", "_"): array})


def unsaveable(name: str, thing: Exception | str = "its state") -> Unsaveable:
    """The error for a snapshot that cannot be taken; `inexact` names those that never can."""
    return Unsaveable(f"{name}: {thing} cannot be saved; start new episodes instead")


class Closable(Protocol):
    """Anything with a `close` method."""

    def close(self) -> object:
        """Release all resources."""


def close(env: Closable) -> None:
    """Close an environment, ignoring its errors: they must not spoil a finished run."""
    try:
        env.close()
    except Exception:
        return
