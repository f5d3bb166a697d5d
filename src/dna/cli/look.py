"""`dna show`, `dna list` and `dna doctor`: what there is, and what it says."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dna.common.errors import BadInput, EnvironmentFailure
from dna.common.messages import nearest, quoted
from dna.config import Config, json_tree
from dna.config.overrides import differences, digest
from dna.config.presets import FAMILIES, PREFIXES, PRESETS, PROFILES
from dna.config.presets.as_run import departures
from dna.config.presets.tables import TABLES, SettingsTable

#: By number and by the label of the paper's source.
_TABLES = TABLES | {table.label: table for table in TABLES.values()}


def show(
    what: Annotated[
        str, typer.Argument(metavar="PRESET|RUN|TABLE", help="e.g. tuned.dna, table1")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON")] = False,
    diff: Annotated[
        str | None,
        typer.Option(metavar="OTHER|as_run", help="Only what differs from this"),
    ] = None,
) -> None:
    """Print a preset's or a run's settings, or a settings table of the paper.

    Examples:

      dna show tuned.dna

      dna show minatar.dna --diff minatar.ppo

      dna show tuned.dna --diff as_run

      dna show table1
    """
    if what in _TABLES:
        if diff is not None:
            raise BadInput("--diff: compares presets and runs; a table is shown alone")
        _print_table(_TABLES[what], as_json)
        return
    config = _find(what, _TABLES)
    if diff is None:
        if as_json:
            typer.echo(json.dumps(json_tree(config), indent=2))
        else:
            _print_config(config, what)
    elif diff in PROFILES:
        _print_changes(_as_run(config), (what, diff, "why"), as_json)
    else:
        changed = differences(config, _find(diff, PROFILES))
        _print_changes([(path, *pair) for path, pair in changed.items()], (what, diff), as_json)


def _as_run(config: Config) -> list[tuple[str, Any, Any, str]]:
    return [(row.key, row.paper, row.code, row.reason) for row in departures(config)]


def _print_changes(
    rows: Sequence[tuple[str, *tuple[Any, ...]]], columns: tuple[str, ...], as_json: bool
) -> None:
    """Setting, then its value on both sides and, for a profile, the reason."""
    if as_json:
        typer.echo(json.dumps({path: list(rest) for path, *rest in rows}, indent=2))
    elif not rows:
        typer.echo(f"{columns[0]} and {columns[1]} have the same settings")
    else:
        table = Table(box=None, header_style="bold")
        table.add_column("setting", no_wrap=True)
        for name in columns:
            table.add_column(escape(name))
        for path, *rest in rows:
            table.add_row(escape(path), *(_text(value) for value in rest))
        Console().print(table)


def list_(
    what: Annotated[
        Literal["presets", "envs", "experiments"], typer.Argument(help="What to list")
    ] = "presets",
) -> None:
    """List presets, environments or the paper's experiments.

    Example: dna list envs
    """
    if what == "experiments":
        from dna.cli.paper import print_experiments

        return print_experiments()
    if what == "presets":
        _print_presets()
        return
    from dna.envs.factory import ids

    known, missing = ids()
    for line in missing:
        typer.echo(f"dna: {line}", err=True)
    for name in known:
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
    from dna.cli.doctor import conformance, installation

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


def _find(what: str, also: Iterable[str]) -> Config:
    """A preset's or a run's configuration; `also` are other names that would have done."""
    if what in PRESETS:
        return PRESETS[what]
    if _is_path(what):
        from dna.runs.folder import RunFolder, read_config

        path = Path(what)
        return read_config(path)[0] if path.is_file() else RunFolder.of(path).read()[0]
    hint = nearest(what, [*PRESETS, *also])
    raise BadInput(f"{quoted(what)}: no run and no preset{hint}")


def _print_presets() -> None:
    """One block per family: what it is for, which ids start from it, its presets."""
    console = Console()
    wide = max(len(name) for name in PRESETS)
    for family, (about, presets) in FAMILIES.items():
        ids = [prefix.rstrip("-") for prefix, name in PREFIXES.items() if name == family]
        head = f"{about}: {', '.join(ids)}" if ids else about
        console.print(Text(head, style="bold"))
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(width=wide)
        table.add_column(width=39)
        for name, config in presets.items():
            phases = " ".join(
                f"{p.name}:{p.sgd.epochs}×{p.sgd.minibatch}" for p in config.phases
            )
            size = f"{config.agents}×{config.horizon}"
            table.add_row(f"{family}.{name}", phases, size, _short(config.interactions))
        console.print(Padding(table, (0, 0, 0, 2)))
    typer.echo("columns: preset, phase:epochs×minibatch, agents×horizon, interactions")


def _short(count: int) -> str:
    """50000000 → 50 M"""
    return f"{count / 1e6:g} M" if count >= 10**6 else f"{count / 1e3:g} k"


def _print_table(table: SettingsTable, as_json: bool) -> None:
    rows = table.cells()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    console = Console()
    console.print(Text(f"{table.title}  ({table.label})", style="bold"), soft_wrap=True)
    printed = Table("setting", box=None, header_style="bold")
    for name in table.columns:
        printed.add_column(name, justify="right")
    for row in rows:
        printed.add_row(*(cell or "–" for cell in row.values()))
    console.print(printed)


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
    for key, value in _sections(json_tree(config)):
        rest.add_row(key, _text(value))
    console.print(rest)


def _sections(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything but the phases; what is nested twice (env.atari) in a row of its own."""
    for key, value in tree.items():
        inside = value if isinstance(value, dict) else {}
        nested = {k: v for k, v in inside.items() if isinstance(v, dict)}
        if key != "phases":
            yield key, {k: v for k, v in inside.items() if k not in nested} or value
            yield from ((f"{key}.{k}", v) for k, v in nested.items() if v)


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"start", "end"}:
        return f"{value['start']} → {value['end']}"
    if isinstance(value, dict):
        return ", ".join(f"{escape(key)} {_text(inner)}" for key, inner in value.items())
    return "off" if value is None else escape(str(value))


def register(app: typer.Typer) -> None:
    """Add these verbs."""
    app.command()(show)
    app.command("list")(list_)
    app.command()(doctor)
