"""How a peer is measured: it does one unit of work for each line it reads, and says how long.

`dna bench` starts each peer once, lets all of them take turns, and drops the first turn.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def case() -> dict[str, Any]:
    """The work that is asked for: agents, horizon, epochs, mini-batch, iterations of a unit."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    return asked


def serve(work: Callable[[], int]) -> None:
    """Call `work`, which returns how many interactions it took, whenever a line arrives."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes elsewhere
    for _ in sys.stdin:
        start = time.perf_counter()
        interactions = work()
        seconds = time.perf_counter() - start
        print(json.dumps({"interactions": interactions, "seconds": seconds}), file=out)
        out.flush()
