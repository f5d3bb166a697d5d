"""Read run folders for a page: metrics as columns, state, checkpoints, groups of seeds.

A folder may still be written to while it is read; `refresh` reads only what was added.
"""

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dna.common.errors import BadInput, FolderBusy, StorageFailure
from dna.common.json_lines import lines, parse_row
from dna.common.lock import check_unlocked
from dna.common.storage import read, read_json, storage_errors
from dna.config import Config
from dna.config.overrides import differences, digest
from dna.runs.folder import RunFolder

Array = npt.NDArray[np.float64]
State = Literal["finished", "training", "not running"]
#: A larger video is named, not embedded.
FILM_LIMIT = 24 * 2**20
#: Iterations over which the speed is measured.
RECENT = 20
#: A log with more names than this is not the log of a run.
MAX_NAMES = 2000

# ── Logs ──────────────────────────────────────────────────────────────────────────────────


class Columns:
    """A `.jsonl` log as columns of numbers, read incrementally.

    A name that a line lacks, or whose value is null, is NaN. A last line without its newline is
    still being written and is left for the next time; any other unreadable line is an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.rows = 0
        self.bytes = 0  # read so far
        self.columns: dict[str, array[float]] = {}

    def refresh(self) -> None:
        """Read what was added; a file that was truncated is read from the start."""
        if not self.path.is_file():
            self._forget()
            return
        with storage_errors(self.path):
            if self.path.stat().st_size < self.bytes:
                self._forget()
            resumed = self.bytes > 0
            try:
                self._read_lines()
            except StorageFailure:
                if not resumed:
                    raise
                self._forget()  # truncated, and grown again since
                self._read_lines()

    def _read_lines(self) -> None:
        for line in lines(self.path, self.bytes):
            if not line.endswith(b"\n"):
                break
            row = self._parse(line)
            if self.rows and row["interactions"] < self.columns["interactions"][-1]:
                raise self._damaged("goes back in interactions")
            self._add(row)
            self.bytes += len(line)

    def _parse(self, line: bytes) -> dict[str, float]:
        try:
            row = parse_row(line)
        except ValueError as error:
            raise self._damaged("is not a row of numbers") from error
        return {key: math.nan if value is None else value for key, value in row.items()}

    def _damaged(self, what: str) -> StorageFailure:
        return StorageFailure(f"{self.path}: line {self.rows + 1} {what}")

    def _add(self, row: dict[str, float]) -> None:
        for key in row:
            if key not in self.columns:
                self.columns[key] = array("d", [math.nan]) * self.rows
        if len(self.columns) > MAX_NAMES:
            raise self._damaged(f"has more than {MAX_NAMES} names")
        for key, column in self.columns.items():
            column.append(row.get(key, math.nan))
        self.rows += 1

    def __getitem__(self, key: str) -> Array:
        """Return a column; all NaN if there is none of that name."""
        if key not in self.columns:
            return np.full(self.rows, math.nan)
        return np.array(self.columns[key], dtype=np.float64)

    def last(self, key: str) -> float | None:
        """Return the newest finite value."""
        known = self[key]
        known = known[np.isfinite(known)]
        return float(known[-1]) if len(known) else None

    def names(self, prefix: str = "") -> list[str]:
        """Return the names with this prefix, in the order in which they appeared."""
        return [key for key in self.columns if key.startswith(prefix)]

    def when_due(self, key: str) -> tuple[Array, Array]:
        """Return (interactions, values) of the rows in which the key's group was measured.

        A phase that runs every 32nd iteration, or noise measured every tenth, has no gaps in
        between; a value that is missing while its siblings exist is a gap.
        """
        group = key.rpartition("/")[0]
        siblings = self.names(f"{group}/") if group else [key]
        due = np.zeros(self.rows, dtype=bool)
        for name in siblings or [key]:
            due |= ~np.isnan(self[name])
        if not group:
            due[:] = True
        return self["interactions"][due], self[key][due]


# ── Runs ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint; None for what cannot be read."""

    interactions: int
    score: float | None
    size: int | None
    saved: str


@dataclass
class RunData:
    """One run folder; `refresh` reads what was added."""

    folder: RunFolder
    config: Config
    seed: int
    metrics: Columns
    timings: Columns
    machine: dict[str, Any] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    state: State = "not running"

    @classmethod
    def of(cls, path: Path) -> "RunData":
        """Read a run folder."""
        folder = RunFolder.of(path)
        config, seed = folder.read()
        metrics = Columns(path / "metrics.jsonl")
        timings = Columns(path / "timings.jsonl")
        run = cls(folder, config, seed, metrics, timings)
        run.refresh()
        return run

    def refresh(self) -> None:
        """Read what has changed."""
        self.state = self._state()
        self.metrics.refresh()
        self.timings.refresh()
        self.machine = _object(self.path / "machine.json")
        self.evaluation = _object(self.path / "eval.json")
        self.result = _object(self.path / "done")

    def _state(self) -> State:
        if self.folder.done:
            return "finished"
        try:
            check_unlocked(self.path)
        except FolderBusy:
            return "training"
        return "not running"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def environment(self) -> str:
        """The environment's id, or a phrase if it has none."""
        return self.config.env.id or "an environment without an id"

    @property
    def interactions(self) -> int:
        """Interactions so far."""
        return int(self.metrics.last("interactions") or 0)

    @property
    def score(self) -> float | None:
        """Mean score of the last 100 episodes."""
        return self.metrics.last("score")

    @property
    def seconds(self) -> float:
        """Training time; the log of each process of a resumed run starts at zero."""
        total = before = 0.0
        for now in np.nan_to_num(self.timings["time/elapsed"]).tolist():
            total += now - before if now >= before else now
            before = now
        return total

    @property
    def rate(self) -> float | None:
        """Interactions per second: the median of the last iterations."""
        last = self.timings["rate"][-RECENT:]
        known = last[np.isfinite(last)]
        return float(np.median(known)) if len(known) else None

    @property
    def film(self) -> Path | None:
        """The path of the recorded episode, if there is one."""
        path = self.path / "episode.mp4"
        return path if path.is_file() else None

    def checkpoints(self) -> list[Checkpoint]:
        """Return the run's checkpoints, oldest first."""
        found = sorted((self.path / "checkpoints").glob("[0-9]*"))
        return [_checkpoint(path) for path in found if path.name.isdecimal()]


def _checkpoint(path: Path) -> Checkpoint:
    """Read what is readable: a checkpoint may be damaged, or removed in the meantime."""
    saved = "–"
    score = None
    size = None
    try:
        when = datetime.fromtimestamp((path / "manifest.json").stat().st_mtime, UTC)
        saved = f"{when:%Y-%m-%d %H:%M} UTC"
        size = sum(file.stat().st_size for file in path.iterdir())
        state = read_json(path / "state.json")
        given = state.get("score") if isinstance(state, dict) else None
        score = float(given) if isinstance(given, int | float) else None
    except (OSError, StorageFailure):
        pass
    return Checkpoint(int(path.name), score, size, saved)


def _object(path: Path) -> dict[str, Any]:
    """Return a JSON object; empty if the file does not exist."""
    if not path.is_file():
        return {}
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise StorageFailure(f"{path}: not a JSON object")
    return tree


def bytes_of(path: Path, limit: int = FILM_LIMIT) -> bytes | None:
    """Return a file to embed in the page; None if it is too large."""
    stat = path.stat()
    return _cached(path, stat.st_mtime_ns, stat.st_size) if stat.st_size <= limit else None


@lru_cache(maxsize=32)
def _cached(path: Path, changed: int, size: int) -> bytes:
    """Read a file of this size; `changed` only tells its versions apart."""
    return read(path, limit=size)


def find_runs(path: Path) -> list[Path]:
    """Return the run in a folder, or the runs in its subfolders (`--seeds` with `--out`)."""
    if RunFolder(path).exists:
        return [path]
    inside = sorted(path.iterdir(), key=_natural) if path.is_dir() else []
    runs = [child for child in inside if child.is_dir() and RunFolder(child).exists]
    if not runs:
        raise BadInput(f"{path}: no run here (no config.json); `dna train` makes one")
    return runs


def _natural(path: Path) -> tuple[str, int]:
    """Sort key that puts seed2 before seed10."""
    head = path.name.rstrip("0123456789")
    return head, int(path.name[len(head) :] or 0) if len(path.name) < 60 else 0


# ── Groups of seeds ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Group:
    """The seeds of one configuration, or an arm of an experiment, with a name and a color."""

    name: str
    color: int
    runs: tuple[RunData, ...]

    @property
    def scores(self) -> list[float]:
        """Scores of the seeds in which an episode has ended."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def mean_score(self) -> tuple[float | None, float | None]:
        """(mean over seeds, its standard error); None where there are too few seeds."""
        scores = self.scores
        mean = sum(scores) / len(scores) if scores else None
        if len(scores) < 2:
            return mean, None
        return mean, float(np.std(scores, ddof=1) / np.sqrt(len(scores)))


def by_environment(runs: Iterable[RunData]) -> dict[str, list[Group]]:
    """Group runs by environment and configuration; a name has one color on the whole page."""
    found: dict[str, dict[str, list[RunData]]] = {}
    for run in runs:
        same = found.setdefault(run.environment, {})
        same.setdefault(digest(run.config), []).append(run)
    colors: dict[str, int] = {}
    groups: dict[str, list[Group]] = {}
    for environment, same in found.items():
        for name, members in zip(_names(list(same.values())), same.values(), strict=True):
            color = colors.setdefault(name, len(colors))
            members.sort(key=lambda run: run.seed)
            groups.setdefault(environment, []).append(Group(name, color, tuple(members)))
    return groups


def _names(groups: list[list[RunData]]) -> list[str]:
    """Return the algorithm of each group; where two share it, also how they differ."""
    configs = [members[0].config for members in groups]
    names = [config.algorithm.upper() for config in configs]
    return [
        name if names.count(name) == 1 else f"{name} {_difference(configs, i)}"
        for i, name in enumerate(names)
    ]


def _difference(configs: list[Any], index: int) -> str:
    """Return differing settings such as `policy.sgd.epochs=1`, or a digest if that is long."""
    own = configs[index]
    rivals = [c for i, c in enumerate(configs) if i != index and c.algorithm == own.algorithm]
    keys = {key: pair[0] for rival in rivals for key, pair in differences(own, rival).items()}
    text = " ".join(f"{key}={value}" for key, value in keys.items())
    return text if 0 < len(text) <= 60 else digest(own)
