"""Convert tensors to safetensors bytes and back, and group them by names with slashes."""

import hashlib
import math
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from dna.common import syscalls
from dna.common.errors import StorageFailure
from dna.common.messages import shown
from dna.common.storage import BLOCK, blocks, damaged, parse_json, storage_errors

Array = npt.NDArray[Any]
#: Most dimensions and elements of a tensor in a large file: NumPy can hold as many.
MOST_DIMENSIONS = 32
MOST_ELEMENTS = 2**56
#: Most bytes of a header, as in the safetensors library.
HEADER_LIMIT = 100_000_000
#: Types that a large file may hold: those that NumPy has.
DTYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
}


def prefixed(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays under the names `prefix/name`."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors under a prefix, without it: the inverse of `prefixed`."""
    start = prefix + "/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def numbered(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    """Group `prefix/3/name` as {3: {name: …}}, in order."""
    groups: dict[int, dict[str, Tensor]] = {}
    for key, tensor in under(tensors, prefix).items():
        index, _, name = key.partition("/")
        groups.setdefault(int(index), {})[name] = tensor
    return dict(sorted(groups.items()))


def arrays_of(tensors: dict[str, Tensor]) -> dict[str, Array]:
    """Return the tensors as NumPy arrays that share their memory."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize tensors in the safetensors format."""
    return safetensors.torch.save(
        {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    )


class Entry(NamedTuple):
    """What the header of a safetensors file says about one tensor."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int  # counted from the end of the header
    end: int

    @property
    def bytes(self) -> int:
        """Number of bytes of the tensor."""
        return self.end - self.start


class TensorFile:
    """A safetensors file whose header was read; its tensors are read when they are needed."""

    def __init__(self, path: Path) -> None:
        """Read and check the header, and nothing else."""
        self.path = path
        self.head = _head(path)
        tree = parse_json(self.head[8:], path, HEADER_LIMIT)
        if not isinstance(tree, dict):
            raise _no_tensors(path, "its header is not an object")
        tree.pop("__metadata__", None)
        found = {name: _entry(path, name, entry) for name, entry in tree.items()}
        order = sorted(found, key=lambda name: found[name][-2:])
        self.entries = {name: found[name] for name in order}
        end = 0
        for entry in self.entries.values():
            if entry.start != end:
                raise _no_tensors(path, "its tensors overlap or leave gaps")
            end = entry.end
        self.size = len(self.head) + end
        with storage_errors(path):
            size = path.stat().st_size
        if size != self.size:
            text = f"{size:,} bytes, where its header says {self.size:,}"
            raise StorageFailure(f"{path}: not a whole safetensors file ({text})")

    def read(self, sha256: str, wanted: Collection[str]) -> dict[str, Tensor]:
        """Read the wanted tensors, each into its own memory, and check the file's hash.

        What is returned is what was hashed, even if the file is replaced meanwhile. The other
        tensors are hashed without being kept.
        """
        found = hashlib.sha256(self.head)
        tensors = {}
        with (
            storage_errors(self.path),
            os.fdopen(syscalls.open_to_read(self.path), "rb") as file,
        ):
            file.seek(len(self.head))
            scratch = memoryview(bytearray(BLOCK))
            for name, entry in self.entries.items():
                keep = name in wanted
                array = np.empty(entry.shape if keep else 0, entry.dtype)
                data = array.reshape(-1).view(np.uint8)
                for start in range(0, entry.bytes, BLOCK):
                    length = min(BLOCK, entry.bytes - start)
                    block = data[start : start + length].data if keep else scratch[:length]
                    if file.readinto(block) != length:
                        raise damaged(self.path)
                    found.update(block)
                if keep:
                    tensors[name] = torch.from_numpy(array)
            if file.read(1) or found.hexdigest() != sha256:
                raise damaged(self.path)
        return tensors


def _head(path: Path) -> bytes:
    """Return a safetensors file up to its first tensor."""
    head = bytearray()
    length = 0
    for block in blocks(path):
        head += block
        length = int.from_bytes(head[:8], "little")
        if not 2 <= length <= HEADER_LIMIT:
            break
        if len(head) >= 8 + length:
            return bytes(head[: 8 + length])
    raise _no_tensors(path, f"a header of {length:,} bytes")


def _entry(path: Path, name: str, entry: Any) -> Entry:
    """Check an entry of a header: its type, shape and offsets must agree."""
    with suppress(KeyError, TypeError, ValueError):
        dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
        start, end = entry["data_offsets"]
        few = len(shape) <= MOST_DIMENSIONS
        whole = few and all(type(n) is int and n >= 0 for n in (*shape, start, end))
        # Without the zeros: NumPy refuses some shapes even of arrays without elements.
        possible = whole and math.prod(n or 1 for n in shape) < MOST_ELEMENTS
        if possible and end - start == math.prod(shape) * dtype.itemsize:
            return Entry(dtype, shape, start, end)
    raise _no_tensors(path, f"the entry of {shown(name, 60)}")


def _no_tensors(path: Path, reason: str) -> StorageFailure:
    return StorageFailure(f"{path}: not a safetensors file ({reason})")


def tensors_from(data: bytes, source: str) -> dict[str, Tensor]:
    """Read safetensors bytes; `source` names the file in errors."""
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that torch lacks
        raise StorageFailure(f"{source}: not a safetensors file ({error})") from error
