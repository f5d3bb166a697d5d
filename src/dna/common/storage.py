"""Durable files: written atomically, hashed, read back, and never pickled.

The only module that writes files. Tensors are safetensors, everything else is JSON or plain
text. A folder appears under its name only when every file in it has been completely written,
synced to disk and read back. Leftovers of a crash have names that begin with `.partial-` and
are never read.
`exchange` replaces several files and folders of a run as one transaction.
"""

import errno
import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from dna.common import syscalls
from dna.common.errors import BadInput, StorageFailure

#: Largest file of a folder that is read.
FILE_LIMIT = 2**36
#: Bytes that are read at a time from files of any size.
BLOCK = 2**20
#: A larger file of a folder is checked before it is read into memory.
LARGE = 2**26
#: Longest integer in a JSON file: a float holds up to 308 digits.
MAX_DIGITS = 300
#: Largest JSON file that is read.
JSON_LIMIT = 16 * 2**20
#: Version of `manifest.json`.
FORMAT = 2
#: Prefix of files and folders that are being written.
PARTIAL = ".partial-"
#: Prefix of a folder that is being replaced.
REPLACED = ".replaced-"
#: Folder of a transaction that is decided but may not be complete.
NEXT = ".next"
#: Inside it: the new files, the old ones, and the list of both.
NEW = "new"
OLD = "old"
LIST = "list.json"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Convert an OSError into a StorageFailure that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text = f"{path}: {reason}; check the path, permissions and space"
        raise StorageFailure(text) from error


# ── single files ─────────────────────────────────────────────────────────────────────────────


def write(path: Path, data: bytes) -> None:
    """Replace a file atomically: a reader sees the old bytes or the new, never a part."""
    write_blocks(path, (data,))


def write_blocks(path: Path, blocks: Iterable[bytes]) -> None:
    """Replace a file atomically with data that may be larger than memory."""
    make_folder(path.parent)
    partial = partial_name(path.parent)
    with storage_errors(path):
        try:
            _create(partial, blocks)
            syscalls.rename(partial, path)
        except BaseException:
            discard(partial)
            raise
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file for people: indented, one trailing newline."""
    write(path, _json_bytes(value))


def read(path: Path, limit: int) -> bytes:
    """Read a whole file of at most `limit` bytes; retry an I/O error twice."""
    with storage_errors(path):
        for retry in (True, True, False):
            try:
                return syscalls.read(path, limit)
            except OverflowError:
                raise StorageFailure(f"{path}: larger than it should be") from None
            except OSError as error:
                if error.errno != errno.EIO or not retry:
                    raise
    raise AssertionError


def blocks(path: Path, most: int = sys.maxsize) -> Iterator[bytes]:
    """Read a file of any size, or its first `most` bytes, a block at a time."""
    with storage_errors(path):
        fd = syscalls.open_to_read(path)
        try:
            while block := os.read(fd, min(BLOCK, most)):
                most -= len(block)
                yield block
        finally:
            syscalls.close(fd)


def read_json(path: Path) -> Any:
    """Read a JSON file, bounded in size, depth and numbers, without duplicate names."""
    return parse_json(read(path, JSON_LIMIT), path)


def parse_json(data: bytes, path: Path, limit: int = JSON_LIMIT) -> Any:
    """Parse the bytes of a JSON file as `read_json` does; `path` is named in errors."""
    if len(data) > limit:
        raise StorageFailure(f"{path}: larger than it should be")
    try:
        return json.loads(data, object_pairs_hook=_without_duplicates, parse_int=_bounded)
    except (ValueError, RecursionError) as error:
        text = str(error) if isinstance(error, _RefusedJson) else "not JSON"
        raise StorageFailure(f"{path}: {text}") from error


class _RefusedJson(ValueError):
    """JSON that no file of this package contains."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _RefusedJson(f"{name[:60]!r} is given twice")
        found[name] = value
    return found


def _bounded(digits: str) -> int:
    """Parse an integer; refuse one too large for a float, which would fail when it is used."""
    if len(digits) > MAX_DIGITS:
        raise _RefusedJson(f"the number {digits[:12]}… has {len(digits):,} digits")
    return int(digits)


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _create(path: Path, blocks: Iterable[bytes]) -> None:
    fd = syscalls.create(path)
    try:
        for block in blocks:
            rest = memoryview(block)
            while rest:
                rest = rest[syscalls.write(fd, rest) :]
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)


# ── folders ──────────────────────────────────────────────────────────────────────────────────


def check_no_file_at(folder: Path) -> None:
    """Refuse a path that cannot become a folder because it, or a parent, is a file."""
    for path in (folder, *folder.parents):
        if os.path.exists(path):  # unlike Path.exists, False for a name that is too long
            if not path.is_dir():
                raise BadInput(
                    f"{path}: is a file, but a folder is needed there; choose another name"
                )
            return


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    with storage_errors(path):
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            syscalls.mkdir(folder)
            sync_folder(folder.parent)  # else a power failure may take it with its content


def write_folder(
    folder: Path, files: Mapping[str, bytes], about: dict[str, Any] | None = None
) -> None:
    """Write a folder of files with a manifest of their sizes and sha256, then publish it."""
    partial = begin_folder(folder)
    try:
        publish_folder(partial, folder, add_files(partial, folder, files), about)
    except BaseException:
        discard(partial)
        raise


def begin_folder(folder: Path) -> Path:
    """Create an empty partial folder beside `folder`."""
    make_folder(folder.parent)
    partial = partial_name(folder.parent)
    with storage_errors(folder):
        syscalls.mkdir(partial)
    return partial


def add_files(partial: Path, folder: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write files into the partial folder of `folder`; return their manifest entries."""
    with storage_errors(folder):
        for name, data in files.items():
            _create(partial / name, (data,))
    return {n: {"bytes": len(data), "sha256": _sha256(data)} for n, data in files.items()}


def publish_folder(
    partial: Path, folder: Path, listed: dict[str, Any], about: dict[str, Any] | None = None
) -> None:
    """Write the manifest, verify every file, and rename the partial folder to `folder`."""
    old = folder.with_name(f"{REPLACED}{folder.name}")
    manifest = {"format": FORMAT, "files": listed, "about": about or {}}
    with storage_errors(folder):
        try:
            _create(partial / "manifest.json", (_json_bytes(manifest),))
            sync_folder(partial)
            read_folder(partial)  # verify what the disk returns
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
    """Read all or some files of a folder, and check them against its manifest."""
    if folder.is_symlink():
        raise StorageFailure(f"{folder}: is a link, not a folder written by ppo-dna")
    files = {}
    for name, expected in read_manifest(folder)["files"].items():
        if only is not None and name not in only:
            continue
        path = folder / name
        most = min(limit, JSON_LIMIT) if name.endswith(".json") else limit
        if expected["bytes"] > most:
            raise StorageFailure(f"{path}: larger than it should be")
        if expected["bytes"] > LARGE:
            _check_hash(path, expected["sha256"])
        data = read(path, limit=expected["bytes"])
        if len(data) != expected["bytes"] or _sha256(data) != expected["sha256"]:
            raise damaged(path)
        files[name] = data
    return files


def _check_hash(path: Path, sha256: str) -> None:
    """Check the hash of a file that may be larger than memory."""
    found = hashlib.sha256()
    for block in blocks(path):
        found.update(block)
    if found.hexdigest() != sha256:
        raise damaged(path)


def damaged(path: Path) -> StorageFailure:
    """The error for a file whose bytes are not those of its manifest."""
    return StorageFailure(f"{path}: damaged (not what the manifest says)")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the manifest of a folder; names that lead out of it are refused."""
    manifest = read_json(folder / "manifest.json")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise StorageFailure(f"{folder}: its manifest.json was not written by ppo-dna")
    if manifest["format"] != FORMAT:
        age = "a newer" if manifest["format"] > FORMAT else "an older"
        raise StorageFailure(f"{folder}: written by {age} version of ppo-dna")
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not isinstance(manifest.get("about"), dict):
        raise StorageFailure(f"{folder}: its manifest.json was not written by ppo-dna")
    for name, expected in listed.items():
        if Path(name).name != name or "\0" in name:
            raise StorageFailure(f"{folder}: its manifest names a file outside of it")
        size = expected.get("bytes") if isinstance(expected, dict) else None
        if not isinstance(size, int) or size < 0 or "sha256" not in expected:
            raise StorageFailure(f"{folder}: its manifest.json was not written by ppo-dna")
    return manifest


def recover(folder: Path) -> None:
    """Undo replacements inside a folder that a crash interrupted between two renames."""
    for old in folder.glob(f"{REPLACED}*"):
        name = folder / old.name.removeprefix(REPLACED)
        with storage_errors(name):
            if not name.exists():
                syscalls.rename(old, name)
                sync_folder(folder)


def set_aside(path: Path) -> Path:
    """Rename what cannot be used, so that it is neither read again nor lost."""
    aside = path.with_name(f"damaged-{path.name}-{uuid4().hex[:6]}")
    with storage_errors(path):
        syscalls.rename(path, aside)
    return aside


def remove(path: Path) -> None:
    """Delete a file, or a folder with its content, if it exists; links are not followed."""
    with storage_errors(path):
        if path.is_dir() and not path.is_symlink():
            for inner in sorted(path.iterdir()):
                remove(inner)
            syscalls.rmdir(path)
        elif path.is_symlink() or path.exists():
            syscalls.unlink(path)


def discard(path: Path) -> None:
    """Delete a partial file or folder as far as possible; what remains is never read."""
    with suppress(StorageFailure):
        remove(path)


def partial_name(folder: Path) -> Path:
    """Return a new name in this folder that is never read."""
    return folder / f"{PARTIAL}{uuid4().hex}"


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk; impossible, hence skipped, on Windows."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ── transactions ─────────────────────────────────────────────────────────────────────────────


def exchange(folder: Path, fill: Callable[[Path], None], names: Sequence[str]) -> None:
    """Replace everything under these names with what `fill` writes into an empty folder.

    The new files are written to a separate folder, with a list of what changes. Renaming
    that folder to `.next` commits the transaction: whoever takes the run's lock completes it,
    by renames that may be repeated. Before that the run is unchanged. The caller holds the
    folder's lock; names that `fill` does not write are removed, in this order.
    """
    for left in folder.glob(f"{PARTIAL}*"):
        discard(left)  # it can be as large as the run
    partial = begin_folder(folder / NEXT)
    try:
        for part in (NEW, OLD):
            make_folder(partial / part)
        fill(partial / NEW)
        coming = [name for name in names if (partial / NEW / name).exists()]
        going = [name for name in names if name not in coming]
        write_json(partial / LIST, {"bring": coming, "drop": going})
        with storage_errors(folder):
            syscalls.rename(partial, folder / NEXT)
            sync_folder(folder)
    except BaseException:
        discard(partial)
        raise
    finish(folder)


def finish(folder: Path) -> None:
    """Complete a committed transaction, if there is one; the caller holds the lock."""
    if not pending(folder):
        return
    step = folder / NEXT
    changed = set[Path]()
    with storage_errors(folder):
        for number, (name, comes) in enumerate(_listed(step).items()):
            new = step / NEW / name
            here = folder / name
            if comes and not new.exists():
                continue  # it came before the crash
            if here.exists() or here.is_symlink():
                syscalls.rename(here, step / OLD / str(number))
            if comes:
                syscalls.rename(new, here)
            changed.add(here.parent)
        for place in sorted(changed | {folder}):
            sync_folder(place)
        over = partial_name(folder)
        syscalls.rename(step, over)
        sync_folder(folder)
    discard(over)


def pending(folder: Path) -> bool:
    """Whether a committed transaction waits to be completed."""
    return (folder / NEXT).is_dir() and not (folder / NEXT).is_symlink()


def _listed(step: Path) -> dict[str, bool]:
    """The names that change, and whether a new file replaces them; none leads outside."""
    tree = read_json(step / LIST)
    try:
        names = {**dict.fromkeys(tree["drop"], False), **dict.fromkeys(tree["bring"], True)}
        parts = [part for name in names for part in name.split("/")]
    except (TypeError, KeyError, AttributeError):
        parts = [""]
    if not all(part.strip(".") and "\0" not in part for part in parts):
        raise StorageFailure(f"{step / LIST}: not written by ppo-dna")
    return names
