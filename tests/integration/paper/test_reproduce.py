"""Every experiment of the paper from beginning to end, at the scale of seconds."""

import json
import os
import shutil
from pathlib import Path

import pytest

from dna.cli import main
from dna.common.errors import NonFinite, Preempted, StorageFailure
from dna.paper import reproduce
from dna.paper.costs import Speed, cost, measured, played, remembered, toy_cost
from dna.paper.experiments import EXPERIMENTS, experiment
from dna.paper.plan import ATARI_5, Limits, planned
from dna.paper.results import collect
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import train
from helpers import Stopper

#: In one process: experiments share the runs of `root`.
pytestmark = pytest.mark.xdist_group("reproduce")
HOW = How(tensorboard=False, compile="off", threads=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def trained(root):
    """The three runs of `main` at smoke scale, trained once; tests copy them."""
    assert main(["reproduce", "main", "--scale", "smoke", *words(root)]) == 0
    return [root / "runs" / run.digest for run in planned(experiment("main"), "smoke")]


@pytest.fixture
def copied(trained, tmp_path):
    """A folder of its own that holds the runs of `main`."""
    for run in trained:
        shutil.copytree(run, tmp_path / "runs" / run.name)
    return tmp_path


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Compiling takes a minute on a machine that has not done it yet; images some seconds."""
    monkeypatch.setattr("dna.paper.costs.COMPILE", "off")
    monkeypatch.setattr("dna.paper.costs.IMAGES", 128)


@pytest.fixture
def unmeasured(monkeypatch):
    """Plans take these speeds instead of training every kind of run for a moment."""
    monkeypatch.setattr(
        "dna.paper.costs.measured", lambda run: Speed(playing=1e-3, walking=1e-3)
    )
    monkeypatch.setattr("dna.paper.costs.played", lambda run: 1e-3)
    monkeypatch.setattr("dna.paper.costs.toy_seconds", lambda cell, settings: 60.0)


def words(root):
    return ["--runs", str(root / "runs"), "--out", str(root / "out")]


@pytest.mark.filterwarnings("ignore:a resumed run may not be exact")  # Procgen's state
@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.alias)
def test_an_experiment_runs_draws_and_judges(one, root, capsys):
    assert main(["reproduce", one.alias, "--scale", "smoke", "--json", *words(root)]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["missing"] == 0
    assert {row["id"] for row in tree["verdicts"]} == set(one.checks)
    folder = root / "out" / f"{one.name}-smoke"
    for name in (*tree["figures"], *tree["tables"], "experiment.json"):
        assert (folder / name).stat().st_size > 0
    scored = any(run["score"] is not None for run in tree["runs"])  # episodes may be too long
    assert bool(tree["figures"]) == bool(scored or one.extra)
    for name in tree["figures"]:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    for row in tree["verdicts"]:
        assert row["status"] == "not tested" or row["note"] == "computed, not trained"


def test_the_noise_experiment_shows_what_lambda_does(root, capsys):
    """`dna reproduce noise` alone: panels, a table, and the claims of section 6.2."""
    assert main(["reproduce", "noise", "--scale", "smoke", "--json", *words(root)]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert "lambda.png" in tree["figures"]
    assert "lambda_noise.md" in tree["tables"]
    found = {row["id"]: row for row in tree["verdicts"]}
    assert {"C053", "C054"} <= set(found)
    assert len(tree["extra"]["lambda_noise"]["policy"]) == 8


def test_what_is_finished_is_not_trained_again(trained, root, capsys):
    arguments = ["reproduce", "main", "--scale", "smoke", *words(root)]
    done = trained[0] / "done"
    before = done.stat().st_mtime_ns
    assert main(arguments) == 0
    assert done.stat().st_mtime_ns == before
    assert "not tested" in capsys.readouterr().out


def test_the_folder_that_was_written_is_named(tmp_path, capsys):
    arguments = ["reproduce", "targets", "--scale", "smoke", "--interactions", "256"]
    assert main([*arguments, *words(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = [Path(line) for line in lines if line.startswith(str(tmp_path))]
    assert tmp_path / "out/fig12-smoke-256/experiment.json" in named
    assert all(path.is_file() for path in named)


def test_runs_go_on_where_they_were_and_by_processes(tmp_path, capsys, monkeypatch):
    """Short runs at small scale, by the pool; one of them was stopped on its way before."""
    monkeypatch.setitem(ATARI_5.envs, "small", ATARI_5.envs["small"][:1])  # of five games
    limits = Limits(seeds=1, interactions=8192)
    begun = planned(experiment("easy"), "small", limits)[0]
    folder = RunFolder(tmp_path / "runs" / begun.digest)
    with pytest.raises(Preempted):
        train(begun.config, begun.seed, folder.path, how=HOW, sinks=[Stopper(0)])
    first = (folder.path / "metrics.jsonl").read_bytes()
    arguments = ["reproduce", "easy", "--scale", "small", "--seeds", "1"]
    arguments += ["--interactions", "8192", *words(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    digests = {run["digest"] for run in tree["runs"]}  # shared by figure and table
    assert len(digests) == 2
    assert tree["proxy"] is True
    assert all(RunFolder(tmp_path / "runs" / digest).done for digest in digests)
    assert tree["caption"].startswith("proxy: MinAtar, not the paper's games")
    whole = (folder.path / "metrics.jsonl").read_bytes()
    assert whole.startswith(first)
    assert len(whole) > len(first)
    assert json.loads((folder.path / "machine.json").read_text())["resumes"] == 1


def test_a_failed_run_is_named_and_the_others_are_summarized(
    copied, tmp_path, capsys, monkeypatch
):
    def failing(config, seed, folder, **options):
        if folder.name == broken.digest:
            raise NonFinite("the policy's loss is not finite")
        return train(config, seed, folder, **options)

    broken = next(r for r in planned(experiment("main"), "smoke") if r.arm == "PPG")
    shutil.rmtree(copied / "runs" / broken.digest)
    monkeypatch.setattr(reproduce, "train", failing)
    arguments = ["reproduce", "main", "--scale", "smoke", *words(tmp_path)]
    assert main(arguments) == NonFinite.exit_code
    error = capsys.readouterr().err.splitlines()[-1]
    assert "1 of 3 runs failed; PPG in MinAtar/Breakout-v1, seed 0: the policy's loss" in error
    tree = json.loads((tmp_path / "out" / "fig06-smoke" / "experiment.json").read_text())
    assert {run["arm"] for run in tree["runs"]} == {"DNA", "PPO (2x)"}
    assert tree["missing"] == 1
    assert tree["failed"][0].startswith("PPG in MinAtar/Breakout-v1, seed 0")
    assert {row["id"] for row in tree["verdicts"]} == set(experiment("main").checks)
    monkeypatch.undo()
    assert main(arguments) == 0
    tree = json.loads((tmp_path / "out" / "fig06-smoke" / "experiment.json").read_text())
    assert "failed" not in tree


def test_what_is_finished_is_shown_without_training(trained, tmp_path, capsys):
    """One run of three; `--claims` finds it as well, before anything was written."""
    begun = planned(experiment("main"), "smoke")[0]
    shutil.copytree(trained[0], tmp_path / "runs" / begun.digest)
    assert main(["reproduce", "main", "--claims", "--scale", "smoke", *words(tmp_path)]) == 0
    assert not (tmp_path / "out").exists()
    arguments = ["reproduce", "main", "--scale", "smoke", *words(tmp_path)]
    assert main([*arguments, "--finished", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["digest"] for run in tree["runs"]] == [begun.digest]
    assert tree["missing"] == 2
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize("damage", ["", '{"iteration": 0, "interact'])
def test_a_damaged_run_costs_its_own_point(damage, copied, tmp_path, capsys):
    arguments = ["reproduce", "main", "--scale", "smoke", *words(tmp_path)]
    broken = next(r for r in planned(experiment("main"), "smoke") if r.arm == "PPG")
    (tmp_path / "runs" / broken.digest / "metrics.jsonl").write_text(damage)
    assert main(arguments) == StorageFailure.exit_code
    error = capsys.readouterr().err.splitlines()[-1]
    assert "1 of 3 runs failed; PPG in MinAtar/Breakout-v1, seed 0:" in error
    assert "metrics.jsonl: " in error
    assert error.endswith("delete its folder to train it again")
    folder = tmp_path / "out" / "fig06-smoke"
    tree = json.loads((folder / "experiment.json").read_text())
    assert {run["arm"] for run in tree["runs"]} == {"DNA", "PPO (2x)"}
    (folder / "experiment.json").write_text("{")  # ours, and written anew
    shutil.rmtree(tmp_path / "runs" / broken.digest)
    assert main(arguments) == 0


def test_a_place_that_cannot_be_written_to_is_refused_before_training(tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    arguments = ["reproduce", "main", "--scale", "smoke", *words(tmp_path)]
    assert main(arguments) == StorageFailure.exit_code
    assert not (tmp_path / "runs").exists()
    assert "out: " in capsys.readouterr().err


def test_runs_that_studies_share_are_counted_once(tmp_path):
    """Walker2d's DNA belongs to figure 13 and to its λ."""
    chosen = experiment("mujoco")
    runs = planned(chosen, "small")
    found = collect(chosen, "small", runs, tmp_path)
    assert (len(runs), found.missing) == (54, 51)


def test_a_failed_process_does_not_end_the_others(tmp_path, monkeypatch):
    """Every group is brought to its end, whatever became of the one before."""
    groups = []

    def ended(tasks, place, report):
        groups.append(len(tasks))
        for task in tasks:
            task.state = "done"
        tasks[0].state, tasks[0].code, tasks[0].message = "failed", 5, "the game is broken"

    monkeypatch.setattr(reproduce, "run_all", ended)
    monkeypatch.setattr(
        reproduce, "uses_all_cores", lambda config: config.interactions > 600_000
    )
    runs = [*planned(experiment("main"), "small"), *planned(experiment("noise"), "small")]
    failed = reproduce.execute(runs, tmp_path, "small")
    assert len(groups) == 2
    assert [one.code for one in failed] == [5, 5]
    assert all(str(one).endswith("the game is broken") for one in failed)


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.alias)
def test_a_plan_at_the_papers_size_is_printed(one, unmeasured, tmp_path, capsys):
    arguments = ["reproduce", one.alias, "--scale", "paper", "--plan", *words(tmp_path)]
    assert main(arguments) == 0
    text = " ".join(capsys.readouterr().out.split())
    count = len({run.digest for run in planned(one, "paper")})
    if one.studies:
        assert f"{count} runs, 0 of them finished" in text
        assert "hours one after" in text or "days one after" in text
    elif one.extra:
        assert "7,600 models in 76 cells, 0 of them finished; about" in text
    else:
        assert "0 runs: nothing is trained" in text


def test_a_plan_of_the_toy_problem_is_models_seeds_and_noise(tmp_path, capsys):
    arguments = ["reproduce", "toy", "--scale", "smoke", "--plan", *words(tmp_path)]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert "joint, dual × 2 σ₁ and shallow-joint, shallow-dual × 2 σ₁, 2 seeds" in said.out
    assert "16 models in 8 cells, 0 of them finished; about" in said.out
    assert main([*arguments, "--seeds", "1"]) == 0
    assert "1 seeds each: 8 models in 8 cells" in capsys.readouterr().out
    assert "measuring the toy problem, joint" in said.err
    assert main([*arguments, "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)["toy"]
    assert bill["hours"] > 0
    assert main([word for word in arguments if word != "--plan"]) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    assert "8 of them finished\n" in capsys.readouterr().out


def test_the_hours_of_the_toy_problem_are_those_of_what_is_left(tmp_path):
    (tmp_path / "joint-0.1.json").write_text("{}")
    bill = toy_cost("small", tmp_path, measure=lambda cell, settings: 3600.0)
    assert (bill.cells, bill.finished, bill.hours) == (18, 1, 17.0)


def test_a_plan_says_what_it_measures(root, monkeypatch):
    said, seen = [], []
    fixed = Speed(playing=0.25, walking=0.5)
    monkeypatch.setattr("dna.paper.costs.measured", lambda run: seen.append(run) or fixed)
    speed = remembered(root / "speeds", said.append)
    runs = planned(experiment("time"), "paper")
    assert {speed(run) for run in runs} == {fixed}
    assert len(said) == len(seen) == 4  # dna, ppo, ppg, ppo with 8 agents: one of each kind
    assert said[0] == "measuring the speed of dna on ALE/BattleZone-v5"
    again = remembered(root / "speeds", said.append)
    assert {again(run) for run in runs} == {fixed}
    assert len(said) == 4


def test_speeds_of_yesterday_are_measured_anew(tmp_path, monkeypatch):
    seen, run = [], planned(experiment("mujoco"), "smoke")[0]
    monkeypatch.setattr(
        "dna.paper.costs.measured", lambda run: seen.append(run) or Speed(1.0, 1.0)
    )
    remembered(tmp_path)(run)
    path = tmp_path / "speeds.json"
    known = json.loads(path.read_text())
    for of_kind in known.values():
        of_kind["when"] -= 25 * 3600
    path.write_text(json.dumps(known))
    remembered(tmp_path)(run)
    assert len(seen) == 2


def test_every_task_of_mujoco_is_played(tmp_path, monkeypatch):
    """Ant's physics takes many times Reacher's: one task cannot stand for the others."""
    said, every = [], planned(experiment("mujoco"), "small")
    runs = {run.env: run for run in every if (run.study, run.arm) == ("mujoco", "DNA")}
    monkeypatch.setattr("dna.paper.costs.measured", lambda run: Speed(1.0, 0.5))
    monkeypatch.setattr("dna.paper.costs.played", lambda run: float(len(run.env)))
    speed = remembered(tmp_path, said.append)
    found = {env: speed(run) for env, run in runs.items()}
    assert found["Ant-v5"] == Speed(1.0, 0.5)  # the one that was learned from
    assert {one.walking for one in found.values()} == {0.5}
    others = {env: one.playing for env, one in found.items() if env != "Ant-v5"}
    assert others == {env: float(len(env)) for env in others}
    assert said[0] == "measuring the speed of dna on Ant-v5"
    assert said[1:] == [f"measuring {env}" for env in runs if env != "Ant-v5"]


def test_a_speed_is_the_time_of_the_environments_and_of_the_rest():
    run = planned(experiment("mujoco"), "smoke")[0]
    found = measured(run)
    assert found.playing > 0
    assert found.walking > 0
    assert played(run) > 0
    row = Speed(playing=2.0, walking=0.0).seconds(run.config)
    assert row == 2 * run.config.interactions


def test_a_long_first_iteration_is_not_repeated(monkeypatch):
    run = planned(experiment("mujoco"), "smoke")[0]
    spent = []
    monkeypatch.setattr(
        "dna.paper.costs._timed", lambda work: spent.append((4.0, 6.0)) or spent[-1]
    )
    assert measured(run).playing == pytest.approx(4.0 / run.config.batch)
    assert len(spent) == 1


def test_a_first_iteration_that_compiles_is_not_the_measurement(monkeypatch):
    """A run of MuJoCo compiles its steps: the plan measures the best of what comes after."""
    run = planned(experiment("mujoco"), "small")[0]
    clock = iter([(0.5, 29.5), (0.3, 0.5), (0.25, 0.5), (0.3, 0.4)])
    monkeypatch.setattr("dna.paper.costs.COMPILE", "auto")
    monkeypatch.setattr("dna.paper.costs._timed", lambda work: next(clock))
    # DNA walks its rows 32 times: three phases of ten epochs, acting, V.
    assert measured(run) == Speed(0.3 / 1024, 0.4 / 1024 / 32)
    assert next(clock, None) is None


def test_hours_count_cores_and_measured_noise(tmp_path):
    """Small runs go in parallel; those for images one at a time; noise is work as well."""
    cores = os.cpu_count() or 1
    runs = planned(experiment("mujoco"), "small")
    bill = cost(runs, tmp_path, [], lambda run: Speed(0.0, 0.001))
    # DNA walks its rows 32 times (three phases of ten epochs, acting, V), PPO 12 times.
    passes = 27 * 32_000 + 24 * 12_000
    assert bill.hours == pytest.approx(passes / 3600)
    assert bill.wall_hours == pytest.approx(bill.hours / cores)
    alone = cost(runs, tmp_path, [], lambda run: Speed(0.0, 0.001), jobs=1)
    assert alone.wall_hours == bill.hours
    images = planned(experiment("noise"), "small")
    bill = cost(images, tmp_path, [], lambda run: Speed(0.0, 0.01))
    assert bill.wall_hours == bill.hours
    # 6 epochs, acting and V; a batch and 64 times 32 rows of three phases for the noise.
    walked = 8 + 3 * (1 + 64 * 32 / 16384)
    assert bill.hours == pytest.approx(walked * 3 * 300_000 / 100 / 3600)


def test_what_is_finished_is_drawn_when_a_run_fails(copied, tmp_path, monkeypatch, capsys):
    true = reproduce.train
    broken = next(r for r in planned(experiment("main"), "smoke") if r.arm == "PPG")
    shutil.rmtree(copied / "runs" / broken.digest)

    def fails(config, *args, **kwargs):
        if config.algorithm == "ppg":
            raise NonFinite("the environment broke")
        return true(config, *args, **kwargs)

    monkeypatch.setattr(reproduce, "train", fails)
    assert main(["reproduce", "main", "--scale", "smoke", *words(tmp_path)]) == 4
    assert "the environment broke" in capsys.readouterr().err.splitlines()[-1]
    folder = tmp_path / "out" / "fig06-smoke"
    tree = json.loads((folder / "experiment.json").read_text())
    assert tree["unfinished"] == "not finished: PPG (1 of 1 runs)"
    assert (folder / "figure.png").is_file()
    assert "PPG (1 of 1 runs)" in (folder / "main.md").read_text()


def test_a_plan_says_what_is_shared(unmeasured, tmp_path, capsys):
    arguments = ["reproduce", "ablation", "--scale", "paper", "--plan", "--json"]
    arguments += words(tmp_path)
    assert main(arguments) == 0
    bill = json.loads(capsys.readouterr().out)
    assert bill["shared"]["fig06"] == 15
    assert bill["interactions"] == 75 * 50_000_000
    assert bill["hours"] > 24
    assert bill["gigabytes"] > 1


def test_all_claims_have_a_verdict(root, capsys):
    assert main(["reproduce", "--claims", "--scale", "smoke", "--json", *words(root)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 138
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert sum(row["status"] == "held" for row in rows) >= 20
    assert main(["reproduce", "--claims", *words(root)]) == 0
    assert "138 claims" in capsys.readouterr().out


def test_the_claims_of_one_experiment_are_its_own(root, capsys):
    assert main(["reproduce", "fig13", "--claims", "--json", *words(root)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == ["C112", "C113", "C114"]
    assert main(["reproduce", "mujoco", "--claims", *words(root)]) == 0
    assert "3 claims" in capsys.readouterr().out


def test_folders_with_brackets_are_named_as_they_are(tmp_path, capsys):
    folder = tmp_path / "re[red]p[/b]"
    arguments = ["reproduce", "settings", "--scale", "smoke", "--runs", str(tmp_path / "runs")]
    assert main([*arguments, "--out", str(folder)]) == 0
    assert str(folder / "tab01-smoke/experiment.json") in capsys.readouterr().out


def test_the_noise_of_smoke_runs_gives_no_warning(root, capsys):
    """Noise that drowns the gradient: draws without a bound, and nothing said of NumPy's."""
    assert main(["reproduce", "noise", "--scale", "smoke", *words(root)]) == 0
    assert "encountered" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fig99"], "no such experiment"),
        ([], "which experiment"),
        (["main", "--scale", "huge"], "huge"),
        (["main", "--seeds", "0"], "seeds"),
        (["fig03"], "figure 3 of the paper is a drawing"),
        (["fig99", "--claims"], "no such experiment"),
        (["main", "--claims", "--plan"], "--claims, --plan, --finished: give only one"),
        (["main", "--finished", "--plan"], "--claims, --plan, --finished: give only one"),
        (["toy", "--scale", "smoke", "--interactions", "64"], "--interactions: toy trains no"),
        (["toy", "--interactions", "64", "--plan"], "--interactions: toy trains no agent"),
    ],
)
def test_mistakes_are_one_line(arguments, said, root, capsys):
    assert main(["reproduce", *arguments, *words(root)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_experiments_are_listed(capsys):
    assert main(["list", "experiments"]) == 0
    text = capsys.readouterr().out
    for one in EXPERIMENTS:
        assert one.name in text
        assert one.alias in text
