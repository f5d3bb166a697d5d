"""Extend a run beyond its end, and copy a run to another folder.

The length of a run is a setting, because schedules are stretched over it. A longer run is
therefore another run, which starts from the last checkpoint of the shorter one: that
checkpoint gets the digest of the longer configuration, in the same folder. Without schedules
the result is bit-identical to a run that was that long from the start; with schedules it is
not, and `machine.json` says so. The content of the folder is replaced in one transaction
(`dna.common.storage.exchange`): a crash leaves either the old run or the new one.
"""

import json
import warnings
from pathlib import Path

from dna.common.errors import BadInput, StorageFailure
from dna.common.lock import locked
from dna.common.storage import (
    blocks,
    exchange,
    read_folder,
    read_manifest,
    recover,
    write_blocks,
    write_folder,
)
from dna.config import Config, json_tree
from dna.config.overrides import digest, tweak
from dna.runs import checkpoint
from dna.runs.folder import OWN, RunFolder
from dna.runs.start import check_may_start_over, check_nothing_lost

#: Files and folders that describe only the shorter run.
STALE = ("done", "policy", "eval.json", "curve.png", "episode.mp4", "report.html")
#: Plain files that a copy of a run includes.
COPIED = (
    "machine.json",
    "metrics.jsonl",
    "episodes.csv",
    "timings.jsonl",
    "done",
    "config.json",
)


def lengthened(run: RunFolder, asked: int | None) -> Config:
    """Extend a run by `asked` interactions, and return its new configuration.

    With None, its length stays as it is. The interactions are counted from the end of a
    finished run, and from the newest checkpoint of an unfinished one.
    """
    config, seed = run.read()
    if asked is None:
        return config
    with locked(run.path):
        recover(run.path / "checkpoints")
        saved = checkpoint.latest(run.path, digest(config, seed))
        reached = config.interactions
        if not run.done:
            reached = saved.interactions if saved else 0
        longer = tweak(config, interactions=reached + asked)
        if longer == config:
            return config
        if saved is None:
            check_may_start_over(run, config, None)
            run.clear()
            return longer
        _check_replay(config, saved)
        _extend(run, saved, config, longer, seed)
    return longer


def _extend(
    run: RunFolder, saved: checkpoint.Saved, config: Config, longer: Config, seed: int
) -> None:
    """Replace the run in this folder by the longer one, with this checkpoint."""
    files = read_folder(saved.path)
    state = json.loads(files["state.json"])
    scheduled = schedules(config)
    if scheduled:
        reason = (
            f"went on from a run of {config.interactions:,} interactions, over which "
            f"{scheduled[0]} was to change"
        )
        state["inexact"] = [*state["inexact"], reason]
        warnings.warn(
            f"learn: {scheduled[0]} is stretched over the longer run and jumps now; learn all "
            "at once, or set it to a number",
            stacklevel=4,
        )
    files["state.json"] = json.dumps(state, indent=2).encode()
    before = [f"checkpoints/{name}" for name in checkpoint.names(run.path)]

    def fill(new: Path) -> None:
        about = {"digest": digest(longer, seed)}
        write_folder(new / "checkpoints" / saved.path.name, files, about)
        RunFolder(new).begin(longer, seed)

    exchange(run.path, fill, [*STALE, *before, "config.json"])


def schedules(config: Config) -> list[str]:
    """List the settings that change over a run."""
    found = []
    for phase in json_tree(config)["phases"]:
        for prefix, section in (("", phase), ("sgd.", phase["sgd"])):
            for name, value in section.items():
                if isinstance(value, dict) and "start" in value:
                    found.append(f"{phase['name']}.{prefix}{name}")
    return found


def _check_replay(config: Config, saved: checkpoint.Saved) -> None:
    """Refuse a PPG run that no longer has the rollouts for its next auxiliary phase."""
    every = config.replay_length
    if every and saved.iteration % every != saved.replay:
        raise BadInput(
            f"learn: this run ended between two auxiliary phases and cannot be extended; learn "
            f"multiples of {every * config.batch:,} interactions"
        )


def copy_run(run: RunFolder, target: Path, *, overwrite: bool = False) -> None:
    """Copy a run, with its newest checkpoint only, to another folder.

    A run that is already there is replaced only once the copy is complete.
    """
    if target.resolve() == run.path.resolve():
        return
    _check_target(run, target, overwrite)
    newest = _newest(run)
    with locked(target):
        _check_target(run, target, overwrite)
        exchange(target, lambda new: _copy(run, newest, new), OWN)


def _check_target(run: RunFolder, target: Path, overwrite: bool) -> None:
    there = RunFolder(target)
    there.check_free()
    if there.exists and not overwrite and there.read() != run.read():
        raise BadInput(f"{target}: holds another run; choose another folder, or overwrite=True")


def _newest(run: RunFolder) -> Path | None:
    """Find the newest checkpoint that verifies; None for a run that has had none yet.

    Unlike `checkpoint.latest`, this accepts any number of ranks. A damaged checkpoint is named
    and skipped; one that cannot be read may be sound, so an older one must not replace it.
    """
    config, seed = run.read()
    rejected = []
    for name in reversed(checkpoint.names(run.path)):
        path = run.path / "checkpoints" / name
        try:
            checkpoint.verified(path, digest(config, seed))
        except StorageFailure as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise
            rejected.append(str(error))
            continue
        for reason in rejected:
            text = f"not copied: {reason}; the copy resumes from {name}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        return path
    if rejected:
        raise StorageFailure(f"{run.path}: no checkpoint can be used ({rejected[0]})")
    if not checkpoint.only_policy(run.path):
        check_nothing_lost(run, config, None)
    return None


def _copy(run: RunFolder, newest: Path | None, new: Path) -> None:
    """Write the files of a run into an empty folder."""
    boards = sorted((run.path / "tensorboard").glob("*"))
    for name in [*(f"tensorboard/{path.name}" for path in boards), *COPIED]:
        if (run.path / name).is_file():
            write_blocks(new / name, blocks(run.path / name))
    for folder in (newest, run.policy):
        if folder is not None and folder.is_dir():
            about = read_manifest(folder)["about"]
            write_folder(new / folder.relative_to(run.path), read_folder(folder), about)
