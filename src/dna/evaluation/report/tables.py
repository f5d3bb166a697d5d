"""The Markdown that our own tables are written in, as HTML: pipe tables and plain lines."""

import re
from collections.abc import Iterator
from itertools import groupby

from dna.evaluation.report.markup import Html, el, escape, join, table

_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")


def markdown(text: str, label: str) -> Html:
    """Pipe tables become tables, headings headings; anything else is a paragraph as it is."""
    lines = [line.strip() for line in text.splitlines()]
    blocks = groupby(lines, key=lambda line: "table" if "|" in line else bool(line))
    return join(part for kind, found in blocks for part in _block(kind, list(found), label))


def _block(kind: str | bool, lines: list[str], label: str) -> Iterator[Html]:
    if kind == "table" and len(lines) > 1 and _RULE.fullmatch(lines[1]):
        yield _table(lines, label)
    elif kind:
        for line in lines:
            name = "h3" if line.startswith("#") else "p"
            yield el(name, inline(line.lstrip("# ")))


def _table(lines: list[str], label: str) -> Html:
    head, rule, *rows = (_cells(line) for line in lines)
    right = [i for i, cell in enumerate(rule) if cell.endswith(":") and cell[0] != ":"]
    wide = len(head)
    return table(
        [inline(cell) for cell in head],
        ([inline(cell) for cell in (row + [""] * wide)[:wide]] for row in rows),
        label,
        numeric=right,
    )


def _cells(line: str) -> list[str]:
    inner = line.removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(inner)]


def inline(text: str) -> Html:
    """Escaped first; then `code` and **bold** may be what they say."""
    safe = _CODE.sub(r"<code>\1</code>", escape(text))
    return Html(_BOLD.sub(r"<strong>\1</strong>", safe))
