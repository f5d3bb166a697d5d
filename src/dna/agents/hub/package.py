"""A run → a folder for the hub: card, settings, policy, evaluation, metrics, a film."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dna.agents.hub import find, load
from dna.agents.hub.card import card
from dna.common.errors import BadInput, DnaError
from dna.common.storage import (
    make_folder,
    read,
    read_folder,
    read_json,
    write,
    write_folder,
    write_json,
)
from dna.evaluation.evaluate import Playing, evaluate
from dna.evaluation.film import Film
from dna.evaluation.video import mp4
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy

#: Every file there may be; whatever else lies in the folder is not uploaded.
FILES = (
    "README.md",
    "config.json",
    "eval.json",
    "metrics.json",
    "replay.mp4",
    "policy/manifest.json",
    "policy/policy.json",
    "policy/policy.safetensors",
)
#: Bytes at the end of metrics.jsonl in which its last line is.
METRICS_LIMIT = 2**30


@dataclass(frozen=True)
class Packing:
    """How to evaluate and film what is packed."""

    episodes: int = 100
    seed: int = 0
    deterministic: bool = False
    allow_import: bool = False
    film: bool = True
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Packed:
    """What was written."""

    folder: Path
    summary: Mapping[str, float | int]
    notes: tuple[str, ...]  # what is not in it, and why


def package(run: str | Path, out: Path, how: Packing | None = None) -> Packed:
    """Write the folder; it must be new or empty."""
    how, source = how or Packing(), find(run)
    policy = load(run)
    _check_free(out)
    config = _config(source)  # a bad one is refused before anything is played
    evaluation = _evaluated(policy, how)
    make_folder(out)
    write_folder(out / "policy", read_policy(source))
    files = ["policy/", "eval.json"]
    notes = []
    if config is not None:
        write_json(out / "config.json", config)
        files.append("config.json")
    write_json(out / "eval.json", evaluation)
    if metrics := _metrics(source):
        write_json(out / "metrics.json", metrics)
        files.append("metrics.json")
    try:
        write(out / "replay.mp4", _film(policy, how))
        files.append("replay.mp4")
    except DnaError as error:
        notes.append(f"no replay.mp4: {error}")
    # Last: a folder that has a card is complete.
    name = out.resolve().name or "policy"
    write(out / "README.md", card(name, policy, evaluation, files).encode())
    return Packed(out, evaluation["policy"], tuple(notes))


def read_policy(source: RunFolder) -> dict[str, bytes]:
    """The files of a policy, checked, and no others."""
    files = read_folder(source.policy)
    if set(files) != {"policy.json", "policy.safetensors"}:
        raise BadInput(f"{source.policy}: holds other files than a policy has")
    return files


def _check_free(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise BadInput(f"{out}: is not a folder; choose another")
    if out.is_dir() and any(out.iterdir()):
        raise BadInput(f"{out}: is not empty; choose another folder")


def _config(source: RunFolder) -> dict[str, Any] | None:
    if not source.exists:
        return None  # an imported policy has no run
    source.read()
    tree: dict[str, Any] = read_json(source.path / "config.json")
    return tree


def _evaluated(policy: SavedPolicy, how: Packing) -> dict[str, Any]:
    playing = Playing(allow_import=how.allow_import)
    if how.progress is not None:
        playing = Playing(allow_import=how.allow_import, progress=how.progress)
    found = evaluate(
        policy,
        policy.env,
        episodes=how.episodes,
        seed=how.seed,
        deterministic=how.deterministic,
        how=playing,
    )
    settings = {"seed": how.seed, "deterministic": how.deterministic}
    return settings | {"policy": found.summary()}


def _metrics(source: RunFolder) -> dict[str, Any]:
    """The last line of the log, and the best score in it."""
    path = source.path / "metrics.jsonl"
    if not path.is_file():
        given = source.path / "metrics.json"
        tree: Any = read_json(given) if given.is_file() else {}
        return tree if isinstance(tree, dict) else {}
    lines = read(path, METRICS_LIMIT).splitlines()
    try:
        rows = [json.loads(line) for line in lines]
        scores = [row["score"] for row in rows if row["score"] is not None]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path}: damaged; `dna resume` mends a run's logs") from None
    best = {"best_score": max(scores)} if scores else {}
    return {"iterations": len(rows), "last": rows[-1]} | best if rows else {}


def _film(policy: SavedPolicy, how: Packing) -> bytes:
    if not how.film:
        raise BadInput("not asked for")
    film = Film(policy, how.seed, 0, how.deterministic, how.allow_import)
    return mp4(film.frames(), film.fps)
