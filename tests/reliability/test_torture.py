"""The short form of `make torture`: every part of the campaign, with smaller numbers."""

import pytest

from torture.configs import configs
from torture.corruption import corruption
from torture.endurance import endurance
from torture.environments import environment_faults
from torture.ground import warm_up
from torture.hostile import hostile
from torture.kills import kills
from torture.nonfinite import nonfinites
from torture.points import points
from torture.preemption import preemption
from torture.races import races


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    warm_up()


def check(outcome, at_least):
    assert outcome.survived == outcome.tried, outcome.notes
    assert outcome.lost == 0, outcome.notes
    assert outcome.tried >= at_least


def test_kills_at_random_moments(tmp_path):
    check(kills(tmp_path, 12, envs=("toy", "ALE/Qbert-v5")), 12)


def test_file_operations_that_crash_or_fail(tmp_path):
    check(points(tmp_path, most=8), 30)


def test_damaged_and_foreign_checkpoints(tmp_path):
    check(corruption(tmp_path, flips=60, sectors=20, step=16_384), 90)


def test_signals_to_stop(tmp_path):
    check(preemption(tmp_path, 6), 6)


def test_environments_that_fail(tmp_path):
    check(environment_faults(tmp_path, inside=28, workers=1), 29)


def test_numbers_that_are_not_finite(tmp_path):
    check(nonfinites(tmp_path, most=8), 8)


def test_processes_that_race_for_one_folder(tmp_path):
    check(races(tmp_path, rounds=2, racers=6), 2)


def test_hostile_files_and_names(tmp_path):
    check(hostile(tmp_path), 30)


def test_bad_configurations(tmp_path):
    check(configs(tmp_path, 200), 200)


@pytest.mark.filterwarnings("ignore")
def test_a_long_run_leaks_nothing(tmp_path):
    outcome = endurance(tmp_path, 100)
    leaks = [note for note in outcome.notes[1:] if not note.startswith("saving took")]
    assert leaks == []  # how long saving takes is for `make torture` on a quiet machine
