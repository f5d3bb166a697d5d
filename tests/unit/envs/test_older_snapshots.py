"""Snapshots from before the package was divided into rooms continue to the bit."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dna.envs.state import qualified_names
from dna.envs.state.comparison import difference

FOLDER = Path(__file__).parents[2] / "fixtures" / "snapshots"


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import recorded_env

    yield recorded_env
    del sys.modules["recorded_env"]


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_an_older_snapshot_continues_to_the_bit(kind, recorded):
    saved = load_file(FOLDER / f"{kind}.safetensors")
    expected = {k.removeprefix("expected/"): a for k, a in saved.items() if "expected" in k}
    env = recorded.made(kind)
    env.restore({k: a for k, a in saved.items() if "expected" not in k})
    for name, array in recorded.played(env, seed=2).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert expected["done"].any(), "episodes end on the way"


def test_the_fixtures_name_every_class_that_snapshots_can_contain():
    text = b"".join(
        array.tobytes()
        for kind in ("single", "vector")
        for name, array in load_file(FOLDER / f"{kind}.safetensors").items()
        if name.endswith("graph")
    ).decode()
    for name in ("masks.AskedMasks", "instances.KeptEnv", "instances.KeptVector"):
        assert f'"dna.envs.{name}"' in text
    assert '"dna.envs.fake.Identity.step#' in text, "a method, with a checksum of its code"


def test_the_table_of_moved_classes_names_classes():
    for name in qualified_names.MOVED:
        assert isinstance(qualified_names.loaded(name), type), name


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_a_snapshot_is_written_as_it_was_before(kind, recorded):
    saved = load_file(FOLDER / f"{kind}.safetensors")
    saved = {k: a for k, a in saved.items() if "expected" not in k}
    env = recorded.made(kind)
    env.restore(saved)
    again = env.snapshot()
    assert set(again) == set(saved)
    for name, array in again.items():
        before, after = saved[name].tobytes(), array.tobytes()
        if name.endswith(
            "graph"
        ):  # a function's checksum follows its code; spaces have one too
            changed = rb'#\w{8}|"(traits|space)": "\w{8}", '
            before, after = (re.sub(changed, b"", text) for text in (before, after))
        assert before == after, name
    assert difference(saved, again) is None


def test_only_functions_of_this_package_are_compared_without_their_code():
    def other():
        return 1

    name = qualified_names.of(other)
    assert qualified_names.is_name_of(name, other)
    assert not qualified_names.is_name_of(name[:-1] + ("0" if name[-1] != "0" else "1"), other)
    own = qualified_names.of(qualified_names.belongs)
    assert qualified_names.is_name_of(
        own.partition("#")[0] + "#00000000", qualified_names.belongs
    )
    assert not qualified_names.is_name_of(own, qualified_names.member)
