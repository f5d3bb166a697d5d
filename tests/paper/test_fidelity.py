"""docs/fidelity.md names settings that exist, defaults and presets' values that are so."""

import json
import re
from pathlib import Path

from dna.common.errors import BadInput
from dna.config import SGD, Auxiliary, Config, Distil, Joint, Policy, Value
from dna.config.overrides import at, tweak
from dna.config.presets import PRESETS

TEXT = (Path(__file__).parents[2] / "docs" / "fidelity.md").read_text()
_SGD = SGD(epochs=1, minibatch=2)
#: Only what has no default is given.
BARE = (
    Config(phases=(Policy(sgd=_SGD), Value(sgd=_SGD), Distil(sgd=_SGD))),
    Config(phases=(Joint(sgd=_SGD),)),
    Config(phases=(Policy(sgd=_SGD), Value(sgd=_SGD), Auxiliary(sgd=_SGD))),
)


def rows(text):
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 5 and not set(cells[0]) <= {"-"} and cells[0] != "topic":
            yield cells


def named(cells):
    """(key, value) of every backticked `key = value`."""
    for key, value in re.findall(r"`([a-z_.]+) = ([^`]+)`", " ".join(cells)):
        yield key, json.loads(value)


ROWS = list(rows(TEXT))
#: Heading → the families of presets that its table speaks of; the others speak of defaults.
BENCHMARKS = {
    "### Atari": ("tuned.", "table1.", "table2.", "easy.", "ablation.", "targets."),
    "### MuJoCo": ("mujoco.",),
    "### Procgen": ("procgen.",),
}


def defaults():
    for cells in rows(TEXT[: TEXT.index("## Presets of the paper")]):
        yield from named(cells[3:4])


def of_presets():
    """(prefixes, key, value) of what the benchmarks' tables say is ours."""
    for heading, families in BENCHMARKS.items():
        below = TEXT[TEXT.index(heading) + len(heading) :]
        for cells in rows(below[: below.index("\n##")]):
            yield from ((families, *pair) for pair in named(cells[3:4]))


DEFAULTS = list(defaults())
OF_PRESETS = list(of_presets())
VALUES = [pair for row in ROWS for pair in named(row[3:5])]


def holders(configs, key):
    """The configurations that have this setting."""
    for config in configs:
        try:
            tweak(config, **{key: at(config, key)})
        except (BadInput, KeyError, TypeError):
            continue
        yield config


def test_the_tables_are_read():
    assert len(ROWS) > 40
    assert len(DEFAULTS) > 20
    assert len(OF_PRESETS) > 25
    assert len(VALUES) > len(DEFAULTS) + 15


def test_a_default_named_in_the_table_is_the_default():
    for key, value in DEFAULTS:
        found = [at(config, key) for config in holders(BARE, key)]
        assert found, key
        assert all(default == value for default in found), key


def test_a_value_named_for_a_benchmark_is_one_of_its_presets():
    for families, key, value in OF_PRESETS:
        presets = [config for name, config in PRESETS.items() if name.startswith(families)]
        assert value in [at(config, key) for config in holders(presets, key)], (families, key)


def test_a_value_named_in_the_table_is_accepted():
    for key, value in VALUES:
        accepted = [tweak(config, **{key: value}) for config in holders(PRESETS.values(), key)]
        assert accepted, (key, value)
        assert all(at(config, key) == value for config in accepted), (key, value)


def test_every_row_fills_every_column():
    for topic, paper, code, ours, _ in ROWS:
        assert paper, topic
        assert code, topic
        assert ours, topic
