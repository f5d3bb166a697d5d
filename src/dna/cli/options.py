"""The options of `dna train` and `dna resume`: how to run, never what."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

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
Seeds = Annotated[
    int | None,
    typer.Option(min=1, max=10_000, help="Train so many seeds, from --seed on, side by side"),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, max=1024, help="With --seeds: runs at a time [cores]")
]
Interactions = Annotated[
    int | None,
    typer.Option("--interactions", "--total-timesteps", min=1, help="Length of the run"),
]
Out = Annotated[Path | None, typer.Option(help="The run's folder [runs/<digest>]")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Where to compute [auto]")
]
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


def _number(seconds: float) -> float:
    """NaN is neither below nor above any limit."""
    if math.isnan(seconds):
        raise typer.BadParameter("nan is not a number of seconds")
    return seconds


EnvTimeout = Annotated[
    float,
    typer.Option(
        min=1,
        max=10**6,
        callback=_number,
        help="Seconds of one step before the run is ended (exit 5)",
    ),
]
Compile = Annotated[
    Literal["auto", "off", "on"] | None,
    typer.Option(help="Compile the steps of small networks [auto: where it pays]"),
]
Track = Annotated[
    Literal["wandb", "trackio"] | None, typer.Option(help="Also log to this service")
]
Project = Annotated[
    str, typer.Option("--project", "--wandb-project-name", help="The service's project")
]
AsJson = Annotated[bool, typer.Option("--json", help="End with one JSON line on stdout")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display")]
Noise = Annotated[
    bool, typer.Option("--noise", help="Measure and show each phase's gradient noise scale")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the configuration and stop")]
AllowImport = Annotated[
    bool, typer.Option("--allow-import", help="Let ENV_ID be module:factory, which runs code")
]
Restart = Annotated[bool, typer.Option("--restart", help="Delete the folder's run, start over")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the folder's run if there is one")
]
