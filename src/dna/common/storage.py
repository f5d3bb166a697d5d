"""The only module that writes files: whole or not at all, hashed, and never pickle.

Tensors are safetensors, everything else is JSON or plain text. A folder becomes visible
under its name only once every file in it is complete, on disk, and was read back. What a
crash leaves behind has a name that begins with `.partial-`, and is never read.
"""

import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from dna.common import syscalls
from dna.common.errors import StorageFailure
from dna.common.json_files import JSON_LIMIT, parse_json

#: A folder with a larger file is not ours.
FILE_LIMIT = 2**36
#: Of `manifest.json`.
FORMAT = 2
PARTIAL = ".partial-"
#: What a folder is called while another one takes its place.
REPLACED = ".replaced-"


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """What the system says of a file, as an error of ours."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text = f"{path}: {reason}; check the path, permissions and space"
        raise StorageFailure(text) from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    with reported(path):
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            syscalls.mkdir(folder)
            sync_folder(folder.parent)  # or a power failure may take it away with its content


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old bytes or the new, never a half."""
    make_folder(path.parent)
    partial = partial_name(path.parent)
    with reported(path):
        try:
            _create(partial, data)
            syscalls.rename(partial, path)
        except BaseException:
            discard(partial)
            raise
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """A JSON file for people: indented, one trailing newline."""
    write(path, _json_bytes(value))


def write_folder(
    folder: Path, files: Mapping[str, bytes], about: dict[str, Any] | None = None
) -> None:
    """Write a folder of files with a manifest of their sizes and sha256, then show it."""
    partial = begin_folder(folder)
    try:
        show_folder(partial, folder, add_files(partial, folder, files), about)
    except BaseException:
        discard(partial)
        raise


def begin_folder(folder: Path) -> Path:
    """An empty folder beside it, which nobody reads."""
    make_folder(folder.parent)
    with reported(folder):
        syscalls.mkdir(partial := partial_name(folder.parent))
    return partial


def add_files(partial: Path, folder: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write files of what is going to be `folder`; their lines of the manifest."""
    with reported(folder):
        for name, data in files.items():
            _create(partial / name, data)
    return {n: {"bytes": len(data), "sha256": _sha256(data)} for n, data in files.items()}


def show_folder(
    partial: Path, folder: Path, listed: dict[str, Any], about: dict[str, Any] | None = None
) -> None:
    """Write the manifest, check every file, and give the folder its name."""
    old = folder.with_name(f"{REPLACED}{folder.name}")
    manifest = {"format": FORMAT, "files": listed, "about": about or {}}
    with reported(folder):
        try:
            _create(partial / "manifest.json", _json_bytes(manifest))
            sync_folder(partial)
            read_folder(partial)  # what the disk gives back is what it was given
            if folder.exists():
                remove(old)
                syscalls.rename(folder, old)
            syscalls.rename(partial, folder)
        except BaseException:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise
        sync_folder(folder.parent)
        discard(old)


def read_folder(
    folder: Path, only: Collection[str] | None = None, limit: int = FILE_LIMIT
) -> dict[str, bytes]:
    """The files of `write_folder`, or some of them, each checked against the manifest."""
    if folder.is_symlink():
        raise StorageFailure(f"{folder}: is a link; a folder of ours never is")
    files = {}
    for name, expected in read_manifest(folder)["files"].items():
        if only is not None and name not in only:
            continue
        data = files[name] = read(folder / name, limit=min(expected["bytes"], limit))
        if len(data) != expected["bytes"] or _sha256(data) != expected["sha256"]:
            raise StorageFailure(f"{folder / name}: damaged (not what the manifest says)")
    return files


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder says it holds; names that lead out of it are refused."""
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise StorageFailure(f"{folder}: its manifest.json is not one of ours")
    if manifest["format"] != FORMAT:
        age = "a newer" if manifest["format"] > FORMAT else "an older"
        raise StorageFailure(f"{folder}: written by {age} version of ppo-dna")
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not isinstance(manifest.get("about"), dict):
        raise StorageFailure(f"{folder}: its manifest.json is not one of ours")
    for name, expected in listed.items():
        if Path(name).name != name or "\0" in name:
            raise StorageFailure(f"{folder}: its manifest names a file outside of it")
        size = expected.get("bytes") if isinstance(expected, dict) else None
        if not isinstance(size, int) or size < 0 or "sha256" not in expected:
            raise StorageFailure(f"{folder}: its manifest.json is not one of ours")
    return manifest


def read(path: Path, limit: int = FILE_LIMIT) -> bytes:
    """A whole file, unless it is larger than it may be; a disk that stumbles is asked again."""
    with reported(path):
        for again in (True, True, False):
            try:
                return syscalls.read(path, limit)
            except OverflowError:
                raise StorageFailure(f"{path}: larger than it should be") from None
            except OSError as error:
                if error.errno != errno.EIO or not again:
                    raise
    raise AssertionError


def read_json(path: Path) -> Any:
    """A JSON file of ours: not too large, nor too deep, and no name twice."""
    return parse_json(read(path, JSON_LIMIT), path)


def remove(path: Path) -> None:
    """Delete a file, or a folder and all in it, if it is there; links are not followed."""
    with reported(path):
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.iterdir()):
                remove(inner)
            syscalls.rmdir(path)
        elif path.is_symlink() or path.exists():
            syscalls.unlink(path)


def recover(folder: Path) -> None:
    """Give back its name to what was about to be replaced in here when a crash came."""
    for old in folder.glob(f"{REPLACED}*"):
        name = folder / old.name.removeprefix(REPLACED)
        with reported(name):
            if not name.exists():
                syscalls.rename(old, name)
                sync_folder(folder)


def set_aside(path: Path) -> Path:
    """Rename what cannot be used, so that it is neither read again nor lost."""
    aside = path.with_name(f"damaged-{path.name}-{uuid4().hex[:6]}")
    with reported(path):
        syscalls.rename(path, aside)
    return aside


def partial_name(folder: Path) -> Path:
    """A name in this folder that nobody reads."""
    return folder / f"{PARTIAL}{uuid4().hex}"


def discard(path: Path) -> None:
    """Clean up as far as possible: what stays has a name that nobody reads."""
    with suppress(StorageFailure):
        remove(path)


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _create(path: Path, data: bytes) -> None:
    fd = syscalls.create(path)
    try:
        _write_all(fd, data)
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    """Until every byte is written."""
    rest = memoryview(data)
    while rest:
        rest = rest[syscalls.write(fd, rest) :]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)
