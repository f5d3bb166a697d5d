"""A run's folder: what is where, and whether a run may begin in it.

config.json    configuration, seed, digest        metrics.jsonl  one line per iteration
machine.json   versions, hardware, threads        episodes.csv   one line per episode
checkpoints/   state, newest last                 timings.jsonl  wall-clock split
policy/        the final, self-contained policy   tensorboard/   event files
done           the result, once the run is over
run.lock       held while the run is training     eval.json, curve.png, episode.*, report.html
policy.onnx, policy.json                          what `dna export` writes
nonfinite.safetensors, hang.txt                   what a run that failed has left to look at
"""

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common.console import typed
from dna.common.errors import BadInput, StorageFailure
from dna.common.lock import settle
from dna.common.messages import quoted
from dna.common.storage import JSON_LIMIT, NEXT, parse_json, read, read_json, remove, write_json
from dna.config import Config, json_tree
from dna.config.overrides import digest, from_tree

#: Everything a run or a command on it writes. `config.json` goes last: it marks the run.
OWN = [
    "done",
    "eval.json",
    "curve.png",
    "episode.mp4",
    "episode.gif",
    "report.html",
    "policy.onnx",
    "policy.json",
    "nonfinite.safetensors",
    "hang.txt",
    "policy",
    "checkpoints",
    "tensorboard",
    "timings.jsonl",
    "episodes.csv",
    "metrics.jsonl",
    "machine.json",
    "config.json",
]

#: What a run that starts over, because it has no checkpoint yet, is asked for and is.
MEMORY = ("machine.json", "config.json")


@dataclass(frozen=True)
class RunFolder:
    """Paths and small files of one run."""

    path: Path
    given: Path | None = None  # as the user wrote it, for words

    @classmethod
    def of(cls, text: str | Path) -> "RunFolder":
        """An existing run, or one line that says there is none."""
        folder = cls(Path(text))
        if not folder.exists:
            raise BadInput(f"{text}: no run here (no config.json); `dna train` makes one")
        return folder

    def here(self) -> "RunFolder":
        """The same from wherever: an environment may change the working directory."""
        return RunFolder(self.path.absolute(), self.given or self.path)

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return str(self.given or self.path)

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        path = self.path / "config.json"
        try:
            settle(self.path)
            if not path.is_file():
                return False
        except OSError as error:  # a name that no file can have
            raise BadInput(f"{quoted(str(self.path))}: {error.strerror}") from None
        if path.is_symlink():
            raise BadInput(f"{path}: is a link; put the file itself in its place")
        tree = read_json(path)
        return isinstance(tree, dict) and {"digest", "seed", "config"} <= set(tree)

    @property
    def done(self) -> bool:
        """Whether the run has reached its end."""
        return (self.path / "done").is_file()

    @property
    def policy(self) -> Path:
        """Where the final policy is."""
        return self.path / "policy"

    def check_free(self) -> None:
        """Refuse a folder whose files a new run would overwrite but that is no run of ours."""
        links = [n for n in [*OWN, "run.lock", NEXT] if (self.path / n).is_symlink()]
        if links:
            raise BadInput(
                f"{self.path / links[0]}: is a link, which a run never writes through"
            )
        foreign = [] if self.exists else [n for n in OWN if (self.path / n).exists()]
        lock = self.path / "run.lock"
        holder = read(lock) if not self.exists and lock.is_file() else b""
        if holder and not holder.startswith(b"pid "):  # empty: somebody died while taking it
            foreign.append("run.lock")
        if foreign:
            raise BadInput(
                f"{self.path}: holds {foreign[0]}, but no run; choose another folder"
            )

    def begin(self, config: Config, seed: int, asked: dict[str, Any] | None = None) -> None:
        """Write what the run is, and before that how it was asked for (`How.asked`)."""
        if asked is not None:
            self.write_machine({"asked": asked})
        write_json(self.path / "config.json", what_it_is(config, seed))

    def digest(self) -> str | None:
        """Which run this is by its `config.json`; None if that is gone or damaged."""
        path = self.path / "config.json"
        data = read(path, JSON_LIMIT) if path.is_file() else b""
        try:
            found = parse_json(data, path)["digest"]
        except (StorageFailure, KeyError, TypeError):
            return None
        return found if isinstance(found, str) else None

    def read(self) -> tuple[Config, int]:
        """(configuration, seed) of this run."""
        path = self.path / "config.json"
        config, seed = read_config(path)
        if read_json(path)["digest"] != digest(config, seed):
            raise BadInput(
                f"{path}: was changed after the run began; undo that, or begin another run "
                f"with `dna train ENV_ID --config {typed(path)}`"
            )
        return config, seed

    def write_machine(self, tree: dict[str, Any]) -> None:
        """Write `machine.json`."""
        write_json(self.path / "machine.json", tree)

    def machine(self) -> dict[str, Any]:
        """Read `machine.json`; empty before it was written."""
        path = self.path / "machine.json"
        if not path.is_file():
            return {}
        if not path.stat().st_size:  # a resume would write it anew anyway
            text = f"{path}: empty; how the run was begun is forgotten"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return {}
        return self._read_own("machine.json")

    def _read_own(self, name: str) -> dict[str, Any]:
        """A file that a resume writes again."""
        path = self.path / name
        data = read(path, JSON_LIMIT)
        try:
            tree = parse_json(data, path)
        except StorageFailure:
            tree = None
        if not isinstance(tree, dict):
            raise StorageFailure(f"{path}: damaged; delete it, then `dna resume`")
        return tree

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result: the run is over."""
        write_json(self.path / "done", result)

    def result(self) -> dict[str, Any] | None:
        """The result of a finished run."""
        if not self.done:
            return None
        tree = self._read_own("done")
        if not {"seed", "score"} <= set(tree):
            raise StorageFailure(f"{self.path / 'done'}: damaged; delete it, then `dna resume`")
        return tree

    def finished(self, config: Config, seed: int) -> dict[str, Any] | None:
        """The result of this very run if it is over; another run's folder is refused."""
        if not self.exists:
            return None
        if self.read() != (config, seed):
            raise BadInput(f"{self.path}: holds a run with other settings or seed")
        return self.result()

    def clear(self, keep: Collection[str] = ()) -> None:
        """Delete a run's own files, and nothing else that may lie beside them."""
        for name in OWN:
            if name not in keep:
                remove(self.path / name)


def what_it_is(config: Config, seed: int) -> dict[str, Any]:
    """What `config.json` holds."""
    return {"digest": digest(config, seed), "seed": seed, "config": json_tree(config)}


def read_config(path: Path) -> tuple[Config, int]:
    """A run's `config.json`, or a bare configuration (seed 0)."""
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise BadInput(f"{path}: expected a JSON object with settings")
    bare = "config" not in tree
    seed = 0 if bare else tree.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise BadInput(f"{path}: seed: given {seed!r}, must be an integer of at least 0")
    try:
        return from_tree(tree if bare else tree["config"]), seed
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
