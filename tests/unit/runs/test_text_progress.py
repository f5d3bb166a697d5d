"""Lines about a run: how much of it is done, and to what its budget is rounded up."""

import pytest

from dna.config.overrides import tweak
from dna.config.presets import for_environment
from dna.runs.text_progress import rounding_note, share_done


def budget(interactions, agents=8):
    base = for_environment("CartPole-v1")
    return tweak(base, interactions=interactions, horizon=128, agents=agents)


@pytest.mark.parametrize(
    ("interactions", "note"),
    [
        (1024, ""),
        (4096, ""),
        (2000, "2,000 interactions are rounded up to 2,048, 2 rollouts of 1,024"),
        (600, "600 interactions are rounded up to 1,024, one whole rollout"),
    ],
)
def test_only_a_budget_that_is_not_whole_rollouts_is_noted(interactions, note):
    assert rounding_note(budget(interactions)) == note


def test_points_with_other_rollouts_are_noted_in_the_same_line():
    line = "2,000 interactions are rounded up to 2,048, one whole rollout"
    found = rounding_note(budget(1024), budget(2000, agents=16), budget(2000), budget(2000))
    assert found == f"{line}; other points are rounded up too"
    assert rounding_note(budget(1024), budget(2000, agents=16)) == line


def test_no_share_is_above_one():
    assert share_done(1000, 2000) == 0.5
    assert share_done(2048, 2000) == 1.0
