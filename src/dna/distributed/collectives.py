"""Collective operations: broadcast a decision from rank 0, fail together, check replicas.

Built on `dna.distributed.world`; on a single rank each of them is the plain call.
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
from dna.distributed.world import World, error_from_code

T = TypeVar("T")


def on_rank_zero(world: World, decide: Callable[[], T]) -> T:
    """Run `decide` on rank 0 and broadcast its result (plain JSON), or raise its error."""
    if world.size == 1:
        return decide()
    mine: dict[str, Any] = {}
    if world.rank == 0:
        try:
            mine = {"value": decide()}
        except DnaError as error:
            mine = {"code": error.exit_code, "text": str(error)}
    answer = json.loads(world.gather_bytes(json.dumps(mine).encode())[0])
    if "code" in answer:
        raise error_from_code(answer["code"], answer["text"])
    value: T = answer["value"]
    return value


def fail_together(world: World, work: Callable[[], T]) -> T:
    """Run `work` on every rank; if it fails on any, raise the first error on all."""
    if world.size == 1:
        return work()
    result = None
    failure = b""
    try:
        result = work()
    except DnaError as error:
        failure = json.dumps({"code": error.exit_code, "text": str(error)}).encode()
    for text in world.gather_bytes(failure):
        if text:
            found = json.loads(text)
            raise error_from_code(found["code"], found["text"])
    return result  # type: ignore[return-value]


def gather_lines(world: World, mine: list[str]) -> list[str]:
    """Gather the lines of all ranks, without duplicates, in order."""
    if world.size == 1:
        return mine
    parts = world.gather_bytes(json.dumps(mine).encode())
    return list(dict.fromkeys(line for part in parts for line in json.loads(part)))


def sum_over_ranks(world: World, number: int) -> int:
    """Sum an integer over all ranks."""
    return number if world.size == 1 else sum(int(x) for x in world.gather(np.array(number)))


def stop_requested(world: World, stop: Stop) -> str | None:
    """Return the signal that asked any rank to stop: all ranks save together, or none."""
    if world.size == 1:
        return stop.asked
    numbers = world.gather(np.array(signal_number(stop.asked)))
    found = signal_name(max(int(number) for number in numbers))
    if found is not None:  # a signal that arrived after the gather waits for the next call
        stop.asked = found
    return found


def check_replicas(world: World, tensors: Mapping[str, Tensor], iteration: int) -> None:
    """Raise `RanksApart` unless all ranks hold the same bits of what is learned."""
    if world.size == 1:
        return
    names = sorted(tensors)  # a restored optimizer may have them in any order
    mine = np.stack([np.frombuffer(_digest(tensors[name]), np.uint8) for name in names])
    first, *others = world.gather(mine)
    for rank, other in enumerate(others, 1):
        different = np.flatnonzero((first != other).any(axis=1))
        if len(different):
            raise RanksApart(
                f"iteration {iteration}: rank {rank} is no longer like rank 0 "
                f"({names[different[0]]}); "
                "checkpoints are untouched; `dna resume` continues from the last one"
            )


def _digest(x: Tensor) -> bytes:
    """Return eight bytes of a tensor's hash, plenty to notice an accident."""
    data = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.data).digest()[:8]


def write_together(
    world: World, folder: Path, files: Mapping[str, bytes], about: dict[str, Any]
) -> None:
    """Write a folder of which every rank has some files; an error on one rank fails all."""
    if world.size == 1:
        write_folder(folder, files, about)
        return
    partial = Path(on_rank_zero(world, lambda: str(begin_folder(folder))))
    try:
        mine = fail_together(world, lambda: add_files(partial, folder, files))
        parts = world.gather_bytes(json.dumps(mine).encode())
        listed = {name: line for part in parts for name, line in json.loads(part).items()}
        on_rank_zero(world, lambda: publish_folder(partial, folder, listed, about))
    except BaseException:
        if world.rank == 0:
            discard(partial)
        raise
