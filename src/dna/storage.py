"""The only module that writes files: whole or not at all, hashed, and never pickle.

Tensors are safetensors, everything else is JSON or plain text. A folder becomes visible
under its name only once every file in it is complete and on disk.
"""

import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from dna.errors import FolderBusy, StorageFailure

#: A JSON file of ours is small; a larger one is not ours.
JSON_LIMIT = 16 * 1024 * 1024


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageFailure(
            f"{path}: {reason}; check the path, permissions and space"
        ) from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    with _reported(path):
        path.mkdir(parents=True, exist_ok=True)


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old bytes or the new, never a half."""
    partial = path.with_name(f".{uuid4().hex}")
    with _reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _create(partial, data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """A JSON file for people: indented, one trailing newline."""
    write(path, _json_bytes(value))


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files with a manifest of their sha256, visible only when complete."""
    partial, old = (folder.with_name(f".{uuid4().hex}") for _ in range(2))
    manifest = {"format": 1, "sha256": {name: _sha256(data) for name, data in files.items()}}
    with _reported(folder):
        partial.mkdir(parents=True)
        try:
            for name, data in files.items():
                _create(partial / name, data)
            _create(partial / "manifest.json", _json_bytes(manifest))
            _sync(partial)
            if folder.exists():
                folder.rename(old)
            partial.rename(folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        _sync(folder.parent)


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files of `write_folder`, each checked against the manifest."""
    manifest = read_json(folder / "manifest.json")
    hashes = manifest.get("sha256") if isinstance(manifest, dict) else None
    if not isinstance(hashes, dict):
        raise StorageFailure(f"{folder}: its manifest.json is not one of ours")
    if manifest.get("format") != 1:
        raise StorageFailure(f"{folder}: written by a newer version; upgrade ppo-dna")
    files = {}
    for name, expected in hashes.items():
        if Path(name).name != name:
            raise StorageFailure(f"{folder}: manifest names a file outside the folder")
        files[name] = read(folder / name)
        if _sha256(files[name]) != expected:
            raise StorageFailure(f"{folder / name}: damaged (its sha256 is not the manifest's)")
    return files


def read(path: Path) -> bytes:
    """A whole file."""
    with _reported(path):
        return path.read_bytes()


def read_json(path: Path) -> Any:
    """A JSON file of ours."""
    with _reported(path):
        if path.stat().st_size > JSON_LIMIT:
            raise StorageFailure(f"{path}: too large to be one of our JSON files")
    try:
        return json.loads(read(path))
    except (ValueError, RecursionError) as error:
        raise StorageFailure(f"{path}: not JSON") from error


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as safetensors bytes."""
    return safetensors.torch.save(
        {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    )


def tensors_from(data: bytes, source: str) -> dict[str, Tensor]:
    """The inverse of `tensor_bytes`; `source` names the file in errors."""
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        raise StorageFailure(f"{source}: not a safetensors file ({error})") from error


class AppendLog:
    """A text file that grows by whole lines and can be cut back to an earlier length."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        with _reported(path):
            self._file = path.open("ab")
            self._file.truncate(min(keep, self._file.tell()))
            self._file.seek(0, os.SEEK_END)

    def write(self, line: str) -> None:
        """Append one line."""
        with _reported(self.path):
            self._file.write(line.encode() + b"\n")

    def sync(self) -> int:
        """Bring everything to disk; returns the length in bytes."""
        with _reported(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def flush(self) -> None:
        """Let readers see what was written."""
        with _reported(self.path):
            self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        with _reported(self.path):
            self._file.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's folder for life; the kernel lets go even after kill -9."""
    make_folder(folder)
    path = folder / "run.lock"
    with _reported(path):
        file = path.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise FolderBusy(f"{folder}: in use by {holder}") from None
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def remove(path: Path) -> None:
    """Delete a file, or a folder and all in it, if it is there."""
    with _reported(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _create(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
