"""Short forms of `make torture`: every part of the campaign, with smaller numbers."""

import json
import tempfile

import pytest

from torture.__main__ import Campaign
from torture.configs import configs
from torture.corruption import corruption
from torture.endurance import endurance
from torture.environments import environment_faults
from torture.ground import Outcome, warm_up
from torture.hostile import hostile
from torture.kills import kills
from torture.logs import logs
from torture.museum import EXHIBITS, ROOT
from torture.nonfinite import nonfinites
from torture.points import points, saves
from torture.preemption import preemption
from torture.races import races
from torture.zoo import zoo


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    warm_up()


#: The second form of a part is the one of `make long`.
long = pytest.mark.long


@pytest.mark.parametrize(("count", "envs"), [(4, 1), pytest.param(12, 2, marks=long)])
def test_kills_at_random_moments(count, envs, tmp_path):
    outcome = kills(tmp_path, count, envs=("toy", "ALE/Qbert-v5")[:envs])
    assert outcome.trouble == []
    assert outcome.tried >= count


@pytest.mark.parametrize(("most", "least"), [(3, 10), pytest.param(8, 30, marks=long)])
def test_file_operations_that_crash_or_fail(most, least, tmp_path):
    outcome = points(tmp_path, most=most)
    assert outcome.trouble == []
    assert outcome.tried >= least


@pytest.mark.parametrize(("most", "least"), [(3, 10), pytest.param(8, 30, marks=long)])
def test_saves_and_longer_runs_whose_file_operations_crash_or_fail(most, least, tmp_path):
    outcome = saves(tmp_path, most=most)
    assert outcome.trouble == []
    assert outcome.tried >= least


def test_damaged_and_foreign_checkpoints(tmp_path):
    outcome = corruption(tmp_path, flips=60, sectors=20, step=16_384)
    assert outcome.trouble == []
    assert outcome.tried >= 90


def test_damaged_logs(tmp_path):
    outcome = logs(tmp_path, each=3)
    assert outcome.trouble == []
    assert outcome.tried >= 15


@pytest.mark.parametrize("count", [2, pytest.param(6, marks=long)])
def test_signals_to_stop(count, tmp_path):
    outcome = preemption(tmp_path, count, limit=60.0)  # how soon is for a quiet machine
    assert outcome.trouble == []
    assert outcome.tried >= count


@pytest.mark.parametrize(("every", "workers"), [(24, 0), pytest.param(3, 1, marks=long)])
def test_environments_that_fail(every, workers, tmp_path):
    outcome = environment_faults(tmp_path, every=every, workers=workers)
    assert outcome.trouble == []
    assert outcome.tried >= 120 / every + workers


#: Quick patterns of which a careless snapshot gets something wrong.
PATTERNS = (
    "MovingRow",
    "ViewOfView",
    "OtherDtype",
    "ListInItself",
    "AttributeOrder",
    "TwoClosuresOneCell",
    "OptionalObject",
    "KeyedById",
    "ModuleListChosen",
    "ClassAttribute",
    "SpaceThatGrows",
    "SharedBitGenerator",
    "CachedObject",
    "TilesByIdentity",
    "LateNamedCache",
)


def test_environments_with_state_in_unusual_places(tmp_path):
    """Some of the patterns, each killed once."""
    outcome = zoo(tmp_path, PATTERNS, stops=False)
    assert outcome.trouble == []
    assert outcome.tried == len(PATTERNS)


@pytest.mark.parametrize("most", [4, pytest.param(8, marks=long)])
def test_numbers_that_are_not_finite(most, tmp_path):
    outcome = nonfinites(tmp_path, most=most)
    assert outcome.trouble == []
    assert outcome.tried >= most


@pytest.mark.parametrize("racers", [3, pytest.param(6, marks=long)])
def test_processes_that_race_for_one_folder(racers, tmp_path):
    """Two rounds: in the second the one that trains is killed."""
    outcome = races(tmp_path, rounds=2, racers=racers)
    assert outcome.trouble == []
    assert outcome.tried >= 2


@pytest.mark.parametrize(
    ("extreme", "least"), [(False, 80), pytest.param(True, 250, marks=long)]
)
def test_hostile_files_and_names(extreme, least, tmp_path):
    outcome = hostile(tmp_path, extreme=extreme)
    assert outcome.trouble == []
    assert outcome.tried >= least


def test_bad_configurations(tmp_path):
    outcome = configs(tmp_path, 200)
    assert outcome.trouble == []
    assert outcome.tried >= 200


@pytest.mark.filterwarnings("ignore")
def test_a_long_run_leaks_nothing(tmp_path):
    outcome = endurance(tmp_path, 100)
    leaks = [note for note in outcome.notes[1:] if not note.startswith("saving took")]
    assert leaks == []  # how long saving takes is for `make torture` on a quiet machine


def test_two_processes_can_share_a_campaign(tmp_path):
    path = tmp_path / "torture.json"
    one, other = Campaign(path), Campaign(path)
    one.add("kills", Outcome("kills", tried=3, survived=3))
    note = f"where: {tempfile.gettempdir()}/tmpx1/run/hang.txt"
    other.add("zoo", Outcome("zoo", tried=2, survived=1, differing=1, notes=[note]))
    found = Campaign(path).current()
    assert {name: outcome.tried for name, outcome in found.items()} == {"kills": 3, "zoo": 2}
    assert found["zoo"].notes == ["where: run/hang.txt"]
    totals = json.loads(path.read_text())["totals"]
    assert (totals["tried"], totals["survived"], totals["differing"]) == (5, 4, 1)


def test_every_bug_of_the_museum_can_be_brought_in():
    """The whole museum takes minutes; here its patches fit the source, its tests exist."""
    for exhibit in EXHIBITS:
        text = (ROOT / "src" / "dna" / exhibit.file).read_text()
        assert text.count(exhibit.old) == 1, f"{exhibit.what}: {exhibit.file} has changed"
        for test in exhibit.tests.split(" "):
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), f"{exhibit.what}: no {path}"
            function = f"def {name.partition('[')[0]}"
            assert not name or f"{function}(" in (ROOT / path).read_text(), f"no {test}"
