"""`dna export`, `dna push` and `dna import-sb3`: policies that leave and policies that come."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from dna.cli.display import counting
from dna.common.errors import BadInput

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, or one that holds policy/")
]
Episodes = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="hub: whole episodes of the evaluation")
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="hub: seed of the evaluation")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="hub: the most likely action, not a sample")
]
AllowImport = Annotated[bool, typer.Option("--allow-import", help="The run's ENV_ID runs code")]


def export(
    run: Run,
    form: Annotated[
        Literal["onnx", "hub"], typer.Option("--format", help="A file, or a folder")
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file [RUN/policy.onnx] or the hub's folder")
    ] = None,
    no_env: Annotated[
        bool,
        typer.Option("--no-env", help="onnx: do not make the environment; actions stay raw"),
    ] = False,
    episodes: Episodes = 100,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    allow_import: AllowImport = False,
) -> None:
    """Write a run's policy for others: as ONNX, or as a folder for the Hugging Face Hub.

    ONNX takes observations as the environment gives them and has the normalizer and the
    space of actions inside; what to feed is written in it and beside it. It is compared with
    torch before it is written.

    Examples:

      dna export runs/3f2a9c01d4e5 --format onnx --out policy.onnx

      dna export runs/3f2a9c01d4e5 --format hub --out breakout-dna
    """
    if form == "onnx":
        _onnx(run, out, no_env, allow_import)
    elif out is None:
        raise BadInput("--out: which folder? For example --out breakout-dna")
    else:
        _package(run, out, episodes, seed, deterministic, allow_import)


def _onnx(run: Path, out: Path | None, no_env: bool, allow_import: bool) -> None:
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
    beside = file.write(target)
    found = file.compared
    typer.echo(
        f"{target}: {len(file.data) / 1e3:,.0f} kB; at most {found.difference:.1e} from torch "
        f"over {found.observations} random observations; what to feed it: {beside}"
    )
    if no_env:
        typer.echo("made without the environment: actions have no offsets and no bounds")


def _package(
    run: Path, out: Path, episodes: int, seed: int, deterministic: bool, allow_import: bool
) -> None:
    from dna.agents.hub import Packing, package

    with counting("episodes played", episodes) as told:
        how = Packing(episodes, seed, deterministic, allow_import, progress=told)
        packed = package(run, out, how)
    score = packed.summary
    mean, std, played = score["mean"], score["std"], score["episodes"]
    typer.echo(f"{out.name}: {mean:.2f} ± {std:.2f} over {played} episodes")
    for note in packed.notes:
        typer.echo(f"note: {note}")


def push(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN|FOLDER", help="A run, or what `dna export` made of it"),
    ],
    repository: Annotated[str, typer.Argument(metavar="USER/NAME", help="On the hub")],
    private: Annotated[bool, typer.Option("--private", help="For you alone")] = False,
    episodes: Episodes = 100,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    allow_import: AllowImport = False,
) -> None:
    """Upload a policy to the Hugging Face Hub; log in with `hf auth login` before.

    A run is first made into a folder for the hub, as `dna export --format hub` does.

    Examples:

      dna push breakout-dna my-name/breakout-dna

      dna push runs/3f2a9c01d4e5 my-name/breakout-dna --private
    """
    from dna.agents import hub

    hub.check_repository(repository)
    hub.hub_library()
    if (folder / "README.md").exists() or (folder / "README.md").is_symlink():
        typer.echo(hub.push(folder, repository, private=private))
        return
    with TemporaryDirectory(prefix="dna-hub-") as place:
        made = Path(place) / repository.partition("/")[2]
        _package(folder, made, episodes, seed, deterministic, allow_import)
        typer.echo(hub.push(made, repository, private=private))


def import_sb3(
    model: Annotated[Path, typer.Argument(metavar="MODEL.zip", help="What SB3's save() wrote")],
    env_id: Annotated[str, typer.Argument(metavar="ENV_ID", help="What it was trained on")],
    out: Annotated[Path, typer.Option(help="A new folder for the policy")],
    allow_import: Annotated[
        bool, typer.Option("--allow-import", help="Let ENV_ID be module:factory")
    ] = False,
) -> None:
    """Take the weights of a Stable-Baselines3 PPO model, without running what is in it.

    MlpPolicy and CnnPolicy; the result acts as SB3's `predict` does and is for `dna eval`,
    `dna record` and `dna export`.

    Example: dna import-sb3 ppo_cartpole.zip CartPole-v1 --out cartpole-sb3
    """
    from dna.evaluation.sb3 import import_model

    for line in import_model(model, env_id, out, allow_import=allow_import):
        typer.echo(line)


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command()(export)
    app.command()(push)
    app.command("import-sb3")(import_sb3)
