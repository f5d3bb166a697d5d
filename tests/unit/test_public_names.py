"""`import dna`: its names, their laziness, its types."""

import importlib
import subprocess
import sys
from importlib import resources

import pytest

import dna


@pytest.mark.parametrize("name", dna.__all__)
def test_a_public_name_is_the_one_of_its_module(name):
    home = importlib.import_module(f"dna.{dna._HOME[name]}")
    assert getattr(dna, name) is getattr(home, name)


def test_no_public_name_hides_behind_a_module_of_the_same_name():
    modules = {path.name.removesuffix(".py") for path in resources.files("dna").iterdir()}
    assert not modules & set(dna.__all__)


def test_the_verbs_are_functions_of_the_package():
    code = "import dna, dna.runs.train, dna.evaluation.evaluate; from dna import train, tweak"
    code += "; assert all(map(callable, (train, tweak, dna.train, dna.evaluate, dna.tweak)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = dna.nothing


def test_importing_the_package_imports_no_torch():
    code = "import sys, dna; dna.Config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_types_are_shipped():
    assert resources.files("dna").joinpath("py.typed").is_file()
