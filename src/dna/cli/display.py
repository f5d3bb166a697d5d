"""Progress of a run: a live panel on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
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

from dna.config import Config
from dna.runs.text_progress import NOISE, Pace, PlainLines, Silent, clock, noise_words

if TYPE_CHECKING:
    from dna.runs.metrics import Row, Sink

BARS = "▁▂▃▄▅▆▇█"


@contextmanager
def show_progress(config: Config, seed: int, path: Path, *, quiet: bool) -> Iterator["Sink"]:
    """A sink that shows the run on stderr."""
    console = Console(stderr=True)
    if quiet:
        yield Silent()
    elif console.is_terminal:
        title = Text(f"{config.algorithm.upper()} · {config.env.id} · seed {seed} · {path}")
        with Live(console=console, refresh_per_second=4, auto_refresh=True) as live:
            yield LivePanel(live, title)
    else:
        yield PlainLines()


class LivePanel:
    """Progress, score, where the time goes and the losses, redrawn in place."""

    def __init__(self, live: Live, title: Text) -> None:
        self.live, self.title = live, title
        self.pace = Pace()
        self.history: list[float] = []
        self.seconds: dict[str, float] = {}
        self.noise: dict[str, float] = {}  # as last measured

    def start(self) -> None:
        """Warming up can take a while: show that something happens."""
        self.live.update(Panel("warming up …", title=self.title))

    def write(self, row: "Row") -> None:
        """Redraw."""
        rate, left = self.pace.update(row)
        if row.score is not None:
            self.history.append(row.score)
        for part, value in row.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + value
        parts: list[RenderableType] = []
        parts += [self._progress(row, rate, left), self._score(row), self._time(), _losses(row)]
        found = {k: v for k, v in row.metrics.items() if k.startswith(NOISE)}
        self.noise = found or self.noise
        if self.noise:
            parts.append(Text("noise ").append(noise_words(self.noise), "magenta"))
        self.live.update(Panel(Group(*parts), title=self.title))

    def _progress(self, row: "Row", rate: float, left: float) -> Table:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        text = f"{row.interactions:,} / {row.total:,}  {rate:,.0f}/s  {clock(left)} left"
        grid.add_row(
            ProgressBar(total=row.total, completed=min(row.interactions, row.total)), text
        )
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
        """The last panel stays."""


def _losses(row: "Row") -> Table:
    table = Table.grid(padding=(0, 2))
    phases: dict[str, list[str]] = {}
    for name, value in row.metrics.items():
        if name.startswith(NOISE):
            continue
        phase, _, metric = name.partition("/")
        phases.setdefault(phase, []).append(f"{metric} {value:.3g}")
    for phase, words in phases.items():
        table.add_row(Text(phase, style="bold"), Text("  ".join(words)))
    return table


def spark(values: list[float], width: int) -> str:
    """A curve in one line of text."""
    if len(values) < 2:
        return ""
    step = max(1, len(values) // width)
    points = values[::step][-width:]
    low, high = min(points), max(points)
    span = (high - low) or 1.0
    return "".join(BARS[round((p - low) / span * (len(BARS) - 1))] for p in points)


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, nothing elsewhere; call it with how many are done.

    `what` is plain text: brackets in the name of a folder are no markup.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(escape(what), total=total)
        yield lambda done: bar.update(task, completed=done)
