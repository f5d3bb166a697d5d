"""docs/paper-map.md leads from every label of the paper to code that exists."""

import importlib
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LABELS = (Path(__file__).parent / "labels.txt").read_text().split()
NONE = "–"


def rows():
    """(label, what, symbol, test, status) of every table row that has them all."""
    for line in (ROOT / "docs" / "paper-map.md").read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and cells[0] != "label" and not cells[0].startswith("-"):
            yield cells


ROWS = list(rows())
SYMBOLS = sorted(
    set(re.findall(r"`(dna\.[\w.]+)`", (ROOT / "docs" / "paper-map.md").read_text()))
)


def resolve(dotted):
    """The object of a dotted name: the longest importable module, then attributes."""
    words = dotted.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:cut]))
        except ModuleNotFoundError:
            continue
        for word in words[cut:]:
            found = getattr(found, word)
        return found
    raise ImportError(dotted)


def test_the_labels_are_those_of_the_paper():
    kinds = [label.partition(":")[0] for label in LABELS]
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts == {"eq": 20, "alg": 2, "fig": 18, "tab": 10}


def test_every_label_is_in_the_map_exactly_once():
    for label in LABELS:
        assert [row[0] for row in ROWS].count(label) == 1, label


def test_no_label_of_these_kinds_is_invented():
    named = {row[0] for row in ROWS if re.match(r"(eq|alg|fig|tab):", row[0])}
    assert named == set(LABELS)


def test_every_symbol_imports_and_explains_itself():
    for symbol in SYMBOLS:
        assert inspect.getdoc(resolve(symbol)), symbol


def test_every_row_names_symbols_and_tests_or_says_that_there_are_none():
    for row in ROWS:
        label, _, symbol, test, status = row
        for cell in (symbol, test):
            parts = cell.split(", ")
            named = all(re.fullmatch(r"`[\w./]+`", part) for part in parts)
            assert named or parts == [NONE], label
        if test != NONE:
            paths = re.findall(r"`([^`]+)`", test)
            assert all((ROOT / path).is_file() for path in paths), label
        if symbol == NONE:
            assert test == NONE, label
            assert status.startswith("not "), f"{label}: {status}"
