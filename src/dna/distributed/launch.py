"""How this process was started: alone, or by torchrun as one of several ranks.

Read from environment variables, without torch, so that refusing a command stays fast.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dna.common.errors import BadInput

#: Variables that torchrun sets for every rank.
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """The rank of this process and the number of ranks."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the ranks of this machine
    local_size: int = 1


def launched(variables: Mapping[str, str] | None = None) -> Launch:
    """Read torchrun's variables; a process without them is the only rank."""
    values = os.environ if variables is None else variables
    if any(name not in values for name in NAMES):
        return Launch()
    launch = Launch(
        rank=_number(values, "RANK", 0),
        size=_number(values, "WORLD_SIZE", 1),
        local_rank=_number(values, "LOCAL_RANK", 0),
        local_size=_number(values, "LOCAL_WORLD_SIZE", 1),
    )
    if launch.rank >= launch.size:
        raise BadInput(f"RANK: given {launch.rank}, but WORLD_SIZE is {launch.size}")
    return launch


def _number(values: Mapping[str, str], name: str, least: int) -> int:
    text = values.get(name, str(least))
    if not text.isdecimal() or int(text) < least:
        raise BadInput(f"{name}: given {text[:40]!r}, must be an integer of at least {least}")
    return int(text)


def check_divides(agents: int, ranks: int) -> None:
    """Refuse a number of agents that cannot be split evenly between the ranks."""
    if agents % ranks:
        raise BadInput(
            f"agents: given {agents}, must be a multiple of the {ranks} ranks; "
            f"try agents={max(agents // ranks, 1) * ranks}"
        )
