"""docs/results.md says what the kept experiments say."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest

from dna.cli import main
from dna.paper.figures import draw
from dna.paper.plan import Limits
from dna.paper.reproduce import write_all
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
    for tree in {tree["name"]: tree for tree in reversed(kept)}.values():  # the first counts
        for row in tree["verdicts"]:
            assert shown[row["id"]] == row["status"]
            assert maker._found(row)["found"] in maker.section(tree)


@pytest.mark.parametrize("name", [path.stem for path in (ROOT / "results").glob("*-*.json")])
def test_the_page_of_an_experiment_has_the_verdicts_of_the_document(maker, name, tmp_path):
    tree = json.loads((ROOT / "results" / f"{name}.json").read_text())
    title = maker.command(tree)
    tree["runs"] = [run | {"folder": run["digest"]} for run in tree["runs"]]
    (tmp_path / "experiment.json").write_text(json.dumps(tree))
    out = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "--out", str(out)]) == 0
    row = re.compile(r'<code>(C\d+)</code></td><td><span class="chip [\w-]+">([a-z ]+)<')
    effect = re.compile(r"<code>(C\d+)</code></td>(?:<td[^>]*>.*?</td>){2}<td[^>]*>(.*?)</td>")
    page = out.read_text()
    text = (ROOT / "docs/results.md").read_text()
    section = text.partition(f"```console\n{title}\n```")[2].partition("\n### ")[0]
    documented = re.findall(r"^\| (C\d+): .*? \| \**([a-z ]+)\** \|", section, re.MULTILINE)
    assert documented
    assert row.findall(page) == documented
    for claim, found in effect.findall(page):
        line = next(line for line in section.splitlines() if line.startswith(f"| {claim}: "))
        assert html.unescape(found).replace("|", "\\|") in line.replace("&lt;", "<") + "–"


def test_the_toy_problem_can_be_read_in_the_document():
    text = (ROOT / "docs/results.md").read_text()
    section = text.partition("### Destructive interference")[2].partition("\n### ")[0]
    assert "| L_T1 | ± s.e. of L_T1 |" in section
    assert "l_t1" not in section
    assert "test errors" in section
    assert "| C008: When task-1 noise grows" in section
    assert "equal to the bit" in section
    assert "10 times the learning rate and 4 times the steps" in section


@pytest.fixture
def several(maker, tmp_path, monkeypatch):
    """Keep the ablation at these sizes; what each found is its own name."""
    monkeypatch.setattr(maker, "KEPT", tmp_path)

    def keep(*sizes):
        for scale, seeds, missing in sizes:
            tree = {
                "name": "tab04", "alias": "ablation", "title": "T", "scale": scale,
                "proxy": False, "missing": missing, "tables": [], "figures": [], "rows": {},
                "runs": [{"interactions": 1000}] * (seeds or 5), "extra": {},
                "cut": {"seeds": seeds, "interactions": None},
            }  # fmt: skip
            name = maker.name_of(tree)
            row = {"id": "C078", "claim": "c", "status": "held", "effect": name, "note": "n"}
            computed = row | {"id": "C075", "note": "computed, not trained"}
            tree["verdicts"] = [row, computed]
            (tmp_path / f"{name}.json").write_text(json.dumps(tree))
        return maker.kept()

    return keep


@pytest.mark.parametrize(
    ("sizes", "best"),
    [
        ([("smoke", None, 0), ("small", None, 0), ("paper", 2, 0)], "tab04-paper-2seeds"),
        ([("smoke", None, 0), ("small", None, 0)], "tab04-small"),
        ([("small", None, 0), ("small", 9, 0)], "tab04-small"),
        ([("small", 1, 0), ("small", 3, 0), ("small", 9, 4)], "tab04-small-3seeds"),
    ],
)
def test_of_several_sizes_the_largest_counts_and_is_named(several, maker, sizes, best):
    trees = several(*sizes)
    assert len(trees) == len(sizes)
    assert maker.name_of(trees[0]) == best
    rows = dict(re.findall(r"^\| (C07[58]) \|.*\| ([^|]*) \|$", maker.claims(trees), re.M))
    assert rows["C078"] == f"{best}; n; from {best}"
    assert rows["C075"] == f"{best}; computed, not trained"
    lacking = maker.not_run(trees)
    assert "(`ablation`): not run at the paper's size." in lacking


def test_one_size_needs_no_name_and_the_papers_is_run(several, maker):
    trees = several(("small", None, 0))
    assert "tab04-small; n |" in maker.claims(trees)
    assert "(`ablation`)" not in maker.not_run(several(("paper", None, 0)))


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
