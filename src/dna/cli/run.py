"""`dna train` and `dna resume`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dna.cli.display import show_progress
from dna.config import Config, json_tree
from dna.errors import BadInput, StorageFailure
from dna.presets import for_environment
from dna.tweak import digest, parse_overrides, tweak

if TYPE_CHECKING:
    from dna.setup import How

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, e.g. policy.sgd.epochs=1"),
]
Algorithm = Annotated[
    Literal["dna", "ppo", "ppg"] | None, typer.Option("--algo", help="Algorithm [dna]")
]
Preset = Annotated[str | None, typer.Option(help="Start from this preset: `dna list presets`")]
Profile = Annotated[
    str | None, typer.Option(help="Lay this over the preset: as_run is the authors' code")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Start from a config.json")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The run's seed")]
Interactions = Annotated[
    int | None,
    typer.Option("--interactions", "--total-timesteps", min=1, help="Length of the run"),
]
Out = Annotated[Path | None, typer.Option(help="The run's folder [runs/<digest>]")]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute")]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(min=1, help="Interactions between checkpoints [a tenth of the run]"),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=256, help="Torch threads [1 for small networks]")
]
EnvThreads = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Environment threads or processes [as fits]"),
]
Track = Annotated[
    Literal["wandb", "trackio"] | None, typer.Option(help="Also log to this service")
]
Project = Annotated[
    str, typer.Option("--project", "--wandb-project-name", help="The service's project")
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON line on stdout")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configuration and stop")]
AllowImport = Annotated[
    bool, typer.Option("--allow-import", help="Let ENV_ID be module:factory, which runs code")
]
Restart = Annotated[bool, typer.Option("--restart", help="Delete the folder's run, start over")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the folder's run if there is one")
]


TRAIN_HELP = """Train an agent.

Examples:

  dna train CartPole-v1

  dna train MinAtar/Breakout-v1 --algo ppo --seed 3 joint.sgd.epochs=2

  dna train ALE/Breakout-v5 --algo ppo --profile as_run

  dna train my_package:make_env --allow-import returns.gamma=0.995 --interactions 300000
"""


def train(
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="e.g. CartPole-v1")],
    overrides: Overrides = None,
    algo: Algorithm = None,
    preset: Preset = None,
    profile: Profile = None,
    config: ConfigFile = None,
    seed: Seed = 0,
    interactions: Interactions = None,
    out: Out = None,
    device: Device = "auto",
    checkpoint_every: CheckpointEvery = None,
    threads: Threads = None,
    env_threads: EnvThreads = None,
    track: Track = None,
    project: Project = "ppo-dna",
    as_json: AsJson = False,
    quiet: Quiet = False,
    dry_run: DryRun = False,
    allow_import: AllowImport = False,
    restart: Restart = False,
    resume: Resume = False,
) -> None:
    start = (algo, preset, profile)
    settings = _settings(env_id, start, config, interactions, overrides or [])
    if out is not None and str(out) == ".":
        raise BadInput("--out: name a folder for the run, for example runs/first")
    if dry_run:
        tree = {"digest": digest(settings, seed), "seed": seed, "config": json_tree(settings)}
        typer.echo(json.dumps(tree, indent=2))
        return
    folder = out if out is not None else Path("runs") / digest(settings, seed)
    _check_folder(folder, settings, seed, restart=restart, resume=resume)
    how = _how(device, threads, env_threads, checkpoint_every, allow_import, restart)
    _run(settings, seed, folder, how, quiet=quiet, as_json=as_json, track=(track, project))


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder")],
    device: Device = "auto",
    checkpoint_every: CheckpointEvery = None,
    threads: Threads = None,
    env_threads: EnvThreads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    allow_import: AllowImport = False,
) -> None:
    """Continue a run from its newest checkpoint, in the same folder.

    Example: dna resume runs/3f2a9c01d4e5
    """
    from dna.folder import RunFolder

    folder = RunFolder.of(run)
    config, seed = folder.read()
    if folder.done:
        result = folder.result() or {}
        typer.echo(json.dumps(result) if as_json else f"{run} is finished: nothing to do")
        return
    how = _how(device, threads, env_threads, checkpoint_every, allow_import)
    _run(config, seed, run, how, quiet=quiet, as_json=as_json, track=(None, ""))


def _how(
    device: Literal["auto", "cpu", "cuda"],
    threads: int | None,
    env_threads: int | None,
    checkpoint_every: int | None,
    allow_import: bool,
    restart: bool = False,
) -> "How":
    from dna.setup import How  # only now: it brings torch

    return How(device, threads, env_threads, checkpoint_every, allow_import, restart)


def _settings(
    env_id: str,
    start: tuple[str | None, str | None, str | None],
    file: Path | None,
    interactions: int | None,
    overrides: list[str],
) -> Config:
    """Preset and profile, or a file; then overrides; validated as a whole."""
    changes = parse_overrides(overrides)
    if "env.id" in changes:
        raise BadInput("env.id: is the first word of the command; leave it out here")
    if interactions is not None:
        if "interactions" in changes:
            raise BadInput("interactions: given both as an option and as key=value")
        changes["interactions"] = interactions
    if file is not None:
        if any(start):
            options = "--algo, --preset and --profile"
            raise BadInput(f"--config: holds all settings; leave out {options}")
        from dna.folder import read_config

        try:
            base = tweak(read_config(file)[0], **{"env.id": env_id})
        except StorageFailure as error:
            raise BadInput(f"--config {error}") from None
    else:
        base = for_environment(env_id, *start)
    return tweak(base, **changes)


def _check_folder(
    path: Path, config: Config, seed: int, *, restart: bool, resume: bool
) -> None:
    from dna.folder import RunFolder

    folder = RunFolder(path)
    if restart and resume:
        raise BadInput("--restart, --resume: give one of them")
    if not folder.exists or restart:
        return
    if not resume:
        raise BadInput(
            f"{path}: holds a run already; add --resume or --restart, or another --out"
        )
    if folder.read() != (config, seed):
        raise BadInput(
            f"{path}: holds a run with other settings; `dna show {path}` prints them"
        )


def _run(
    config: Config,
    seed: int,
    path: Path,
    how: "How",
    *,
    quiet: bool,
    as_json: bool,
    track: tuple[str | None, str],
) -> None:
    from dna.folder import RunFolder
    from dna.metrics import Sink, Tracker
    from dna.train import train as train_run

    sinks: list[Sink] = []
    service, project = track
    if service is not None:
        about: dict[str, Any] = {"env_id": config.env.id, "exp_name": config.algorithm}
        name = f"{config.env.id}__{config.algorithm}__{seed}"
        sinks.append(
            Tracker(service, project, name, about | {"seed": seed} | json_tree(config))
        )
    done = RunFolder(path).result() if not how.restart else None
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
        typer.echo(
            f"run: {path}    next: dna eval {path} | dna plot {path} | dna record {path}"
        )


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command(help=TRAIN_HELP)(train)
    app.command()(resume)
