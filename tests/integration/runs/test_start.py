"""A start that fails leaves nothing behind, and one that resumes hides no bug of ours."""

import gc
import json
import os
import weakref

import numpy as np
import pytest
import torch

from dna.algorithm.rollout import Collector
from dna.common.errors import BadInput, FolderBusy, Preempted, StorageFailure
from dna.common.lock import locked
from dna.common.storage import read_folder, write_folder
from dna.common.tensor_files import TensorFile, tensor_bytes, tensors_from
from dna.config.overrides import digest
from dna.distributed.world import SOLO, Solo
from dna.runs import checkpoint, folder
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import train
from helpers import Stopper, tiny

HOW = How(checkpoint_every=64, tensorboard=False, threads=1)
CONFIG = tiny("ppg", "CartPole-v1", interactions=512)
REFUSED = tiny("dna", "CartPole-v1", **{"distil.constraint": "mean_mse"})


def refuse(path):
    with pytest.raises(BadInput, match=r"distil\.constraint"):
        train(REFUSED, 0, path, how=HOW)


def test_a_refused_start_removes_the_folders_that_it_created_and_no_other(tmp_path):
    refuse(tmp_path / "new" / "deep" / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    refuse(tmp_path / "mine")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    refuse(tmp_path / "mine")
    refuse(tmp_path / "mine" / "run")
    assert list((tmp_path / "mine").rglob("*")) == [tmp_path / "mine" / "notes.txt"]


def test_a_start_that_died_between_its_first_two_files_can_be_repeated(tmp_path, monkeypatch):
    config = tiny("ppo")
    how = How(tensorboard=False)

    write = folder.write_json

    def write_machine_only(path, tree):
        if path.name != "machine.json":
            raise KeyboardInterrupt
        write(path, tree)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_json", write_machine_only)
        with pytest.raises(KeyboardInterrupt):
            train(config, 0, tmp_path / "run", how=how)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["machine.json"]
    assert train(config, 0, tmp_path / "run", how=how)["interactions"] == config.interactions
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "machine.json").write_text('{"asked": {}, "cpu": "of another"}')
    with pytest.raises(BadInput, match=r"holds machine\.json, but no run"):
        train(config, 0, tmp_path / "other", how=how)


def test_environments_are_built_only_once_the_folder_is_locked(tmp_path):
    path = tmp_path / "run"
    with locked(path), pytest.raises(FolderBusy, match="in use by"):
        train(CONFIG, 3, path, how=HOW, source=lambda: pytest.fail("built"))


def test_a_run_that_another_process_finished_meanwhile_is_left_alone(tmp_path, monkeypatch):
    train(CONFIG, 3, tmp_path, how=HOW)
    before = (tmp_path / "done").read_bytes()
    monkeypatch.setattr(RunFolder, "finished", lambda *arguments: None)
    with pytest.raises(FolderBusy, match="another process changed the run"):
        train(CONFIG, 3, tmp_path, how=HOW)
    assert (tmp_path / "done").read_bytes() == before


@pytest.fixture
def cut(tmp_path):
    """A run of PPG that was stopped with a rollout in its replay."""
    with pytest.raises(Preempted):
        train(CONFIG, 3, tmp_path / "run", how=HOW, sinks=[Stopper(4)])
    return tmp_path / "run"


class Two(Solo):
    """The first of two ranks."""

    size = 2


def spoil(folder, change):
    """Change the tensors of the newest checkpoint, with a manifest that agrees."""
    path = folder / "checkpoints" / checkpoint.names(folder)[-1]
    files = read_folder(path)
    tensors = tensors_from(files["rank0.safetensors"], "test")
    change(tensors)
    files["rank0.safetensors"] = tensor_bytes(tensors)
    write_folder(path, files, {"digest": digest(CONFIG, 3)})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.update({"networks/x": torch.zeros(1)}), "belongs to no network"),
        (lambda t: t.update({"env/x": torch.zeros(1, dtype=torch.bfloat16)}), "bfloat16"),
        (lambda t: t.update({"optimizer/policy/x/step": torch.zeros(1)}), "has no number"),
        (lambda t: t.update({"replay/²/obs": torch.zeros(1)}), "has no number"),
        (lambda t: t.pop("replay/0/v_targ"), "v_targ is missing"),
        (lambda t: t.pop("replay/0/obs"), "obs is missing"),
        (lambda t: t.update({"replay/0/weight": torch.zeros(3)}), "not of 64 rows"),
        (lambda t: t.pop("optimizer/policy/0/exp_avg"), "moments are not of these weights"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_checkpoint_of_another_run_is_passed_over(cut, change, reason):
    spoil(cut, change)
    with (
        pytest.warns(RuntimeWarning, match="resuming from"),
        pytest.warns(RuntimeWarning, match=reason),
    ):
        assert train(CONFIG, 3, cut, how=HOW)["interactions"] == 512
    assert RunFolder(cut).machine()["exact"]


@pytest.mark.parametrize(
    ("ranks", "command"), [(2, "torchrun --nproc-per-node 2 -m dna resume"), (1, "dna resume")]
)
def test_another_number_of_ranks_is_told_the_command_that_continues(cut, ranks, command):
    path = cut / "checkpoints" / checkpoint.names(cut)[-1]
    files = read_folder(path)
    state = json.loads(files["state.json"]) | {"ranks": ranks}
    files["state.json"] = json.dumps(state).encode()
    write_folder(path, files, {"digest": digest(CONFIG, 3)})
    world = SOLO if ranks == 2 else Two()
    with pytest.raises(BadInput) as refused:
        checkpoint.load(path, digest(CONFIG, 3), world=world)
    assert str(refused.value).endswith(f"; `{command} {cut}` continues it")


def swollen(folder, name, size):
    """Add a sparse tensor to the newest checkpoint, with a manifest that agrees in size."""
    path = folder / "checkpoints" / checkpoint.names(folder)[-1]
    file = path / "rank0.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    end = len(data) - 8 - length
    header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    file.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + length :])
    os.truncate(file, file.stat().st_size + size)
    manifest = json.loads((path / "manifest.json").read_text())
    listed = {"bytes": file.stat().st_size, "sha256": "of nobody"}
    manifest["files"]["rank0.safetensors"] = listed
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize(
    "name", ["networks/evil", "optimizer/policy/0/x", "noise/x", "replay/0/x"]
)
def test_tensors_that_are_too_large_for_the_run_are_refused_unread(cut, name, monkeypatch):
    bad = swollen(cut, name, 2**28)
    monkeypatch.setattr(TensorFile, "read", lambda *arguments: pytest.fail("read"))
    group = name.partition("/")[0]
    with (
        pytest.warns(RuntimeWarning, match="resuming from"),
        pytest.warns(RuntimeWarning, match=f"{bad}: does not fit this run .{group} of"),
    ):
        assert train(CONFIG, 3, cut, how=HOW)["interactions"] == 512
    assert RunFolder(cut).machine()["exact"]


def test_environments_whose_state_is_too_large_to_be_read_are_restarted(cut, monkeypatch):
    for name, limit in (("LARGE", 1000), ("ENV_LIMIT", 0), ("ENV_GROWTH", 0)):
        monkeypatch.setattr(checkpoint, name, limit)
    with pytest.warns(RuntimeWarning, match="their state is larger than is read"):
        assert train(CONFIG, 3, cut, how=HOW)["interactions"] == 512
    (why,) = RunFolder(cut).machine()["why_not_exact"]
    assert why.startswith("environments were restarted")


def test_what_was_restored_is_not_kept_beside_the_run(cut, monkeypatch):
    """The replay of PPG may take gigabytes, and must be freed once it has been learned from."""
    monkeypatch.setattr(checkpoint, "LARGE", 1000)
    read = []
    reading = TensorFile.read

    def remember(self, sha256, wanted):
        tensors = reading(self, sha256, wanted)
        read.extend(weakref.ref(tensor) for tensor in tensors.values())
        return tensors

    class Looking(Stopper):
        def write(self, row):
            gc.collect()
            left.append([reference() for reference in read])

    left = []
    monkeypatch.setattr(TensorFile, "read", remember)
    train(CONFIG, 3, cut, how=HOW, sinks=[Looking()])
    kept = [tensor for tensor in left[0] if tensor is not None]
    assert 0 < len(kept) < len(read) / 2  # Adam's moments are used as they are


@pytest.mark.parametrize("damage", [False, True])
def test_a_large_checkpoint_is_resumed_with_the_same_bits(cut, tmp_path, damage, monkeypatch):
    """With a lower bound for what is large, and so read tensor by tensor."""
    train(CONFIG, 3, tmp_path / "whole", how=HOW)
    if damage:
        path = cut / "checkpoints" / checkpoint.names(cut)[-1] / "rank0.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    monkeypatch.setattr(checkpoint, "LARGE", 1000)
    newest = cut / "checkpoints" / checkpoint.names(cut)[-1]
    assert checkpoint.load(newest, digest(CONFIG, 3)).large
    if damage:
        with (
            pytest.warns(RuntimeWarning, match="resuming from"),
            pytest.warns(RuntimeWarning, match="damaged"),
        ):
            train(CONFIG, 3, cut, how=HOW)
    else:
        train(CONFIG, 3, cut, how=HOW)
    for name in ("metrics.jsonl", "policy/policy.safetensors"):
        assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_type_that_torch_does_not_have_is_one_line():
    header = json.dumps({"x": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    data = np.uint64(len(header)).tobytes() + header + b"\0"
    with pytest.raises(StorageFailure, match="x: not a safetensors file"):
        tensors_from(data, "x")


@pytest.mark.parametrize("error", [AttributeError, KeyError, TypeError])
def test_a_bug_of_ours_while_restoring_is_not_taken_for_a_bad_checkpoint(
    cut, monkeypatch, error
):
    def broken(*arguments, **options):
        raise error("ours")

    monkeypatch.setattr(Collector, "load", broken)
    before = sorted(os.listdir(cut / "checkpoints"))
    with pytest.raises(error, match="ours"):
        train(CONFIG, 3, cut, how=HOW)
    assert sorted(os.listdir(cut / "checkpoints")) == before
