"""Hooks of the site: the page of commands is made from the command line itself."""

from typing import Any

import typer
from typer.main import get_command

MARK = "<!-- every command, from `dna --help` -->"


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Put the commands where the page asks for them."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def commands() -> str:
    """Every verb with its words, examples, arguments and options, as Markdown."""
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
    words, examples = _apart(command.help or "")
    usage = " ".join(["dna", name, *command.collect_usage_pieces(context)])
    lines = [f"## dna {name}", words, f"```text\n{usage}\n```"]
    if examples:
        lines.append("```console\n" + "\n".join(examples) + "\n```")
    rows = [record for p in command.params if (record := p.get_help_record(context))]
    if rows:
        lines.append("| option | meaning |\n|---|---|\n" + "\n".join(map(_row, rows)))
    return "\n\n".join(lines)


def _apart(text: str) -> tuple[str, list[str]]:
    """Words, and the examples among them."""
    lines = [line.strip().removeprefix("Example: ") for line in text.splitlines()]
    examples = [line for line in lines if line.startswith("dna ")]
    words = [line for line in lines if not line.startswith("dna ") and line != "Examples:"]
    return "\n".join(words).strip(), examples


def _row(record: tuple[str, str]) -> str:
    name, words = (text.replace("|", "\\|").replace("\n", " ") for text in record)
    return f"| `{name}` | {words} |"
