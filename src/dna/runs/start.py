"""Decide whether a run may start in a folder, and from which checkpoint.

A start looks at the folder without touching it (`finished`), locks it (`hold`), and only then
looks for a checkpoint (`newest_checkpoint`). On several ranks the first one looks and holds
the lock; the others follow its decision.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from dna.common import syscalls
from dna.common.errors import BadInput, FolderBusy, StorageFailure
from dna.common.json_lines import lines, parse_row
from dna.common.lock import check_unlocked, locked
from dna.common.storage import recover
from dna.config import Config
from dna.config.overrides import digest
from dna.distributed.collectives import on_rank_zero
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.metrics import differing
from dna.runs.setup import How


def finished(folder: RunFolder, config: Config, seed: int, how: How) -> dict[str, Any] | None:
    """Return the result of a finished run; refuse a folder that is not free for this one.

    Nothing is written, so that a finished run is left as it is.
    """

    def look() -> dict[str, Any] | None:
        folder.check_free()
        check_unlocked(folder.path)
        if how.restart:
            return None
        result = folder.finished(config, seed)
        if result is not None:
            for line in _changed_logs(folder, config, seed):
                warnings.warn(f"{folder.path}: {line}", RuntimeWarning, stacklevel=4)
        if result is None and folder.exists:
            check_goes_on(folder)  # before the lock file is written into it
        return result

    return on_rank_zero(how.world, look)


def _changed_logs(folder: RunFolder, config: Config, seed: int) -> list[str]:
    """One line per log of a finished run that is not what its last checkpoint recorded.

    Damage to that checkpoint takes nothing from the result, but leaves nothing to compare with.
    """
    found = checkpoint.names(folder.path)
    if not found:
        return []  # somebody needed the space, which damages nothing
    path = folder.path / "checkpoints" / found[-1]
    try:
        files = checkpoint.verified(path, digest(config, seed), {"state.json"})
    except StorageFailure as error:
        return [f"its logs cannot be checked ({error})"]
    state = checkpoint.state_in(path, files)
    return differing(folder.path, state["lengths"], state["hashes"])


@contextmanager
def hold(
    folder: RunFolder, config: Config, seed: int, how: How
) -> Iterator[Callable[[], None]]:
    """Lock the folder for this run; yields a check, on all ranks, that it is still this run's.

    A start that fails before it has begun a run removes the folders that it created.
    """
    run = digest(config, seed)
    keep_lock: Callable[[], None] | None = None

    def lock() -> None:
        nonlocal keep_lock
        new = _missing(folder.path)
        keep_lock = stack.enter_context(locked(folder.path))
        stack.enter_context(_removing_unused(folder.path, new))
        changed = folder.done or folder.digest() not in (None, run)
        if changed and not how.restart:  # between the look and the lock
            text = f"{folder.path}: another process changed the run just now; try again"
            raise FolderBusy(text)

    def check() -> None:
        assert keep_lock is not None
        keep_lock()
        _check_same_run(folder, config, seed)

    with ExitStack() as stack:
        on_rank_zero(how.world, lock)
        yield lambda: on_rank_zero(how.world, check)


def _missing(folder: Path) -> list[Path]:
    """List what locking a folder will create, the innermost first."""
    paths = (folder / "run.lock", folder, *folder.parents)
    return [path for path in paths if not path.exists()]


@contextmanager
def _removing_unused(folder: Path, new: list[Path]) -> Iterator[None]:
    """Remove a new lock file and new folders on failure, unless a run was begun in them."""
    try:
        yield
    except BaseException:
        if not (folder / "config.json").exists():
            with suppress(OSError):  # of a folder that is not empty
                for path in new:
                    if path.name == "run.lock":
                        syscalls.unlink(path)
                    else:
                        syscalls.rmdir(path)
        raise


def _check_same_run(folder: RunFolder, config: Config, seed: int) -> None:
    """Refuse to go on in a folder that now holds another run, put there despite the lock."""
    try:
        found = folder.digest()
        if found is None:
            folder.begin(config, seed)
            text = f"{folder.path / 'config.json'}: was deleted or damaged; written again"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return
    except StorageFailure:
        return  # a failing disk is asked again before the next row
    if found != digest(config, seed):
        text = f"{folder.path}: its config.json is another run's now; this run stops here"
        raise FolderBusy(text)


def newest_checkpoint(
    folder: RunFolder, config: Config, seed: int, how: How
) -> checkpoint.Saved | None:
    """Return the newest usable checkpoint of a locked folder; None: start from scratch."""
    world = how.world

    def look() -> bool:
        if how.restart or not folder.exists:
            return False
        recover(folder.path / "checkpoints")
        check_goes_on(folder)
        return True

    if not on_rank_zero(world, look):
        return None
    run = digest(config, seed)
    saved = checkpoint.latest(folder.path, run, world=world, check=checkpoint.unchecked)
    if saved is None:
        every = how.checkpoint_every
        on_rank_zero(world, lambda: check_may_start_over(folder, config, every))
    return saved


def check_goes_on(folder: RunFolder) -> None:
    """Refuse to resume a folder from the hub, which holds a policy but no run."""
    if checkpoint.only_policy(folder.path):
        raise BadInput(
            f"{folder.path}: holds a policy, but no checkpoint to resume from; `dna train "
            f"ENV_ID --config {folder.path / 'config.json'}` starts such a run from scratch"
        )


def check_may_start_over(folder: RunFolder, config: Config, every: int | None) -> None:
    """Refuse to start over where work would be lost; else warn if there was any progress."""
    check_nothing_lost(folder, config, every)
    if _last_interactions(folder.path / "metrics.jsonl"):
        text = f"{folder.path}: no checkpoint yet, starting over"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def check_nothing_lost(folder: RunFolder, config: Config, every: int | None) -> None:
    """Refuse a run without a checkpoint that should have had one.

    A run that ended before its first checkpoint has nothing to lose. One whose metrics go
    beyond that, or that has a policy or damaged checkpoints, is never discarded silently.
    When the first was due is recorded in `machine.json`; `every` is for runs without that.
    """
    asked = folder.machine().get("asked")
    if isinstance(asked, dict) and "checkpoint_every" in asked:
        every = asked["checkpoint_every"]
    damaged = next((folder.path / "checkpoints").glob("damaged-*"), None)
    reached = _last_interactions(folder.path / "metrics.jsonl")
    first = every if isinstance(every, int) else max(config.interactions // 10, 1)
    due = first + config.batch * (config.replay_length + 1)  # PPG waits for an empty replay
    if damaged is not None or due <= reached or folder.policy.exists():
        raise StorageFailure(
            f"{folder.path}: its metrics reach {reached:,} interactions, but it has no "
            "checkpoint that can be used; put its checkpoints back, or start over with "
            "--restart"
        )


def _last_interactions(path: Path) -> int:
    """Return the interactions of the last whole line of a metrics file; 0 without one."""
    if not path.is_file():
        return 0
    reached = 0
    for line in lines(path):
        with suppress(ValueError):  # half a line
            reached = parse_row(line)["interactions"]
    return reached
