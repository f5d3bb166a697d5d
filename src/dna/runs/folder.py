"""The folder of a run: its files, and whether a run may begin in it.

config.json    configuration, seed, digest        metrics.jsonl  one line per iteration
machine.json   versions, hardware, threads        episodes.csv   one line per episode
checkpoints/   state, newest last                 timings.jsonl  wall-clock times
policy/        the final, self-contained policy   tensorboard/   event files
done           the result, once the run has finished
run.lock       held while the run is training     eval.json, curve.png, episode.*, report.html
policy.onnx, policy.json                          what `dna export` writes
nonfinite.safetensors, hang.txt                   what a failed run leaves for diagnosis
"""

import hashlib
import json
import warnings
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.common.console import typed
from dna.common.errors import BadInput, StorageFailure
from dna.common.lock import settle
from dna.common.messages import quoted
from dna.common.storage import (
    JSON_LIMIT,
    NEXT,
    check_no_file_at,
    parse_json,
    read,
    read_json,
    remove,
    write_json,
)
from dna.config import Config, json_tree
from dna.config.overrides import digest, from_tree

#: Everything that a run or a command on it writes. `config.json` is deleted last: it marks
#: the folder as a run.
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

#: Files that stay when a run without a checkpoint starts over.
MEMORY = ("machine.json", "config.json")


@dataclass(frozen=True)
class RunFolder:
    """The paths and small files of one run."""

    path: Path
    given: Path | None = None  # as the user wrote it, for messages

    @classmethod
    def of(cls, text: str | Path) -> "RunFolder":
        """Return an existing run, or raise `BadInput`."""
        folder = cls(Path(text))
        if not folder.exists:
            raise BadInput(f"{text}: no run here (no config.json); `dna train` makes one")
        return folder

    def here(self) -> "RunFolder":
        """Make the path absolute: an environment may change the working directory."""
        return RunFolder(self.path.absolute(), self.given or self.path)

    @property
    def name(self) -> str:
        """The path as the user wrote it."""
        return str(self.given or self.path)

    @property
    def exists(self) -> bool:
        """Whether this folder holds a run."""
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
        """Whether the run has finished."""
        return (self.path / "done").is_file()

    @property
    def policy(self) -> Path:
        """The folder of the final policy."""
        return self.path / "policy"

    def check_free(self) -> None:
        """Refuse a folder that is not a run but has files that a run would overwrite."""
        check_no_file_at(self.path)
        links = [n for n in [*OWN, "run.lock", NEXT] if (self.path / n).is_symlink()]
        if links:
            raise BadInput(
                f"{self.path / links[0]}: is a link, which a run never writes through"
            )
        lock = self.path / "run.lock"
        if lock.is_file() and lock.stat().st_nlink > 1:
            raise BadInput(
                f"{lock}: is a hard link to another file, which a run never writes through; "
                "delete it"
            )
        foreign = [] if self.exists else [n for n in OWN if (self.path / n).exists()]
        if foreign == ["machine.json"] and self._was_beginning():
            foreign = []
        holder = read(lock, JSON_LIMIT) if not self.exists and lock.is_file() else b""
        if holder and not holder.startswith(b"pid "):  # empty: a process died taking it
            foreign.append("run.lock")
        if foreign:
            raise BadInput(
                f"{self.path}: holds {foreign[0]}, but no run; choose another folder"
            )

    def _was_beginning(self) -> bool:
        """Whether a process died between the two files that `begin` writes."""
        with suppress(StorageFailure):
            return set(self.machine()) == {"asked"}
        return False

    def begin(self, config: Config, seed: int, asked: dict[str, Any] | None = None) -> None:
        """Write `config.json`, and before it the options of the run (`How.asked`)."""
        if asked is not None:
            self.write_machine({"asked": asked})
        tree = {"digest": digest(config, seed), "seed": seed, "config": json_tree(config)}
        write_json(self.path / "config.json", tree)

    def digest(self) -> str | None:
        """Read the digest from `config.json`; None if that is missing or damaged."""
        path = self.path / "config.json"
        data = read(path, JSON_LIMIT) if path.is_file() else b""
        try:
            found = parse_json(data, path)["digest"]
        except (StorageFailure, KeyError, TypeError):
            return None
        return found if isinstance(found, str) else None

    def read(self) -> tuple[Config, int]:
        """Return the configuration and the seed of this run."""
        path = self.path / "config.json"
        config, seed = read_config(path)
        if read_json(path)["digest"] != digest(config, seed):
            raise BadInput(
                f"{path}: was changed after the run began; undo that, or begin another run "
                f"with `dna train ENV_ID --config {typed(path)}`"
            )
        return config, seed

    def write_machine(self, tree: dict[str, Any]) -> None:
        """Write `machine.json`, with a hash by which later damage is known."""
        write_json(self.path / "machine.json", tree | {"sha256": _hash_of(tree)})

    def machine_is_whole(self, *, older: bool) -> bool:
        """Whether `machine.json` is as it was written; `older` versions wrote no hash."""
        tree = self._machine()
        sha256 = tree.pop("sha256", None)
        return bool(tree) and (older if sha256 is None else sha256 == _hash_of(tree))

    def machine(self) -> dict[str, Any]:
        """Read `machine.json`, without its hash; empty if there is none yet."""
        return {name: value for name, value in self._machine().items() if name != "sha256"}

    def _machine(self) -> dict[str, Any]:
        path = self.path / "machine.json"
        if not path.is_file():
            return {}
        if not path.stat().st_size:  # a resume writes it again
            text = f"{path}: empty; the options of the run are lost"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return {}
        return self._read_own("machine.json")

    def _read_own(self, name: str) -> dict[str, Any]:
        """Read a JSON object that a resume would write again."""
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
        """Write the result, which marks the run as finished."""
        write_json(self.path / "done", result)

    def result(self) -> dict[str, Any] | None:
        """Read the result of a finished run; None if it has not finished."""
        if not self.done:
            return None
        tree = self._read_own("done")
        if not {"seed", "score"} <= set(tree):
            raise StorageFailure(f"{self.path / 'done'}: damaged; delete it, then `dna resume`")
        return tree

    def finished(self, config: Config, seed: int) -> dict[str, Any] | None:
        """Return the result of this run if it has finished; refuse the folder of another."""
        if not self.exists:
            return None
        if self.read() != (config, seed):
            raise BadInput(f"{self.path}: holds a run with other settings or seed")
        return self.result()

    def clear(self, keep: Collection[str] = ()) -> None:
        """Delete the files of the run, and nothing else in the folder."""
        for name in OWN:
            if name not in keep:
                remove(self.path / name)


def _hash_of(tree: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def read_config(path: Path) -> tuple[Config, int]:
    """Read the `config.json` of a run, or a bare configuration (seed 0)."""
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
