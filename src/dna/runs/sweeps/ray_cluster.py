"""Runs on a Ray cluster. Ray only decides where and when: what a run is and what came of it
are files in a folder that all machines see (docs/adr/0007-ray-only-schedules.md).

Workers import this module for every run: at the top is nothing but the standard library.
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
from dna.common.process import Child, Ended

#: Seconds between looks of a worker at its run.
PAUSE = 0.2
#: What stands for the exit code of a run whose worker or machine is gone.
LOST = -9


def body(folder: str, words: list[str], cwd: str) -> tuple[int, str]:
    """The task: a process that goes on with a run; a cancelled task has it save and end.

    A process, because a run ends its own when an environment hangs, sets torch's threads for
    good, and is stopped by signals, which a worker keeps for itself. It ends with the worker.
    """
    asked: list[int] = []
    # Ray cancels by an interrupt: as a flag it cannot come between a run and its handle.
    old = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        child = Child(folder, words, cwd)
        while (ended := child.poll()) is None:
            if asked:
                asked.clear()
                child.stop()
            time.sleep(PAUSE)  # not `wait`: an interrupt does not wake that
        return ended.code, ended.words
    finally:
        signal.signal(signal.SIGINT, old)


@dataclass
class OnRay:
    """A run as a Ray task."""

    ray: Any
    task: Any
    ended: Ended | None = None

    def poll(self) -> Ended | None:
        """How it ended; a lost worker or machine counts as killed."""
        if self.ended is None and self.ray.wait([self.task], timeout=0)[0]:
            errors = self.ray.exceptions
            try:
                self.ended = Ended(*self.ray.get(self.task))
            except errors.TaskCancelledError:
                self.ended = Ended(75)  # before it began
            except errors.RayTaskError as error:  # the body itself: not installed there?
                last = str(error).strip().splitlines()[-1]
                self.ended = Ended(1, f"on the cluster: {last}")
            except errors.RayError as error:
                self.ended = Ended(LOST, f"lost: {type(error).__name__}")
        return self.ended

    def stop(self) -> None:
        """Ask it to save and end, or never to begin."""
        self.ray.cancel(self.task, force=False)


@dataclass
class Cluster:
    """The machines of a Ray cluster, shared out by what a run asks for."""

    ray: Any
    cpus: float = 1.0
    gpus: float = 0.0
    jobs: int | None = None
    preempts: bool = True
    _remote: Any = field(default=None, repr=False)

    @property
    def threads(self) -> int | None:
        """As many torch threads as a run has cores."""
        return max(1, int(self.cpus))

    def capacity(self) -> int:
        """Runs that fit on the machines that are there now."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(self._fits(resources) for resources in nodes)

    def _fits(self, resources: dict[str, float]) -> int:
        shares = [("CPU", self.cpus), ("GPU", self.gpus)]
        # Fractions add up with a rounding error.
        fits = [int(resources.get(n, 0) / share + 1e-9) for n, share in shares if share]
        return min(fits)

    def room(self) -> int:
        """As many as fit, and one that waits: a cluster that can grow sees that it should."""
        return self.jobs or self.capacity() + 1

    def start(self, folder: Path, words: Sequence[str]) -> OnRay:
        """A task. It is not retried by Ray but by the pool, which knows about progress."""
        if self._remote is None:
            options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_retries": 0}
            self._remote = self.ray.remote(body).options(**options)
        # A run that asked for no GPU must not take one that it happens to see.
        device = ["--device", "cpu"] if not self.gpus and "--device" not in words else []
        task = self._remote.remote(str(folder), [*words, *device], os.getcwd())
        return OnRay(self.ray, task)


@contextmanager
def cluster(
    address: str, cpus: float = 1.0, gpus: float = 0.0, jobs: int | None = None
) -> Iterator[Cluster]:
    """The cluster at an address, or one of this machine (`local`), gone when this ends."""
    ray = _connected(address)
    try:
        found = Cluster(ray, cpus, gpus, jobs)
        if not found.capacity():
            text = f"no machine of the cluster has {cpus:g} cores and {gpus:g} GPUs for a run"
            raise BadInput(f"--ray {address}: {text}")
        yield found
    finally:
        ray.shutdown()


def _connected(address: str) -> Any:
    """Ray, quiet: no dashboard, no statistics sent, no logs of workers in our output."""
    if address.startswith("ray://"):
        text = "give host:port or auto, on a machine of the cluster, which sees the runs' files"
        raise BadInput(f"--ray {address}: {text}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("--ray", "ray") from None
    # A lost worker is our business: the raylet's words about it would land on stdout.
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
    """A cluster of this machine that nobody else can reach."""
    from ray._private import ray_constants

    # As Ray does it on macOS and Windows; on Linux it would listen on every interface.
    ray_constants.ENABLE_RAY_CLUSTER = False
    ray.init(address="local", include_dashboard=False, **quiet)
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    if addresses != {"127.0.0.1"}:
        ray.shutdown()
        raise DnaError("--ray local: this version of Ray would listen beyond this machine")
    return ray
