"""`dna train` and `dna resume`: one run, or one run per seed with `--seeds`."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field, ValidationError

from dna.cli.options import (
    EnvId,
    Quiet,
    Run,
    RunOptions,
    Seed,
    SettingsOptions,
    expand,
    seed_range,
)
from dna.cli.progress import each_seed, show_progress, show_runs
from dna.common.console import typed
from dna.common.errors import BadInput, StorageFailure
from dna.common.messages import printable
from dna.common.process import wait_briefly
from dna.config import Config, json_tree
from dna.config.overrides import digest
from dna.config.phases import Count, Frozen
from dna.distributed.launch import check_divides, launched
from dna.runs.text_progress import rounding_note

if TYPE_CHECKING:
    from dna.runs.sweeps.pool import Task

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON")]


@expand
def train(
    env_id: EnvId,
    settings: SettingsOptions,
    *,
    seed: Seed = 0,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Train this many seeds, starting at --seed"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="With --seeds: parallel runs [number of cores]"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run [runs/<digest of the settings>]")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Delete the run in the folder and start over")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the folder if there is one")
    ] = False,
    how: RunOptions,
    noise: Annotated[
        bool,
        typer.Option("--noise", help="Measure and show the gradient noise scale of each phase"),
    ] = False,
    track: Annotated[
        Literal["wandb", "trackio"] | None, typer.Option(help="Also log to this service")
    ] = None,
    project: Annotated[
        str,
        typer.Option("--project", "--wandb-project-name", help="Project name at the service"),
    ] = "ppo-dna",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the configuration and stop")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train an agent.

    `dna show --help-settings` describes every KEY that can be set.

    Examples:

      dna train CartPole-v1

      dna train MinAtar/Breakout-v1 --algo ppo --seed 3 joint.sgd.epochs=2

      dna train ALE/Breakout-v5 --algo ppo --profile as_run

      dna train HalfCheetah-v5 --seeds 8

      dna train MinAtar/Breakout-v1 --noise noise.every=5

      dna train my_package:make_env --allow-import returns.gamma=0.995 --interactions 300000
    """
    overrides = ["noise={}"] if noise else []
    overrides += settings.overrides or []
    config = settings.configure(env_id, overrides)
    if dry_run:
        _print_settings(config, range(seed, seed + (seeds or 1)))
        return
    if seeds is not None:
        if track is not None:
            raise BadInput("--track: cannot be combined with --seeds; track single runs")
        folders = _seed_folders(
            config, seed_range(seed, seeds), out, restart=restart, resume=resume
        )
        _train_seeds(config, folders, jobs, how.as_words(), quiet=quiet, as_json=as_json)
        return
    if jobs is not None:
        raise BadInput("--jobs: requires --seeds")

    def folder() -> Path:
        path = _folder_of(config, seed, out)
        _check_folder(path, config, seed, restart=restart, resume=resume)
        return path

    given = how.given() | {"restart": restart}
    _train(
        config, seed, folder, given, quiet=quiet, as_json=as_json, track=track, project=project
    )


@expand
def resume(run: Run, how: RunOptions, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Continue a run from its newest checkpoint, in the same folder.

    Device, threads, compilation and checkpoint interval stay as they were at the start of the
    run unless they are given here.

    Example: dna resume runs/3f2a9c01d4e5
    """
    from dna.runs.folder import RunFolder

    folder = RunFolder.of(run)
    config, seed = folder.read()
    if folder.result() is not None:
        if launched().rank == 0:
            from dna.runs.setup import How
            from dna.runs.start import finished

            result = finished(folder, config, seed, How())
            name = printable(str(run))
            typer.echo(json.dumps(result) if as_json else f"{name}: already finished")
        return
    _train(config, seed, lambda: run, how.given(), quiet=quiet, as_json=as_json)


def _print_settings(config: Config, seeds: range) -> None:
    """Print one JSON object for all seeds: they differ in their digests only."""
    if launched().rank > 0:
        return
    first = seeds[0]
    tree = {"digest": digest(config, first), "seed": first, "config": json_tree(config)}
    if len(seeds) > 1:
        tree["digests"] = {str(seed): digest(config, seed) for seed in seeds}
    typer.echo(json.dumps(tree, indent=2))


# ── the folder of a run ───────────────────────────────────────────────────────────────────


def _folder_of(config: Config, seed: int, out: Path | None, *, many: bool = False) -> Path:
    """Return `out`, or a folder named by the digest; several seeds are subfolders of `out`."""
    if out is not None and str(out) == ".":
        raise BadInput("--out: name a folder for the run, for example runs/first")
    if out is None:
        return Path("runs") / digest(config, seed)
    return out / f"seed{seed}" if many else out


def _check_folder(
    path: Path, config: Config, seed: int, *, restart: bool, resume: bool
) -> None:
    """Refuse to mix two runs in a folder, or to touch a run without being told to."""
    from dna.common.lock import check_unlocked
    from dna.common.storage import check_no_file_at
    from dna.runs.folder import RunFolder

    folder = RunFolder(path)
    if restart and resume:
        raise BadInput("--restart, --resume: give only one of them")
    check_no_file_at(path)
    if not folder.exists:
        return
    check_unlocked(path)  # before advice that is of no use while another process trains
    if restart:
        return
    if not resume:
        raise BadInput(
            f"{path}: already holds a run; add --resume or --restart, or choose another --out"
        )
    if folder.read() != (config, seed):
        raise BadInput(
            f"{path}: holds a run with other settings; `dna show {typed(path)}` prints them"
        )


def _seed_folders(
    config: Config, seeds: range, out: Path | None, *, restart: bool, resume: bool
) -> dict[int, Path]:
    """Return the folder of each seed; check all of them before anything is deleted."""
    from dna.common.lock import locked
    from dna.runs.folder import RunFolder

    if launched().size > 1:
        raise BadInput("--seeds: starts its own processes; do not use it under torchrun")
    folders = {seed: _folder_of(config, seed, out, many=True) for seed in seeds}
    for seed, path in folders.items():
        _check_folder(path, config, seed, restart=restart, resume=resume)
    if restart:
        for path in folders.values():
            folder = RunFolder(path)
            folder.check_free()
            with locked(path):  # another process may be training there
                folder.clear()
    return folders


class _StartOptions(Frozen):
    """Options a run was started with, as recorded in `machine.json` (`How.asked`)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    pieces: Literal["fixed", "cores"] = "fixed"
    compile: Literal["auto", "off", "on"] = "auto"
    checkpoint_every: Count | None = None
    verify: bool = True


def start_options(path: Path) -> dict[str, Any]:
    """Read the options a run was started with; empty if it records none."""
    from dna.runs.folder import RunFolder

    asked = RunFolder(path).machine().get("asked", {})
    try:
        return _StartOptions(**asked).model_dump(exclude_none=True)
    except (ValidationError, TypeError):
        file = path / "machine.json"
        raise StorageFailure(f"{file}: damaged; delete it, then `dna resume`") from None


# ── one run, on one process or on the ranks that torchrun started ─────────────────────────


def _train(
    config: Config,
    seed: int,
    folder: Callable[[], Path],
    given: dict[str, Any],
    *,
    quiet: bool,
    as_json: bool,
    track: str | None = None,
    project: str = "",
) -> None:
    """Train in `folder()`, which rank 0 chooses and checks, and print the result.

    `given` are the keyword arguments of `How` that the command line names.
    """
    wait_briefly()  # sets variables that are read when torch is loaded
    check_divides(config.agents, launched().size)
    # A single process refuses a folder before it loads torch, which takes seconds.
    path = folder() if launched().size == 1 else None
    from dna.algorithm.compiled_step import has_compiler
    from dna.distributed.collectives import on_rank_zero
    from dna.distributed.world import join
    from dna.runs.folder import RunFolder
    from dna.runs.metrics import Sink
    from dna.runs.setup import How
    from dna.runs.trackers import Tracker
    from dna.runs.train import train as train_run

    with join(given.get("device") or "auto", given["env_timeout"]) as world:
        if path is None:
            path = Path(on_rank_zero(world, lambda: str(folder())))
        if not given.get("restart"):
            given = start_options(path) | given
        if given.get("compile") == "on" and not has_compiler():
            raise BadInput("--compile on: needs a C++ compiler; install g++ or clang++")
        first = world.rank == 0
        sinks: list[Sink] = []
        if track is not None and first:
            name = f"{config.env.id}__{config.algorithm}__{seed}"
            about = {"env_id": config.env.id, "exp_name": config.algorithm, "seed": seed}
            sinks.append(Tracker(track, project, name, about | json_tree(config)))
        how = How(**given, on_hang="exit", world=world)
        new = given.get("restart") or not RunFolder(path).exists
        note = rounding_note(config) if new and not as_json else ""
        sinks.append(show_progress(config, seed, path, quiet=quiet or not first, note=note))
        result = train_run(config, seed, path, how=how, sinks=sinks)
        if first and as_json:
            typer.echo(json.dumps(result))
        elif first and not quiet:
            _print_result(config, path, result)


def _print_result(config: Config, path: Path, result: Mapping[str, Any]) -> None:
    score = "no episode ended" if result["score"] is None else f"score {result['score']:.2f}"
    typer.echo(
        f"{config.algorithm.upper()} on {config.env.id}: {score} (mean of the last 100 "
        f"episodes), {result['interactions']:,} interactions, "
        f"{result['interactions_per_second']:,.0f} per second"
    )
    commands = " | ".join(f"dna {name} {typed(path)}" for name in ("eval", "plot", "record"))
    typer.echo(printable(f"run: {path}    next: {commands}"))


# ── one run per seed ──────────────────────────────────────────────────────────────────────


def _train_seeds(
    config: Config,
    folders: Mapping[int, Path],
    jobs: int | None,
    options: list[str],
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train every seed in its folder; print the scores and their mean."""
    from dna.runs.folder import RunFolder
    from dna.runs.sweeps.pool import Local, Task, check, jobs_for, run_all

    tasks = [Task(config, seed, folder) for seed, folder in folders.items()]
    new = any(not RunFolder(folder).exists for folder in folders.values())
    note = rounding_note(config) if new and not as_json else ""
    with show_runs(quiet=quiet, describe=each_seed, note=note) as display:
        run_all(tasks, Local(jobs or jobs_for(config)), options, display.update)
    summary = seed_summary(tasks)
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        print_seed_summary(summary)
    check(tasks)


def seed_summary(tasks: Sequence["Task"]) -> dict[str, Any]:
    """Return the results of the finished runs with mean and standard error of the scores."""
    results = [result for task in tasks if (result := task.result()) is not None]
    scores = [result["score"] for result in results if result["score"] is not None]
    return {
        "runs": results,
        "mean": statistics.mean(scores) if scores else None,
        "standard_error": (
            statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else None
        ),
    }


def print_seed_summary(summary: Mapping[str, Any]) -> None:
    """Print one line per seed, and the mean of several."""
    for result in summary["runs"]:
        score = "-" if result["score"] is None else f"{result['score']:.2f}"
        typer.echo(printable(f"seed {result['seed']}: score {score}  {result['run']}"))
    if summary["standard_error"] is not None:
        typer.echo(
            f"mean {summary['mean']:.2f} ± {summary['standard_error']:.2f} "
            f"(standard error over {len(summary['runs'])} seeds)"
        )
