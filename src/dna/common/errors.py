"""Errors that are shown to users: one line each, with the exit code of the command.

Everything the package raises on purpose derives from `DnaError`; the command line prints it
as one line on stderr. Anything else is a bug, whose traceback `--debug` shows.
"""

from collections.abc import Mapping
from typing import Any


class DnaError(Exception):
    """Something the user can fix; `exit_code` is what the command line returns."""

    exit_code = 1
    quiet: bool | None = None  # on several ranks: whether another rank prints it


class BadInput(DnaError):
    """A setting, name or combination that cannot work. Nothing has been written."""

    exit_code = 2


class UnknownKey(BadInput):
    """A dotted path that names no setting."""


class MissingExtra(BadInput):
    """An optional dependency that is not installed; the message names the extra."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'ppo-dna[{extra}]'")


class FolderBusy(DnaError):
    """Another process writes to the run's folder."""

    exit_code = 3


class NonFinite(DnaError):
    """A loss, gradient, reward or observation that is not a finite number.

    `tensors` is the batch in which it was found, for the run to write to disk.
    """

    exit_code = 4

    def __init__(self, text: str, tensors: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.tensors = dict(tensors or {})


class EnvironmentFailure(DnaError):
    """The environment raised an exception or violated Gymnasium's API while running."""

    exit_code = 5


class EnvironmentTimeout(EnvironmentFailure):
    """A call into an environment did not return in time (`How(env_timeout=…)`).

    The thread of the call was abandoned; what it called may still be running.
    """


class Unsaveable(EnvironmentFailure):
    """The state of an environment cannot be saved at this point, or at all."""


class StorageFailure(DnaError):
    """A file that cannot be written, read or trusted."""

    exit_code = 6


class RanksApart(DnaError):
    """The replicas on the ranks of a run differ, or a rank is gone."""

    exit_code = 7


class Preempted(DnaError):
    """Stopped by a signal at the end of an iteration, after saving; `dna resume` continues."""

    exit_code = 75


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, DnaError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 130
    return StorageFailure.exit_code if isinstance(error, OSError) else 1
