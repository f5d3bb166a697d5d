"""Progress on stderr: a live display on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dna.common.console import say
from dna.config import Config
from dna.runs.text_progress import (
    NOISE,
    QUIET_FOR,
    PlainLines,
    RateMeter,
    Silent,
    clock,
    noise_words,
    share_done,
)

if TYPE_CHECKING:
    from dna.runs.metrics import Row, Sink
    from dna.runs.sweeps.pool import Task

BARS = "▁▂▃▄▅▆▇█"
#: Most runs listed in a live table; its caption counts all of them.
MAX_ROWS = 24
#: Width of tables that are not printed to a terminal.
FILE_WIDTH = 240


def show_progress(
    config: Config, seed: int, path: Path, *, quiet: bool, note: str = ""
) -> "Sink":
    """Return a sink that shows one run on stderr, after `note`, once it is started."""
    console = Console(stderr=True)
    if quiet:
        return Silent()
    if console.is_terminal:
        title = Text(f"{config.algorithm.upper()} · {config.env.id} · seed {seed} · {path}")
        live = Live(console=console, refresh_per_second=4, auto_refresh=True)
        return LivePanel(live, title, note)
    return PlainLines(note)


class LivePanel:
    """Panel with progress, score, time per part and losses, redrawn in place."""

    def __init__(self, live: Live, title: Text, note: str = "") -> None:
        self.live = live
        self.note = note  # a line to write first
        self.title = title
        self.pace = RateMeter()
        self.history: list[float] = []
        self.seconds: dict[str, float] = {}
        self.noise: dict[str, float] = {}  # as last measured

    def start(self) -> None:
        """Show that the warm-up, which can take a while, has begun."""
        if self.note:
            say(self.note)
        self.live.start()
        self.live.update(Panel("warming up …", title=self.title))

    def write(self, row: "Row") -> None:
        """Redraw."""
        rate, left = self.pace.update(row)
        if row.score is not None:
            self.history.append(row.score)
        for part, value in row.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value
        parts: list[RenderableType] = [
            self._progress(row, rate, left),
            self._score(row),
            self._time(),
            _losses(row),
        ]
        measured = {k: v for k, v in row.metrics.items() if k.startswith(NOISE)}
        self.noise = measured or self.noise
        if self.noise:
            parts.append(Text("noise ").append(noise_words(self.noise), "magenta"))
        self.live.update(Panel(Group(*parts), title=self.title))

    def _progress(self, row: "Row", rate: float, left: float) -> Table:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        total = max(row.interactions, row.total)  # the last rollout may exceed the budget
        text = f"{row.interactions:,} / {total:,}  {rate:,.0f}/s  {clock(left)} left"
        grid.add_row(_bar(row.interactions, row.total), text)
        return grid

    def _score(self, row: "Row") -> Text:
        score = "no episode has ended yet" if row.score is None else f"{row.score:.2f}"
        text = Text("score ").append(score, style="bold")
        text.append(f"  last 100 of {row.episodes:,} episodes  ", style="dim")
        return text.append(spark(self.history, 48), style="cyan")

    def _time(self) -> Text:
        total = sum(self.seconds.values()) or 1.0
        parts = sorted(self.seconds.items(), key=lambda item: -item[1])
        return Text("time  ").append("  ".join(f"{p} {s / total:.0%}" for p, s in parts), "dim")

    def close(self) -> None:
        """Stop redrawing, and leave the last panel on the screen."""
        self.live.stop()


def _losses(row: "Row") -> Table:
    table = Table.grid(padding=(0, 2))
    phases: dict[str, list[str]] = {}
    for name, value in row.metrics.items():
        if name.startswith(NOISE):
            continue
        phase, _, metric = name.partition("/")
        phases.setdefault(phase, []).append(f"{metric} {value:.3g}")
    for phase, metrics in phases.items():
        table.add_row(Text(phase, style="bold"), Text("  ".join(metrics)))
    return table


def _bar(interactions: int, total: int) -> ProgressBar:
    return ProgressBar(total=total, completed=min(interactions, total))


def spark(values: list[float], width: int) -> str:
    """Draw a curve in one line of text."""
    if len(values) < 2:
        return ""
    step = max(1, len(values) // width)
    points = values[::step][-width:]
    low, high = min(points), max(points)
    span = (high - low) or 1.0
    return "".join(BARS[round((p - low) / span * (len(BARS) - 1))] for p in points)


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, lines now and then elsewhere.

    Call the yielded function with the number done. `what` is plain text: brackets in the name
    of a folder are not markup.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = CountLines(what, total)
        yield lines.update
        lines.close()
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(escape(what), total=total)
        yield lambda done: bar.update(task, completed=done)


class CountLines:
    """Writes `WHAT: 12 of 100` to stderr at first, every few seconds and at the end."""

    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = total
        self.done = self.written = 0
        self.last_time = float("-inf")

    def update(self, done: int) -> None:
        """Write a line if the last one was long enough ago."""
        self.done = done
        if time.monotonic() - self.last_time >= QUIET_FOR:
            self._write()

    def close(self) -> None:
        """Write the last line, if it was delayed."""
        if self.done != self.written:
            self._write()

    def _write(self) -> None:
        say(f"{self.what}: {self.done:,} of {self.total:,}")
        self.written = self.done
        self.last_time = time.monotonic()


class RunsDisplay:
    """Progress of many runs: a table on a terminal, at most one line per few seconds elsewhere.

    `describe` makes the line from the tasks.
    """

    def __init__(
        self,
        live: Live | None,
        describe: Callable[[Sequence["Task"]], str],
        title: str,
        *,
        quiet: bool,
        note: str = "",
    ) -> None:
        self.live = live
        self.describe = describe
        self.title = title
        self.quiet = quiet
        self.first_line = note
        self.last_line = ""
        self.last_time = float("-inf")

    def update(self, tasks: Sequence["Task"]) -> None:
        """Show the state of the runs."""
        if self.quiet:
            return
        if self.first_line:
            say(self.first_line)
            self.first_line = ""
        if self.live is not None:
            self.live.update(_runs_table(tasks, self.title))
            return
        line = self.describe(tasks)
        busy = any(task.state in ("waiting", "running") for task in tasks)
        if line == self.last_line or (busy and time.monotonic() - self.last_time < QUIET_FOR):
            return
        self.last_line = line
        self.last_time = time.monotonic()
        say(line)

    def note(self, text: str) -> None:
        """Show a line about work other than the runs."""
        if self.quiet:
            return
        if self.live is not None:
            self.live.update(Text(text))
        else:
            say(text)


def count_runs(tasks: Sequence["Task"]) -> str:
    """Return a line such as `3 of 12 runs finished, 2 running, 1 pruned`."""
    finished = sum(task.state == "done" for task in tasks)
    parts = [f"{finished} of {len(tasks)} runs finished"]
    for state in ("running", "pruned", "stopped", "failed"):
        count = sum(task.state == state for task in tasks)
        if count:
            parts.append(f"{count} {state}")
    return ", ".join(parts)


def each_seed(tasks: Sequence["Task"]) -> str:
    """Return a line such as `seed 0 done  seed 1 40% score 12.34  seed 2 waiting`."""
    return "  ".join(map(_one_seed, tasks))


def _one_seed(task: "Task") -> str:
    if task.state != "running":
        return f"seed {task.seed} {task.state}"
    score = "" if task.score is None else f" score {task.score:.2f}"
    share = share_done(task.interactions, task.config.interactions)
    return f"seed {task.seed} {share:.0%}{score}"


@contextmanager
def show_runs(
    *,
    quiet: bool = False,
    describe: Callable[[Sequence["Task"]], str] = count_runs,
    title: str = "",
    note: str = "",
) -> Iterator[RunsDisplay]:
    """Yield a display of many runs on stderr; `note` is shown before them."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield RunsDisplay(None, describe, title, quiet=quiet, note=note)
    else:
        with Live(console=console, refresh_per_second=4) as live:
            yield RunsDisplay(live, describe, title, quiet=False, note=note)


def _runs_table(tasks: Sequence["Task"], title: str) -> Table:
    """Table of all runs, or of the running ones if there are many; the caption counts all."""
    table = Table(title=title or None, box=None, header_style="bold")
    table.caption = count_runs(tasks)
    table.caption_justify = "left"
    table.add_column("run")
    table.add_column("seed", justify="right")
    table.add_column("state")
    table.add_column("score", justify="right")
    table.add_column("", ratio=1)
    listed = tasks
    if len(tasks) > MAX_ROWS:
        listed = [task for task in tasks if task.state == "running"][:MAX_ROWS]
    for task in listed:
        label = task.label or f"{task.config.env.id} {task.config.algorithm}"
        score = "-" if task.score is None else f"{task.score:.2f}"
        bar = _bar(task.interactions, task.config.interactions)
        table.add_row(Text(label), str(task.seed), task.state, score, bar)
    return table


def print_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table of results on stdout without shortening names or values."""
    table = Table(box=None, header_style="bold")
    for name in rows[0] if rows else ():
        left = name in ("point", "run", "key", "values")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row.values()))
    console = Console()
    console.print(table, width=None if console.is_terminal else FILE_WIDTH, crop=False)
