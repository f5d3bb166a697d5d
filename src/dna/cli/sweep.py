"""`dna sweep`: a grid of settings over seeds, or a search, on this machine or a cluster."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dna.cli import options, places
from dna.cli.chosen import settings_of
from dna.cli.folders import LAST_SEED
from dna.cli.run import as_options, asked_for
from dna.cli.watching import print_rows, watching
from dna.common.errors import BadInput, DnaError
from dna.config import Config
from dna.config.overrides import digest
from dna.config.search_space import Space, as_words, grid, split, tree_of

if TYPE_CHECKING:
    from dna.runs.sweeps.grid import Sweep
    from dna.runs.sweeps.task import Place

HELP = """Train every combination of some settings over seeds, or search for good ones.

`key=a,b,c` are values, `key=lo..hi:n` n of them (in the logarithm where hi is ten times lo or
more), `key=value` is for all. With --search a plain `key=lo..hi` is anything between. Runs are
kept by digest: finished ones are skipped, interrupted ones go on, and so does the command.

Examples:

  dna sweep CartPole-v1 policy.sgd.epochs=2,5,10 returns.lambda_pi=0.8,0.95 --seeds 3

  dna sweep CartPole-v1 policy.sgd.learning_rate=1e-4..1e-2:5 --plan

  dna sweep CartPole-v1 policy.sgd.learning_rate=1e-4..1e-2 --search optuna --trials 30

  dna sweep MinAtar/Breakout-v1 policy.sgd.epochs=1,2,4 --seeds 5 --ray auto
"""


Seeds = Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each point")]
Search = Annotated[
    Literal["optuna"] | None, typer.Option(help="Search instead of trying everything")
]
Trials = Annotated[int | None, typer.Option(min=1, max=100_000, help="With --search: how many")]
Objective = Annotated[str, typer.Option(help="score, area or interactions-to=NUMBER")]
Average = Annotated[
    Literal["mean", "median"], typer.Option(help="Of the objective, over seeds")
]
Prune = Annotated[
    bool, typer.Option("--prune/--no-prune", help="With --search: stop what does badly")
]
Runs = Annotated[Path, typer.Option(help="Where runs are kept, by digest")]
Out = Annotated[Path | None, typer.Option(help="Results [sweeps/<name>]")]
Jobs = Annotated[int | None, typer.Option(min=1, max=1024, help="Runs at a time [cores]")]
Plan = Annotated[bool, typer.Option("--plan", help="Only list the runs")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table")]


def sweep(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="e.g. CartPole-v1")],
    overrides: options.Overrides = None,
    algo: options.Algorithm = None,
    preset: options.Preset = None,
    profile: options.Profile = None,
    config: options.ConfigFile = None,
    interactions: options.Interactions = None,
    seed: options.Seed = 0,
    seeds: Seeds = 1,
    search: Search = None,
    trials: Trials = None,
    objective: Objective = "score",
    average: Average = "mean",
    prune: Prune = True,
    runs: Runs = Path("runs"),
    out: Out = None,
    jobs: Jobs = None,
    ray: places.Ray = None,
    cpus_per_run: places.CpusPerRun = None,
    gpus_per_run: places.GpusPerRun = None,
    device: options.Device = None,
    checkpoint_every: options.CheckpointEvery = None,
    threads: options.Threads = None,
    env_threads: options.EnvThreads = None,
    env_timeout: options.EnvTimeout = 120.0,
    compile: options.Compile = None,
    allow_import: options.AllowImport = False,
    plan: Plan = False,
    as_json: AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    how = asked_for(device, threads, env_threads, checkpoint_every, compile)
    how |= {"allow_import": allow_import, "env_timeout": env_timeout}
    start = (env_id, (algo, preset, profile), config, interactions)
    asked = _Asked(start, overrides or [], range(seed, seed + seeds), runs, out)
    asked.by, asked.told = (objective, average), (plan, as_json, quiet)
    asked.place, asked.words = (jobs, ray, cpus_per_run, gpus_per_run), as_options(how)
    asked.do(search, trials, prune)


#: Environment, (algorithm, preset, profile), file, length.
Start = tuple[str, tuple[str | None, str | None, str | None], Path | None, int | None]


class _Asked:
    """The command line as the words that `sweeps.grid` and `sweeps.search` take."""

    by: tuple[str, Literal["mean", "median"]]
    words: list[str]
    told: tuple[bool, bool, bool]  # plan, as_json, quiet
    place: tuple[int | None, str | None, float | None, float | None]

    def __init__(
        self, start: Start, words: list[str], seeds: range, runs: Path, out: Path | None
    ) -> None:
        self.start, self.seeds, self.runs, self.out = start, seeds, runs, out
        self.plain, self.axes = split(words)

    def do(self, search: str | None, trials: int | None, prune: bool) -> None:
        """Refuse what does not go together; then a grid or a search."""
        if not self.axes:
            raise BadInput("KEY=A,B: what is to be varied? for example policy.sgd.epochs=1,2")
        if self.seeds[-1] > LAST_SEED:
            raise BadInput(f"--seeds: from --seed {self.seeds[0]} on there are not so many")
        if search is None and trials is not None:
            raise BadInput("--trials: goes with --search optuna")
        if search is not None and trials is None:
            raise BadInput("--trials: how many? for example --search optuna --trials 30")
        self.plan, self.as_json, self.quiet = self.told
        self.grid() if trials is None else self.search(trials, prune)

    def configure(self, changes: Mapping[str, Any]) -> Config:
        """The settings of a point."""
        return settings_of(*self.start, [*self.plain, *as_words(changes)])

    def grid(self) -> None:
        """All combinations, every one of them checked before the first run."""
        changes = grid(self.axes)
        configs = [self.configure(one) for one in changes]
        from dna.runs.sweeps.grid import Point, grid_tasks, run_grid
        from dna.runs.sweeps.pool import check

        points = [Point(*pair) for pair in zip(changes, configs, strict=True)]
        sweep = self._sweep({"kind": "grid"}, configs[0])
        if self.plan:
            return _plan(grid_tasks(sweep, points), self.as_json)
        with places.the_place(*self.place) as place, watching(self.quiet) as told:
            where = place or _here(configs[0])
            tree, tasks = run_grid(sweep, points, where, self.words, told)
        self._tell(sweep, tree)
        check(tasks)

    def search(self, trials: int, prune: bool) -> None:
        """As many trials as asked for."""
        space = Space(self.axes, self.configure)
        first = space.check()
        from dna.runs.sweeps.pool import Pool, check
        from dna.runs.sweeps.search import Plan, run_search

        about = {"kind": "search", "seeds": len(self.seeds), "seed": self.seeds[0]}
        about |= {"objective": self.by[0], "average": self.by[1], "prune": prune}
        sweep = self._sweep(about, first)
        if self.plan:
            return _plan_search(sweep, trials, self.as_json)
        with places.the_place(*self.place) as place, watching(self.quiet) as told:
            pool = Pool(place or _here(first), self.words)
            tree = run_search(sweep, space, Plan(trials, prune), pool, told)
        self._tell(sweep, tree)
        done = any(point["state"] == "done" for point in tree["points"])
        # A setting with which nothing can be learned is an answer, unless there is no other.
        check([t for t in pool.tasks if t.state == "stopped" or not done])
        if not done:
            raise DnaError(f"{sweep.out}: none of {len(tree['points'])} trials came to an end")

    def _sweep(self, about: dict[str, Any], first: Config) -> "Sweep":
        from dna.runs.sweeps.grid import Sweep
        from dna.runs.sweeps.objectives import objective

        judge = objective(self.by[0])
        about = {"env": self.start[0], "axes": tree_of(self.axes)} | about
        about |= {"first": digest(first)}
        folder = self.out or Path("sweeps") / _name(self.start[0], about)
        return Sweep(about, self.seeds, self.runs, folder, judge, self.by[1])

    def _tell(self, sweep: "Sweep", tree: dict[str, Any]) -> None:
        from dna.runs.sweeps.grid import table

        if self.as_json:
            return typer.echo(json.dumps(tree))
        print_rows(table(tree["points"], sweep.objective))
        for point in tree["points"]:
            if "why" in point:
                typer.echo(f"trial {point['trial']} failed: {point['why']}")
        names = " ".join(f"results.{kind}" for kind in ("md", "csv", "json"))
        typer.echo(f"{sweep.out}: {names}")


def _here(config: Config) -> "Place":
    from dna.runs.sweeps.task import Local, jobs_for

    return Local(jobs_for(config))


def _name(env_id: str, about: Mapping[str, Any]) -> str:
    """The environment, and a few digits of what the sweep is."""
    text = json.dumps(about, sort_keys=True)
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", env_id)[:60].strip(".-") or "sweep"
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _plan(tasks: Sequence[Any], as_json: bool) -> None:
    from dna.runs.folder import RunFolder
    from dna.runs.sweeps.task import look

    rows = []
    for task in tasks:
        folder = RunFolder(task.folder)
        look(task)
        done = folder.finished(task.config, task.seed) is not None
        state = "done" if done else "begun" if task.interactions else "new"
        row = {"point": task.label, "seed": str(task.seed), "run": str(task.folder)}
        rows.append(row | {"interactions": f"{task.config.interactions:,}", "state": state})
    if as_json:
        return typer.echo(json.dumps(rows))
    print_rows(rows)
    over = sum(row["state"] == "done" for row in rows)
    typer.echo(f"{len(rows)} runs, {over} of them finished")


def _plan_search(sweep: "Sweep", trials: int, as_json: bool) -> None:
    most = trials * len(sweep.seeds)
    if as_json:
        return typer.echo(json.dumps(dict(sweep.about) | {"trials": trials, "runs": most}))
    rows = [{"key": key, "values": json.dumps(v)} for key, v in sweep.about["axes"].items()]
    print_rows(rows)
    text = f"{trials} trials of {len(sweep.seeds)} seeds each: up to {most} runs"
    typer.echo(f"{text}, by {sweep.objective.name}, in {sweep.out}")


def register(app: typer.Typer) -> None:
    """Add this verb."""
    app.command(help=HELP)(sweep)
