"""`dna show` and `dna list`: settings, presets, tables of the paper, environments."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dna.cli.options import AsJson
from dna.common.errors import BadInput
from dna.common.messages import nearest, printable, quoted
from dna.config import Config, json_tree
from dna.config.describe import sections
from dna.config.describe import settings as settings_help
from dna.config.overrides import differences, digest
from dna.config.presets import FAMILIES, PREFIXES, PRESETS, PROFILES
from dna.config.presets.as_run import departures
from dna.config.presets.tables import TABLES, SettingsTable

#: By number and by the label of the paper's source.
_TABLES = TABLES | {table.label: table for table in TABLES.values()}


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[PRESET|RUN|TABLE|WORD]",
            help="For example tuned.dna, table1; with --help-settings: a word to look for",
        ),
    ] = None,
    help_settings: Annotated[
        bool,
        typer.Option(
            "--help-settings", help="Describe every setting, or those that mention WHAT"
        ),
    ] = False,
    diff: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER|as_run",
            help="Print only the differences from this preset, profile or run",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the settings of a preset or a run, a table of the paper, or help on settings.

    Examples:

      dna show tuned.dna

      dna show minatar.dna --diff minatar.ppo

      dna show tuned.dna --diff as_run

      dna show table1

      dna show --help-settings

      dna show --help-settings sgd
    """
    if help_settings:
        if diff is not None:
            raise BadInput("--diff: cannot be combined with --help-settings")
        _print_help(what or "", as_json)
    elif what is None:
        raise BadInput(
            "PRESET|RUN|TABLE: missing; `dna list presets` lists presets, --help-settings "
            "describes settings"
        )
    elif what in _TABLES:
        if diff is not None:
            raise BadInput("--diff: compares presets and runs, not tables")
        _print_table(_TABLES[what], as_json)
    elif diff is None:
        _print_config(_find(what, _TABLES), what, as_json)
    elif diff in PROFILES:
        rows = departures(_find(what, _TABLES))
        changes = {row.key: [row.paper, row.code, row.reason] for row in rows}
        _print_changes(changes, [what, diff, "why"], as_json)
    else:
        pair = (_find(what, _TABLES), _find(diff, PROFILES))
        changes = {key: list(values) for key, values in differences(*pair).items()}
        if not as_json:
            changes = {key: _marked(key, values, pair) for key, values in changes.items()}
        _print_changes(changes, [what, diff], as_json)


def _print_help(word: str, as_json: bool) -> None:
    """Print path, values, default and description of the settings that mention `word`."""
    found = []
    for section in sections():
        settings = [
            setting
            for setting in section.settings
            if word.lower() in f"{setting.path} {setting.description}".lower()
        ]
        if settings:
            found.append(section._replace(settings=settings))
    if not found:
        parts = {part for setting in settings_help() for part in setting.path.split(".")}
        hint = nearest(word, sorted(parts))
        raise BadInput(f"{quoted(word)}: no setting mentions it{hint}")
    if as_json:
        every = [setting._asdict() for section in found for setting in section.settings]
        typer.echo(json.dumps(every, indent=2))
        return
    for section in found:
        typer.echo(typer.style(f"{section.title}: {section.description}", bold=True))
        for setting in section.settings:
            name = typer.style(setting.path, fg="cyan")
            default = setting.default
            default = default if default == "required" else f"default: {default}"
            typer.echo(f"  {name}  {setting.values}  [{default}]")
            typer.echo(f"      {setting.description}")


def _marked(key: str, values: list[Any], configs: tuple[Config, Config]) -> list[Any]:
    """Return the values with a dash for a phase that one side lacks: it is not switched off."""
    phase = key.partition(".")[0]
    if phase in Config.model_fields:
        return values
    return [
        value if phase in {one.name for one in config.phases} else "–"
        for value, config in zip(values, configs, strict=True)
    ]


def _print_changes(
    changes: Mapping[str, list[Any]], columns: Sequence[str], as_json: bool
) -> None:
    """Print the value of each setting on both sides and, for a profile, the reason."""
    if as_json:
        typer.echo(json.dumps(changes, indent=2))
        return
    if not changes:
        typer.echo(f"{columns[0]} and {columns[1]} have the same settings")
        return
    table = Table(box=None, header_style="bold")
    table.add_column("setting", no_wrap=True)
    for name in columns:
        table.add_column(escape(name))
    for key, values in changes.items():
        table.add_row(escape(key), *map(_text, values))
    Console().print(table)


def list_(
    what: Annotated[
        Literal["presets", "envs", "experiments"], typer.Argument(help="What to list")
    ] = "presets",
) -> None:
    """List presets, environments, or experiments of the paper.

    Example: dna list envs
    """
    if what == "presets":
        _print_presets()
    elif what == "experiments":
        _print_experiments()
    else:
        from dna.envs.factory import ids

        known, missing = ids()
        for line in missing:
            typer.echo(f"dna: {line}", err=True)
        for name in known:
            typer.echo(name)


def _print_experiments() -> None:
    from dna.paper.experiments import EXPERIMENTS

    table = Table("name", "alias", "title", "covers", box=None, header_style="bold")
    for one in EXPERIMENTS:
        table.add_row(one.name, one.alias, one.title, " ".join(one.covers))
    Console().print(table)


def _find(what: str, also: Iterable[str]) -> Config:
    """Return the settings of a preset or a run; `also` are other names to suggest."""
    if what in PRESETS:
        return PRESETS[what]
    if _is_path(what):
        from dna.runs.folder import RunFolder, read_config

        path = Path(what)
        return read_config(path)[0] if path.is_file() else RunFolder.of(path).read()[0]
    hint = nearest(what, [*PRESETS, *also])
    raise BadInput(f"{quoted(what)}: no such run or preset{hint}")


def _print_presets() -> None:
    """Print the presets of each family, with the environments that start from them."""
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
    """Abbreviate a count: 50000000 → 50 M."""
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
    except OSError:  # too long for the name of a file
        return False


def _print_config(config: Config, name: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(json_tree(config), indent=2))
        return
    console = Console()
    head = f"{printable(name)}  {config.algorithm.upper()}  digest {digest(config)}"
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
    """Yield all sections but the phases; nested ones such as env.atari get their own row."""
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
