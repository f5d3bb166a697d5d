"""A search for good settings: Optuna proposes, runs answer, hopeless ones are stopped early.

The study is a file in the sweep's folder; whatever is not in it is in the runs'
own files. So a search whose driver was killed goes on: trials that were running get their
runs back, and the number of trials stays what was asked for.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common.errors import BadInput, MissingExtra, Preempted
from dna.common.lock import locked
from dna.common.randomness import integer
from dna.common.storage import read, write
from dna.config.search_space import Axis, Choice, Space
from dna.runs.sweeps.grid import Point, Sweep, Told, going_on, remember, row, write_results
from dna.runs.sweeps.objectives import Curve, average, read_curve
from dna.runs.sweeps.pool import Pool, drive
from dna.runs.sweeps.task import Task, threads_for

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
            key: json.loads(params[key]) if isinstance(axis, Choice) else params[key]
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
    if isinstance(axis, Choice):
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


@dataclass(frozen=True)
class Plan:
    """How long to search, and whether to stop what does badly."""

    trials: int
    prune: bool = True


def run_search(
    sweep: Sweep, space: Space, plan: Plan, pool: Pool, told: Told = lambda tasks: None
) -> dict[str, Any]:
    """Search to the last trial; returns what `results.json` holds."""
    the_library()  # before anything is written
    with locked(sweep.out), quiet():
        remember(sweep)
        path, minimize = sweep.out / "study.jsonl", sweep.objective.minimize
        study = Study(path, space.axes, sweep.seeds[0], minimize=minimize)
        search = Search(study, sweep, space, plan, pool)
        try:
            drive(pool, told, search.steer)
        except Preempted as error:
            raise going_on(error) from None
        finally:
            tree = write_results(sweep, search.rows())
        return tree


class Search:
    """The trials of a study and their runs."""

    def __init__(
        self, study: Study, sweep: Sweep, space: Space, plan: Plan, pool: Pool
    ) -> None:
        self.study, self.sweep, self.space, self.plan = study, sweep, space, plan
        self.pool = pool
        self.open: dict[int, tuple[Any, list[Task]]] = {}
        self.left: set[int] = set()  # stopped by others: the next command goes on with them
        for frozen in study.trials():
            if study.state(frozen) == "unfinished":  # its driver was killed
                self._begin(study.reopen(frozen))

    def steer(self) -> bool:
        """Look at the open trials, open others while there is room; whether more will come."""
        for number in list(self.open):
            self._judge(*self.open[number])
        slots = max(self.pool.place.room() // len(self.sweep.seeds), 1)
        while len(self.open) < slots and self._more():
            self._begin(self.study.ask())
        return bool(self.open) or self._more()

    def _more(self) -> bool:
        return not self.left and len(self.study.trials()) < self.plan.trials

    def rows(self) -> list[dict[str, Any]]:
        """A line of the results per trial."""
        return [self._row(frozen) for frozen in self.study.trials()]

    def _row(self, frozen: Any) -> dict[str, Any]:
        state, why = self.study.state(frozen), frozen.user_attrs.get("why")
        changes = self.study.changes(frozen.params)
        try:
            point = Point(changes, self.space.configure(changes), frozen.number)
        except BadInput:
            found: dict[str, Any] = {"trial": frozen.number, "changes": changes}
            found |= dict.fromkeys(("score", "standard_error", "value", "value_error"))
            found |= {"state": state, "seeds": 0, "runs": []}
        else:
            found = row(self.sweep, point, state)
        if state == "pruned":
            found |= self._cut_short(frozen)
        return found | ({"why": why} if why else {})

    def _cut_short(self, frozen: Any) -> dict[str, Any]:
        """A pruned trial counts by the score it was pruned for.

        Its runs may have come further before they heard of it, or even to their end.
        """
        percent, score = max(frozen.intermediate_values.items())
        sign = -1 if self.sweep.objective.minimize else 1
        empty = dict.fromkeys(("standard_error", "value", "value_error"))
        return empty | {"score": sign * score, "pruned_at": percent}

    def _begin(self, trial: Any) -> None:
        changes = self.study.changes(trial.params)
        try:
            point = Point(changes, self.space.configure(changes), trial.number)
        except BadInput as error:  # values that do not go together
            return self.study.fail(trial, str(error))
        wanted = point.tasks(self.sweep.seeds, self.sweep.runs)
        # Another trial may have come to the same settings: their runs are shared.
        usable = [t for t in self.pool.tasks if not t.unwanted and t.state != "failed"]
        known = {task.folder: task for task in usable}
        tasks = [known.get(task.folder, task) for task in wanted]
        for task in tasks:
            if task.folder not in known:
                if "--threads" not in self.pool.words:
                    task.options = threads_for(task.config, self.pool.place)
                self.pool.add(task)
        self.open[trial.number] = (trial, tasks)

    def _judge(self, trial: Any, tasks: Sequence[Task]) -> None:
        """Compare it where it has come to; is it pruned, failed or over?"""
        failed = [task for task in tasks if task.state == "failed"]
        if failed:
            self.study.fail(trial, f"seed {failed[0].seed}: {failed[0].words}")
            self._close(trial.number)
        elif self.plan.prune and self._hopeless(trial, tasks):
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

    def _hopeless(self, trial: Any, tasks: Sequence[Task]) -> bool:
        """Report the scores at the rungs that all seeds have passed; whether to prune.

        A run's score there is read from its file, so when we look does not matter.
        """
        known, sign = self.study.reported(trial), -1 if self.sweep.objective.minimize else 1
        for percent in RUNGS:
            if percent in known or not all(_passed(task, percent) for task in tasks):
                continue
            found = [_score_at(task, percent) for task in tasks]
            scores = [score for score in found if score is not None]
            if len(scores) < len(found):
                continue
            score = average(scores, self.sweep.average)
            if self.study.hopeless(trial, percent, sign * score) and not self._reached(score):
                return True
        return False

    def _reached(self, score: float) -> bool:
        """Whether it has what was asked for, and only how soon is left to be seen."""
        return self.sweep.objective.minimize and score >= self.sweep.objective.goal

    def _close(self, number: int) -> None:
        """Stop what no other trial wants."""
        _, tasks = self.open.pop(number)
        wanted = {id(task) for _, others in self.open.values() for task in others}
        for task in tasks:
            if id(task) not in wanted and task.state in ("waiting", "running"):
                self.pool.drop(task)


def _passed(task: Task, percent: int) -> bool:
    return 100 * task.interactions >= percent * task.config.interactions


def _score_at(task: Task, percent: int) -> float | None:
    """The first score at or after this part of the run."""
    curve: Curve = read_curve(task.folder, whole=False)
    wanted = percent * task.config.interactions / 100
    return next((score for x, score in curve if x >= wanted), None)
