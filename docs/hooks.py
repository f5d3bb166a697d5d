"""MkDocs hooks: generate the page of commands from the command line itself."""

from typing import Any

import typer
from typer.main import get_command

MARK = "<!-- every command, from `dna --help` -->"


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Replace the marker on the page of commands."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Return every command with its help, examples, arguments and options as Markdown."""
    from dna.cli import app

    group: Any = get_command(app)
    context = typer.Context(group, info_name="dna")
    parts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            parts.append(_command(name, command, context))
    return "\n\n".join(parts)


def _command(name: str, command: Any, parent: typer.Context) -> str:
    context = typer.Context(command, info_name=name, parent=parent)
    description, examples = _split(command.help or "")
    usage = " ".join(["dna", name, *command.collect_usage_pieces(context)])
    lines = [f"## dna {name}", description, f"```text\n{usage}\n```"]
    if examples:
        lines.append("```console\n" + "\n".join(examples) + "\n```")
    rows = [record for p in command.params if (record := p.get_help_record(context))]
    if rows:
        lines.append("| option | meaning |\n|---|---|\n" + "\n".join(map(_row, rows)))
    return "\n\n".join(lines)


def _split(text: str) -> tuple[str, list[str]]:
    """Separate the description of a command from its examples."""
    lines = [line.strip().removeprefix("Example: ") for line in text.splitlines()]
    examples = [line for line in lines if line.startswith("dna ")]
    description = [
        line for line in lines if not line.startswith("dna ") and line != "Examples:"
    ]
    return "\n".join(description).strip(), examples


def _row(record: tuple[str, str]) -> str:
    name, meaning = (text.replace("|", "\\|").replace("\n", " ") for text in record)
    return f"| `{name}` | {meaning} |"
