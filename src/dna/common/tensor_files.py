"""Convert tensors to safetensors bytes and back, and group them by names with slashes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from dna.common.errors import StorageFailure
from dna.common.storage import JSON_LIMIT, blocks, parse_json

Array = npt.NDArray[Any]


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


def tensor_names(path: Path) -> list[str]:
    """Return the tensor names in a safetensors file, reading only its header.

    A file whose size differs from what its header says is refused without reading it.
    """
    header = bytearray()
    length = 0
    for block in blocks(path):
        header += block
        length = int.from_bytes(header[:8], "little")
        if not 2 <= length <= JSON_LIMIT:
            break
        if len(header) >= 8 + length:
            tree = parse_json(bytes(header[8 : 8 + length]), path)
            if isinstance(tree, dict):
                tree.pop("__metadata__", None)
                _check_size(path, 8 + length + max(map(_end, tree.values()), default=0))
                return list(tree)
            break
    raise StorageFailure(f"{path}: not a safetensors file (a header of {length:,} bytes)")


def _end(entry: Any) -> int:
    """Return where a tensor's bytes end, counted from the end of the header; 0 if unknown."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    end = offsets[-1] if isinstance(offsets, list) and offsets else 0
    return end if isinstance(end, int) else 0


def _check_size(path: Path, expected: int) -> None:
    size = path.stat().st_size
    if size != expected:
        text = f"{size:,} bytes, where its header says {expected:,}"
        raise StorageFailure(f"{path}: not a whole safetensors file ({text})")


def tensors_from(data: bytes, source: str) -> dict[str, Tensor]:
    """Read safetensors bytes; `source` names the file in errors."""
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that torch lacks
        raise StorageFailure(f"{source}: not a safetensors file ({error})") from error
