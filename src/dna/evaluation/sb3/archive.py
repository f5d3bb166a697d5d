"""SB3's zip and the zip of tensors in it, read into memory and never unpacked."""

import io
import math
import zipfile
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import StorageFailure
from dna.evaluation.sb3.program import MOST_BYTES, MOST_TENSORS, Described, Refused, described

Array = npt.NDArray[Any]
MOST_PICKLE = 2**20
#: What zipfile raises at files that are not what they say.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,  # encrypted
    NotImplementedError,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    OverflowError,
)


class Archive:
    """A zip in memory; names that lead elsewhere or stand twice are refused."""

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(data))
        except BROKEN:
            raise StorageFailure(f"{source}: not a zip file") from None
        listed = self.zip.infolist()
        self.members = {info.filename: info for info in listed}
        if len(self.members) < len(listed) or len(listed) > 4 * MOST_TENSORS:
            raise StorageFailure(f"{source}: too many files, or a name twice")
        for name in self.members:
            if name.startswith("/") or ".." in name or "\\" in name:
                raise StorageFailure(f"{source}: names a file outside of it")

    def read(self, name: str, limit: int) -> bytes:
        """One file, if it is not too large."""
        info = self.members.get(name)
        if info is None:
            raise StorageFailure(f"{self.source}: has no {name}")
        if info.file_size > limit:
            raise StorageFailure(f"{self.source}: {name} is larger than it should be")
        try:
            with self.zip.open(info) as file:
                content = file.read(limit + 1)
        except BROKEN:
            raise StorageFailure(f"{self.source}: {name} is damaged") from None
        if len(content) != info.file_size:
            raise StorageFailure(f"{self.source}: {name} is not what it says")
        return content


def read_tensors(data: bytes, source: str) -> dict[str, Array]:
    """Name → array, of a file of torch's that holds a dictionary of tensors and no more."""
    archive = Archive(data, source)
    pickles = [n for n in archive.members if n.count("/") == 1 and n.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise StorageFailure(f"{source}: not a file of tensors")
    root = pickles[0].removesuffix("data.pkl")
    try:
        named = described(archive.read(pickles[0], MOST_PICKLE))
    except Refused as error:
        raise StorageFailure(f"{source}: {error}; nothing of it was run") from None
    # Several tensors may share a storage, but each is read by itself.
    storages = [tensor.storage for tensor in named.values()]
    if sum(s.elements * np.dtype(s.dtype).itemsize for s in storages) > MOST_BYTES:
        raise StorageFailure(f"{source}: its tensors are larger than they should be")
    order = f"{root}byteorder"
    if order in archive.members and archive.read(order, 16) != b"little":
        raise StorageFailure(f"{source}: its numbers are not little-endian")
    return {name: _array(archive, root, tensor) for name, tensor in named.items()}


def _array(archive: Archive, root: str, tensor: Described) -> Array:
    storage, dtype = tensor.storage, np.dtype(tensor.storage.dtype)
    content = archive.read(f"{root}data/{storage.key}", storage.elements * dtype.itemsize)
    elements = len(content) // dtype.itemsize
    last = sum((n - 1) * step for n, step in zip(tensor.size, tensor.stride, strict=True))
    if tensor.offset + last >= elements or math.prod(tensor.size) > elements:
        raise StorageFailure(f"{archive.source}: a tensor is not inside its storage")
    flat = np.frombuffer(content, dtype, elements)[tensor.offset :]
    steps = [step * dtype.itemsize for step in tensor.stride]
    view = np.lib.stride_tricks.as_strided(flat, tensor.size, steps, writeable=False)
    if not np.isfinite(view).all():
        raise StorageFailure(f"{archive.source}: a tensor is not finite")
    return view.copy()
