"""A folder that several ranks write together, each its own files.

As `storage.write_folder`: nothing is seen under the folder's name before every file of every
rank is complete, on disk, and was read back by rank 0, which writes the manifest.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dna.accord import on_first, together
from dna.storage import add_files, begin_folder, discard, show_folder, write_folder
from dna.world import World


def write_together(
    world: World, folder: Path, files: Mapping[str, bytes], about: dict[str, Any]
) -> None:
    """Write this rank's files of the folder; what fails on one rank fails on all."""
    if world.size == 1:
        write_folder(folder, files, about)
        return
    partial = Path(on_first(world, lambda: str(begin_folder(folder))))
    try:
        mine = together(world, lambda: add_files(partial, folder, files))
        parts = world.gather_bytes(json.dumps(mine).encode())
        listed = {name: line for part in parts for name, line in json.loads(part).items()}
        on_first(world, lambda: show_folder(partial, folder, listed, about))
    except BaseException:
        if world.rank == 0:
            discard(partial)
        raise
