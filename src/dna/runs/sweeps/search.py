"""Search for good settings with Optuna, and stop unpromising trials early.

The study is a file in the folder of the sweep; everything else is in the files of its runs. A
search whose driver was killed can therefore be continued: trials that were running get their
runs back, and the number of trials stays as requested.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dna.common.errors import BadInput, MissingExtra, Preempted
from dna.common.lock import locked
from dna.common.randomness import integer
from dna.common.storage import read, write
from dna.config.search_space import Axis, Choice, Space
from dna.runs.sweeps.grid import (
    Point,
    Report,
    Sweep,
    average,
    read_curve,
    remember,
    resumable,
    row,
    write_results,
)
from dna.runs.sweeps.pool import Pool, Task, drive, threads_for

#: Percent of a run at which trials are compared.
RUNGS = (10, 30, 90)
#: One in this many trials continues after a comparison.
KEEP = 3
#: Largest journal of a study that is read.
JOURNAL_LIMIT = 2**28
#: Optuna's names of the states of trials → those in the results.
STATES = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "unfinished"}


class OptunaStudy:
    """The trials of a search, in Optuna's journal file."""

    def __init__(
        self, path: Path, axes: Mapping[str, Axis], seed: int, *, minimize: bool
    ) -> None:
        self.optuna = import_optuna()
        self.axes = dict(axes)
        self.seed = seed
        self.study = self.optuna.create_study(
            study_name="dna",
            storage=_storage(self.optuna, path),
            direction="minimize" if minimize else "maximize",
            pruner=self.optuna.pruners.SuccessiveHalvingPruner(RUNGS[0], KEEP),
            load_if_exists=True,
        )
        self.distributions = {k: _distribution(self.optuna, a) for k, a in axes.items()}

    def trials(self) -> list[Any]:
        """Return all trials, by number."""
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found

    def state(self, frozen: Any) -> str:
        """Return the state of a trial as it is named in the results."""
        return STATES[frozen.state.name]

    def ask(self) -> Any:
        """Start another trial."""
        self.study.sampler = self._sampler(len(self.trials()))
        return self.study.ask(self.distributions)

    def reopen(self, frozen: Any) -> Any:
        """Continue a trial; one that was interrupted while starting gets its missing values."""
        self.study.sampler = self._sampler(frozen.number)
        trial = self.optuna.trial.Trial(self.study, frozen._trial_id)
        for key, distribution in self.distributions.items():
            trial._suggest(key, distribution)
        return trial

    def changes(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Convert parameters to settings; choices are stored as JSON."""
        return {
            key: json.loads(params[key]) if isinstance(axis, Choice) else params[key]
            for key, axis in self.axes.items()
            if key in params
        }

    def reported(self, trial: Any) -> set[int]:
        """Return the rungs at which a trial was compared before."""
        return set(self.trials()[trial.number].intermediate_values)

    def should_prune(self, trial: Any, percent: int, value: float) -> bool:
        """Whether a trial is not in the best third of those that have reached this rung."""
        trial.report(value, percent)
        return bool(trial.should_prune())

    def finish(self, trial: Any, value: float) -> None:
        """Finish a trial with its value."""
        self.study.tell(trial, value)

    def prune(self, trial: Any) -> None:
        """End a trial early."""
        self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)

    def fail(self, trial: Any, why: str) -> None:
        """End a trial without a value."""
        trial.set_user_attr("why", why)
        self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def _sampler(self, number: int) -> Any:
        seed = integer(self.seed, "search", number) % 2**32
        return self.optuna.samplers.TPESampler(seed=seed)


def _distribution(optuna: Any, axis: Axis) -> Any:
    kinds = optuna.distributions
    if isinstance(axis, Choice):
        return kinds.CategoricalDistribution([json.dumps(value) for value in axis.values])
    if axis.whole:
        return kinds.IntDistribution(int(axis.low), int(axis.high), log=axis.logarithmic)
    return kinds.FloatDistribution(axis.low, axis.high, log=axis.logarithmic)


class _NoLock:
    """Stands in for Optuna's journal lock: the folder of the sweep is locked already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _storage(optuna: Any, path: Path) -> Any:
    """Open the journal; remove an incomplete last line left by a driver that was killed."""
    if path.is_file():
        data = read(path, JOURNAL_LIMIT)
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            write(path, whole)
    journal = optuna.storages.journal
    return optuna.storages.JournalStorage(journal.JournalFileBackend(str(path), _NoLock()))


def import_optuna() -> Any:
    """Import Optuna, or name the extra that is missing."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("--search optuna", "search") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def run_search(
    sweep: Sweep,
    space: Space,
    pool: Pool,
    report: Report = lambda tasks: None,
    *,
    trials: int,
    prune: bool = True,
) -> dict[str, Any]:
    """Search to the last trial; returns the content of `results.json`."""
    import_optuna()  # before anything is written
    # Optuna warns about its experimental features.
    with locked(sweep.out), warnings.catch_warnings(action="ignore"):
        remember(sweep)
        path = sweep.out / "study.jsonl"
        minimize = sweep.objective.minimize
        study = OptunaStudy(path, space.axes, sweep.seeds[0], minimize=minimize)
        search = Search(study, sweep, space, pool, trials=trials, prune=prune)
        try:
            drive(pool, report, search.steer)
        except Preempted as error:
            raise resumable(error) from None
        finally:
            tree = write_results(sweep, search.rows())
        return tree


class Search:
    """Runs the trials of a study."""

    def __init__(
        self,
        study: OptunaStudy,
        sweep: Sweep,
        space: Space,
        pool: Pool,
        *,
        trials: int,
        prune: bool,
    ) -> None:
        self.study = study
        self.sweep = sweep
        self.space = space
        self.pool = pool
        self.trials = trials  # to ask for, in all
        self.prune = prune
        self.open: dict[int, tuple[Any, list[Task]]] = {}
        self.left: set[int] = set()  # stopped by others: the next command continues them
        for frozen in study.trials():
            if study.state(frozen) == "unfinished":  # its driver was killed
                self._begin(study.reopen(frozen))

    def steer(self) -> bool:
        """Judge open trials and open others if there is room; return whether more will come."""
        for number in list(self.open):
            self._judge(*self.open[number])
        slots = max(self.pool.place.room() // len(self.sweep.seeds), 1)
        while len(self.open) < slots and self._more():
            self._begin(self.study.ask())
        return bool(self.open) or self._more()

    def _more(self) -> bool:
        return not self.left and len(self.study.trials()) < self.trials

    def rows(self) -> list[dict[str, Any]]:
        """Return the results of each trial."""
        return [self._row(frozen) for frozen in self.study.trials()]

    def _row(self, frozen: Any) -> dict[str, Any]:
        state = self.study.state(frozen)
        why = frozen.user_attrs.get("why")
        changes = self.study.changes(frozen.params)
        try:
            point = Point(changes, self.space.configure(changes), frozen.number)
        except BadInput:
            found: dict[str, Any] = {
                "trial": frozen.number,
                "changes": changes,
                "score": None,
                "standard_error": None,
                "value": None,
                "value_error": None,
                "state": state,
                "seeds": 0,
                "runs": [],
            }
        else:
            found = row(self.sweep, point, state)
        if state == "pruned":
            found |= self._pruned(frozen)
        if why:
            found["why"] = why
        return found

    def _pruned(self, frozen: Any) -> dict[str, Any]:
        """Return the score for which a trial was pruned.

        Its runs may have trained on before they were stopped, even to their end.
        """
        percent, score = max(frozen.intermediate_values.items())
        sign = -1 if self.sweep.objective.minimize else 1
        empty = dict.fromkeys(("standard_error", "value", "value_error"))
        return empty | {"score": sign * score, "pruned_at": percent}

    def _begin(self, trial: Any) -> None:
        changes = self.study.changes(trial.params)
        try:
            point = Point(changes, self.space.configure(changes), trial.number)
        except BadInput as error:  # values that cannot be combined
            return self.study.fail(trial, str(error))
        wanted = point.tasks(self.sweep.seeds, self.sweep.runs)
        # Another trial may have the same settings: they share their runs.
        usable = [t for t in self.pool.tasks if not t.unwanted and t.state != "failed"]
        known = {task.folder: task for task in usable}
        tasks = [known.get(task.folder, task) for task in wanted]
        for task in tasks:
            if task.folder not in known:
                if "--threads" not in self.pool.options:
                    task.options = threads_for(task.config, self.pool.place)
                self.pool.add(task)
        self.open[trial.number] = (trial, tasks)

    def _judge(self, trial: Any, tasks: Sequence[Task]) -> None:
        """Close a trial that has failed, finished or been stopped, or that is to be pruned."""
        failed = [task for task in tasks if task.state == "failed"]
        if failed:
            self.study.fail(trial, f"seed {failed[0].seed}: {failed[0].message}")
            self._close(trial.number)
        elif self.prune and self._should_prune(trial, tasks):
            self.study.prune(trial)
            self._close(trial.number)
        elif all(task.state == "done" for task in tasks):
            self._finish(trial, tasks)
            self._close(trial.number)
        elif any(task.state == "stopped" for task in tasks):
            self.left.add(trial.number)
            self._close(trial.number)

    def _finish(self, trial: Any, tasks: Sequence[Task]) -> None:
        value = self.sweep.objective.value
        found = [value(read_curve(t.folder), t.config.interactions) for t in tasks]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            self.study.fail(trial, "no episode has ended")
        else:
            self.study.finish(trial, average(values, self.sweep.average))

    def _should_prune(self, trial: Any, tasks: Sequence[Task]) -> bool:
        """Report scores at the rungs that all seeds have passed; return whether to prune.

        The scores are read from the metrics of the runs, so the time of the call is irrelevant.
        """
        known = self.study.reported(trial)
        sign = -1 if self.sweep.objective.minimize else 1
        for percent in RUNGS:
            if percent in known or not all(_passed(task, percent) for task in tasks):
                continue
            found = [_score_at(task, percent) for task in tasks]
            scores = [score for score in found if score is not None]
            if len(scores) < len(found):
                continue
            score = average(scores, self.sweep.average)
            prune = self.study.should_prune(trial, percent, sign * score)
            if prune and not self._reached(score):
                return True
        return False

    def _reached(self, score: float) -> bool:
        """Whether a score has reached the goal, so that only the time it took matters."""
        return self.sweep.objective.minimize and score >= self.sweep.objective.goal

    def _close(self, number: int) -> None:
        """Close a trial, and stop those of its runs that no other trial needs."""
        _, tasks = self.open.pop(number)
        wanted = {id(task) for _, others in self.open.values() for task in others}
        for task in tasks:
            if id(task) not in wanted and task.state in ("waiting", "running"):
                self.pool.drop(task)


def _passed(task: Task, percent: int) -> bool:
    return 100 * task.interactions >= percent * task.config.interactions


def _score_at(task: Task, percent: int) -> float | None:
    """Return the first score at or after this part of the run."""
    curve = read_curve(task.folder, whole=False)
    wanted = percent * task.config.interactions / 100
    return next((score for x, score in curve if x >= wanted), None)
