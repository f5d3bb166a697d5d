"""A save is replaced, and a run made longer, all at once: the old one stays until then."""

import json
import os
import shutil

import pytest

import dna
from dna.common import syscalls
from dna.common.errors import BadInput, FolderBusy, StorageFailure
from dna.common.lock import locked
from dna.common.storage import NEXT
from dna.runs import checkpoint
from dna.runs.extend import copy_run, lengthened
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import train
from helpers import bytes_of, tiny

CONFIG = tiny("dna", "CartPole-v1", interactions=192)
HOW = How(checkpoint_every=64, tensorboard=False, threads=1, verify=False)
FILES = ("config.json", "metrics.jsonl", "policy/policy.safetensors", "done")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(CONFIG, 3, folder, how=HOW)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A run with three checkpoints that is over."""
    return RunFolder(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def kept(run, tmp_path):
    """A save of it."""
    copy_run(run, tmp_path / "kept")
    return RunFolder(tmp_path / "kept")


def damage(run, name):
    path = run.path / "checkpoints" / name / "rank0.safetensors"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)


def usable(run):
    config, seed = run.read()
    return checkpoint.latest(run.path, dna.config.overrides.digest(config, seed)).interactions


def test_a_save_takes_the_newest_checkpoint_that_can_be_used(run, kept):
    damage(run, checkpoint.names(run.path)[-1])
    with pytest.warns(RuntimeWarning, match=r"not copied: .*damaged.*resumes from 0+128"):
        copy_run(run, kept.path)
    assert checkpoint.names(kept.path) == [checkpoint.names(run.path)[-2]]
    assert usable(kept) == 128


def test_a_checkpoint_that_cannot_be_read_now_is_no_reason_to_save_an_older_one(
    run, kept, monkeypatch
):
    newest, read = checkpoint.names(run.path)[-1], syscalls.read

    def refused(path, limit):
        if newest in str(path) and path.name == "rank0.safetensors":
            raise PermissionError(13, "Permission denied")
        return read(path, limit)

    monkeypatch.setattr(syscalls, "read", refused)
    with pytest.raises(StorageFailure, match="Permission denied"):
        copy_run(run, kept.path)
    monkeypatch.undo()
    assert usable(kept) == 192


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_a_run_that_cannot_be_saved_leaves_the_earlier_save(run, kept, how):
    before = bytes_of(kept.path, *FILES)
    for name in checkpoint.names(run.path):
        damage(run, name)
    if how == "gone":
        shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(StorageFailure, match="can be used"):
        copy_run(run, kept.path)
    assert bytes_of(kept.path, *FILES) == before
    assert usable(kept) == 192


def test_what_lies_beside_a_save_stays_and_nothing_is_left_over(run, kept):
    (kept.path / "notes.txt").write_text("mine")
    (kept.path / "eval.json").write_text("{}")
    (kept.path / ".partial-123").mkdir()  # of a save that was killed
    copy_run(run, kept.path)
    assert (kept.path / "notes.txt").read_text() == "mine"
    names = {path.name for path in kept.path.iterdir()} - {"notes.txt", "run.lock"}
    copied = {"checkpoints", "policy", "machine.json", "metrics.jsonl", "episodes.csv"}
    assert names == copied | {"timings.jsonl", "done", "config.json"}


def killed_at(work, monkeypatch, name, number):
    """Do this in a child that dies before its n-th operation of this name."""
    operation, seen = getattr(syscalls, name), []

    def die(*words):
        seen.append(words)
        if len(seen) == number:
            os._exit(9)
        return operation(*words)

    if (child := os.fork()) == 0:
        setattr(syscalls, name, die)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_save_that_was_killed_in_the_middle_is_brought_to_its_end(
    run, kept, monkeypatch, tmp_path
):
    other = RunFolder(tmp_path / "other")
    train(CONFIG, 4, other.path, how=HOW)
    number, seeds = 0, []
    while True:
        number += 1
        place = shutil.copytree(kept.path, tmp_path / f"save{number}")
        code = killed_at(
            lambda: copy_run(other, place, overwrite=True),  # noqa: B023
            monkeypatch,
            "rename",
            number,
        )
        seeds.append(RunFolder.of(place).read()[1])
        assert usable(RunFolder(place)) == 192
        assert not (place / NEXT).exists()
        source = other if seeds[-1] == 4 else run
        assert bytes_of(place, *FILES) == bytes_of(source.path, *FILES)
        if code == 0:
            break
    assert seeds == sorted(seeds)
    assert set(seeds) == {3, 4}


def test_a_folder_in_which_somebody_trains_is_not_saved_to(run, kept):
    before = bytes_of(kept.path, *FILES)
    for overwrite in (False, True):
        with locked(kept.path), pytest.raises(FolderBusy, match="in use by"):
            copy_run(run, kept.path, overwrite=overwrite)
    assert bytes_of(kept.path, *FILES) == before


class Replacer:
    """Puts another run's settings into the folder in the middle of a run."""

    def __init__(self, folder, change):
        self.folder, self.change = folder, change

    def start(self):
        pass

    def write(self, row):
        if row.iteration == 0:
            self.change(self.folder / "config.json")

    def close(self):
        pass


def test_a_run_whose_folder_became_another_runs_stops_before_it_writes(tmp_path):
    def replace(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"digest": "f" * 12}))

    folder = tmp_path / "run"
    with pytest.raises(FolderBusy, match=r"config\.json is another run's"):
        train(CONFIG, 3, folder, how=HOW, sinks=[Replacer(folder, replace)])
    assert len((folder / "metrics.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("change", [os.unlink, lambda path: path.write_text("{")])
def test_settings_that_somebody_deletes_are_put_back(tmp_path, run, change):
    folder = tmp_path / "again"
    with pytest.warns(RuntimeWarning, match=r"config\.json: was deleted or damaged"):
        train(CONFIG, 3, folder, how=HOW, sinks=[Replacer(folder, change)])
    assert (folder / "config.json").read_bytes() == (run.path / "config.json").read_bytes()


def test_a_save_with_one_checkpoint_survives_a_kill_while_it_is_made_longer(
    kept, monkeypatch, tmp_path
):
    number, lengths = 0, []
    while True:
        number += 1
        place = shutil.copytree(kept.path, tmp_path / f"longer{number}")
        code = killed_at(
            lambda: lengthened(RunFolder(place), 128),  # noqa: B023
            monkeypatch,
            "rename",
            number,
        )
        config, _ = RunFolder.of(place).read()
        lengths.append(config.interactions)
        assert usable(RunFolder(place)) == 192
        assert RunFolder(place).done == (config.interactions == 192)
        if code == 0:
            break
    assert lengths == sorted(lengths)
    assert set(lengths) == {192, 320}


def test_what_lies_beside_checkpoints_stays_when_a_run_is_made_longer(kept):
    (kept.path / "checkpoints" / "backup").mkdir()
    assert lengthened(kept, 64).interactions == 256
    assert (kept.path / "checkpoints" / "backup").is_dir()


@pytest.mark.parametrize("text", ['{"bring": ["../x"], "drop": []}', "[]", '{"drop": ["/a"]}'])
def test_a_list_of_changes_that_leads_out_of_the_folder_is_refused(kept, text):
    (kept.path / NEXT).mkdir()
    (kept.path / NEXT / "list.json").write_text(text)
    with pytest.raises(StorageFailure, match=r"list\.json: not written by ppo-dna"):
        RunFolder.of(kept.path)


def test_a_change_that_is_a_link_is_refused(kept, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (kept.path / NEXT).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="is a link"):
        RunFolder(kept.path).check_free()
