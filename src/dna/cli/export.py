"""Export, upload and import policies: `dna export`, `dna push` and `dna import-sb3`."""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from dna.cli.options import MAX_SEED, AllowImport, EnvId, expand
from dna.cli.progress import counting
from dna.common.errors import BadInput
from dna.common.messages import quoted


@dataclass(frozen=True)
class HubOptions:
    """The evaluation that a folder for the Hugging Face Hub reports."""

    episodes: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="hub: complete episodes to evaluate")
    ] = 100
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="hub: random seed of the evaluation")
    ] = 0
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="hub: take the most likely action instead of sampling"
        ),
    ] = False
    allow_import: Annotated[
        bool,
        typer.Option("--allow-import", help="Allow the run's module:factory to run its code"),
    ] = False


@expand
def export(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder of a run, or any folder that has policy/"),
    ],
    *,
    form: Annotated[
        Literal["onnx", "hub"],
        typer.Option("--format", help="An ONNX file, or a folder for the Hugging Face Hub"),
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(help="ONNX file [RUN/policy.onnx], or the folder for the hub"),
    ] = None,
    no_env: Annotated[
        bool,
        typer.Option(
            "--no-env",
            help="onnx: do not create the environment; actions count from 0, unclipped",
        ),
    ] = False,
    hub: HubOptions,
) -> None:
    """Export a policy as an ONNX file or as a folder for the Hugging Face Hub.

    The ONNX model takes observations as the environment returns them; it includes the
    normalizer and the action space. Its inputs are described inside it and in a JSON file next
    to it. Its outputs are compared with torch's before the file is written.

    Examples:

      dna export runs/3f2a9c01d4e5 --format onnx --out policy.onnx

      dna export runs/3f2a9c01d4e5 --format hub --out breakout-dna
    """
    if form == "onnx":
        _export_onnx(run, out, no_env=no_env, allow_import=hub.allow_import)
    elif out is None:
        raise BadInput("--out: required by --format hub, for example --out breakout-dna")
    else:
        _package(run, out, hub)


def _export_onnx(run: Path, out: Path | None, *, no_env: bool, allow_import: bool) -> None:
    target = out or run / "policy.onnx"
    if target.suffix != ".onnx":
        raise BadInput(f"--out {target}: must end in .onnx")
    from dna.agents.hub import load
    from dna.evaluation.export.onnx_file import (
        check_installed,
        environment_interface,
        to_onnx,
    )

    policy = load(run)
    check_installed()
    known = None if no_env else environment_interface(policy, allow_import=allow_import)
    file = to_onnx(policy, known)
    description = file.write(target)
    typer.echo(
        f"{target}: {len(file.data) / 1e3:,.0f} kB; at most {file.compared.difference:.1e} "
        f"from torch over {file.compared.observations} random observations; "
        f"inputs: {description}"
    )
    if no_env:
        typer.echo("created without the environment: actions have no offsets and no bounds")


def _package(run: Path, out: Path, hub: HubOptions) -> None:
    from dna.agents.hub import Packing, package

    with counting("episodes played", hub.episodes) as count:
        how = Packing(
            hub.episodes, hub.seed, hub.deterministic, hub.allow_import, progress=count
        )
        packed = package(run, out, how)
    mean = packed.summary["mean"]
    std = packed.summary["std"]
    typer.echo(f"{out.name}: {mean:.2f} ± {std:.2f} over {hub.episodes} episodes")
    for note in packed.notes:
        typer.echo(f"note: {note}")


@expand
def push(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN|FOLDER", help="A run, or a folder made by `dna export`"),
    ],
    repository: Annotated[
        str, typer.Argument(metavar="USER/NAME", help="Repository on the Hugging Face Hub")
    ],
    *,
    private: Annotated[
        bool, typer.Option("--private", help="Create a private repository")
    ] = False,
    hub: HubOptions,
) -> None:
    """Upload a policy to the Hugging Face Hub; log in with `hf auth login` first.

    A run is first packaged as by `dna export --format hub`.

    Examples:

      dna push breakout-dna my-name/breakout-dna

      dna push runs/3f2a9c01d4e5 my-name/breakout-dna --private
    """
    from dna.agents.hub import check_repository, hub_library
    from dna.agents.hub import push as upload

    check_repository(repository)
    hub_library()
    if (folder / "README.md").exists() or (folder / "README.md").is_symlink():
        typer.echo(upload(folder, repository, private=private))
        return
    with TemporaryDirectory(prefix="dna-hub-") as temporary:
        packaged = Path(temporary) / repository.partition("/")[2]
        _package(folder, packaged, hub)
        typer.echo(upload(packaged, repository, private=private))


def import_sb3(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.zip", help="File written by the model's save()")
    ],
    env_id: EnvId,
    out: Annotated[Path, typer.Option(help="New folder for the policy")],
    allow_import: AllowImport = False,
) -> None:
    """Import the weights of a Stable-Baselines3 PPO model without unpickling code.

    Supports MlpPolicy and CnnPolicy. The result acts as SB3's `predict` does and can be used
    with `dna eval`, `dna record` and `dna export`.

    Example: dna import-sb3 ppo_cartpole.zip CartPole-v1 --out cartpole-sb3
    """
    if not os.path.isfile(model):  # unlike Path.is_file, accepts names that are too long
        kind = "is a folder" if os.path.isdir(model) else "no such file"
        raise BadInput(
            f"{quoted(str(model))}: {kind}; give the zip file that the model's save() wrote"
        )
    from dna.evaluation.sb3 import import_model

    for line in import_model(model, env_id, out, allow_import=allow_import):
        typer.echo(line)
