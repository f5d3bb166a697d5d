"""The errors a user can meet: one line each, and the exit code of the command that meets it.

Everything the package raises on purpose derives from `DnaError`; the command line prints it
as one line on stderr. Anything else is a bug and keeps its traceback behind `--debug`.
"""

from collections.abc import Mapping
from typing import Any


class DnaError(Exception):
    """Something the user can mend; `exit_code` is what the command line returns."""

    exit_code = 1
    quiet: bool | None = None  # of several ranks: whether another one says it


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

    `tensors` is the batch it was found in, for the run to write down.
    """

    exit_code = 4

    def __init__(self, text: str, tensors: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.tensors = dict(tensors or {})


class EnvironmentFailure(DnaError):
    """The environment raised, or broke the Gymnasium contract, while running."""

    exit_code = 5


class Unsaveable(EnvironmentFailure):
    """The state of an environment cannot be written down, at this moment or ever."""


class StorageFailure(DnaError):
    """A file that cannot be written, read or trusted."""

    exit_code = 6


class RanksApart(DnaError):
    """The ranks of a run are no longer alike, or one of them is gone."""

    exit_code = 7


class Preempted(DnaError):
    """Stopped by a signal at an iteration's end, after saving; `dna resume` goes on."""

    exit_code = 75
