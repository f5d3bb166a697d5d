"""Cells that tables share: a mean with its error, the length of a study's runs."""

from collections.abc import Sequence

import numpy as np

from dna.paper.claims.compare import standard_error
from dna.paper.experiments.plan import Study
from dna.paper.experiments.results import Results

Row = dict[str, str]


def mean_and_error(found: Sequence[float]) -> str:
    """`12.30 ± 0.40`; without seeds nothing, of one seed no error."""
    if not len(found):
        return ""
    error, mean = standard_error(found), float(np.mean(found))
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def length_of(results: Results, study: Study) -> int:
    """Interactions of a run."""
    return results.limits.interactions or study.world.interactions[results.scale]


def number(value: float | None, digits: int = 1) -> str:
    """Of a table; nothing where it is not known."""
    return "" if value is None else f"{value:,.{digits}f}"
