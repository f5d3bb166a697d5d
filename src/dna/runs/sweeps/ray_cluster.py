"""Runs on a Ray cluster, which survive the loss of a worker or a node.

Ray only decides where and when a run trains; its definition and its results are files in a
folder that all machines share (docs/adr/0007-ray-only-schedules.md). A lost worker or node
counts as a killed process: the pool starts the run again elsewhere, from its newest checkpoint
(`dna.runs.sweeps.pool`).

Workers import this module for every run, so at the top it imports no large library.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dna.common.errors import BadInput, DnaError, MissingExtra
from dna.common.process import Child, ExitStatus

#: Seconds between a worker's polls of its run.
PAUSE = 0.2
#: Exit code of a run whose worker or node was lost.
LOST = -9


def resume_in_child(folder: str, options: list[str], cwd: str) -> tuple[int, str]:
    """Resume a run in a child process; cancelling the Ray task has it save and end.

    A process of its own, because a run ends its process when an environment hangs, sets
    torch's threads for good, and is stopped by signals, which a worker handles itself. It ends
    with the worker.
    """
    asked: list[int] = []
    # Ray cancels with SIGINT. It only sets a flag: an exception could lose the child's handle.
    old = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        child = Child(folder, options, cwd)
        while (ended := child.poll()) is None:
            if asked:
                asked.clear()
                child.stop()
            time.sleep(PAUSE)  # not `wait`, which a signal does not interrupt
        return ended.code, ended.message
    finally:
        signal.signal(signal.SIGINT, old)


@dataclass
class RayHandle:
    """A run that was started as a Ray task."""

    ray: Any
    task: Any
    ended: ExitStatus | None = None

    def poll(self) -> ExitStatus | None:
        """Return how the run ended; a lost worker or node counts as killed."""
        if self.ended is None and self.ray.wait([self.task], timeout=0)[0]:
            errors = self.ray.exceptions
            try:
                self.ended = ExitStatus(*self.ray.get(self.task))
            except errors.TaskCancelledError:
                self.ended = ExitStatus(75)  # before it started
            except errors.RayTaskError as error:  # in our function: not installed there?
                last = str(error).strip().splitlines()[-1]
                self.ended = ExitStatus(1, f"on the cluster: {last}")
            except errors.RayError as error:
                self.ended = ExitStatus(LOST, f"lost: {type(error).__name__}")
        return self.ended

    def stop(self) -> None:
        """Ask it to save and end, or not to start."""
        self.ray.cancel(self.task, force=False)


@dataclass
class Cluster:
    """The nodes of a Ray cluster, and the resources of a run."""

    ray: Any
    cpus: float = 1.0
    gpus: float = 0.0
    jobs: int | None = None
    preempts: bool = True
    _remote: Any = field(default=None, repr=False)

    @property
    def threads(self) -> int | None:
        """Torch threads of a run: one per core."""
        return max(1, int(self.cpus))

    def capacity(self) -> int:
        """Number of runs that fit on the nodes that are alive."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(self._fits(resources) for resources in nodes)

    def _fits(self, resources: dict[str, float]) -> int:
        shares = [("CPU", self.cpus), ("GPU", self.gpus)]
        # Fractions have rounding errors.
        fits = [int(resources.get(n, 0) / share + 1e-9) for n, share in shares if share]
        return min(fits)

    def room(self) -> int:
        """As many as fit and one that waits, which makes an autoscaling cluster grow."""
        return self.jobs or self.capacity() + 1

    def start(self, folder: Path, options: Sequence[str]) -> RayHandle:
        """Start a task; retries are left to the pool, which knows the progress of the run."""
        if self._remote is None:
            self._remote = self.ray.remote(resume_in_child).options(
                num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0
            )
        # A run that requests no GPU must not use one that it happens to see.
        device = ["--device", "cpu"] if not self.gpus and "--device" not in options else []
        task = self._remote.remote(str(folder), [*options, *device], os.getcwd())
        return RayHandle(self.ray, task)


@contextmanager
def cluster(
    address: str, cpus: float = 1.0, gpus: float = 0.0, jobs: int | None = None
) -> Iterator[Cluster]:
    """Connect to the cluster at an address, or start one on this machine (`local`)."""
    ray = _connected(address)
    try:
        found = Cluster(ray, cpus, gpus, jobs)
        if not found.capacity():
            text = f"no node of the cluster has {cpus:g} cores and {gpus:g} GPUs for a run"
            raise BadInput(f"--ray {address}: {text}")
        yield found
    finally:
        ray.shutdown()


def _connected(address: str) -> Any:
    """Connect quietly: no dashboard, no usage statistics, no worker logs in our output."""
    if address.startswith("ray://"):
        text = "give host:port or auto, on a node of the cluster, which sees the runs' files"
        raise BadInput(f"--ray {address}: {text}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("--ray", "ray") from None
    # Lost workers are handled here: the raylet would report them on stdout.
    ray._private.worker._worker_logs_enabled = False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == "local":
            return _local(ray, quiet)
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(f"--ray {address}: no cluster there ({reason})") from None
    return ray


def _local(ray: Any, quiet: dict[str, Any]) -> Any:
    """Start a cluster on this machine that only listens on the loopback interface."""
    from ray._private import ray_constants

    # As Ray does on macOS and Windows; on Linux it would listen on every interface.
    ray_constants.ENABLE_RAY_CLUSTER = False
    ray.init(address="local", include_dashboard=False, **quiet)
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    if addresses != {"127.0.0.1"}:
        ray.shutdown()
        raise DnaError("--ray local: this version of Ray would listen beyond this machine")
    return ray
