"""`dna train` and `dna resume`."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dna.cli import options
from dna.cli.chosen import settings_of
from dna.cli.display import show_progress
from dna.cli.folders import check_folder, prepare, remembered
from dna.cli.ranks import decided, is_first, joined
from dna.cli.seeds import train_seeds
from dna.common.console import typed
from dna.common.errors import BadInput
from dna.common.process import wait_briefly
from dna.config import Config, json_tree
from dna.config.overrides import digest
from dna.distributed.launch import check_divides, launched

if TYPE_CHECKING:
    from dna.distributed.world import World
    from dna.runs.setup import How

TRAIN_HELP = """Train an agent.

Examples:

  dna train CartPole-v1

  dna train MinAtar/Breakout-v1 --algo ppo --seed 3 joint.sgd.epochs=2

  dna train ALE/Breakout-v5 --algo ppo --profile as_run

  dna train HalfCheetah-v5 --seeds 8

  dna train MinAtar/Breakout-v1 --noise noise.every=5

  dna train my_package:make_env --allow-import returns.gamma=0.995 --interactions 300000
"""


def train(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="e.g. CartPole-v1")],
    overrides: options.Overrides = None,
    algo: options.Algorithm = None,
    preset: options.Preset = None,
    profile: options.Profile = None,
    config: options.ConfigFile = None,
    seed: options.Seed = 0,
    seeds: options.Seeds = None,
    jobs: options.Jobs = None,
    interactions: options.Interactions = None,
    out: options.Out = None,
    device: options.Device = None,
    checkpoint_every: options.CheckpointEvery = None,
    threads: options.Threads = None,
    env_threads: options.EnvThreads = None,
    env_timeout: options.EnvTimeout = 120.0,
    compile: options.Compile = None,
    track: options.Track = None,
    project: options.Project = "ppo-dna",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    noise: options.Noise = False,
    dry_run: options.DryRun = False,
    allow_import: options.AllowImport = False,
    restart: options.Restart = False,
    resume: options.Resume = False,
) -> None:
    words = ["noise={}"] * noise + (overrides or [])
    settings = settings_of(env_id, (algo, preset, profile), config, interactions, words)
    if dry_run:
        return _print_settings(settings, range(seed, seed + (seeds or 1)))
    how = asked_for(device, threads, env_threads, checkpoint_every, compile)
    how |= {"allow_import": allow_import, "env_timeout": env_timeout}
    if seeds is not None:
        many = prepare(settings, (seed, seeds), out, track, restart=restart, resume=resume)
        return train_seeds(settings, many, jobs, as_options(how), quiet=quiet, as_json=as_json)
    how |= {"restart": restart, "jobs": jobs}
    place = partial(check_folder, settings, seed, out, restart=restart, resume=resume)
    _run(settings, seed, place, how, quiet=quiet, as_json=as_json, track=(track, project))


def asked_for(
    device: str | None,
    threads: int | None,
    env_threads: int | None,
    checkpoint_every: int | None,
    compile: str | None,
) -> dict[str, Any]:
    """How to run, by the names of `How`; what was not said is left out."""
    found = {"device": device, "threads": threads, "env_threads": env_threads}
    found |= {"checkpoint_every": checkpoint_every, "compile": compile}
    return {name: value for name, value in found.items() if value is not None}


def _print_settings(config: Config, seeds: range) -> None:
    """One object, whatever the number of seeds: they differ in their digests only."""
    if not is_first():
        return
    first = seeds[0]
    tree = {"digest": digest(config, first), "seed": first, "config": json_tree(config)}
    if len(seeds) > 1:
        tree["digests"] = {str(seed): digest(config, seed) for seed in seeds}
    typer.echo(json.dumps(tree, indent=2))


def as_options(how: dict[str, Any]) -> list[str]:
    """The same choices as options of `dna resume`."""
    words: list[str] = []
    for name, value in how.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, str(value)]
    return words


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder")],
    device: options.Device = None,
    checkpoint_every: options.CheckpointEvery = None,
    threads: options.Threads = None,
    env_threads: options.EnvThreads = None,
    env_timeout: options.EnvTimeout = 120.0,
    compile: options.Compile = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    allow_import: options.AllowImport = False,
) -> None:
    """Continue a run from its newest checkpoint, in the same folder.

    Device, threads, compilation and checkpoints are as when it was begun, unless said here.

    Example: dna resume runs/3f2a9c01d4e5
    """
    from dna.runs.folder import RunFolder

    folder = RunFolder.of(run)
    config, seed = folder.read()
    if folder.done:
        result = folder.result() or {}
        if is_first():
            typer.echo(json.dumps(result) if as_json else f"{run} is finished: nothing to do")
        return
    how = asked_for(device, threads, env_threads, checkpoint_every, compile)
    how |= {"allow_import": allow_import, "env_timeout": env_timeout}
    _run(config, seed, lambda: run, how, quiet=quiet, as_json=as_json, track=(None, ""))


def _how(world: "World | None", **how: Any) -> "How":
    from dna.algorithm.compiled_step import has_compiler
    from dna.runs.setup import How  # only now: it brings torch

    if how.pop("jobs", None) is not None:
        raise BadInput("--jobs: goes with --seeds")
    if how.get("compile") == "on" and not has_compiler():
        raise BadInput("--compile on: needs a C++ compiler (g++ or clang++); or leave it out")
    return How(**how) if world is None else How(**how, world=world)


def _run(
    config: Config,
    seed: int,
    place: Callable[[], Path],
    how: dict[str, Any],
    **words: Any,
) -> None:
    """On this process alone, or as one of the ranks that torchrun started."""
    wait_briefly()  # before anything brings torch
    check_divides(config.agents, launched().size)
    with joined(how.get("device"), how["env_timeout"]) as world:
        path = Path(decided(world, lambda: str(place())))
        if not how.get("restart"):
            how = remembered(path) | how
        _train(config, seed, path, _how(world, **how), **words)


def _train(
    config: Config,
    seed: int,
    path: Path,
    how: "How",
    *,
    quiet: bool,
    as_json: bool,
    track: tuple[str | None, str],
) -> None:
    from dna.runs.folder import RunFolder
    from dna.runs.metrics import Sink
    from dna.runs.trackers import Tracker
    from dna.runs.train import train as train_run

    sinks: list[Sink] = []
    service, project = track
    quiet, as_json = quiet or how.world.rank > 0, as_json and how.world.rank == 0
    if service is not None and how.world.rank == 0:
        about: dict[str, Any] = {"env_id": config.env.id, "exp_name": config.algorithm}
        name = f"{config.env.id}__{config.algorithm}__{seed}"
        sinks.append(
            Tracker(service, project, name, about | {"seed": seed} | json_tree(config))
        )
    done = decided(how.world, RunFolder(path).result) if not how.restart else None
    if done is None:
        with show_progress(config, seed, path, quiet=quiet) as display:
            done = train_run(config, seed, path, how=how, sinks=[*sinks, display])
    if as_json:
        typer.echo(json.dumps(done))
    elif not quiet:
        score = "no episode ended" if done["score"] is None else f"score {done['score']:.2f}"
        typer.echo(
            f"{config.algorithm.upper()} on {config.env.id}: {score} (mean of the last 100 "
            f"episodes), {done['interactions']:,} interactions, "
            f"{done['interactions_per_second']:,.0f} per second"
        )
        next_ = " | ".join(f"dna {verb} {typed(path)}" for verb in ("eval", "plot", "record"))
        typer.echo(f"run: {path}    next: {next_}")


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command(help=TRAIN_HELP)(train)
    app.command()(resume)
