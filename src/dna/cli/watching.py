"""Progress of many runs: a table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dna.common.console import say
from dna.runs.text_progress import QUIET_FOR

if TYPE_CHECKING:
    from dna.runs.sweeps.task import Task

#: Rows of the table: what is beyond them is told in its last line.
ROWS = 24
#: Of tables in files.
WIDTH = 240


@contextmanager
def watching(quiet: bool) -> Iterator[Callable[[Sequence["Task"]], None]]:
    """Who is told how all runs stand."""
    console = Console(stderr=True)
    if quiet:
        yield lambda tasks: None
    elif not console.is_terminal:
        yield Lines()
    else:
        with Live(console=console, refresh_per_second=4) as live:
            yield lambda tasks: live.update(progress(tasks))


def counts(tasks: Sequence["Task"]) -> str:
    """`3 of 12 runs finished, 2 running, 1 pruned`."""
    over = sum(task.state == "done" for task in tasks)
    words = [f"{over} of {len(tasks)} runs finished"]
    for state in ("running", "pruned", "stopped", "failed"):
        count = sum(task.state == state for task in tasks)
        words += [f"{count} {state}"] if count else []
    return ", ".join(words)


class Lines:
    """Where nobody can look at a table: a line when a run has ended, but not too many."""

    def __init__(self) -> None:
        self.said, self.at = "", float("-inf")

    def __call__(self, tasks: Sequence["Task"]) -> None:
        """Say how many are finished."""
        text, busy = counts(tasks), any(t.state in ("waiting", "running") for t in tasks)
        if text == self.said or (busy and time.monotonic() - self.at < QUIET_FOR):
            return
        self.said, self.at = text, time.monotonic()
        say(text)


def progress(tasks: Sequence["Task"]) -> Table:
    """What runs now, and how many are over."""
    table = Table(box=None, header_style="bold", caption=counts(tasks), caption_justify="left")
    for name in ("run", "seed", "score"):
        table.add_column(name, justify="left" if name == "run" else "right")
    table.add_column("", ratio=1)
    for task in [task for task in tasks if task.state == "running"][:ROWS]:
        total = task.config.interactions
        score = "-" if task.score is None else f"{task.score:.2f}"
        bar = ProgressBar(total=total, completed=min(task.interactions, total))
        table.add_row(Text(task.label), str(task.seed), score, bar)
    return table


def print_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """A table of results; names and values are never cut short."""
    table = Table(box=None, header_style="bold")
    for name in rows[0] if rows else ():
        left = name in ("point", "run", "key", "values")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row.values()))
    console = Console()
    console.print(table, width=None if console.is_terminal else WIDTH, crop=False)
