"""`dna show`, `dna list` and `dna doctor`: what there is, and what it says."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dna.config import Config, json_tree
from dna.errors import BadInput, EnvironmentFailure
from dna.presets import PREFIXES, PRESETS, preset
from dna.tweak import differences, digest


def show(
    what: Annotated[str, typer.Argument(metavar="PRESET|RUN", help="e.g. minatar.dna")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON")] = False,
    diff: Annotated[
        str | None, typer.Option(metavar="OTHER", help="Only what differs from this")
    ] = None,
) -> None:
    """Print a preset's or a run's settings.

    Examples:

      dna show minatar.dna

      dna show minatar.dna --diff minatar.ppo
    """
    config = _find(what)
    if diff is None:
        tree = json_tree(config)
        if as_json:
            typer.echo(json.dumps(tree, indent=2))
        else:
            _print_config(config, what)
        return
    changed = differences(config, _find(diff))
    if as_json:
        typer.echo(json.dumps({path: list(pair) for path, pair in changed.items()}, indent=2))
    elif not changed:
        typer.echo(f"{what} and {diff} have the same settings")
    else:
        columns = ("setting", escape(what), escape(diff))
        table = Table(*columns, box=None, header_style="bold")
        for path, (ours, theirs) in changed.items():
            table.add_row(escape(path), _text(ours), _text(theirs))
        Console().print(table)


def list_(
    what: Annotated[
        Literal["presets", "envs"], typer.Argument(help="What to list")
    ] = "presets",
) -> None:
    """List presets or environments.

    Example: dna list envs
    """
    if what == "presets":
        table = Table("preset", "phases", "A×N", "interactions", box=None, header_style="bold")
        for name, config in PRESETS.items():
            phases = " ".join(
                f"{p.name}:{p.sgd.epochs}×{p.sgd.minibatch}" for p in config.phases
            )
            size = f"{config.agents}×{config.horizon}"
            table.add_row(name, phases, size, f"{config.interactions:,}")
        Console().print(table)
        typer.echo(f"\nfamilies by id: {', '.join(PREFIXES)}; everything else: small")
        return
    import gymnasium

    from dna.envs.gym import register_minatar
    from dna.errors import MissingExtra

    try:
        register_minatar()
    except MissingExtra as missing:
        typer.echo(f"dna: {missing}", err=True)
    for name in sorted(gymnasium.registry):
        typer.echo(name)


def doctor(
    env_id: Annotated[str | None, typer.Argument(metavar="[ENV_ID]")] = None,
    allow_import: Annotated[
        bool, typer.Option("--allow-import", help="Let ENV_ID be module:factory")
    ] = False,
) -> None:
    """Say what is installed and what is missing; with ENV_ID, check that environment.

    Examples:

      dna doctor

      dna doctor my_package:make_env --allow-import
    """
    from dna.doctor import conformance, installation

    marks = {"ok": "ok  ", "note": "note", "fail": "FAIL"}
    failed = 0
    findings = (
        installation() if env_id is None else conformance(env_id, allow_import=allow_import)
    )
    for finding in findings:
        typer.echo(f"{marks[finding.level]}  {finding.text}")
        failed += finding.level == "fail"
    if failed:
        raise EnvironmentFailure(f"{env_id}: does not keep the contract (see FAIL above)")


def _find(what: str) -> Config:
    if what in PRESETS:
        return PRESETS[what]
    if _is_path(what):
        from dna.folder import RunFolder, read_config

        path = Path(what)
        return read_config(path)[0] if path.is_file() else RunFolder.of(path).read()[0]
    try:
        return preset(what)
    except BadInput as error:
        raise BadInput(
            str(error).replace("--preset ", "").replace("no such", "no run and no")
        ) from None


def _is_path(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # longer than any file's name
        return False


def _print_config(config: Config, name: str) -> None:
    console = Console()
    head = f"{name}  {config.algorithm.upper()}  digest {digest(config)}"
    console.print(Text(head, style="bold"), soft_wrap=True)
    columns: dict[str, dict[str, Any]] = {}
    for phase in json_tree(config)["phases"]:
        sgd = phase.pop("sgd")
        columns[phase["name"]] = {
            k: v for k, v in phase.items() if k not in ("kind", "name")
        } | sgd
    table = Table("phase", *columns, box=None, header_style="bold")
    for key in dict.fromkeys(key for column in columns.values() for key in column):
        table.add_row(key, *(_text(column.get(key, "")) for column in columns.values()))
    console.print(table)
    rest = Table("setting", "value", box=None, header_style="bold")
    for key, value in json_tree(config).items():
        if key != "phases":
            rest.add_row(key, _text(value))
    console.print(rest)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{escape(key)} {_text(inner)}" for key, inner in value.items())
    return "off" if value is None else escape(str(value))


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command()(show)
    app.command("list")(list_)
    app.command()(doctor)
