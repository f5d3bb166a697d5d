"""Options that several commands share: one declaration, and every command shows them."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from dna.cli import COMMANDS, main
from dna.cli.options import MAX_SEED, RunOptions, SettingsOptions, expand, seed_range
from dna.common.errors import BadInput


def option_names(group):
    names = inspect.signature(group).parameters
    return [f"--{name.replace('_', '-')}" for name in names if name != "overrides"]


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_the_commands_show_every_option_of_their_groups(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    for option in option_names(SettingsOptions) + option_names(RunOptions):
        assert option in text
    assert "Examples:" in text


def test_resume_takes_the_run_options_but_no_settings(capsys):
    assert main(["resume", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(option in text for option in option_names(RunOptions))
    assert not any(option in text for option in option_names(SettingsOptions))


def test_a_group_becomes_one_option_per_field_and_arrives_as_one_value():
    @dataclass(frozen=True)
    class Size:
        width: Annotated[int, typer.Option(help="Width")] = 3
        depth: Annotated[int, typer.Option(help="Depth")] = 2

    seen = []

    @expand
    def build(name: str, *, loud: bool = False, size: Size) -> None:
        seen.append((name, loud, size))

    assert list(inspect.signature(build).parameters) == ["name", "loud", "width", "depth"]
    build(name="a", loud=True, width=5, depth=2)
    assert seen == [("a", True, Size(width=5))]


def test_choices_become_the_options_of_a_child_process():
    assert RunOptions().as_words() == ["--env-timeout", "120.0"]
    chosen = RunOptions(device="cpu", checkpoint_every=64, allow_import=True)
    words = ["--device", "cpu", "--checkpoint-every", "64", "--env-timeout", "120.0"]
    assert chosen.as_words() == [*words, "--allow-import"]
    assert "threads" not in chosen.given()
    known = inspect.signature(COMMANDS["resume"]).parameters
    assert set(chosen.given()) <= set(known)


def test_seeds_end_at_the_largest():
    assert list(seed_range(MAX_SEED - 1, 2)) == [MAX_SEED - 1, MAX_SEED]
    with pytest.raises(BadInput, match="--seeds"):
        seed_range(MAX_SEED, 2)
