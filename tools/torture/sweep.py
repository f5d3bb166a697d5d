"""A sweep on a Ray cluster of which workers, a node and the driver are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import dna.runs.train
from dna.config.overrides import digest, tweak
from dna.config.presets import for_environment
from dna.runs.setup import How
from torture.ground import Outcome, dice, timed

MARK = "DNA_TORTURE"
LENGTH, EVERY = 512, 64
#: Settings of one run: eight iterations, with a checkpoint after each.
RUN = {"horizon": 16, "agents": 4, "joint.sgd.minibatch": 32, "interactions": LENGTH}
KEY = "joint.sgd.learning_rate"


@dataclass
class Nodes:
    """A Ray cluster on this machine, all processes of which carry a mark."""

    cluster: Any
    mark: str
    others: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def lose_one(self) -> None:
        """Kill all processes of a node."""
        self.cluster.remove_node(self.others.pop(), allow_graceful=False)

    def runs(self) -> list[int]:
        """Return the workers that have a run, and the processes of the runs."""
        return marked(self.mark, b"ray::resume_in_child") + marked(self.mark, b"dna\0resume")


@contextlib.contextmanager
def nodes(count: int, cpus: int = 1) -> Iterator[Nodes]:
    """Start nodes, and remove all their processes afterwards."""
    mark = uuid4().hex
    old = {name: os.environ.get(name) for name in (MARK, "RAY_USAGE_STATS_ENABLED")}
    os.environ |= {MARK: mark, "RAY_USAGE_STATS_ENABLED": "0"}
    from ray.cluster_utils import Cluster

    about = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=about)
    found = Nodes(cluster, mark)
    try:
        for _ in range(count - 1):
            found.others.append(cluster.add_node(**about))
        yield found
    finally:
        cluster.shutdown()
        for pid in marked(mark, b""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def marked(mark: str, words: bytes) -> list[int]:
    """Return the other processes with this mark whose command contains these words."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            ours = f"{MARK}={mark}".encode() in (entry / "environ").read_bytes()
            if ours and words in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def command(root: Path, rates: list[float], seeds: int, *more: str) -> list[str]:
    """Return the command `dna sweep` over learning rates."""
    words = [sys.executable, "-m", "dna", "sweep", "CartPole-v1", "--algo", "ppo"]
    words += [f"{key}={value}" for key, value in RUN.items()]
    words += [f"{KEY}={','.join(map(str, rates))}", "--seeds", str(seeds)]
    words += ["--checkpoint-every", str(EVERY), "--quiet"]
    return [*words, "--runs", str(root / "runs"), "--out", str(root / "sweep"), *more]


def undisturbed(root: Path, rates: list[float], seeds: int) -> dict[str, bytes]:
    """Train the same runs in this process; return the metrics by digest."""
    found = {}
    how = How(threads=1, checkpoint_every=EVERY, tensorboard=False)
    for rate in rates:
        config = tweak(for_environment("CartPole-v1", "ppo"), **RUN, **{KEY: rate})
        for seed in range(seeds):
            name = digest(config, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dna.runs.train.train(config, seed, root / name, how=how)
            found[name] = (root / name / "metrics.jsonl").read_bytes()
    return found


def compare(root: Path, expected: dict[str, bytes], outcome: Outcome) -> None:
    """Check that every run and the table are complete and equal those without kills."""
    points = json.loads((root / "sweep/results.json").read_text())["points"]
    listed = {run["digest"]: run for point in points for run in point["runs"]}
    outcome.lost += len(set(expected) ^ set(listed))
    for name, metrics in expected.items():
        folder = root / "runs" / name
        over = (folder / "done").is_file() and listed[name]["state"] == "done"
        same = over and (folder / "metrics.jsonl").read_bytes() == metrics
        same = same and json.loads(metrics.splitlines()[-1])["score"] == listed[name]["score"]
        outcome.differing += over and not same
        outcome.count(same, f"{name}: {'differs' if over else 'not finished'}")


def sweep(root: Path, seeds: int = 6, kills: int = 30, points: int = 10) -> Outcome:
    """Kill workers and runs at random, one of three nodes, and the driver."""
    rates = [round(1e-4 * 1.5**i, 6) for i in range(points)]
    with timed("run of a sweep on 3 Ray nodes under fire") as outcome:
        expected = undisturbed(root / "quiet", rates, seeds)
        with nodes(3) as three:
            words = command(root, rates, seeds, "--ray", three.address)
            killed, *ends = _fire(three, words, root, kills, len(expected))
        compare(root, expected, outcome)
        good = killed == kills and ends == [-signal.SIGKILL, 0] and len(three.others) == 1
        outcome.lost += not good
        told = f"{killed} workers and runs killed, a node lost, drivers ended with {ends}"
        outcome.notes.insert(0, told)
        outcome.notes += [] if good else (root / "log").read_text().splitlines()[-3:]
    return outcome


def _fire(three: Nodes, words: list[str], root: Path, kills: int, runs: int) -> list[int]:
    """Kill processes until the sweep is done; return the kills and the drivers' exit codes.

    Kills are spread evenly over the sweep instead of all happening in its first minute.
    """
    chance, killed, ends, end = dice("sweep"), 0, [], time.perf_counter() + 1800
    driver = _driver(words, root)
    while time.perf_counter() < end:
        time.sleep(chance.uniform(0.2, 2.0))
        if driver.poll() is not None:
            ends.append(driver.returncode)
            if driver.returncode == 0:
                break
            driver = _driver(words, root)
        done = len(list((root / "runs").glob("*/done")))
        alive = three.runs() if killed < kills and killed * runs <= done * kills else []
        if alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(alive), signal.SIGKILL)
                killed += 1
        if killed == kills // 3 and len(three.others) == 2:
            three.lose_one()
        if killed == kills // 2 and not ends:
            driver.kill()
            driver.wait()
    return [killed, *ends]


def _driver(words: list[str], root: Path) -> subprocess.Popen[bytes]:
    with (root / "log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log)
