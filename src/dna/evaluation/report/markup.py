"""Build HTML: escaped elements, tables, Markdown tables, and formatted numbers.

Text becomes `Html` only through `escape` or `el`, so that escaping cannot be forgotten.
"""

import html
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

#: Elements without content.
VOID = {"meta", "link", "br", "img"}


class Html(str):
    """Text that is markup; any other text is escaped when it is inserted into an element."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Return text as markup; control characters and lone surrogates become �."""
    if isinstance(text, Html):
        return text
    whole = text.encode("utf-8", "replace").decode()
    safe = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in whole)
    return Html(html.escape(safe, quote=True))


def el(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """Return an element; `class_` is written class, `aria_label` aria-label, None omitted."""
    tag = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        tag.append(key if value is True else f'{key}="{escape(str(value))}"')
    start = f"<{' '.join(tag)}>"
    if name in VOID:
        return Html(start)
    return Html(f"{start}{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """Concatenate pieces, each escaped unless it is markup."""
    return Html("".join(escape(part) for part in parts))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], label: str, numeric: Iterable[int] = ()
) -> Html:
    """Return a table that scrolls if it is too wide; `numeric` columns are right-aligned."""
    right = set(numeric)

    def cell(kind: str, index: int, text: str) -> Html:
        css = "n" if index in right else None
        return el(kind, text, class_=css, scope="col" if kind == "th" else None)

    top = el("tr", *(cell("th", i, text) for i, text in enumerate(head)))
    body = (el("tr", *(cell("td", i, text) for i, text in enumerate(row))) for row in rows)
    inside = el("table", el("thead", top), el("tbody", *body))
    return el("div", inside, class_="scroll", role="region", aria_label=label, tabindex=0)


def pairs(rows: Iterable[tuple[str, str]]) -> Html:
    """Return names and values as a definition list."""
    items = (el("div", el("dt", name), el("dd", value)) for name, value in rows)
    return el("dl", *items, class_="facts")


def folded(summary: str, *children: str) -> Html:
    """Return content that opens on demand."""
    return el("details", el("summary", summary), *children)


@dataclass(frozen=True)
class PageSection:
    """A section of a page: its anchor, its heading and its content."""

    id: str
    title: str
    body: Html


# ── Markdown ──────────────────────────────────────────────────────────────────────────────


_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")


def markdown(text: str, label: str) -> Html:
    """Convert pipe tables and headings; every other line becomes a paragraph."""
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
    width = len(head)
    return table(
        [inline(cell) for cell in head],
        ([inline(cell) for cell in (row + [""] * width)[:width]] for row in rows),
        label,
        numeric=right,
    )


def _cells(line: str) -> list[str]:
    inner = line.removeprefix("|").removesuffix("|")
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(inner)]


def inline(text: str) -> Html:
    """Escape text, then convert `code` and **bold**."""
    safe = _CODE.sub(r"<code>\1</code>", escape(text))
    return Html(_BOLD.sub(r"<strong>\1</strong>", safe))


# ── Numbers ───────────────────────────────────────────────────────────────────────────────


_UNITS = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def number(value: float | None, digits: int = 3) -> str:
    """Format a measured value: 14.1, −0.0144, 1,240, 2.1e−5."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e9 or size < 1e-3:
        return minus(_exponent(value, digits - 1))
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return minus(text.rstrip("0").rstrip(".") if "." in text else text)


def count(value: float) -> str:
    """Format a count: 300,000."""
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Format a count in little space: 300 k, 1.5 M."""
    for unit, name in _UNITS:
        if abs(value) >= max(unit, 1e4):
            return minus(f"{value / unit:.3g}{name}")
    return minus(f"{value:,.0f}")


def duration(seconds: float) -> str:
    """Format seconds: 28 s, 4 min 05 s, 2 h 10 min, 3 d 4 h; "–" if not finite."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def size(number_of_bytes: int) -> str:
    """Format a number of bytes: 41 kB, 3.2 MB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number_of_bytes >= unit:
            scaled = number_of_bytes / unit
            return f"{scaled:.{0 if scaled >= 10 else 1}f} {name}"
    return f"{number_of_bytes} bytes"


def percent(share: float) -> str:
    """Format a share: 0.374 is 37 %; below 10 % one decimal is kept."""
    return f"{100 * share:.{1 if share < 0.0995 else 0}f} %"


def minus(text: str) -> str:
    """Replace hyphens by the minus sign."""
    return text.replace("-", "−")


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Format evenly spaced ticks with one unit and number of decimals."""
    top = max((abs(tick) for tick in ticks), default=0.0)
    if top == 0 or top < 1e-3 or top >= 1e12:
        return ["0" if tick == 0 else minus(_short_exponent(tick)) for tick in ticks]
    unit, name = next((pair for pair in _UNITS if top >= max(pair[0], 1e4)), (1.0, ""))
    step = min((b - a for a, b in pairwise(ticks)), default=top)
    scaled = [tick / unit for tick in ticks]
    places = next((p for p in range(12) if _exact(scaled, p, step / unit)), 3)
    return [
        "0" if abs(t) < step * 1e-6 else minus(f"{t / unit:,.{places}f}{name}") for t in ticks
    ]


def log_label(tick: float) -> str:
    """Format a tick of a logarithmic axis."""
    if 1e-3 <= tick < 1e4:
        return f"{tick:,.12g}"
    return short(tick) if 1e4 <= tick < 1e12 else minus(_short_exponent(tick))


def _exact(values: Sequence[float], places: int, step: float) -> bool:
    return all(abs(round(v, places) - v) < abs(step) * 1e-3 for v in values)


def _exponent(value: float, places: int) -> str:
    mantissa, _, power = f"{value:.{places}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def _short_exponent(value: float) -> str:
    mantissa, _, power = f"{value:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}"
