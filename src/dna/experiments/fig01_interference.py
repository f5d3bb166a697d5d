"""Figure 1: two tasks learned by one network or by two, one of them noisy (section 3.1).

The toy problem itself is `dna.toy`: it trains no agent, so it has no runs of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dna.experiments.plan import Check, Experiment
from dna.experiments.results import Results
from dna.experiments.verdicts import Finding
from dna.toy import run_toy, toy_table, toy_verdicts


def measure(results: Results, folder: Path, told: Callable[[str], None]) -> dict[str, Any]:
    """Train the models that are not trained yet; their errors, and what follows from them."""

    def progress(done: int, total: int) -> None:
        told(f"toy problem: {done} of {total} cells")

    found = run_toy(folder / "toy", results.scale, progress)
    return {"table": toy_table(found), "verdicts": toy_verdicts(found)}


def _of(claim: str) -> Check:
    def check(results: Results) -> Finding:
        found = results.extra.get("toy", {}).get("verdicts", {}).get(claim)
        if found is None:
            return Finding("not tested", "", "the toy problem was not run")
        return Finding(*found)

    return check


EXPERIMENT = Experiment(
    name="fig01",
    alias="toy",
    title="Destructive interference on a toy problem",
    covers=("fig:toy_noise",),
    extra={"toy": measure},
    checks={claim: _of(claim) for claim in ("C006", "C007", "C008", "C009", "C010")},
)
