"""The short form of `make torture`: every part of the campaign, with smaller numbers."""

import pytest
from torture.configs import configs
from torture.corruption import corruption
from torture.endurance import endurance
from torture.environments import environment_faults
from torture.ground import warm_up
from torture.hostile import hostile
from torture.kills import kills
from torture.museum import EXHIBITS, ROOT
from torture.nonfinite import nonfinites
from torture.points import points, saves
from torture.preemption import preemption
from torture.races import races


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    warm_up()


def test_kills_at_random_moments(tmp_path):
    outcome = kills(tmp_path, 12, envs=("toy", "ALE/Qbert-v5"))
    assert outcome.trouble == []
    assert outcome.tried >= 12


def test_file_operations_that_crash_or_fail(tmp_path):
    outcome = points(tmp_path, most=8)
    assert outcome.trouble == []
    assert outcome.tried >= 30


def test_saves_and_longer_runs_whose_file_operations_crash_or_fail(tmp_path):
    outcome = saves(tmp_path, most=8)
    assert outcome.trouble == []
    assert outcome.tried >= 30


def test_damaged_and_foreign_checkpoints(tmp_path):
    outcome = corruption(tmp_path, flips=60, sectors=20, step=16_384)
    assert outcome.trouble == []
    assert outcome.tried >= 90


def test_signals_to_stop(tmp_path):
    outcome = preemption(tmp_path, 6)
    assert outcome.trouble == []
    assert outcome.tried >= 6


def test_environments_that_fail(tmp_path):
    outcome = environment_faults(tmp_path, every=2, workers=1)
    assert outcome.trouble == []
    assert outcome.tried >= 16


def test_numbers_that_are_not_finite(tmp_path):
    outcome = nonfinites(tmp_path, most=8)
    assert outcome.trouble == []
    assert outcome.tried >= 8


def test_processes_that_race_for_one_folder(tmp_path):
    outcome = races(tmp_path, rounds=2, racers=6)
    assert outcome.trouble == []
    assert outcome.tried >= 2


def test_hostile_files_and_names(tmp_path):
    outcome = hostile(tmp_path)
    assert outcome.trouble == []
    assert outcome.tried >= 80


def test_bad_configurations(tmp_path):
    outcome = configs(tmp_path, 200)
    assert outcome.trouble == []
    assert outcome.tried >= 200


@pytest.mark.filterwarnings("ignore")
def test_a_long_run_leaks_nothing(tmp_path):
    outcome = endurance(tmp_path, 100)
    leaks = [note for note in outcome.notes[1:] if not note.startswith("saving took")]
    assert leaks == []  # how long saving takes is for `make torture` on a quiet machine


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda one: one.what)
def test_every_bug_of_the_museum_can_be_brought_in(exhibit):
    """The whole museum takes minutes; that its patches fit the source is seen here."""
    text = (ROOT / "src" / "dna" / exhibit.file).read_text()
    assert text.count(exhibit.old) == 1
