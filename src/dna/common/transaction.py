"""Several files and folders of a run change together, or none of them does.

What is new is written to a folder of its own, beside a list of what changes. Once that folder
has its name, `.next`, the change counts: whoever takes the run's lock brings it to its end, by
renames that may be repeated. Before that the run is as it was, and what a crash leaves of the
change has a name that nobody reads.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from dna.common import syscalls
from dna.common.errors import StorageFailure
from dna.common.storage import (
    PARTIAL,
    begin_folder,
    discard,
    make_folder,
    partial_name,
    read_json,
    reported,
    sync_folder,
    write_json,
)

#: A change that counts but may not have come to its end.
NEXT = ".next"
#: In it: what comes, what goes, and the names of both.
NEW, OLD, LIST = "new", "old", "list.json"


def exchange(folder: Path, fill: Callable[[Path], None], names: Sequence[str]) -> None:
    """Put what `fill` writes into a folder of its own in the place of all that has these names.

    Only for who holds the folder's lock. What comes must be among the names, which are taken
    in this order.
    """
    for left in folder.glob(f"{PARTIAL}*"):
        discard(left)  # it can be as large as the run
    partial = begin_folder(folder / NEXT)
    try:
        for part in (NEW, OLD):
            make_folder(partial / part)
        fill(partial / NEW)
        coming = [name for name in names if (partial / NEW / name).exists()]
        going = [name for name in names if name not in coming]
        write_json(partial / LIST, {"bring": coming, "drop": going})
        with reported(folder):
            syscalls.rename(partial, folder / NEXT)
            sync_folder(folder)
    except BaseException:
        discard(partial)
        raise
    finish(folder)


def finish(folder: Path) -> None:
    """Bring the change to its end, if there is one; only for who holds the folder's lock."""
    if not pending(folder):
        return
    step, names = folder / NEXT, _names(folder / NEXT)
    places = set[Path]()
    with reported(folder):
        for number, (name, comes) in enumerate(names.items()):
            new, here = step / NEW / name, folder / name
            if comes and not new.exists():
                continue  # it came before the crash
            if here.exists() or here.is_symlink():
                syscalls.rename(here, step / OLD / str(number))
            if comes:
                syscalls.rename(new, here)
            places.add(here.parent)
        for place in sorted(places | {folder}):
            sync_folder(place)
        syscalls.rename(step, over := partial_name(folder))
        sync_folder(folder)
    discard(over)


def pending(folder: Path) -> bool:
    """Whether a change waits for being brought to its end."""
    return (folder / NEXT).is_dir() and not (folder / NEXT).is_symlink()


def _names(step: Path) -> dict[str, bool]:
    """What changes, and whether something comes in its place; nothing outside of the folder."""
    tree = read_json(step / LIST)
    try:
        names = {**dict.fromkeys(tree["drop"], False), **dict.fromkeys(tree["bring"], True)}
        parts = [part for name in names for part in name.split("/")]
    except (TypeError, KeyError, AttributeError):
        parts = [""]
    if not all(part.strip(".") and "\0" not in part for part in parts):
        raise StorageFailure(f"{step / LIST}: not one of ours")
    return names
