"""docs/fidelity.md names settings that exist, defaults that are the defaults."""

import json
import re
from pathlib import Path

import pytest

from dna.config import SGD, Auxiliary, Config, Distil, Joint, Policy, Value
from dna.errors import BadInput
from dna.presets import PRESETS
from dna.tweak import at, tweak

TEXT = (Path(__file__).parents[2] / "docs" / "fidelity.md").read_text()
_SGD = SGD(epochs=1, minibatch=2)
#: Only what has no default is given.
BARE = (
    Config(phases=(Policy(sgd=_SGD), Value(sgd=_SGD), Distil(sgd=_SGD))),
    Config(phases=(Joint(sgd=_SGD),)),
    Config(phases=(Policy(sgd=_SGD), Value(sgd=_SGD), Auxiliary(sgd=_SGD))),
)


def rows():
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and not set(cells[0]) <= {"-"} and cells[0] != "topic":
            yield cells


def named(cells):
    """(key, value) of every backticked `key = value`."""
    for key, value in re.findall(r"`([a-z_.]+) = ([^`]+)`", " ".join(cells)):
        yield key, json.loads(value)


ROWS = list(rows())
LATER = TEXT.index("## Decided, arrives")
DEFAULTS = [
    pair for row in ROWS if TEXT.index(f"| {row[0]} |") < LATER for pair in named(row[3:4])
]
VALUES = [pair for row in ROWS for pair in named(row[3:5])]


def holders(configs, key):
    """The configurations that have this setting."""
    for config in configs:
        try:
            at(config, key.rpartition(".")[0])
            tweak(config, **{key: at(config, key)})
        except (BadInput, KeyError, TypeError):
            continue
        yield config


def test_the_tables_are_read():
    assert len(ROWS) > 40
    assert len(DEFAULTS) > 20
    assert len(VALUES) > len(DEFAULTS) + 15


@pytest.mark.parametrize(("key", "value"), DEFAULTS, ids=str)
def test_a_default_named_in_the_table_is_the_default(key, value):
    found = [at(config, key) for config in holders(BARE, key)]
    assert found
    assert all(default == value for default in found)


@pytest.mark.parametrize(("key", "value"), VALUES, ids=str)
def test_a_value_named_in_the_table_is_accepted(key, value):
    accepted = [tweak(config, **{key: value}) for config in holders(PRESETS.values(), key)]
    assert accepted
    assert all(at(config, key) == value for config in accepted)


def test_every_row_fills_every_column():
    for topic, paper, code, ours, _ in ROWS:
        assert paper, topic
        assert code, topic
        assert ours, topic
