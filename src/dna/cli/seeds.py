"""`dna train … --seeds N`: a run per seed, side by side, and what they come to."""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dna.common.console import say
from dna.config import Config
from dna.runs.text_progress import QUIET_FOR

if TYPE_CHECKING:
    from dna.runs.sweeps.task import Task


def train_seeds(
    config: Config,
    seeds: Mapping[int, Path],
    jobs: int | None,
    words: list[str],
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train every seed in its folder, show a line for each; then scores and their mean."""
    from dna.runs.sweeps.pool import check, run_all
    from dna.runs.sweeps.task import Local, Task, jobs_for

    tasks = [Task(config, seed, folder) for seed, folder in seeds.items()]
    with _table(config, quiet) as told:
        run_all(tasks, Local(jobs or jobs_for(config)), words, told)
    tell(summary(tasks), as_json)
    check(tasks)


def summary(tasks: Sequence["Task"]) -> dict[str, Any]:
    """The result of each run that is over, mean and standard error of their scores."""
    results = [result for task in tasks if (result := task.result()) is not None]
    scores = [r["score"] for r in results if r["score"] is not None]
    error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else None
    return {
        "runs": results,
        "mean": statistics.mean(scores) if scores else None,
        "standard_error": error,
    }


def tell(found: dict[str, Any], as_json: bool) -> None:
    """The end of the command."""
    if as_json:
        typer.echo(json.dumps(found))
        return
    for result in found["runs"]:
        score = "-" if result["score"] is None else f"{result['score']:.2f}"
        typer.echo(f"seed {result['seed']}: score {score}  {result['run']}")
    if found["standard_error"] is not None:
        count = len(found["runs"])
        mean, error = found["mean"], found["standard_error"]
        typer.echo(f"mean {mean:.2f} ± {error:.2f} (standard error over {count} seeds)")


@contextmanager
def _table(config: Config, quiet: bool) -> Iterator[Callable[[Sequence["Task"]], None]]:
    console = Console(stderr=True)
    if quiet:
        yield lambda tasks: None
        return
    if not console.is_terminal:
        yield _Lines(config)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda tasks: live.update(_rows(config, tasks))


class _Lines:
    """Where nobody can look at a table: a line of all seeds, now and then."""

    def __init__(self, config: Config) -> None:
        self.total, self.said, self.over = config.interactions, time.monotonic(), False

    def __call__(self, tasks: Sequence["Task"]) -> None:
        """Say how far every seed is."""
        over = all(task.state == "done" for task in tasks)
        if self.over or (time.monotonic() - self.said < QUIET_FOR and not over):
            return
        self.said, self.over = time.monotonic(), over
        say("  ".join(map(self._one, tasks)))

    def _one(self, task: "Task") -> str:
        if task.state != "running":
            return f"seed {task.seed} {task.state}"
        score = "" if task.score is None else f" score {task.score:.2f}"
        return f"seed {task.seed} {task.interactions / self.total:.0%}{score}"


def _rows(config: Config, tasks: Sequence["Task"]) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("seed", "state", "score"):
        table.add_column(name, justify="right" if name == "score" else "left")
    table.add_column(config.env.id or "", ratio=1)
    total = config.interactions
    for task in tasks:
        score = "-" if task.score is None else f"{task.score:.2f}"
        bar = ProgressBar(total=total, completed=min(task.interactions, total))
        table.add_row(str(task.seed), Text(task.state), score, bar)
    return table
