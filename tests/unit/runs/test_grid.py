"""What a sweep's words mean, how runs are judged, what the tables say, who waits for whom."""

import json
import math
import sys
from itertools import pairwise

import pytest

from dna.cli import main
from dna.common.errors import BadInput, DnaError, MissingExtra, StorageFailure
from dna.common.lock import locked
from dna.common.process import ExitStatus
from dna.config.overrides import digest
from dna.config.search_space import Choice, Range, as_words, grid, label, split
from dna.runs.folder import RunFolder
from dna.runs.sweeps.grid import (
    Objective,
    Point,
    Sweep,
    average,
    objective,
    ranked,
    read_curve,
    remember,
    row,
    standard_error,
    table,
    write_results,
)
from dna.runs.sweeps.pool import DEATHS, Local, Pool, Task, check, drive, threads_for
from dna.runs.sweeps.ray_cluster import cluster
from helpers import tiny


def axis(text):
    return split([f"k={text}"])[1].get("k")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2,4", (1, 2, 4)),
        ("1e-4,0.5", (1e-4, 0.5)),
        ("kl,logit_mse", ("kl", "logit_mse")),
        ("null,true", (None, True)),
        ("[64,64],[128,128]", ([64, 64], [128, 128])),
        ('{"start":1,"end":0},0.5', ({"start": 1, "end": 0}, 0.5)),
        ('"a,b",c', ("a,b", "c")),
        ("1..3:3", (1, 2, 3)),
        ("0.5..1:3", (0.5, 0.75, 1.0)),
        ("1..100:3", (1, 10, 100)),
        ("1..3:9", (1, 2, 3)),
        ("-1..1:2", (-1, 1)),
        ("-2.0..-1.0:3", (-2.0, -1.5, -1.0)),
    ],
)
def test_lists_and_ranges_with_points(text, values):
    assert axis(text) == Choice(values)
    assert [type(v) for v in axis(text).values] == [type(v) for v in values]


def test_points_are_even_in_the_logarithm_from_a_ratio_of_ten():
    found = axis("1e-4..1e-3:5").values
    assert found[0] == 1e-4
    assert found[-1] == 1e-3
    ratios = [b / a for a, b in pairwise(found)]
    assert ratios == pytest.approx([10**0.25] * 4, rel=1e-4)
    assert axis("1e-4..9e-4:3").values[1] == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("text", "between"),
    [
        ("1e-4..1e-3", Range(1e-4, 1e-3, whole=False)),
        ("1..8", Range(1, 8, whole=True)),
        ("1..8.0", Range(1, 8, whole=False)),
    ],
)
def test_ranges_for_a_search(text, between):
    assert axis(text) == between


def test_single_values_are_settings_for_all():
    words = ["a=1", "b=1,2", "c=text", "d=[1,2]", "e=1..2..3", "f=a..b"]
    plain, axes = split(words)
    assert plain == ["a=1", "c=text", "d=[1,2]", "e=1..2..3", "f=a..b"]
    assert list(axes) == ["b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["k=1,2", "k=3,4"], "k: given twice"),
        (["k=1", "k=3,4"], "k: given twice"),
        (["k=1,,2"], "k: an empty value"),
        (["k=1,1"], "k: the same value twice"),
        (["k=3..1"], "k: 3..1 must go from the smaller"),
        (["k=1..2:1"], "k: a range has 2 to"),
        (["k=1..2:99999"], "k: a range has 2 to"),
        (["k=1..2:" + "9" * 5000], "k: a range has 2 to"),
        (["k=" + "9" * 5000 + "..1"], "k: 999999999"),
    ],
)
def test_mistakes_name_the_key(words, said):
    with pytest.raises(BadInput, match="^" + said.replace(".", r"\.")) as caught:
        split(words)
    assert len(str(caught.value)) <= 200


def test_a_grid_has_every_combination_and_wants_points():
    _, axes = split(["a=1,2", "b=x,y"])
    points = grid(axes)
    assert [label(p) for p in points] == ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]
    assert as_words(points[0]) == ["a=1", 'b="x"']
    with pytest.raises(BadInput, match=r"b: needs a number of points.*0\.1\.\.0\.2:3"):
        grid(split(["a=1,2", "b=0.1..0.2"])[1])
    with pytest.raises(BadInput, match="more than 10,000 points"):
        grid(split(["a=1000..1200:200", "b=1000..1200:200"])[1])


CURVE = [(100, 10.0), (200, 30.0), (400, 50.0)]


def test_objectives_by_their_definitions():
    assert objective("score").value(CURVE, 400) == 50.0
    area = (100 * 10 + 100 * 20 + 200 * 40) / 400
    assert objective("area").value(CURVE, 400) == pytest.approx(area)
    assert objective("interactions-to=30").value(CURVE, 400) == 200
    assert objective("interactions-to=30").minimize
    never = objective("interactions-to=100")
    worse = [(x, y / 2) for x, y in CURVE]
    assert 400 < never.value(CURVE, 400) < never.value(worse, 400) < never.value([], 400) == 800
    assert objective("score").value([], 400) is None
    assert objective("interactions-to=475").name == "interactions-to=475"


@pytest.mark.parametrize(
    "text", ["best", "score=1", "interactions-to", "interactions-to=x", "interactions-to=nan"]
)
def test_unknown_objectives_are_refused(text):
    with pytest.raises(BadInput, match="--objective"):
        objective(text)


def test_averages():
    assert average([1, 2, 6], "mean") == 3
    assert average([1, 2, 6], "median") == 2
    assert standard_error([1.0]) is None
    assert standard_error([1.0, 3.0]) == pytest.approx(math.sqrt(2) / math.sqrt(2))


def test_curves_of_runs_that_still_write(tmp_path):
    rows = [{"interactions": 64, "score": None}, {"interactions": 128, "score": 3.0}]
    text = "".join(json.dumps(r) + "\n" for r in rows)
    (tmp_path / "metrics.jsonl").write_text(text + '{"interac')
    assert read_curve(tmp_path, whole=False) == [(128, 3.0)]
    with pytest.raises(StorageFailure, match="line 3 is not a row of numbers"):
        read_curve(tmp_path)
    assert read_curve(tmp_path / "none") == []


def finished(folder, config, seed, score):
    run = RunFolder(folder)
    run.begin(config, seed)
    run.finish({"seed": seed, "score": score, "run": str(folder)})
    line = json.dumps({"interactions": config.interactions, "score": score})
    (folder / "metrics.jsonl").write_text(line + "\n")


def test_tables_have_means_and_errors_best_first(tmp_path):
    sweep = Sweep({"env": "CartPole-v1"}, range(2), tmp_path / "runs", tmp_path / "out")
    points = [Point({"horizon": h}, tiny(horizon=h)) for h in (16, 32, 64)]
    for point, scores in zip(points, ((1.0, 3.0), (4.0, 8.0), (9.0,)), strict=True):
        for seed, score in enumerate(scores):
            finished(sweep.runs / digest(point.config, seed), point.config, seed, score)
    tree = write_results(sweep, [row(sweep, point) for point in points])
    found = [(p["changes"]["horizon"], p["score"], p["state"]) for p in tree["points"]]
    assert found == [(32, 6.0, "done"), (16, 2.0, "done"), (64, 9.0, "unfinished")]
    cells = table(tree["points"], sweep.objective)
    assert [c["score"] for c in cells] == ["6.00 ± 2.00", "2.00 ± 1.00", "9.00"]
    text = (tmp_path / "out/results.md").read_text()
    assert "| 1 | 32 | 6.00 ± 2.00 | 2 | done |" in text
    lines = (tmp_path / "out/results.csv").read_text().splitlines()
    assert lines[0] == "horizon,score,standard_error,value,value_error,seeds,state"
    assert lines[1] == "32,6.0,2.0,6.0,2.0,2,done"
    assert json.loads((tmp_path / "out/results.json").read_text()) == tree


def test_less_is_better_where_it_is(tmp_path):
    rows = [{"state": "done", "value": v} for v in (3.0, None, 1.0)]
    rows.append({"state": "pruned", "value": 0.5})
    soon = ranked(rows, Objective("interactions-to", 1.0))
    assert [r["value"] for r in soon] == [1.0, 3.0, None, 0.5]


def test_a_folder_of_another_sweep_is_refused(tmp_path):
    one = Sweep({"env": "a"}, range(1), tmp_path / "runs", tmp_path)
    remember(one)
    remember(one)
    with pytest.raises(BadInput, match="holds another sweep"):
        remember(Sweep({"env": "b"}, range(1), tmp_path / "runs", tmp_path))


SWEEP = ["sweep", "CartPole-v1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a setting to vary"),
        (["policy.sgd.epochs=1"], "name a setting to vary"),
        (["policy.sgd.epochs=1,-1"], "policy.sgd.epochs"),
        (["policy.sgd.epoch=1,2"], "did you mean 'epochs'"),
        (["returns.gamma=0.9..0.99"], "returns.gamma: needs a number of points"),
        (["returns.gamma=0.9,1.5"], "returns.gamma"),
        (["interactions=1000,2000", "--interactions", "5"], "interactions: given both"),
        (["env.id=a,b"], "env.id: leave it out"),
        (["policy.sgd.epochs=1,2", "--trials", "3"], "--trials: requires --search"),
        (["policy.sgd.epochs=1,2", "--search", "optuna"], "--trials: required by --search"),
        (["policy.sgd.epochs=1,2", "--objective", "best"], "--objective"),
        (["policy.sgd.epochs=1,2", "--gpus-per-run", "0.5"], "--gpus-per-run: requires --ray"),
        (["policy.sgd.epochs=1,2", "--ray", "ray://host:10001"], "give host:port or auto"),
        (["policy.sgd.epochs=-1..2", "--search", "optuna", "--trials", "3"], "epochs"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(
    words, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*SWEEP, *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_with_its_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, words in (("ray", ["--ray", "local"]), ("optuna", ["--search", "optuna"])):
        monkeypatch.setitem(sys.modules, name, None)
        more = ["--trials", "2"] if name == "optuna" else []
        assert main([*SWEEP, "policy.sgd.epochs=1,2", *words, *more]) == 2
        extra = {"ray": "ray", "optuna": "search"}[name]
        assert f"pip install 'ppo-dna[{extra}]'" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(MissingExtra):
        cluster("local").__enter__()


def test_plans_list_runs_or_the_space(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SWEEP, "policy.sgd.epochs=1,2", "--seeds", "2", "--plan"]) == 0
    assert "4 runs, 0 of them finished" in capsys.readouterr().out
    assert main([*SWEEP, "policy.sgd.epochs=1,2", "--plan", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["state"] for r in rows] == ["new", "new"]
    words = ["policy.sgd.epochs=1..9", "--search", "optuna", "--trials", "7", "--plan"]
    assert main([*SWEEP, *words]) == 0
    assert "7 trials of 1 seeds each" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


#: Ends with code 0, but before the run was finished.
NO_DONE = None


class Fake:
    """A place whose runs end as they are told to, at once."""

    preempts, threads = True, 3

    def __init__(self, *codes):
        self.codes, self.started = list(codes), 0

    def room(self):
        return 1

    def start(self, folder, words):
        self.started += 1
        code = self.codes.pop(0)
        if code == 0:
            (folder / "done").write_text("{}")
        return FakeRun(0 if code is NO_DONE else code)


class FakeRun:
    def __init__(self, code):
        self.code = code

    def poll(self):
        return ExitStatus(self.code)

    def stop(self):
        self.code = 75


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setattr("dna.runs.sweeps.pool.PAUSE", 0.001)
    return Task(tiny(), 0, tmp_path / "run")


@pytest.mark.parametrize(
    "codes",
    [(-9, -15, 0), (75, 0), (3, 3, 0), (-9,) * (DEATHS - 1) + (0,), (NO_DONE, 0)],
)
def test_killed_preempted_and_busy_runs_are_started_again(codes, task):
    pool = Pool(Fake(*codes))
    pool.add(task)
    drive(pool)
    assert task.state == "done"
    assert pool.place.started == len(codes)
    check([task])


@pytest.mark.parametrize(
    ("codes", "state"),
    [((-9,) * DEATHS, "failed"), ((4,), "failed"), ((75,) * DEATHS, "stopped")],
)
def test_what_gets_nowhere_is_given_up(codes, state, task):
    pool = Pool(Fake(*codes))
    pool.add(task)
    drive(pool)
    assert task.state == state
    assert pool.place.codes == []


def test_an_end_without_a_result_is_a_failure_of_the_environment(task):
    pool = Pool(Fake(*(NO_DONE,) * DEATHS))
    pool.add(task)
    drive(pool)
    assert task.state == "failed"
    with pytest.raises(DnaError, match=r"1 of 1 runs failed.*calls? os\._exit") as failure:
        check([task])
    assert failure.value.exit_code == 5


def test_progress_earns_more_lives(task):
    class Slow(Fake):
        def start(self, folder, words):
            line = json.dumps({"interactions": self.started + 1, "score": None})
            (folder / "metrics.jsonl").write_text(line + "\n")
            return super().start(folder, words)

    pool = Pool(Slow(*(-9,) * (3 * DEATHS), 0))
    pool.add(task)
    drive(pool)
    assert task.state == "done"


def test_a_folder_that_somebody_holds_is_waited_for(task):
    pool = Pool(Fake(0), patience=0.05)
    pool.add(task)
    with locked(task.folder):
        drive(pool)
    assert task.state == "failed"
    assert task.code == 3
    assert "in use by pid" in task.message
    assert pool.place.started == 0


def test_threads_follow_the_place_for_large_networks_only():
    assert threads_for(tiny(), Fake()) == ("--threads", "1")
    atari = tiny(env_id="ALE/Pong-v5", **{"env.atari": {}})
    assert threads_for(atari, Fake()) == ("--threads", "3")
    assert threads_for(atari, Local(1)) == ()
