"""The study of a search, as Optuna keeps it: a journal of JSON lines, no pickle, no server.

The only module that knows Optuna. A trial depends on its number and on the trials before it,
not on how often the driver was killed: each is sampled with a seed of its own.
"""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dna.choices import Among, Axis
from dna.errors import MissingExtra
from dna.randomness import integer
from dna.storage import read, write

#: Percent of a run at which trials are compared, and how many of them go on: one in three.
RUNGS, KEEP = (10, 30, 90), 3
#: Optuna's words for the states of trials, and ours.
STATES = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "unfinished"}


class Study:
    """Trials that were asked for, and what was told about them."""

    def __init__(
        self, path: Path, axes: Mapping[str, Axis], seed: int, *, minimize: bool
    ) -> None:
        self.optuna, self.axes, self.seed = the_library(), dict(axes), seed
        self.study = self.optuna.create_study(
            study_name="dna",
            storage=_storage(self.optuna, path),
            direction="minimize" if minimize else "maximize",
            pruner=self.optuna.pruners.SuccessiveHalvingPruner(RUNGS[0], KEEP),
            load_if_exists=True,
        )
        self.distributions = {k: _distribution(self.optuna, a) for k, a in axes.items()}

    def trials(self) -> list[Any]:
        """All of them, by number."""
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found

    def state(self, frozen: Any) -> str:
        """In our words."""
        return STATES[frozen.state.name]

    def ask(self) -> Any:
        """One more trial."""
        self.study.sampler = self._sampler(len(self.trials()))
        return self.study.ask(self.distributions)

    def reopen(self, frozen: Any) -> Any:
        """A trial again; one that was cut off while it was asked for gets the rest."""
        self.study.sampler = self._sampler(frozen.number)
        trial = self.optuna.trial.Trial(self.study, frozen._trial_id)
        for key, distribution in self.distributions.items():
            trial._suggest(key, distribution)
        return trial

    def changes(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as settings; one of several values is kept as its JSON."""
        return {
            key: json.loads(params[key]) if isinstance(axis, Among) else params[key]
            for key, axis in self.axes.items()
            if key in params
        }

    def reported(self, trial: Any) -> set[int]:
        """Rungs at which it was compared already."""
        return set(self.trials()[trial.number].intermediate_values)

    def hopeless(self, trial: Any, percent: int, value: float) -> bool:
        """Whether it is not among the best third of those that came to this rung."""
        trial.report(value, percent)
        return bool(trial.should_prune())

    def finish(self, trial: Any, value: float) -> None:
        """It is over, and this is what it came to."""
        self.study.tell(trial, value)

    def prune(self, trial: Any) -> None:
        """It was stopped early."""
        self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)

    def fail(self, trial: Any, why: str) -> None:
        """It came to nothing."""
        trial.set_user_attr("why", why)
        self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def _sampler(self, number: int) -> Any:
        seed = integer(self.seed, "search", number) % 2**32
        return self.optuna.samplers.TPESampler(seed=seed)


def _distribution(optuna: Any, axis: Axis) -> Any:
    kinds = optuna.distributions
    if isinstance(axis, Among):
        return kinds.CategoricalDistribution([json.dumps(value) for value in axis.values])
    if axis.whole:
        return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.logarithmic)
    return kinds.FloatDistribution(axis.low, axis.high, log=axis.logarithmic)


class _Held:
    """Optuna's lock of the journal: the sweep's folder is locked already, by the kernel."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _storage(optuna: Any, path: Path) -> Any:
    """The journal; half a line at its end, of a driver that was killed, is cut off."""
    if path.is_file():
        data = read(path)
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            write(path, whole)
    journal = optuna.storages.journal
    return optuna.storages.JournalStorage(journal.JournalFileBackend(str(path), _Held()))


def the_library() -> Any:
    """Optuna, or one line that names the extra."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("--search optuna", "search") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna warns of what is new in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
