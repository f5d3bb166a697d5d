"""An environment's own exceptions as one line that names it."""

from types import TracebackType

from dna.errors import EnvironmentFailure


class guard:
    """`with guard("CartPole-v1", agent):` around every call into an environment.

    A class, not a generator: it stands around every single step.
    """

    def __init__(self, name: str, agent: int | None = None) -> None:
        self.name, self.agent = name, agent

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            where = self.name if self.agent is None else f"{self.name}, agent {self.agent}"
            raise EnvironmentFailure(f"{where}: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """The kind of error and its first line."""
    first = (str(error).splitlines() or [""])[0][:120]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
