"""docs/results.md says what the kept experiments say."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from dna.experiments.output import write_all
from dna.experiments.plan import Limits
from dna.figures.layouts import draw
from made_up import made

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("results", ROOT / "benchmarks/results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.KEPT = ROOT / "results"
    return module


def test_every_kept_experiment_is_in_the_document_as_it_was_found(maker):
    text = (ROOT / "docs/results.md").read_text()
    for tree in maker.kept():
        assert maker.section(tree) in text
        assert not re.search(r'"folder"|"/', json.dumps(tree["runs"]))


def test_every_claim_has_its_verdict_in_the_document(maker):
    text = (ROOT / "docs/results.md").read_text()
    kept = maker.kept()
    shown = dict(re.findall(r"^\| (C\d{3}) \| \**([a-z ]+)\** \|", text, re.MULTILINE))
    assert len(shown) == 138
    for tree in kept:
        for row in tree["verdicts"]:
            assert shown[row["id"]] == row["status"]


def test_an_experiment_is_kept_without_the_paths_of_a_machine(maker, tmp_path, monkeypatch):
    monkeypatch.setattr(maker, "KEPT", tmp_path / "results")
    monkeypatch.setattr(maker, "IMAGES", tmp_path / "img")
    folder = tmp_path / "fig06-small"
    folder.mkdir()
    run = {"folder": "/somewhere/runs/x", "digest": "x", "interactions": 5, "seconds": 7200.0}
    tree = {
        "name": "fig06", "alias": "main", "title": "T", "scale": "small", "proxy": True,
        "missing": 2, "runs": [run], "verdicts": [], "tables": ["main.md"],
        "figures": ["figure.png", "games-main.png"],
    }  # fmt: skip
    (folder / "experiment.json").write_text(json.dumps(tree))
    (folder / "main.md").write_text("| arm |\n|---|\n")
    for name in tree["figures"]:
        (folder / name).write_bytes(b"png")
    maker.take(folder)
    (kept,) = maker.kept()
    assert "somewhere" not in json.dumps(kept)
    text = maker.section(kept)
    assert "Proxy" in text
    assert "2 planned runs were not made" in text
    assert "2.0 hours" in text
    assert (tmp_path / "img/fig06-small.png").exists()
    assert (tmp_path / "img/fig06-small-games-main.png").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [("main", "Proxy: MinAtar, not the paper's games"), ("mujoco", "Shortened: 2 of 30 seeds")],
)
def test_a_section_says_how_it_was_made_and_what_it_is_not(
    name, said, maker, tmp_path, monkeypatch
):
    monkeypatch.setattr(maker, "KEPT", tmp_path / "results")
    monkeypatch.setattr(maker, "IMAGES", tmp_path / "img")
    results = made(name, "small", lambda run: run.arm != "PPG", Limits(seeds=2))
    folder = tmp_path / "whatever"
    write_all(results, folder, draw(results))
    machine = tmp_path / "machine"
    machine.mkdir()
    about = {"cpu": "Some CPU", "cores": 2, "device": "cpu", "python": "3.11"}
    (machine / "machine.json").write_text(json.dumps(about | {"versions": {"torch": "2"}}))
    tree = json.loads((folder / "experiment.json").read_text())
    for run in tree["runs"]:
        run["folder"] = str(machine)
    (folder / "experiment.json").write_text(json.dumps(tree))
    maker.take(folder)
    (tree,) = maker.kept()
    text = maker.section(tree)
    for words in (
        f"dna reproduce {name} --scale small --seeds 2",
        said,
        "seeds 0, 1",
        "Some CPU, 2 cores, cpu; torch 2, Python 3.11",
    ):
        assert words in text
    assert text.count(said) == 1
    if name == "main":
        assert "not finished: PPG (10 of 10 runs)" in text
    for link in re.findall(r"\(img/([^)]*)\)", text):
        assert (tmp_path / "img" / link).stat().st_size < 100_000
    lacking = maker.not_run([tree])
    assert f"(`{name}`): not run at the paper's size." in lacking
    assert "(`procgen`): not run at any scale." in lacking
