"""Folders written by an earlier version still resume exactly, evaluate, report and export."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import dna
from dna.cli import main
from helpers import bytes_of

EARLIER = Path(__file__).parents[2] / "fixtures" / "version_0_1"
RUNS = sorted(path.name for path in (EARLIER / "runs").iterdir())
FILES = ("config.json", "metrics.jsonl", "episodes.csv")
POLICY = ("policy/policy.safetensors", "policy/policy.json", "policy/manifest.json")
#: Settings of the sweeps in the fixture, as they were typed.
SETTINGS = [
    *("agents=4", "horizon=16", "network.width=8", "value.sgd.epochs=1", "distil.sgd.epochs=1"),
    *(f"{phase}.sgd.minibatch=32" for phase in ("policy", "value", "distil")),
    *("--interactions", "320", "--jobs", "1"),
]


@pytest.fixture(autouse=True)
def _examples(tmp_path, monkeypatch):
    """The environment of one run is one of the examples."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(EARLIER.parents[2] / "examples")])
    monkeypatch.chdir(tmp_path)


def copied(name, tmp_path):
    return Path(shutil.copytree(EARLIER / name, tmp_path / Path(name).name))


def interrupted(name, tmp_path):
    """The run as it stood at the checkpoint in its middle."""
    run = copied(f"runs/{name}", tmp_path)
    (run / "done").unlink()
    shutil.rmtree(run / "policy")
    return run


def metrics(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {key: [row.get(key) for row in rows] for key in rows[-1]}


def scores(sweep):
    points = json.loads((sweep / "results.json").read_text())["points"]
    return [(p["changes"], p["state"], p["score"], p["runs"][0]["digest"]) for p in points]


@pytest.mark.filterwarnings("ignore:not exact from here on. cpu was:RuntimeWarning")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_resumes_from_its_checkpoint(name, tmp_path):
    """To the same bytes on the same processor, which that version recorded by name only."""
    run = interrupted(name, tmp_path)
    imports = ["--allow-import"] if name == "masked" else []
    assert main(["resume", str(run), "--quiet", *imports]) == 0
    machine = json.loads((run / "machine.json").read_text())
    assert machine["resumes"] == 1
    assert [why for why in machine["why_not_exact"] if not why.startswith("cpu was")] == []
    before = bytes_of(EARLIER / "runs" / name, *FILES, *POLICY)
    if bytes_of(run, *FILES, *POLICY) != before:  # the same run but for rounding
        folders = (EARLIER / "runs" / name, run)
        then, now = (np.array(metrics(folder)["score"], float) for folder in folders)
        np.testing.assert_allclose(now, then, rtol=1e-3)  # NaN: no episode has finished


@pytest.mark.parametrize("name", ["dna", "ppg", "pendulum"])
def test_a_run_evaluates_reports_and_exports(name, tmp_path, capsys):
    run = copied(f"runs/{name}", tmp_path)
    assert main(["eval", str(run), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"]["episodes"] == 2
    assert main(["report", str(run)]) == 0
    assert "<svg" in (run / "report.html").read_text()
    assert main(["export", str(run), "--format", "onnx"]) == 0
    assert (run / "policy.onnx").stat().st_size > 0
    agent = dna.load(run)
    assert agent.score is not None


def test_a_folder_from_the_hub_plays_as_it_did(tmp_path, capsys):
    hub = copied("hub", tmp_path)
    before = json.loads((hub / "eval.json").read_text())
    assert main(["eval", str(hub), "--episodes", "100", "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["policy"]["mean"] == before["policy"]["mean"]
    assert after["policy"]["low"] == pytest.approx(before["policy"]["low"], abs=1e-9)


def test_sweeps_find_their_finished_runs(tmp_path, capsys):
    runs = copied("sweep_runs", tmp_path)
    modified = {path: path.stat().st_mtime_ns for path in runs.glob("*/metrics.jsonl")}
    grid = ["policy.sgd.epochs=1,2", *SETTINGS]
    search = [
        *("policy.sgd.learning_rate=1e-4..1e-2", "policy.sgd.epochs=1"),
        *("--search", "optuna", "--trials", "2", *SETTINGS),
    ]
    for name, words in {"sweep": grid, "search": search}.items():
        out = copied(name, tmp_path)
        before = scores(out)
        command = ["sweep", "CartPole-v1", *words, "--runs", str(runs), "--out", str(out)]
        assert main(command) == 0, capsys.readouterr().err
        assert scores(out) == before
    assert {path: path.stat().st_mtime_ns for path in modified} == modified
    assert len(list(runs.iterdir())) == len(modified)  # and none was trained anew


@pytest.mark.parametrize("name", ["toy", "mujoco"])
def test_experiments_are_summarized_without_training(name, tmp_path, capsys):
    runs, out = copied("experiment_runs", tmp_path), copied("reproductions", tmp_path)
    folder = out / {"toy": "fig01-smoke", "mujoco": "fig13-smoke"}[name]
    before = json.loads((folder / "experiment.json").read_text())
    command = ["reproduce", name, "--scale", "smoke", "--runs", str(runs), "--out", str(out)]
    assert main(command) == 0, capsys.readouterr().err
    after = json.loads((folder / "experiment.json").read_text())
    assert {c["id"]: c["status"] for c in after["verdicts"]} == {
        c["id"]: c["status"] for c in before["verdicts"]
    }
    assert len(list(runs.iterdir())) == 3
    assert main(["report", str(folder)]) == 0
