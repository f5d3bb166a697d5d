"""Files are whole or not at all, hashed, and can be cut back; the folder has one writer."""

import errno
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest
import torch

from dna.common import append_log, syscalls
from dna.common.append_log import AppendLog
from dna.common.errors import BadInput, FolderBusy, StorageFailure
from dna.common.lock import locked
from dna.common.storage import read_folder, read_json, remove, write, write_folder, write_json
from dna.common.tensor_files import TensorFile, tensor_bytes, tensors_from
from dna.runs.folder import RunFolder
from dna.runs.retention import remove_leftovers


def test_a_file_is_replaced_and_leaves_nothing_beside_it(tmp_path):
    write(tmp_path / "a" / "file", b"old")
    write(tmp_path / "a" / "file", b"new")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["file"]
    assert (tmp_path / "a" / "file").read_bytes() == b"new"


def test_a_failed_write_keeps_the_old_file_and_says_which(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageFailure, match="folder"):
        write(tmp_path / "folder", b"a folder is in the way")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_folder_reads_back_and_replaces_an_older_one(tmp_path):
    write_folder(tmp_path / "x", {"a": b"1", "b": b"2"})
    write_folder(tmp_path / "x", {"a": b"3"})
    assert read_folder(tmp_path / "x") == {"a": b"3"}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_folder_survives_a_failure_between_the_two_renames(tmp_path, monkeypatch):
    write_folder(tmp_path / "x", {"a": b"old"})
    rename = syscalls.rename
    calls = []

    def failing(old, new):
        calls.append(new)
        if len(calls) == 2:
            raise OSError("disk on fire")
        return rename(old, new)

    monkeypatch.setattr(syscalls, "rename", failing)
    with pytest.raises(StorageFailure):
        write_folder(tmp_path / "x", {"a": b"new"})
    monkeypatch.undo()
    assert read_folder(tmp_path / "x") == {"a": b"old"}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("where", [0, 1, -1])
def test_one_flipped_bit_is_found(where, tmp_path):
    write_folder(tmp_path / "x", {"a": bytes(100)})
    data = bytearray((tmp_path / "x" / "a").read_bytes())
    data[where] ^= 4
    (tmp_path / "x" / "a").write_bytes(data)
    with pytest.raises(StorageFailure, match="damaged"):
        read_folder(tmp_path / "x")


FILE = {"bytes": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"format": 3, "files": {}, "about": {}}, "a newer version"),
        ({"format": 1, "sha256": {}}, "an older version"),
        ({"format": 2, "files": []}, "not written by ppo-dna"),
        ({"format": 2, "files": {"a": 7}, "about": {}}, "not written by ppo-dna"),
        ({"format": 2, "files": {"a": {"bytes": -1}}, "about": {}}, "not written by ppo-dna"),
        ({"format": 2, "files": {"../secret": FILE}, "about": {}}, "outside of it"),
        ({"format": 2, "files": {"gone": FILE}, "about": {}}, "gone"),
        ({"format": 2, "files": {"a": FILE}, "about": {}}, "damaged"),
        ({"format": 2, "files": {"a": FILE | {"bytes": 0}}, "about": {}}, "larger than"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(manifest, words, tmp_path):
    write_folder(tmp_path / "x", {"a": b"1"})
    write_json(tmp_path / "x" / "manifest.json", manifest)
    with pytest.raises(StorageFailure, match=words):
        read_folder(tmp_path / "x")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00"])
def test_what_is_not_json_is_one_line(text, tmp_path):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(StorageFailure, match="not JSON"):
        read_json(tmp_path / "file.json")


def test_tensors_survive_and_garbage_does_not():
    tensors = {"a": torch.randn(3, 2).t(), "b": torch.tensor(7, dtype=torch.int64)}
    loaded = tensors_from(tensor_bytes(tensors), "here")
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    with pytest.raises(StorageFailure, match="here: not a safetensors file"):
        tensors_from(b"\xff" * 64, "here")


def test_names_and_sizes_of_tensors_are_read_from_the_header_alone(tmp_path):
    path = tmp_path / "file.safetensors"
    size = 6 * 10**9
    entries = {"a": [0, 4], "b/c": [4, size]}
    header = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, (start, end) in entries.items()
    }
    data = json.dumps(header | {"__metadata__": {}}).encode()
    path.write_bytes(len(data).to_bytes(8, "little") + data)
    os.truncate(path, 8 + len(data) + size)
    sizes = {name: entry.bytes for name, entry in TensorFile(path).entries.items()}
    assert sizes == {"a": 4, "b/c": size - 4}


@pytest.mark.parametrize("size", ["a byte less", 6 * 10**9])
def test_a_file_of_another_size_than_its_header_says_is_refused_unread(tmp_path, size):
    path = tmp_path / "file.safetensors"
    path.write_bytes(tensor_bytes({"a": torch.zeros(99)}))
    assert list(TensorFile(path).entries) == ["a"]
    os.truncate(path, path.stat().st_size - 1 if size == "a byte less" else size)
    with pytest.raises(StorageFailure, match="not a whole safetensors file"):
        TensorFile(path)


@pytest.mark.parametrize("start", [b"", b"\0" * 8, b"\xff" * 8, b"\2\0\0\0\0\0\0\0[]"])
def test_a_header_that_is_none_is_refused(tmp_path, start):
    path = tmp_path / "file.safetensors"
    path.write_bytes(start)
    os.truncate(path, 6 * 10**9 if start else 0)
    with pytest.raises(StorageFailure, match="not a safetensors file"):
        TensorFile(path)


@pytest.mark.parametrize(
    "entries",
    [
        {"a": ("U8", [4], [0, 5])},
        {"a": ("F4", [4], [0, 2])},
        {"a": ("U8", [-2, -2], [0, 4])},
        {"a": ("U8", [True], [0, 1])},
        {"a": ("U8", [4], [1, 5])},
        {"a": ("U8", [4], [0, 4]), "b": ("U8", [4], [2, 6])},
        {"a": ("U8", "4", [0, 4])},
        {"a": ("U8", [2**40, "4"], [0, 4])},
        {"a": (["U8"], [4], [0, 4])},
        {"a": ("U8", [4], 4)},
        {"a": ("U8", [0, 2**63], [0, 0])},
        {"a": ("U8", [1] * 65, [0, 1])},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, entries):
    path = tmp_path / "file.safetensors"
    keys = ("dtype", "shape", "data_offsets")
    named = {name: dict(zip(keys, entry, strict=True)) for name, entry in entries.items()}
    data = json.dumps(named).encode()
    path.write_bytes(len(data).to_bytes(8, "little") + data + bytes(6))
    with pytest.raises(StorageFailure, match="not a safetensors file"):
        TensorFile(path)


def of_many_types():
    """Tensors of all types, also without elements and of more than a block."""
    types = ["bool", "uint8", "int16", "uint32", "int64", "float16", "float32", "complex64"]
    tensors = {name: torch.ones(3, 5).to(getattr(torch, name)) for name in types}
    large = torch.randn(700, 1000, dtype=torch.float64)
    return tensors | {"none": torch.zeros(0, 2), "one": torch.tensor(7), "large": large}


def test_a_file_is_read_tensor_by_tensor_with_the_same_bits(tmp_path):
    path = tmp_path / "file.safetensors"
    data = tensor_bytes(of_many_types())
    path.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    found = TensorFile(path).read(sha256, of_many_types())
    expected = tensors_from(data, "here")
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert (tensor.dtype, tensor.shape) == (expected[name].dtype, expected[name].shape)
        assert tensor.numpy().tobytes() == expected[name].numpy().tobytes()
    assert list(TensorFile(path).read(sha256, ["one"])) == ["one"]


@pytest.mark.parametrize("kept", [["a"], []])
@pytest.mark.parametrize("change", ["a byte", "a byte less", "a byte more", "another header"])
def test_a_file_that_changed_after_its_header_was_read_is_damaged(tmp_path, change, kept):
    path = tmp_path / "file.safetensors"
    data = tensor_bytes({"a": torch.zeros(2, 50)})
    path.write_bytes(data)
    file = TensorFile(path)
    other = {
        "a byte": data[:-1] + b"x",
        "a byte less": data[:-1],
        "a byte more": data + b"x",
        "another header": tensor_bytes({"a": torch.zeros(50, 2)}),
    }[change]
    path.write_bytes(other)
    manifest = other if change == "another header" else data
    with pytest.raises(StorageFailure, match="damaged"):
        file.read(hashlib.sha256(manifest).hexdigest(), kept)


def test_a_log_is_cut_back_to_where_it_was(tmp_path):
    log = AppendLog(tmp_path / "log")
    log.write("one")
    length = log.sync()
    log.write("two")
    log.close()
    log = AppendLog(tmp_path / "log", keep=length)
    log.write("three")
    log.close()
    assert (tmp_path / "log").read_text() == "one\nthree\n"
    longer = AppendLog(tmp_path / "log", keep=10**9)
    assert longer.missing == 10**9 - 10
    longer.close()
    assert (tmp_path / "log").read_text() == "one\nthree\n"


def test_a_log_knows_the_hash_of_all_that_it_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(append_log, "BLOCK", 7)
    path = tmp_path / "log"

    def hash_of_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()

    log = AppendLog(path)
    log.write("one")
    length = log.sync()
    assert log.sha256 == hash_of_file()
    before = log.sha256
    log.write("two, which is longer than a block")
    log.sync()
    assert log.sha256 == hash_of_file()
    with path.open("ab") as file:
        file.write(b"of another process, without an end")
    log.write("three")
    log.sync()
    assert log.sha256 == hash_of_file()
    log.close()
    again = AppendLog(path, keep=length)
    assert (again.sha256, hash_of_file()) == (before, before)
    again.close()


def _try(folder, queue):
    try:
        with locked(folder):
            queue.put("in")
    except FolderBusy as error:
        queue.put(str(error))


def test_another_process_is_told_who_holds_the_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with locked(tmp_path / "run"):
        process = context.Process(target=_try, args=(tmp_path / "run", queue))
        process.start()
        said = queue.get(timeout=60)
        process.join()
    assert "in use by pid" in said
    with locked(tmp_path / "run"):
        pass


def test_removing_what_is_not_there_is_fine_and_links_are_not_followed(tmp_path):
    remove(tmp_path / "nothing")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove(tmp_path / "link")
    assert json.dumps((tmp_path / "real" / "file").read_text()) == '"kept"'


def test_a_name_given_twice_is_refused(tmp_path):
    (tmp_path / "file.json").write_text('{"a": {"seed": 1, "seed": 2}}')
    with pytest.raises(StorageFailure, match="'seed' is given twice"):
        read_json(tmp_path / "file.json")


def test_a_name_given_twice_among_many_is_found_at_once(tmp_path):
    names = ",".join(f'"{i}": 0' for i in range(50_000))
    (tmp_path / "file.json").write_text(f'{{{names}, "49999": 0}}')
    began = time.monotonic()
    with pytest.raises(StorageFailure, match="'49999' is given twice"):
        read_json(tmp_path / "file.json")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("digits", [401, 5000])
def test_a_number_that_no_float_holds_is_refused(tmp_path, sign, digits):
    path = tmp_path / "file.json"
    path.write_text(f'{{"score": {sign}1{"0" * (digits - 1)}}}')
    with pytest.raises(StorageFailure, match=r"the number .* digits"):
        read_json(path)


#: Reads a folder with little memory: reading its large file whole would fail.
FRUGAL = """
import resource, sys
from pathlib import Path
from dna.common.errors import StorageFailure
from dna.common.storage import read_folder
resource.setrlimit(resource.RLIMIT_AS, (300 * 2**20, 300 * 2**20))
try:
    read_folder(Path(sys.argv[1]))
except StorageFailure as error:
    print(error)
"""


def claimed(folder, name, size):
    """Let the manifest claim this size for a file, which is sparse."""
    write_folder(folder, {name: b"1"})
    os.truncate(folder / name, size)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name]["bytes"] = size
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_large_file_is_checked_before_it_is_in_memory(tmp_path):
    claimed(tmp_path / "x", "rank0.safetensors", 400 * 2**20)
    words = [sys.executable, "-c", FRUGAL, str(tmp_path / "x")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "damaged (not what the manifest says)" in done.stdout, done.stderr


def test_a_json_file_that_claims_gigabytes_is_refused_unread(tmp_path):
    claimed(tmp_path / "x", "state.json", 6 * 10**9)
    with pytest.raises(StorageFailure, match=r"state\.json: larger than it should be"):
        read_folder(tmp_path / "x")


def test_links_are_neither_read_nor_written_through(tmp_path):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageFailure, match="link"):
        read_json(tmp_path / "link")
    with pytest.raises(StorageFailure, match="link"):
        AppendLog(tmp_path / "link")
    write_folder(tmp_path / "x", {"a": b"1"})
    (tmp_path / "y").symlink_to(tmp_path / "x")
    with pytest.raises(StorageFailure, match="is a link"):
        read_folder(tmp_path / "y")
    assert (tmp_path / "secret").read_text() == "{}"


def test_a_log_with_a_second_name_is_written_to_a_copy(tmp_path):
    """As after `cp -al run backup`: the backup must not change."""
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\n")
    (tmp_path / "backup").hardlink_to(tmp_path / "log")
    log = AppendLog(tmp_path / "log", keep=8)
    log.write("other")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\nother\n"
    assert (tmp_path / "backup").read_bytes() == b"one\ntwo\nthree\n"


def test_a_lock_file_with_a_second_name_is_refused(tmp_path):
    (tmp_path / "precious").write_text("pid of somebody")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").hardlink_to(tmp_path / "precious")
    with (
        pytest.raises(StorageFailure, match="hard link to another file; delete it"),
        locked(tmp_path / "run"),
    ):
        pass
    with pytest.raises(BadInput, match="hard link to another file"):
        RunFolder(tmp_path / "run").check_free()
    assert (tmp_path / "precious").read_text() == "pid of somebody"


def test_what_was_written_is_read_back(tmp_path, monkeypatch):
    write_folder(tmp_path / "x", {"a": b"old"})
    write_ = syscalls.write

    def lying(fd, data):
        return write_(fd, bytes(data).replace(b"new", b"nex"))

    monkeypatch.setattr(syscalls, "write", lying)
    with pytest.raises(StorageFailure, match="damaged"):
        write_folder(tmp_path / "x", {"a": b"new"})
    monkeypatch.undo()
    assert read_folder(tmp_path / "x") == {"a": b"old"}
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_log_keeps_what_the_disk_refuses_and_gives_up_the_third_time(tmp_path, monkeypatch):
    log, full, write_ = AppendLog(tmp_path / "log"), [True], syscalls.write

    def refusing(fd, data):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_(fd, bytes(data)[:2])  # and short writes beside

    monkeypatch.setattr(syscalls, "write", refusing)
    for text in ("one", "two"):
        log.write(text)
        with pytest.warns(RuntimeWarning, match="No space left on device.*trying again"):
            log.flush()
    full[0] = False
    log.write("three")
    log.flush()
    assert (tmp_path / "log").read_text() == "one\ntwo\nthree\n"
    full[0] = True
    log.write("four")
    for _ in range(2):
        with pytest.warns(RuntimeWarning):
            log.flush()
    with pytest.raises(StorageFailure, match="No space left"):
        log.flush()
    full[0] = False
    log.close()
    assert (tmp_path / "log").read_text().endswith("four\n")


def test_what_a_crash_left_behind_is_swept_away(tmp_path):
    write_folder(tmp_path / "x", {"a": b"1"})
    (tmp_path / ".partial-1").mkdir()
    (tmp_path / ".partial-1" / "a").write_bytes(b"half")
    (tmp_path / ".partial-2").write_bytes(b"half")
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
