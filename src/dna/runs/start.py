"""Before a run begins: may it, from where, and who else might be at it.

On several ranks the first one looks and holds the folder; the others are told.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from dna.common.errors import BadInput, FolderBusy, StorageFailure
from dna.common.lock import check_unlocked, locked
from dna.common.storage import recover
from dna.config import Config
from dna.config.overrides import digest
from dna.distributed.collectives import on_first
from dna.distributed.world import World
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.retention import check_may_start_over
from dna.runs.setup import How

#: A context in which a folder is held.
Held = Iterator[Callable[[], None]]


def finished(folder: RunFolder, config: Config, seed: int, how: How) -> dict[str, Any] | None:
    """The result of a run that is over; refuses a folder that is not for this run."""

    def look() -> dict[str, Any] | None:
        folder.check_free()
        check_unlocked(folder.path)
        recover(folder.path / "checkpoints")
        return None if how.restart else folder.finished(config, seed)

    return on_first(how.world, look)


def check_goes_on(folder: RunFolder) -> None:
    """Refuse to begin a folder for the hub anew, which has no run to go on with."""
    if checkpoint.only_policy(folder.path):
        raise BadInput(
            f"{folder.path}: holds a policy, but no checkpoint to go on from; `dna train "
            f"ENV_ID --config {folder.path / 'config.json'}` begins such a run anew"
        )


def where_it_stood(
    folder: RunFolder, config: Config, seed: int, how: How
) -> checkpoint.Saved | None:
    """The newest checkpoint that can be used, unless the run is to begin anew."""
    world = how.world
    if how.restart or not on_first(world, lambda: folder.exists):
        return None
    on_first(world, lambda: check_goes_on(folder))
    saved = checkpoint.latest(folder.path, digest(config, seed), world=world)
    if saved is None:
        every = how.checkpoint_every
        on_first(world, lambda: check_may_start_over(folder.path, config, every))
    return saved


@contextmanager
def held(folder: RunFolder, run: tuple[Config, int], how: How, seen: list[str]) -> Held:
    """Hold the folder for this run, if nobody has changed it since `seen` was looked at.

    Gives a function that makes sure, on all ranks, that it is still held, and still this run's.
    """
    keep: list[Callable[[], None]] = []
    named = digest(*run)

    def take() -> None:
        keep.append(closing.enter_context(locked(folder.path)))
        changed = seen != checkpoint.names(folder.path)
        if not how.restart:
            changed |= folder.done or folder.digest() not in (None, named)
        if changed:
            text = f"{folder.path}: another process changed the run just now; try again"
            raise FolderBusy(text)

    def hold() -> None:
        keep[0]()
        _check_still(folder, run, named)

    with ExitStack() as closing:
        on_first(how.world, take)
        yield lambda: on_first(how.world, hold)


def _check_still(folder: RunFolder, run: tuple[Config, int], named: str) -> None:
    """Who does not ask for the lock may have put another run here: do not mix the two."""
    try:
        found = folder.digest()
        if found is None:
            folder.begin(*run)
            text = f"{folder.path / 'config.json'}: was deleted or damaged; put back"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return
    except StorageFailure:
        return  # a disk that stumbles is asked again before the next row
    if found != named:
        text = f"{folder.path}: its config.json is another run's now; this one ends here"
        raise FolderBusy(text)


@contextmanager
def one_voice(world: World) -> Iterator[None]:
    """Warnings come from the first rank only."""
    if world.rank == 0:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
