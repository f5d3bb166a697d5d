"""Ranks in accord: one decides for all, all decide together, all are alike.

Built on `dna.distributed.world`; in a world of one each of these is the plain call.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dna.common.errors import DnaError, RanksApart
from dna.common.process import Stop, signal_name, signal_number
from dna.common.storage import add_files, begin_folder, discard, publish_folder, write_folder
from dna.distributed.world import World, revived

T = TypeVar("T")


def on_first(world: World, decide: Callable[[], T]) -> T:
    """What rank 0 decides (plain JSON), or why it cannot, on every rank."""
    if world.size == 1:
        return decide()
    said: dict[str, Any] = {}
    if world.rank == 0:
        try:
            said = {"value": decide()}
        except DnaError as error:
            said = {"code": error.exit_code, "text": str(error)}
    first = json.loads(world.gather_bytes(json.dumps(said).encode())[0])
    if "code" in first:
        raise revived(first["code"], first["text"])
    value: T = first["value"]
    return value


def together(world: World, work: Callable[[], T]) -> T:
    """Each rank's own result, if all have one; else the first error, on every rank."""
    if world.size == 1:
        return work()
    said, result = b"", None
    try:
        result = work()
    except DnaError as error:
        said = json.dumps({"code": error.exit_code, "text": str(error)}).encode()
    for text in world.gather_bytes(said):
        if text:
            found = json.loads(text)
            raise revived(found["code"], found["text"])
    return result  # type: ignore[return-value]


def texts(world: World, mine: list[str]) -> list[str]:
    """The lines of all ranks, each once, in order."""
    if world.size == 1:
        return mine
    parts = world.gather_bytes(json.dumps(mine).encode())
    return list(dict.fromkeys(line for part in parts for line in json.loads(part)))


def total(world: World, number: int) -> int:
    """The sum over ranks."""
    return number if world.size == 1 else sum(int(x) for x in world.gather(np.array(number)))


def asked(world: World, stop: Stop) -> str | None:
    """The signal that asked any of the ranks to stop: all save together, or none."""
    if world.size > 1:
        numbers = world.gather(np.array(signal_number(stop.asked)))
        found = signal_name(max(int(number) for number in numbers))
        if found is not None:  # one that came just now is for the next time
            stop.asked = found
        return found
    return stop.asked


def check_alike(world: World, tensors: Mapping[str, Tensor], iteration: int) -> None:
    """Ranks hold the same bits of everything that is learned, or the run ends here."""
    if world.size == 1:
        return
    names = sorted(tensors)  # a restored optimizer may have them in any order
    mine = np.stack([np.frombuffer(_digest(tensors[name]), np.uint8) for name in names])
    first, *others = world.gather(mine)
    for rank, other in enumerate(others, 1):
        apart = np.flatnonzero((first != other).any(axis=1))
        if len(apart):
            raise RanksApart(
                f"iteration {iteration}: rank {rank} is no longer like rank 0 "
                f"({names[apart[0]]}); "
                "checkpoints are untouched, `dna resume` goes back to the last"
            )


def _digest(x: Tensor) -> bytes:
    """Eight bytes of a tensor's hash are plenty for an accident."""
    data = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.data).digest()[:8]


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
        on_first(world, lambda: publish_folder(partial, folder, listed, about))
    except BaseException:
        if world.rank == 0:
            discard(partial)
        raise
