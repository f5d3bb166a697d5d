"""Commands under torchrun: several processes run the same one, and speak with one voice."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from dna.common.errors import BadInput
from dna.common.process import wait_briefly
from dna.distributed.launch import launched

if TYPE_CHECKING:
    from dna.distributed.world import World

T = TypeVar("T")
#: Seconds in which the first rank of a busy machine comes to the same refusal.
PATIENCE = 20.0


@contextmanager
def joined(device: str | None, step_limit: float) -> Iterator["World | None"]:
    """The ranks that torchrun started; None, and no torch, for a process alone."""
    if launched().size == 1:
        yield None
        return
    wait_briefly()
    from dna.distributed.world import join

    with join(device or "auto", step_limit) as world:
        yield world


def decided(world: "World | None", decide: Callable[[], T]) -> T:
    """What the first rank decides (plain JSON), for all."""
    if world is None:
        return decide()
    from dna.distributed.collectives import on_first

    return on_first(world, decide)


def is_first() -> bool:
    """Whether this process is the one that prints."""
    return launched().rank == 0


def is_quiet(error: BaseException, code: int) -> bool:
    """Whether another rank says it; before ranks meet, what one refuses all refuse."""
    said: bool | None = getattr(error, "quiet", None)
    if said is not None:
        return said
    try:
        return code == BadInput.exit_code and not is_first()
    except BadInput:
        return False


def let_the_first_speak(error: BaseException, code: int) -> None:
    """A rank that leaves takes the others with it: torchrun would end the first one unheard.

    Only before ranks meet; later they agree on who speaks. Ended by torchrun as soon as the
    first has spoken and left.
    """
    if getattr(error, "quiet", None) is None and is_quiet(error, code):
        time.sleep(PATIENCE)


def leave_in_peace() -> None:
    """torchrun ends the other ranks as soon as one has failed: they are ending already."""
    with suppress(BadInput, ValueError):  # ValueError: not the main thread
        if launched().size > 1:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def leave(code: int) -> None:
    """End a rank here; return on a process alone.

    Threads of the library that joined the ranks may want Python's lock while Python is shut
    down, which ends the process with an abort; on a busy machine that was seen.
    """
    with suppress(BadInput):
        if launched().size > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
