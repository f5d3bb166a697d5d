"""How this process was started: alone, or by torchrun as one of several ranks.

Read from the environment, without torch, so that a refused command stays quick.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dna.common.errors import BadInput

#: What torchrun tells each process, and what a process alone would be told.
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those of this machine
    local_size: int = 1


def launched(variables: Mapping[str, str] | None = None) -> Launch:
    """As torchrun says; alone when it says nothing."""
    said = os.environ if variables is None else variables
    if any(name not in said for name in NAMES):
        return Launch()
    size = _number(said, "WORLD_SIZE", 1)
    launch = Launch(
        _number(said, "RANK", 0),
        size,
        _number(said, "LOCAL_RANK", 0),
        _number(said, "LOCAL_WORLD_SIZE", 1),
    )
    if launch.rank >= size:
        raise BadInput(f"RANK: given {launch.rank}, but WORLD_SIZE is {size}")
    return launch


def check_divides(agents: int, ranks: int) -> None:
    """Every rank has the same number of environments."""
    if agents % ranks:
        raise BadInput(
            f"agents: given {agents}, must be a multiple of the {ranks} ranks; "
            f"try agents={max(agents // ranks, 1) * ranks}"
        )


def _number(said: Mapping[str, str], name: str, least: int) -> int:
    text = said.get(name, str(least))
    if not text.isdecimal() or int(text) < least:
        raise BadInput(f"{name}: given {text[:40]!r}, must be an integer of at least {least}")
    return int(text)
