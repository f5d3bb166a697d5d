"""`dna reproduce --claims` takes what is there: the uncut experiment, or its largest cut."""

import json

import pytest

from dna.common.errors import StorageFailure
from dna.paper.claims.verdicts import Verdict
from dna.paper.experiments import experiment
from dna.paper.plan import Limits, cut
from dna.paper.reproduce import Where, all_verdicts, verdict_rows

CLAIM = "C078"


@pytest.fixture
def written(tmp_path):
    """Write an experiment of the ablation: what limits it has, its runs, what came of it."""

    def write(cut, runs, missing, effect, scale="small"):
        found = dict.fromkeys(experiment("ablation").checks, Verdict("held", effect, "proxy"))
        tree = {"verdicts": verdict_rows(found), "missing": missing}
        tree["runs"] = [{"digest": f"{i}", "interactions": 1000} for i in range(runs)]
        folder = tmp_path / f"tab04-{scale}{cut}"
        folder.mkdir()
        (folder / "experiment.json").write_text(json.dumps(tree))

    return write


def row(tmp_path, limits=None):
    rows = all_verdicts("small", Where(tmp_path / "runs", tmp_path), limits)
    assert len(rows) == 138
    return next(one for one in rows if one["id"] == CLAIM)


def test_a_cut_experiment_counts_and_is_named(written, tmp_path):
    assert row(tmp_path)["note"] == "runs are missing"
    written("-3seeds-300000", 75, 0, "cut")
    found = row(tmp_path)
    assert (found["status"], found["effect"]) == ("held", "cut")
    assert found["note"] == "proxy; from tab04-small-3seeds-300000"


def test_the_largest_finished_cut_is_taken(written, tmp_path):
    written("-1seeds", 25, 0, "one seed")
    written("-2seeds", 50, 0, "two seeds")
    written("-9seeds", 200, 25, "not finished")
    written("-3seeds", 75, 0, "other scale", scale="paper")
    assert row(tmp_path)["effect"] == "two seeds"
    assert row(tmp_path, Limits(seeds=1))["effect"] == "one seed"  # as asked for


def test_what_is_not_cut_comes_first_and_needs_no_name(written, tmp_path):
    written("-9seeds", 200, 0, "more seeds")
    written("", 75, 0, "as the scale says")
    found = row(tmp_path)
    assert (found["effect"], found["note"]) == ("as the scale says", "proxy")


def test_what_is_computed_does_not_come_from_a_cut(tmp_path):
    folder = tmp_path / "fig02-small-2seeds"
    folder.mkdir()
    found = {"C011": Verdict("held", "x", "computed, not trained")}
    tree = {"verdicts": verdict_rows(found), "missing": 0, "runs": []}
    (folder / "experiment.json").write_text(json.dumps(tree))
    rows = all_verdicts("small", Where(tmp_path / "runs", tmp_path))
    assert next(r for r in rows if r["id"] == "C011")["note"] == "computed, not trained"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"missing": 0, "runs": [{}], "verdicts": []}',
        '{"missing": 0, "runs": []}',
        '{"missing": 0, "runs": [], "verdicts": [1]}',
        '{"missing": "no", "runs": [], "verdicts": []}',
    ],
)
def test_a_damaged_experiment_is_named_and_how_to_mend_it(text, tmp_path):
    (tmp_path / "tab04-small").mkdir()
    (tmp_path / "tab04-small/experiment.json").write_text(text)
    with pytest.raises(StorageFailure, match=r"tab04-small/experiment.json: .*delete it, "):
        row(tmp_path)


def test_what_is_asked_for_as_it_is_anyway_is_no_cut():
    chosen = experiment("mujoco")
    assert cut(chosen, "small", Limits(seeds=3)) == Limits()
    assert cut(chosen, "small", Limits(3, 1_000_000)) == Limits()
    for other in (Limits(seeds=5), Limits(3, 5000), Limits(interactions=2_000_000)):
        assert cut(chosen, "small", other) == other
    assert cut(experiment("toy"), "small", Limits(seeds=10)) == Limits(seeds=10)
