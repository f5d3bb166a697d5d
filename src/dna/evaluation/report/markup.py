"""Markup that cannot be forgotten to escape: text becomes `Html` only through `el`."""

import html
from collections.abc import Iterable, Sequence

#: Elements without content.
VOID = {"meta", "link", "br", "img"}


class Html(str):
    """Text that is markup already; any other text is escaped when it is put into some."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Text as markup; what no document may hold (control characters, half code points) is �."""
    if isinstance(text, Html):
        return text
    whole = text.encode("utf-8", "replace").decode()
    safe = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in whole)
    return Html(html.escape(safe, quote=True))


def el(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """An element. `class_` and `aria_label` are class and aria-label; None is left out."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(str(value))}"')
    start = f"<{' '.join(words)}>"
    if name in VOID:
        return Html(start)
    return Html(f"{start}{join(children)}</{name}>")


def join(parts: Iterable[str], between: str = "") -> Html:
    """Pieces one after another, each escaped unless it is markup."""
    return Html(escape(between).join(escape(part) for part in parts))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], label: str, numeric: Iterable[int] = ()
) -> Html:
    """A table that scrolls by itself where it is too wide; `numeric` columns stand right."""
    right = set(numeric)

    def cell(kind: str, index: int, text: str) -> Html:
        css = "n" if index in right else None
        return el(kind, text, class_=css, scope="col" if kind == "th" else None)

    top = el("tr", *(cell("th", i, text) for i, text in enumerate(head)))
    body = (el("tr", *(cell("td", i, text) for i, text in enumerate(row))) for row in rows)
    inside = el("table", el("thead", top), el("tbody", *body))
    return el("div", inside, class_="scroll", role="region", aria_label=label, tabindex=0)


def pairs(rows: Iterable[tuple[str, str]]) -> Html:
    """Names and what they are, as a list of definitions."""
    items = (el("div", el("dt", name), el("dd", value)) for name, value in rows)
    return el("dl", *items, class_="facts")


def folded(summary: str, *children: str) -> Html:
    """Something that opens on demand."""
    return el("details", el("summary", summary), *children)
