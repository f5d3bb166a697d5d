"""How ranks that were just started find each other in a store full of old messages.

torchrun keeps its store when it restarts the ranks, and ranks on different machines may have
been restarted a different number of times. So every rank says hello with a number of its own;
rank 0 reads out the numbers it sees, until all ranks have heard theirs.
"""

import json
import time
from typing import Protocol
from uuid import uuid4

from dna.common.errors import Preempted, RanksApart
from dna.common.process import stop_signals

#: Seconds between looks.
PAUSE = 0.02


class Store(Protocol):
    """What is asked of torch's stores."""

    def set(self, key: str, value: str, /) -> object: ...

    def get(self, key: str, /) -> bytes: ...

    def check(self, keys: list[str], /) -> bool: ...


def meet(store: Store, rank: int, size: int, seconds: float) -> str:
    """A name for this gathering of ranks that no other has had."""
    mine, heard, end = uuid4().hex, "", time.monotonic() + seconds
    store.set(f"hello/{rank}", mine)
    with stop_signals() as stop:
        while time.monotonic() < end:
            if rank == 0:
                heard = _read_out(store, size, heard)
            found = _get(store, "heard")
            numbers = json.loads(found) if found else []
            if len(numbers) == size and numbers[rank] == mine:
                name = "-".join(number[:8] for number in numbers)
                store.set(f"{name}/here/{rank}", "")
                if store.check([f"{name}/here/{other}" for other in range(size)]):
                    return name
            if stop.asked:
                raise Preempted(f"stopped by {stop.asked} before the run began")
            time.sleep(PAUSE)
    raise RanksApart(f"rank {rank} of {size}: the others did not come in {seconds:.0f} seconds")


def _read_out(store: Store, size: int, before: str) -> str:
    """Rank 0 says which numbers it sees, whenever there are others than before."""
    numbers = [_get(store, f"hello/{rank}") for rank in range(size)]
    now = json.dumps(numbers)
    if None not in numbers and now != before:
        store.set("heard", now)
        return now
    return before


def _get(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None
