"""`dna sweep` from end to end: each run as if alone, nothing lost when the driver is killed."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import pytest

from dna.cli import main
from dna.common.errors import FolderBusy
from dna.common.lock import locked
from helpers import bytes_of

#: In one process, one after the other: each brings processes of its own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("many")]
RUN = ["CartPole-v1", "--algo", "ppo", "horizon=16", "agents=4", "joint.sgd.minibatch=32"]
FILES = ("metrics.jsonl", "episodes.csv", "config.json", "policy/policy.safetensors")


def where(root):
    return ["--runs", str(root / "runs"), "--out", str(root / "out")]


def metrics(root):
    return {p.parent.name: p.read_bytes() for p in (root / "runs").glob("*/metrics.jsonl")}


def kill_when(words, ready, number=signal.SIGKILL):
    """Start a driver and kill it at that moment; what is left of it ends by itself."""
    command = [sys.executable, "-m", "dna", "sweep", *words]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not ready():
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.stderr.read().decode()
        time.sleep(0.02)
    driver.send_signal(number)
    err = driver.communicate(timeout=60)[1]
    return driver.returncode, err.decode()


def settle(root):
    """Wait until the runs of a killed driver have saved and ended."""
    for run in (root / "runs").iterdir():
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(FolderBusy), locked(run):
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_grid_trains_each_run_as_if_alone_and_only_once(tmp_path, capsys):
    words = ["sweep", *RUN, "joint.sgd.epochs=1,2", "--interactions", "250", *where(tmp_path)]
    assert main([*words, "--json"]) == 0
    shown = capsys.readouterr()
    assert "are rounded" not in shown.err
    tree = json.loads(shown.out)
    assert [len(p["runs"]) for p in tree["points"]] == [1, 1]
    assert tree["points"][0]["score"] >= tree["points"][1]["score"]
    run = next(p for p in tree["points"] if p["changes"] == {"joint.sgd.epochs": 2})["runs"][0]
    alone = [*RUN, "joint.sgd.epochs=2", "--interactions", "250", "--threads", "1"]
    assert main(["train", *alone, "--out", str(tmp_path / "alone"), "--quiet"]) == 0
    capsys.readouterr()
    folder = tmp_path / "runs" / run["digest"]
    assert bytes_of(folder, *FILES) == bytes_of(tmp_path / "alone", *FILES)
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/done")}
    assert main([*words, "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    assert err.count("250 interactions are rounded up to 256, 4 rollouts of 64\n") == 1
    assert "±" in out
    assert "results.csv" in out
    assert all(p.stat().st_mtime_ns == stamp for p, stamp in stamps.items())
    assert len(list((tmp_path / "runs").glob("*/done"))) == 4
    assert main([*words, "--seeds", "2", "--plan"]) == 0
    assert "4 runs, 4 of them finished" in capsys.readouterr().out
    assert main(["sweep", *RUN, "joint.sgd.epochs=1,3", *where(tmp_path)]) == 2
    assert "holds another sweep" in capsys.readouterr().err


def test_a_grid_goes_on_when_its_driver_was_killed(tmp_path, capsys):
    words = [*RUN, "joint.sgd.epochs=1,2", "--interactions", "20480"]
    cut = tmp_path / "cut"
    begun = lambda: len([m for m in metrics(cut).values() if m]) == 2  # noqa: E731
    assert kill_when([*words, *where(cut)], begun)[0] == -signal.SIGKILL
    assert not list((cut / "runs").glob("*/done"))
    settle(cut)
    before = metrics(cut)
    further = lambda: any(len(m) > len(before[n]) for n, m in metrics(cut).items())  # noqa: E731
    code, err = kill_when([*words, *where(cut)], further, signal.SIGTERM)
    assert code == 75, err
    assert "the same command continues" in err
    assert main(["sweep", *words, *where(cut)]) == 0
    assert main(["sweep", *words, *where(tmp_path / "whole")]) == 0
    assert metrics(cut) == metrics(tmp_path / "whole")
    results = [(r / "out/results.csv").read_bytes() for r in (cut, tmp_path / "whole")]
    assert results[0] == results[1]
    for run in (cut / "runs").iterdir():
        assert json.loads((run / "machine.json").read_text())["resumes"] >= 1


SEARCH = [*RUN, "joint.sgd.learning_rate=1e-5..1e-2", "joint.sgd.epochs=1..4"]
SEARCH += ["returns.gamma=0.9,0.99", "--search", "optuna", "--trials", "4", "--jobs", "1"]


def trials(root):
    """What was tried and what came of it."""
    points = json.loads((root / "out/results.json").read_text())["points"]
    kept = ("trial", "changes", "state", "score", "value")
    rows = [[p[k] for k in kept] + [p.get("pruned_at")] for p in points]
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.long  # faster: a killed driver (the grid above), half a line (the test below)
def test_a_search_is_the_same_when_its_driver_was_killed(tmp_path, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = [*SEARCH, "--interactions", "1280"]
    assert main(["sweep", *words, *where(whole), "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert len(tree["points"]) == 4
    states = [p["state"] for p in tree["points"]]
    assert set(states) == {"done", "pruned"}
    assert states == sorted(states)
    second = lambda: len(metrics(cut)) == 2  # noqa: E731
    assert kill_when([*words, *where(cut)], second)[0] == -signal.SIGKILL
    study = cut / "out/study.jsonl"
    with study.open("ab") as file:
        file.write(b'{"op_code": 4, "work')  # half a line, as a driver leaves it
    assert main(["sweep", *words, *where(cut)]) == 0
    assert trials(cut) == trials(whole)
    pruned = [p for p in tree["points"] if p["state"] == "pruned"]
    assert all(p["value"] is None and p["pruned_at"] in (10, 30, 90) for p in pruned)
    shared = metrics(cut).keys() & metrics(whole).keys()
    assert len(shared) == len(metrics(whole)) == len(metrics(cut))
    capsys.readouterr()
    assert main(["sweep", *words, "--average", "median", *where(cut)]) == 2
    assert "holds another sweep" in capsys.readouterr().err


def test_a_pruned_run_is_stopped_and_has_saved(tmp_path, capsys):
    """Two values, the second of which learns nothing, on runs too long to end by themselves."""
    words = [*RUN, "joint.sgd.learning_rate=1e-9,3e-3", "joint.sgd.epochs=4"]
    words += ["--search", "optuna", "--trials", "3", "--jobs", "1", "--interactions", "20480"]
    words = ["sweep", *words, *where(tmp_path), "--objective", "interactions-to=475"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "pruned" in out
    points = json.loads((tmp_path / "out/results.json").read_text())["points"]
    assert sorted(p["trial"] for p in points) == [0, 1, 2]
    assert points[0]["state"] == "done"
    stopped = [r for p in points if p["state"] == "pruned" for r in p["runs"]]
    assert [r["state"] for r in stopped if r["state"] == "unfinished"]
    for run in [r for r in stopped if r["state"] == "unfinished"]:
        assert list((tmp_path / "runs" / run["digest"] / "checkpoints").iterdir())
    before = trials(tmp_path), metrics(tmp_path)
    with (tmp_path / "out/study.jsonl").open("ab") as file:
        file.write(b'{"op_code": 4, "work')  # half a line, as a killed driver leaves it
    assert main(words) == 0
    assert (trials(tmp_path), metrics(tmp_path)) == before
