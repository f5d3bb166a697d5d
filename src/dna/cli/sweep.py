"""`dna sweep`: a grid of settings over seeds, or a search, on this machine or a Ray cluster."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dna.cli.options import (
    AsJson,
    EnvId,
    Quiet,
    RayOptions,
    RunOptions,
    Seed,
    SettingsOptions,
    expand,
    seed_range,
)
from dna.cli.progress import print_rows, show_runs
from dna.common.errors import BadInput, DnaError
from dna.config import Config
from dna.config.overrides import digest
from dna.config.search_space import Axis, Space, as_words, grid, split, tree_of
from dna.runs.text_progress import rounding_note

if TYPE_CHECKING:
    from dna.runs.sweeps.grid import Sweep
    from dna.runs.sweeps.pool import Place, Task


@dataclass(frozen=True)
class SweepOptions:
    """Options of `dna sweep` alone."""

    seed: Seed = 0
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Seeds per point, starting at --seed")
    ] = 1
    search: Annotated[
        Literal["optuna"] | None,
        typer.Option(help="Search with this library instead of trying every combination"),
    ] = None
    trials: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="With --search: number of trials")
    ] = None
    objective: Annotated[
        str, typer.Option(help="Objective: score, area or interactions-to=NUMBER")
    ] = "score"
    average: Annotated[
        Literal["mean", "median"], typer.Option(help="Average of the objective over seeds")
    ] = "mean"
    prune: Annotated[
        bool,
        typer.Option("--prune/--no-prune", help="With --search: stop unpromising trials early"),
    ] = True
    runs: Annotated[Path, typer.Option(help="Folder of all runs, each named by its digest")] = (
        Path("runs")
    )
    out: Annotated[Path | None, typer.Option(help="Folder of the results [sweeps/<name>]")] = (
        None
    )
    jobs: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Parallel runs [number of cores]")
    ] = None
    plan: Annotated[bool, typer.Option("--plan", help="List the runs and stop")] = False
    as_json: AsJson = False
    quiet: Quiet = False


@expand
def sweep(
    env_id: EnvId,
    settings: SettingsOptions,
    options: SweepOptions,
    cluster: RayOptions,
    how: RunOptions,
) -> None:
    """Train every combination of some settings over seeds, or search for good settings.

    `key=a,b,c` lists values; `key=lo..hi:n` is n values from lo to hi, spaced logarithmically
    if hi is at least ten times lo; `key=value` applies to all runs. With --search,
    `key=lo..hi` samples values between lo and hi. Runs are named by their digest: finished
    ones are skipped and interrupted ones continue, so the same command continues a sweep.

    Examples:

      dna sweep CartPole-v1 policy.sgd.epochs=2,5,10 returns.lambda_pi=0.8,0.95 --seeds 3

      dna sweep CartPole-v1 policy.sgd.learning_rate=1e-4..1e-2:5 --plan

      dna sweep CartPole-v1 policy.sgd.learning_rate=1e-4..1e-2 --search optuna --trials 30

      dna sweep MinAtar/Breakout-v1 policy.sgd.epochs=1,2,4 --seeds 5 --ray auto
    """
    plain, axes = split(settings.overrides or [])
    if not axes:
        raise BadInput("KEY=A,B: name a setting to vary, for example policy.sgd.epochs=1,2")
    if options.search is None and options.trials is not None:
        raise BadInput("--trials: requires --search optuna")
    if options.search is not None and options.trials is None:
        raise BadInput("--trials: required by --search, for example --trials 30")
    seeds = seed_range(options.seed, options.seeds)
    command = _Command(env_id, settings, options, cluster, how.as_words(), plain, axes, seeds)
    if options.trials is None:
        command.grid()
    else:
        command.search(options.trials)


@dataclass(frozen=True)
class _Command:
    """The command line of a sweep, and its two forms: a grid and a search."""

    env_id: str
    settings: SettingsOptions
    options: SweepOptions
    cluster: RayOptions
    run_options: list[str]  # of `dna resume`
    plain: list[str]  # `key=value` words that apply to all runs
    axes: Mapping[str, Axis]
    seeds: range

    def configure(self, changes: Mapping[str, Any]) -> Config:
        """Build the configuration of one point."""
        return self.settings.configure(self.env_id, [*self.plain, *as_words(changes)])

    def grid(self) -> None:
        """Train all combinations, after validating every one of them."""
        changes = grid(self.axes)
        configs = [self.configure(one) for one in changes]
        from dna.runs.sweeps.grid import Point, grid_tasks, run_grid
        from dna.runs.sweeps.pool import check

        points = [Point(*pair) for pair in zip(changes, configs, strict=True)]
        sweep = self._sweep({"kind": "grid"}, configs[0])
        if self.options.plan:
            _print_plan(grid_tasks(sweep, points), self.options.as_json)
            return
        note = "" if self.options.as_json else rounding_note(*configs)
        with (
            self.cluster.place(self.options.jobs) as place,
            show_runs(quiet=self.options.quiet, note=note) as display,
        ):
            where = place or _this_machine(configs[0])
            tree, tasks = run_grid(sweep, points, where, self.run_options, display.update)
        self._print_results(sweep, tree)
        check(tasks)

    def search(self, trials: int) -> None:
        """Run the trials of a search."""
        space = Space(self.axes, self.configure)
        first = space.check()
        from dna.runs.sweeps.pool import Pool, check
        from dna.runs.sweeps.search import run_search

        about = {
            "kind": "search",
            "seeds": len(self.seeds),
            "seed": self.seeds[0],
            "objective": self.options.objective,
            "average": self.options.average,
            "prune": self.options.prune,
        }
        sweep = self._sweep(about, first)
        if self.options.plan:
            _print_search_plan(sweep, trials, self.options.as_json)
            return
        note = "" if self.options.as_json else rounding_note(first)
        with (
            self.cluster.place(self.options.jobs) as place,
            show_runs(quiet=self.options.quiet, note=note) as display,
        ):
            pool = Pool(place or _this_machine(first), self.run_options)
            tree = run_search(
                sweep, space, pool, display.update, trials=trials, prune=self.options.prune
            )
        self._print_results(sweep, tree)
        done = any(point["state"] == "done" for point in tree["points"])
        # A failed trial is a result of the search, unless all of them failed.
        check([task for task in pool.tasks if task.state == "stopped" or not done])
        if not done:
            raise DnaError(f"{sweep.out}: none of the {len(tree['points'])} trials finished")

    def _sweep(self, about: dict[str, Any], first: Config) -> "Sweep":
        from dna.common.storage import check_no_file_at
        from dna.runs.sweeps.grid import Sweep, objective

        about = {
            "env": self.env_id,
            "axes": tree_of(self.axes),
            **about,
            "first": digest(first),
        }
        out = self.options.out or Path("sweeps") / _default_name(self.env_id, about)
        check_no_file_at(out)
        return Sweep(
            about,
            self.seeds,
            self.options.runs,
            out,
            objective(self.options.objective),
            self.options.average,
        )

    def _print_results(self, sweep: "Sweep", tree: dict[str, Any]) -> None:
        from dna.runs.sweeps.grid import table

        if self.options.as_json:
            typer.echo(json.dumps(tree))
            return
        print_rows(table(tree["points"], sweep.objective))
        for point in tree["points"]:
            if "why" in point:
                typer.echo(f"trial {point['trial']} failed: {point['why']}")
        typer.echo(f"{sweep.out}: results.md results.csv results.json")


def _this_machine(config: Config) -> "Place":
    from dna.runs.sweeps.pool import Local, jobs_for

    return Local(jobs_for(config))


def _default_name(env_id: str, about: Mapping[str, Any]) -> str:
    """Return a folder name: the environment and a short hash of what the sweep varies."""
    text = json.dumps(about, sort_keys=True)
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", env_id)[:60].strip(".-") or "sweep"
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _print_plan(tasks: Sequence["Task"], as_json: bool) -> None:
    from dna.runs.folder import RunFolder
    from dna.runs.sweeps.pool import update_progress

    rows = []
    for task in tasks:
        update_progress(task)
        if RunFolder(task.folder).finished(task.config, task.seed) is not None:
            state = "done"
        else:
            state = "begun" if task.interactions else "new"
        rows.append(
            {
                "point": task.label,
                "seed": str(task.seed),
                "run": str(task.folder),
                "interactions": f"{task.config.interactions:,}",
                "state": state,
            }
        )
    if as_json:
        typer.echo(json.dumps(rows))
        return
    print_rows(rows)
    finished = sum(row["state"] == "done" for row in rows)
    typer.echo(f"{len(rows)} runs, {finished} of them finished")


def _print_search_plan(sweep: "Sweep", trials: int, as_json: bool) -> None:
    most = trials * len(sweep.seeds)
    if as_json:
        typer.echo(json.dumps(dict(sweep.about) | {"trials": trials, "runs": most}))
        return
    print_rows(
        [{"key": key, "values": json.dumps(v)} for key, v in sweep.about["axes"].items()]
    )
    typer.echo(
        f"{trials} trials of {len(sweep.seeds)} seeds each: up to {most} runs, "
        f"by {sweep.objective.name}, in {sweep.out}"
    )
