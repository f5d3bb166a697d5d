"""The ranks of one run: the only module that knows torch.distributed.

`Solo` is a world of one, in which nothing happens. In a larger one every rank makes the same
calls in the same order; each call ends on all ranks, or fails on all: a rank that fails says
why before it goes, and the others end for the same reason.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from dna.common.errors import BadInput, DnaError, RanksApart
from dna.distributed.launch import Launch, launched
from dna.distributed.rendezvous import meet

Array = npt.NDArray[Any]
#: Seconds that a rank waits for the others before it gives up, beyond a step's own limit.
PATIENCE = 600.0
#: Seconds for the reason of a rank that is gone to be found.
REASON = 1.0


class World(Protocol):
    """All ranks, seen from one of them."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    def sum_(self, x: Tensor) -> None:
        """Add up over all ranks, in place: the same bits everywhere."""

    def gather(self, x: Array) -> list[Array]:
        """Every rank's array, in order; all are of one shape and type."""

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, in order, as many as each has."""

    def report(self, error: BaseException) -> None:
        """Tell the others why this rank ends; only the first to say so is loud."""


class Solo:
    """A world of one."""

    rank, size, local_rank, local_size = 0, 1, 0, 1

    def sum_(self, x: Tensor) -> None:
        """The sum of one is itself."""

    def gather(self, x: Array) -> list[Array]:
        """Only this."""
        return [x]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Only these."""
        return [data]

    def report(self, error: BaseException) -> None:
        """Nobody else has to know."""


SOLO = Solo()


class Ranks:
    """Several processes, each with a share of the environments."""

    def __init__(self, launch: Launch, store: Any) -> None:
        self.rank, self.size = launch.rank, launch.size
        self.local_rank, self.local_size = launch.local_rank, launch.local_size
        self.store = store

    def sum_(self, x: Tensor) -> None:
        """One all-reduce."""
        with self._together():
            dist.all_reduce(x)

    def gather(self, x: Array) -> list[Array]:
        """One all-gather of the bytes, through the host."""
        mine = torch.from_numpy(np.ascontiguousarray(x)).reshape(-1).view(torch.uint8)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        with self._together():
            dist.all_gather(parts, mine)
        return [part.numpy().view(x.dtype).reshape(x.shape) for part in parts]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """First how many, then the bytes, filled up to one length."""
        lengths = [int(n[0]) for n in self.gather(np.array([len(data)]))]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        parts = self.gather(padded) if len(padded) else [padded] * self.size
        return [part[:n].tobytes() for part, n in zip(parts, lengths, strict=True)]

    def report(self, error: BaseException) -> None:
        """Through torchrun's store, which outlives a rank."""
        if getattr(error, "quiet", None):
            return  # of another rank
        with suppress(RuntimeError, AttributeError):
            first = self.store.add("failures", 1) == 1
            if first:
                code = error.exit_code if isinstance(error, DnaError) else 1
                self.store.set("failure", json.dumps({"code": code, "text": str(error)}))
            error.quiet = not first  # type: ignore[attr-defined]

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._reason(error) from error

    def _reason(self, error: RuntimeError) -> DnaError:
        """Why a call failed: what another rank has said of its end, if it could."""
        said: dict[str, Any] = {}
        with suppress(RuntimeError):
            end = time.monotonic() + REASON
            while time.monotonic() < end and not self.store.check(["failure"]):
                time.sleep(0.05)
            if self.store.check(["failure"]):
                said = json.loads(self.store.get("failure"))
        if said:
            found = revived(said["code"], said["text"])
            found.quiet = True  # it was said where it happened
            return found
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        what = "does not answer" if late else "is gone"
        return RanksApart(
            f"rank {self.rank} of {self.size}: another rank {what}; `dna resume` with as many "
            "ranks goes on, `torchrun --max-restarts` by itself"
        )


def revived(code: int, text: str) -> DnaError:
    """An error of another rank, as it would have been here."""
    kinds = {kind.exit_code: kind for kind in DnaError.__subclasses__()}
    return kinds.get(code, DnaError)(text)


@contextmanager
def join(device: str = "auto", step_limit: float | None = None) -> Iterator[World]:
    """The world that torchrun made this process a part of; alone, a world of one.

    Whatever ends this rank inside ends the others too, for the same reason.
    """
    launch = launched()
    if launch.size == 1:
        yield SOLO
        return
    store = _begin(launch, device, timedelta(seconds=PATIENCE + (step_limit or 0.0)))
    world = Ranks(launch, store)
    try:
        yield world
    except BaseException as error:
        world.report(error)
        raise
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _begin(launch: Launch, device: str, timeout: timedelta) -> Any:
    """Meet the others; returns the store that all of them see."""
    if not dist.is_available():
        raise BadInput("this torch cannot join ranks (torch.distributed is not in it)")
    if launch.local_size == launch.size and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # nothing leaves the machine
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if cuda and torch.cuda.is_available():
        torch.cuda.set_device(launch.local_rank % torch.cuda.device_count())
    # What lies on the host goes through gloo in any case: statistics, logs, agreements.
    backend = "cpu:gloo,cuda:nccl" if cuda and torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        name = meet(store, rank, size, timeout.total_seconds())
        dist.init_process_group(
            backend,
            store=PrefixStore(f"{name}/group", store),
            rank=rank,
            world_size=size,
            timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise RanksApart(f"the {launch.size} ranks cannot meet ({reason})") from error
    return PrefixStore(f"{name}/end", store)


def backends() -> list[str]:
    """How ranks of this torch can talk to each other."""
    if not dist.is_available():
        return []
    known = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}
    return [name for name, there in known.items() if there]
