"""Many runs at once: a process each, as many at a time as their place has room for.

A run is described by its folder, so a process is only told where to go on. Whatever was
finished stays finished, and whatever was not is continued by the same call. A process that is
killed is started again, and goes on from its run's newest checkpoint.
"""

import time
from collections.abc import Callable, Sequence

from dna.common.console import typed
from dna.common.errors import BadInput, DnaError, FolderBusy, Preempted
from dna.common.lock import check_unlocked
from dna.common.process import Ended, stop_signals
from dna.runs.folder import RunFolder
from dna.runs.sweeps.task import Place, Task, look

#: Seconds between looks.
PAUSE = 0.2
#: Deaths of a run's process, without progress between them, after which it has failed.
DEATHS = 5
#: Seconds to wait for a folder that another process holds, counted from its last progress:
#: the process of a driver that was killed has an iteration to finish and a state to save.
PATIENCE = 60.0


class Pool:
    """Tasks and the place where they run. Others may be added while it works."""

    def __init__(
        self, place: Place, words: Sequence[str] = (), patience: float = PATIENCE
    ) -> None:
        self.place, self.words, self.patience = place, list(words), patience
        self.tasks: list[Task] = []

    def add(self, task: Task) -> None:
        """One more; is it over already? Nothing is written before the run's turn comes."""
        folder = RunFolder(task.folder)
        folder.check_free()
        if folder.finished(task.config, task.seed) is not None:
            task.state = "done"
            look(task)
        self.tasks.append(task)

    @property
    def busy(self) -> bool:
        """Whether anything is left to do."""
        return any(task.state in ("waiting", "running") for task in self.tasks)

    def advance(self) -> None:
        """Look at what runs, start what there is room for."""
        for task in self._running():
            look(task)
            if task.handle is not None and (ended := task.handle.poll()) is not None:
                self._close(task, ended)
        waiting = [task for task in self.tasks if task.state == "waiting"]
        room = self.place.room() - len(self._running()) if waiting else 0
        for task in waiting:
            if room <= 0:
                break
            room -= self._start(task)

    def drop(self, task: Task) -> None:
        """Not wanted any more: it saves and ends, and is pruned, unless it is over."""
        task.unwanted = True
        if task.state == "running" and task.handle is not None:
            task.handle.stop()
        elif task.state == "waiting":
            task.state = "pruned"

    def stop(self) -> None:
        """Ask what still runs to save and end, and wait for it."""
        running = self._running()
        for task in running:
            assert task.handle is not None
            task.handle.stop()
        while running:
            for task in running:
                assert task.handle is not None
                if (ended := task.handle.poll()) is not None:
                    self._close(task, ended, last=True)
            running = self._running()
            time.sleep(PAUSE / 4)

    def _running(self) -> list[Task]:
        return [task for task in self.tasks if task.state == "running"]

    def _start(self, task: Task) -> bool:
        folder = RunFolder(task.folder)
        try:
            check_unlocked(task.folder)
        except FolderBusy as error:
            self._wait(task, str(error))
            return False
        if not folder.exists:
            folder.begin(task.config, task.seed)
            task.begun = True
        words = [*self.words, *task.options]
        task.handle, task.state = self.place.start(task.folder, words), "running"
        return True

    def _wait(self, task: Task, words: str) -> None:
        """Somebody else trains there: come back later, as long as it gets on."""
        before, now = task.interactions, time.monotonic()
        look(task)
        if task.busy_since is None or task.interactions != before:
            task.busy_since = now
        task.state = "waiting"
        if now - task.busy_since >= self.patience:
            task.state, task.code, task.words = "failed", FolderBusy.exit_code, words

    def _close(self, task: Task, ended: Ended, *, last: bool = False) -> None:
        """What becomes of a task whose process is over."""
        task.handle, task.code = None, ended.code
        look(task)
        if ended.code == 0:
            task.state = "done"
        elif task.unwanted:
            task.state = "pruned"
        elif last:
            task.state = "stopped"
        elif ended.code == FolderBusy.exit_code:
            self._wait(task, ended.words)
        elif self._again(task, ended.code):
            task.state = "waiting"
        else:
            task.state = "stopped" if ended.code == Preempted.exit_code else "failed"
            task.words = ended.words or ended.plainly()
            if ended.code == BadInput.exit_code and task.begun and not task.interactions:
                # As if it had never been asked for; other failures leave evidence.
                RunFolder(task.folder).clear()

    def _again(self, task: Task, code: int) -> bool:
        """Whether the run itself is not to blame, or not yet."""
        if code >= 0 and not (code == Preempted.exit_code and self.place.preempts):
            return False
        task.deaths = 1 if task.interactions > task.reached else task.deaths + 1
        task.reached = task.interactions
        return task.deaths < DEATHS


def run_all(
    tasks: Sequence[Task],
    place: Place,
    words: Sequence[str] = (),
    told: Callable[[Sequence[Task]], None] = lambda tasks: None,
) -> None:
    """Bring every task to its end; `words` are options of `dna resume` for each of them."""
    pool = Pool(place, words)
    for task in tasks:
        pool.add(task)
    drive(pool, told)


def drive(
    pool: Pool,
    told: Callable[[Sequence[Task]], None] = lambda tasks: None,
    steer: Callable[[], bool] = lambda: False,
) -> None:
    """Until nothing is left to do. `steer` may add and drop tasks; true: more will come."""
    with stop_signals() as stop:
        try:
            while steer() or pool.busy:
                if stop.asked:
                    break
                pool.advance()
                told(pool.tasks)
                time.sleep(PAUSE)
        finally:
            pool.stop()
            told(pool.tasks)
    if stop.asked:
        raise Preempted(f"stopped by {stop.asked}; the same command with --resume goes on")


def check(tasks: Sequence[Task]) -> None:
    """Nothing, or one line for what failed or was stopped, with that run's exit code."""
    for state in ("failed", "stopped"):
        of_these = [task for task in tasks if task.state == state]
        if of_these:
            first = of_these[0]
            where = f"{first.label} seed {first.seed}".strip()
            text = f"{len(of_these)} of {len(tasks)} runs {state}; {where}: "
            words = first.words or f"`dna resume {typed(first.folder)}` goes on"
            error = DnaError(text + words)
            error.exit_code = first.code if first.code > 0 else 1
            raise error
