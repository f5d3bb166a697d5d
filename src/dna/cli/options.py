"""Options that several commands share.

Settings of the algorithm are `key=value` words; options with dashes say how to run. A group of
options is a dataclass whose fields are Typer options, and `expand` turns a parameter of such a
type into one option per field.
"""

import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dna.common.errors import BadInput, StorageFailure, UnknownKey
from dna.config import Config
from dna.config.overrides import parse_overrides, tweak
from dna.config.presets import for_environment

if TYPE_CHECKING:
    from dna.runs.sweeps.pool import Place

MAX_SEED = 2**63 - 1

EnvId = Annotated[
    str, typer.Argument(metavar="ENV_ID", help="Environment, for example CartPole-v1")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run")]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed of the run")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text")]
AllowImport = Annotated[
    bool,
    typer.Option(
        "--allow-import",
        help="Allow an ENV_ID of the form module:factory, which runs the module's code",
    ),
]


@dataclass(frozen=True)
class SettingsOptions:
    """What to train: a preset or a file, with `key=value` overrides."""

    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings, for example policy.sgd.epochs=1; "
            "`dna show --help-settings` lists them",
        ),
    ] = None
    algo: Annotated[
        Literal["dna", "ppo", "ppg"] | None, typer.Option("--algo", help="Algorithm [dna]")
    ] = None
    preset: Annotated[
        str | None, typer.Option(help="Preset to start from; `dna list presets` lists them")
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(help="Profile applied to the preset: as_run follows the authors' code"),
    ] = None
    config: Annotated[
        Path | None, typer.Option("--config", help="Start from the settings in a config.json")
    ] = None
    interactions: Annotated[
        int | None,
        typer.Option(
            "--interactions",
            "--total-timesteps",
            min=1,
            help="Environment interactions to train for",
        ),
    ] = None

    def configure(self, env_id: str, overrides: Sequence[str]) -> Config:
        """Build the configuration of an environment, with these overrides; validate it."""
        changes = parse_overrides(list(overrides))
        if "env.id" in changes:
            raise BadInput("env.id: leave it out; it is the first argument of the command")
        if self.interactions is not None:
            if "interactions" in changes:
                raise BadInput("interactions: given both as an option and as key=value")
            changes["interactions"] = self.interactions
        base = self._base(env_id)
        try:
            return tweak(base, **changes)
        except UnknownKey as error:
            if "did you mean" in str(error) or len(str(error)) > 150:
                raise
            raise UnknownKey(
                f"{error}; `dna show --help-settings` lists all settings"
            ) from None

    def _base(self, env_id: str) -> Config:
        if self.config is None:
            return for_environment(env_id, self.algo, self.preset, self.profile)
        if self.algo or self.preset or self.profile:
            raise BadInput(
                "--config: holds all settings; leave out --algo, --preset and --profile"
            )
        from dna.runs.folder import read_config

        try:
            # The user's own file may be a symbolic link; files of a run never are.
            config, _ = read_config(Path(os.path.realpath(self.config)))
        except StorageFailure as error:
            raise BadInput(f"--config {error}") from None
        return tweak(config, **{"env.id": env_id})


def _check_seconds(seconds: float) -> float:
    """Check the range here: for NaN, Typer would name a limit that it does not exceed."""
    if math.isnan(seconds):
        raise typer.BadParameter("nan is not a number of seconds")
    if not 1 <= seconds <= 10**6:
        raise typer.BadParameter(f"given {seconds:g}, must be 1 to 1,000,000 seconds")
    return seconds


@dataclass(frozen=True)
class RunOptions:
    """How to run: device, threads, checkpoints. The names are those of `dna.runs.setup.How`."""

    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None,
        typer.Option(help="Torch device [auto]"),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        typer.Option(min=1, help="Interactions between checkpoints [a tenth of the run]"),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Threads of the run [one per core]"),
    ] = None
    pieces: Annotated[
        Literal["fixed", "cores"] | None,
        typer.Option(
            help="Pieces of mini-batches that threads share: of fixed size, so that results do "
            "not depend on the number of threads, or at least one per thread [fixed]"
        ),
    ] = None
    env_threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Threads or processes that step the environments [depends on the environment]",
        ),
    ] = None
    env_timeout: Annotated[
        float,
        typer.Option(
            callback=_check_seconds,
            help="Seconds, 1 to 1,000,000, that an environment step may take before the run "
            "is ended",
        ),
    ] = 120.0
    compile: Annotated[
        Literal["auto", "off", "on"] | None,
        typer.Option(help="Compile the update step of small networks [auto: if it pays off]"),
    ] = None
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Check after checkpoints that restored environments continue exactly [verify]",
            show_default=False,
        ),
    ] = None
    allow_import: AllowImport = False

    def given(self) -> dict[str, Any]:
        """Return the choices as keyword arguments of `How`, without those left open."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def as_words(self) -> list[str]:
        """Return the choices as options of `dna resume`."""
        words: list[str] = []
        for name, value in self.given().items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif name == "verify":
                words.append("--no-verify")
            elif value is not False:
                words += [option, str(value)]
        return words


@dataclass(frozen=True)
class RayOptions:
    """Where to run many runs: processes on this machine, or tasks of a Ray cluster."""

    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS|local", help="Run as tasks of this Ray cluster"),
    ] = None
    cpus_per_run: Annotated[
        float | None,
        typer.Option(min=0.01, max=1024, help="With --ray: cores requested for each run [1]"),
    ] = None
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            min=0, max=64, help="With --ray: GPUs, or a fraction, requested for each run [0]"
        ),
    ] = None

    @contextmanager
    def place(self, jobs: int | None) -> Iterator["Place | None"]:
        """Yield the place that the options name; None if they leave it open."""
        if self.ray is None:
            if self.cpus_per_run is not None:
                raise BadInput("--cpus-per-run: requires --ray")
            if self.gpus_per_run is not None:
                raise BadInput("--gpus-per-run: requires --ray")
            from dna.runs.sweeps.pool import Local

            yield Local(jobs) if jobs is not None else None
            return
        from dna.runs.sweeps.ray_cluster import cluster

        cpus = 1.0 if self.cpus_per_run is None else self.cpus_per_run
        with cluster(self.ray, cpus, self.gpus_per_run or 0.0, jobs) as found:
            yield found


def seed_range(first: int, count: int) -> range:
    """Return `count` seeds from `first` on."""
    if first + count - 1 > MAX_SEED:
        raise BadInput(f"--seeds: from --seed {first} on there are fewer than {count} seeds")
    return range(first, first + count)


def expand(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group of options by one parameter per field.

    Typer reads the commands' signatures, so every option appears in `--help` as if it had been
    written out.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        if is_dataclass(parameter.annotation):
            group: Any = parameter.annotation
            groups[parameter.name] = group
            parameters += inspect.signature(group).parameters.values()
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            names = inspect.signature(group).parameters
            values[name] = group(**{option: values.pop(option) for option in names})
        command(**values)

    keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    call.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    return call
