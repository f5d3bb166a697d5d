"""Where runs go: processes here, or a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dna.common.errors import BadInput

if TYPE_CHECKING:
    from dna.runs.sweeps.task import Place

Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS|local", help="Runs as tasks of this Ray cluster"),
]
CpusPerRun = Annotated[
    float | None,
    typer.Option(min=0.01, max=1024, help="With --ray: cores a run asks for [1]"),
]
GpusPerRun = Annotated[
    float | None,
    typer.Option(min=0, max=64, help="With --ray: GPUs a run asks for, or a fraction [0]"),
]


@contextmanager
def the_place(
    jobs: int | None, ray: str | None, cpus: float | None, gpus: float | None
) -> Iterator["Place | None"]:
    """What the options say; None if they say nothing."""
    if ray is None:
        for name, value in (("--cpus-per-run", cpus), ("--gpus-per-run", gpus)):
            if value is not None:
                raise BadInput(f"{name}: goes with --ray")
        from dna.runs.sweeps.task import Local

        yield Local(jobs) if jobs is not None else None
        return
    from dna.runs.sweeps.ray_cluster import cluster

    with cluster(ray, 1.0 if cpus is None else cpus, gpus or 0.0, jobs) as found:
        yield found
