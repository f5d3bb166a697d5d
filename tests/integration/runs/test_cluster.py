"""Runs on a real Ray cluster of this machine: workers killed, a node lost, nothing missing."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dna.runs.folder import RunFolder
from dna.runs.sweeps.ray_cluster import Cluster, resume_in_child
from helpers import tiny
from torture.ground import Outcome
from torture.sweep import command, compare, nodes, undisturbed

pytest.importorskip("ray")
#: In one process, one after the other: each brings processes of its own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("many")]


class Machines:
    """Stands for Ray where only its list of nodes is asked for."""

    def __init__(self, *resources):
        self.resources = resources

    def nodes(self):
        return [{"Alive": True, "Resources": r} for r in self.resources] + [
            {"Alive": False, "Resources": {"CPU": 64.0}}
        ]


@pytest.mark.parametrize(
    ("cpus", "gpus", "capacity"),
    [(1, 0, 6), (2, 0, 3), (0.5, 0, 12), (1, 0.25, 4), (3, 0, 1), (8, 0, 0), (1, 1, 1)],
)
def test_runs_are_packed_by_what_they_ask_for(cpus, gpus, capacity):
    ray = Machines({"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0})
    found = Cluster(ray, cpus, gpus)
    assert found.capacity() == capacity
    assert found.room() == capacity + 1
    assert Cluster(ray, cpus, gpus, jobs=2).room() == 2
    assert found.threads == max(1, int(cpus))


def test_the_body_goes_on_with_a_run(tmp_path):
    RunFolder(tmp_path / "run").begin(tiny("ppo", interactions=64), 0)
    assert resume_in_child("run", ["--threads", "1"], str(tmp_path)) == (0, "")
    assert RunFolder(tmp_path / "run").done


@pytest.mark.parametrize(
    ("rates", "seeds", "kills"),
    [([0.001, 0.003], 1, 2), pytest.param([0.001, 0.003], 2, 3, marks=pytest.mark.long)],
)
def test_workers_and_a_node_are_lost_and_nothing_is_missing(rates, seeds, kills, tmp_path):
    expected = undisturbed(tmp_path / "quiet", rates, seeds)
    with nodes(3) as three:
        words = command(tmp_path, rates, seeds, "--ray", three.address, "--json")
        driver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        killed, deadline = 0, time.monotonic() + 80
        while killed < kills and driver.poll() is None:
            assert time.monotonic() < deadline
            for pid in three.runs()[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            if killed == kills - 1 and len(three.others) == 2:
                three.lose_one()
            time.sleep(1.0)
        out, err = driver.communicate(timeout=80)
    assert driver.returncode == 0, err.decode()
    assert killed == kills
    outcome = Outcome("")
    compare(tmp_path, expected, outcome)
    assert outcome.trouble == []
    assert outcome.tried == 2 * seeds
    assert len(json.loads(out)["points"]) == 2


def test_a_local_cluster_listens_on_this_machine_only(tmp_path):
    script = """
import json, sys
from test_cluster import listening
from dna.runs.sweeps.ray_cluster import cluster
with cluster("local") as found:
    address, opened = found.ray.nodes()[0]["NodeManagerAddress"], listening()
print(json.dumps([address, sorted(opened)]))
"""
    words, here = [sys.executable, "-c", script], str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, sys.path)])
    found = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert found.returncode == 0, found.stderr
    address, opened = json.loads(found.stdout)
    assert address == "127.0.0.1"
    assert opened
    for one in opened:  # 127.0.0.1, alone or within IPv6
        assert one.endswith(("0100007F", "00000001000000")), one


@pytest.mark.long
def test_an_experiment_of_the_paper_runs_on_a_cluster(tmp_path):
    words = [sys.executable, "-m", "dna", "reproduce", "easy", "--scale", "smoke", "--json"]
    words += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    found = subprocess.run([*words, "--ray", "local"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    tree = json.loads(found.stdout)
    assert tree["missing"] == 0
    assert len({run["digest"] for run in tree["runs"]}) == 2
    assert "2 of 2 runs finished" in found.stderr


def listening():
    """Addresses and ports on which this process and its descendants listen, the port first."""
    inodes = set()
    for pid in _descendants():
        for fd in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # a process or file that is gone
                inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for name in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        own = [row for row in rows if row[3] == "0A" and row[9] in inodes]
        found |= {":".join(reversed(row[1].split(":"))) for row in own}
    return found


def _descendants():
    """Process ids of this process and everything below it: other tests open sockets too."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def test_a_stopped_driver_has_its_tasks_save_and_goes_on(tmp_path):
    words = command(tmp_path, [0.001, 0.003], 1, "--ray", "local", "--jobs", "1")
    words += ["interactions=20480"]
    words = [word for word in words if word != "interactions=512"]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 80
    while not list((tmp_path / "runs").glob("*/checkpoints/*/manifest.json")):
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.stderr.read()
        time.sleep(0.05)
    driver.send_signal(signal.SIGTERM)
    _, err = driver.communicate(timeout=80)
    assert driver.returncode == 75, err
    assert "the same command continues" in err
    (folder,) = (tmp_path / "runs").iterdir()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])["interactions"]
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    assert int(newest.name) == last, "saved where it was stopped"
    assert not (folder / "done").exists()
