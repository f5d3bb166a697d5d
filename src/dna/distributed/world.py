"""The ranks of one run: the only module that uses torch.distributed.

`Solo` is a world of one rank, in which collective operations do nothing. In a larger world
all ranks make the same calls in the same order. A call succeeds on all ranks or fails on all:
a rank that fails publishes its reason, and the others end with the same error.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from dna.common.errors import BadInput, DnaError, Preempted, RanksApart
from dna.common.process import stop_signals
from dna.distributed.launch import Launch, launched

Array = npt.NDArray[Any]
#: Seconds that a rank waits for the others, beyond the time limit of an environment step.
PATIENCE = 600.0
#: Seconds to look for the reason why another rank is gone.
REASON = 1.0
#: Seconds between polls of the store during the rendezvous.
PAUSE = 0.02


class World(Protocol):
    """All ranks, seen from one of them."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    def sum_(self, x: Tensor) -> None:
        """All-reduce: sum over all ranks in place, to the same bits everywhere."""

    def gather(self, x: Array) -> list[Array]:
        """All-gather: every rank's array in order; all have one shape and type."""

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """All-gather of byte strings, which may differ in length."""

    def report(self, error: BaseException) -> None:
        """Tell the other ranks why this one ends; only the first reason is printed."""


class Solo:
    """A world of one rank."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1

    def sum_(self, x: Tensor) -> None:
        """Do nothing: the sum of one is itself."""

    def gather(self, x: Array) -> list[Array]:
        """Return the only array."""
        return [x]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the only byte string."""
        return [data]

    def report(self, error: BaseException) -> None:
        """Do nothing: there is no other rank."""


SOLO = Solo()


class Ranks:
    """A world of several processes, each with a share of the environments."""

    def __init__(self, launch: Launch, store: Any) -> None:
        self.rank = launch.rank
        self.size = launch.size
        self.local_rank = launch.local_rank
        self.local_size = launch.local_size
        self.store = store

    def sum_(self, x: Tensor) -> None:
        """Sum with one all-reduce."""
        with self._explained():
            dist.all_reduce(x)

    def gather(self, x: Array) -> list[Array]:
        """Gather with one all-gather of the bytes, in host memory."""
        mine = torch.from_numpy(np.ascontiguousarray(x)).reshape(-1).view(torch.uint8)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        with self._explained():
            dist.all_gather(parts, mine)
        return [part.numpy().view(x.dtype).reshape(x.shape) for part in parts]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Gather the lengths first, then the bytes padded to one length."""
        lengths = [int(n[0]) for n in self.gather(np.array([len(data)]))]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        parts = self.gather(padded) if len(padded) else [padded] * self.size
        return [part[:n].tobytes() for part, n in zip(parts, lengths, strict=True)]

    def report(self, error: BaseException) -> None:
        """Publish the reason in torchrun's store, which outlives a rank."""
        if getattr(error, "quiet", None):
            return  # it came from another rank
        with suppress(RuntimeError, AttributeError):
            first = self.store.add("failures", 1) == 1
            if first:
                code = error.exit_code if isinstance(error, DnaError) else 1
                self.store.set("failure", json.dumps({"code": code, "text": str(error)}))
            error.quiet = not first  # type: ignore[attr-defined]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Replace an error of torch.distributed by the reason that another rank published."""
        try:
            yield
        except RuntimeError as error:
            raise self._reason(error) from error

    def _reason(self, error: RuntimeError) -> DnaError:
        published: dict[str, Any] = {}
        with suppress(RuntimeError):
            end = time.monotonic() + REASON
            while time.monotonic() < end and not self.store.check(["failure"]):
                time.sleep(0.05)
            if self.store.check(["failure"]):
                published = json.loads(self.store.get("failure"))
        if published:
            found = error_from_code(published["code"], published["text"])
            found.quiet = True  # printed by the rank where it happened
            return found
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        what = "does not answer" if late else "is gone"
        return RanksApart(
            f"rank {self.rank} of {self.size}: another rank {what}; `dna resume` with as many "
            "ranks continues, `torchrun --max-restarts` does so by itself"
        )


def error_from_code(code: int, text: str) -> DnaError:
    """Rebuild an error of another rank from its exit code and text."""
    kinds = {kind.exit_code: kind for kind in DnaError.__subclasses__()}
    return kinds.get(code, DnaError)(text)


@contextmanager
def join(device: str = "auto", step_limit: float | None = None) -> Iterator[World]:
    """Join the ranks that torchrun started; a process started alone gets `SOLO`.

    An error that ends this rank inside ends the others too, with the same reason.
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
    """Create the process group; return the store that all ranks share."""
    if not dist.is_available():
        raise BadInput("this torch cannot join ranks (torch.distributed is not in it)")
    if launch.local_size == launch.size and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if cuda and torch.cuda.is_available():
        torch.cuda.set_device(launch.local_rank % torch.cuda.device_count())
    # Host data goes through gloo in any case: statistics, logs, decisions.
    backend = "cpu:gloo,cuda:nccl" if cuda and torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        name = _session_name(store, rank, size, timeout.total_seconds())
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


def _session_name(store: Any, rank: int, size: int, seconds: float) -> str:
    """Rendezvous: agree on a name for this set of ranks that no other set has had.

    torchrun keeps its store when it restarts the ranks, and ranks on different machines may
    have been restarted a different number of times, so the store may hold old messages. Every
    rank therefore publishes a random token; rank 0 publishes the tokens that it sees, until
    every rank has found its own among them.
    """
    token = uuid4().hex
    published = ""  # by rank 0, so far
    end = time.monotonic() + seconds
    store.set(f"hello/{rank}", token)
    with stop_signals() as stop:
        while time.monotonic() < end:
            if rank == 0:
                published = _publish_tokens(store, size, published)
            heard = _get(store, "heard")
            tokens = json.loads(heard) if heard else []
            if len(tokens) == size and tokens[rank] == token:
                name = "-".join(one[:8] for one in tokens)
                store.set(f"{name}/here/{rank}", "")
                if store.check([f"{name}/here/{other}" for other in range(size)]):
                    return name
            if stop.asked:
                raise Preempted(f"stopped by {stop.asked} before the run began")
            time.sleep(PAUSE)
    raise RanksApart(f"rank {rank} of {size}: the others did not come in {seconds:.0f} seconds")


def _publish_tokens(store: Any, size: int, before: str) -> str:
    """Publish the tokens of all ranks whenever they changed; return what is published."""
    tokens = [_get(store, f"hello/{rank}") for rank in range(size)]
    now = json.dumps(tokens)
    if None not in tokens and now != before:
        store.set("heard", now)
        return now
    return before


def _get(store: Any, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def backends() -> list[str]:
    """Return the communication backends of this torch."""
    if not dist.is_available():
        return []
    known = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}
    return [name for name, available in known.items() if available]
