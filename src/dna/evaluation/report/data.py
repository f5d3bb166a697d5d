"""What is known of a run: its folder, read for a page while it may still be written."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dna.common.errors import BadInput, FolderBusy, StorageFailure
from dna.common.lock import check_unlocked
from dna.common.storage import read, read_json
from dna.config import Config
from dna.evaluation.report.columns import Columns
from dna.runs.folder import RunFolder

State = Literal["finished", "training", "not running"]
#: A film beyond this is named, not embedded.
FILM_LIMIT = 24 * 2**20
#: Iterations that the speed is taken from.
RECENT = 20


@dataclass(frozen=True)
class Checkpoint:
    """One saved state; what cannot be read of it is None."""

    interactions: int
    score: float | None
    size: int | None
    saved: str


@dataclass
class RunData:
    """One run; `refresh` reads on."""

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
        """Read a run's folder."""
        folder = RunFolder.of(path)
        config, seed = folder.read()
        logs = Columns(path / "metrics.jsonl"), Columns(path / "timings.jsonl")
        run = cls(folder, config, seed, *logs)
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
        """Its id, or that it has none."""
        return self.config.env.id or "an environment without an id"

    @property
    def interactions(self) -> int:
        """How far it is."""
        return int(self.metrics.last("interactions") or 0)

    @property
    def score(self) -> float | None:
        """Of its last 100 episodes."""
        return self.metrics.last("score")

    @property
    def seconds(self) -> float:
        """How long it has trained; each process of a resumed run began at zero."""
        total = before = 0.0
        for now in np.nan_to_num(self.timings["time/elapsed"]).tolist():
            total += now - before if now >= before else now
            before = now
        return total

    @property
    def rate(self) -> float | None:
        """Interactions per second, the median of the last iterations."""
        last = self.timings["rate"][-RECENT:]
        known = last[np.isfinite(last)]
        return float(np.median(known)) if len(known) else None

    @property
    def film(self) -> Path | None:
        """A recorded episode."""
        path = self.path / "episode.mp4"
        return path if path.is_file() else None

    def checkpoints(self) -> list[Checkpoint]:
        """Those of its folder, oldest first."""
        found = sorted((self.path / "checkpoints").glob("[0-9]*"))
        return [_checkpoint(path) for path in found if path.name.isdecimal()]


def _checkpoint(path: Path) -> Checkpoint:
    """A checkpoint may vanish or be damaged while it is looked at: the page says less of it."""
    saved, score, size = "–", None, None
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
    """A JSON object of ours; empty while there is none."""
    if not path.is_file():
        return {}
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise StorageFailure(f"{path}: not a JSON object")
    return tree


def bytes_of(path: Path, limit: int = FILM_LIMIT) -> bytes | None:
    """A file that is put into the page; None when it is too large for that."""
    there = path.stat()
    return _cached(path, there.st_mtime_ns, there.st_size) if there.st_size <= limit else None


@lru_cache(maxsize=32)
def _cached(path: Path, changed: int, size: int) -> bytes:
    return read(path)


def find_runs(path: Path) -> list[Path]:
    """The run of a folder, or the runs that lie in it (of `--seeds` with `--out`)."""
    if RunFolder(path).exists:
        return [path]
    inside = sorted(path.iterdir(), key=_natural) if path.is_dir() else []
    runs = [child for child in inside if child.is_dir() and RunFolder(child).exists]
    if not runs:
        raise BadInput(f"{path}: no run here (no config.json); `dna train` makes one")
    return runs


def _natural(path: Path) -> tuple[str, int]:
    """seed2 before seed10."""
    head = path.name.rstrip("0123456789")
    return head, int(path.name[len(head) :] or 0) if len(path.name) < 60 else 0
