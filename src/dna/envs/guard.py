"""An environment's own exceptions as one line that names it."""

from types import TracebackType
from typing import Protocol

from dna.common.errors import DnaError, EnvironmentFailure


class guard:
    """`with guard("CartPole-v1", agent):` around every call into an environment.

    A class, not a generator: it stands around every single step. Errors of ours pass; even a
    `sys.exit()` inside an environment becomes a failure of that environment.
    """

    def __init__(self, name: str, agent: int | None = None) -> None:
        self.name, self.agent = name, agent

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
    """The kind of error and its first line."""
    first = (str(error).splitlines() or [""])[0][:120]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


class Closable(Protocol):
    """Anything with `close`."""

    def close(self) -> object:
        """Let go."""


def close(env: Closable) -> None:
    """Close an environment; one that fails even at that must not spoil a finished run."""
    try:
        env.close()
    except Exception:
        return
