"""Every setting is described where it is declared, and the docs page is made from that."""

from pathlib import Path
from typing import Any

import pytest

from dna.config import Config, describe, json_tree
from dna.config.phases import PHASES
from dna.config.presets import PRESETS

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"
MODELS = [Config, *PHASES.values(), *(model for _, model in describe._inner(Config))]
#: Settings that say what a kind of phase is, and cannot be changed.
FIXED = {"kind", "trains", "reads", "every"}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_field_has_a_description(model):
    for name in model.model_fields:
        text = describe.description(model, name)
        assert text.endswith("."), f"{model.__name__}.{name} has no description"
        assert len(text) < 200


def leaves(node: Any, prefix: str = "") -> set[str]:
    if not isinstance(node, dict) or prefix.endswith(("learning_rate", "epsilon", "bonus")):
        return {prefix}
    return {
        p for key, child in node.items() for p in leaves(child, f"{prefix}.{key}".strip("."))
    }


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_of_a_preset_is_listed_by_its_path(name):
    tree = json_tree(PRESETS[name])
    phases = {phase["name"]: phase for phase in tree["phases"]}
    listed = {row.path for row in describe.settings()}
    missing = leaves(tree | phases) - listed
    assert {path for path in missing if path.split(".")[-1] not in FIXED} == set()


def test_values_and_defaults_are_in_plain_words():
    rows = {row.path: row for row in describe.settings()}
    assert rows["agents"].values == "integer 1 to 65,536"
    assert rows["horizon"].values == "integer ≥ 1"
    assert rows["distil.beta"].values == "number ≥ 0"
    assert rows["policy.sgd.learning_rate"].values == 'number > 0 or {"start": …, "end": …}'
    assert rows["policy.sgd.max_gradient_norm"].values == "number > 0 or null"
    assert rows["distil.first"].values == '"run", "skip"'
    assert rows["noise.alpha"].values == "number ≥ 0 < 1"
    assert (rows["returns.gamma"].default, rows["noise"].default) == ("0.999", "null")
    assert (rows["warm_up"].default, rows["policy.sgd.epochs"].default) == ("on", "required")
    assert rows["distil.every"].description == "Run the phase on every n-th iteration."


def test_the_page_is_what_is_generated():
    regenerate = "python -m dna.config.describe > docs/settings.md"
    assert PAGE.read_text() == describe.markdown(), f"run: {regenerate}"
