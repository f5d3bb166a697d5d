"""Going on where a run ended, and taking runs elsewhere.

A run's length is a setting, because schedules are stretched over it. To learn longer is
therefore another run, which begins with the last checkpoint of the one before: it is given the
longer configuration's digest, in the same folder. Without schedules the two in a row are, to
the bit, the run that was long from the start; with them they are not, and `machine.json` says
so. Either way, what a folder holds is exchanged all at once (`dna.common.storage`): a
crash leaves the one or the other.
"""

import json
import warnings
from pathlib import Path

from dna.common.errors import BadInput, StorageFailure
from dna.common.lock import locked
from dna.common.storage import (
    exchange,
    read,
    read_folder,
    read_manifest,
    recover,
    write,
    write_folder,
)
from dna.config import Config, json_tree
from dna.config.overrides import digest, tweak
from dna.runs import checkpoint
from dna.runs.folder import OWN, RunFolder
from dna.runs.start import check_may_start_over, check_nothing_lost

#: What speaks of the shorter run only.
STALE = ("done", "policy", "eval.json", "curve.png", "episode.mp4", "report.html")
#: Plain files of a run that a copy holds too.
COPIED = (
    "machine.json",
    "metrics.jsonl",
    "episodes.csv",
    "timings.jsonl",
    "done",
    "config.json",
)


def lengthened(run: RunFolder, asked: int | None) -> Config:
    """The configuration with which this run learns so many interactions more.

    None: as far as it was to go anyway. More are counted from where a finished run was to end,
    and from where an unfinished one stands.
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
        _hand_over(run, saved, (config, longer), seed)
    return longer


def _hand_over(
    run: RunFolder, saved: checkpoint.Saved, configs: tuple[Config, Config], seed: int
) -> None:
    """Make the checkpoint one of the longer run, then the folder."""
    config, longer = configs
    files = read_folder(saved.path)
    state = json.loads(files["state.json"])
    moving = schedules(config)
    if moving:
        reason = f"went on from a run of {config.interactions:,} interactions, over which "
        reason += f"{moving[0]} was to change"
        state["inexact"] = [*state["inexact"], reason]
        warnings.warn(
            f"learn: {moving[0]} is stretched over the longer run and jumps now; learn all at "
            "once, or set it to a number",
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
    """Settings that change over the run."""
    found = []
    for phase in json_tree(config)["phases"]:
        for prefix, section in (("", phase), ("sgd.", phase["sgd"])):
            for name, value in section.items():
                if isinstance(value, dict) and "start" in value:
                    found.append(f"{phase['name']}.{prefix}{name}")
    return found


def _check_replay(config: Config, saved: checkpoint.Saved) -> None:
    """A finished run has forgotten the rollouts that PPG's next auxiliary phase would read."""
    every = config.replay_length
    if every and saved.iteration % every != saved.replay:
        raise BadInput(
            f"learn: this run ended between two auxiliary phases and cannot go on; learn "
            f"multiples of {every * config.batch:,} interactions"
        )


def copy_run(run: RunFolder, target: Path, *, overwrite: bool = False) -> None:
    """The run as it stands, with one checkpoint only, in another folder.

    What was there goes only when all of it is written.
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
    """The newest checkpoint that verifies; None of a run that has had none yet.

    Not `checkpoint.latest`: a copy may be of as many ranks as it likes. What is damaged is
    named; what cannot be read now may be sound, and is no reason to save something older.
    """
    config, seed = run.read()
    rejected = []
    for name in reversed(checkpoint.names(run.path)):
        try:
            checkpoint.verified(path := run.path / "checkpoints" / name, digest(config, seed))
        except StorageFailure as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise
            rejected.append(str(error))
            continue
        for reason in rejected:
            text = f"not saved: {reason}; the save goes on from {name}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)
        return path
    if rejected:
        raise StorageFailure(f"{run.path}: no checkpoint can be used ({rejected[0]})")
    if not checkpoint.only_policy(run.path):
        check_nothing_lost(run, config, None)
    return None


def _copy(run: RunFolder, newest: Path | None, new: Path) -> None:
    """Write a run's files into an empty folder."""
    boards = sorted((run.path / "tensorboard").glob("*"))
    for name in [*(f"tensorboard/{path.name}" for path in boards), *COPIED]:
        if (run.path / name).is_file():
            write(new / name, read(run.path / name))
    for folder in (newest, run.policy):
        if folder is not None and folder.is_dir():
            about = read_manifest(folder)["about"]
            write_folder(new / folder.relative_to(run.path), read_folder(folder), about)
