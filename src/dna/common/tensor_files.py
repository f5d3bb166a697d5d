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
    """Return the tensor names in a safetensors file, reading only its header."""
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
                return [name for name in tree if name != "__metadata__"]
            break
    raise StorageFailure(f"{path}: not a safetensors file (a header of {length:,} bytes)")


def tensors_from(data: bytes, source: str) -> dict[str, Tensor]:
    """Read safetensors bytes; `source` names the file in errors."""
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that torch lacks
        raise StorageFailure(f"{source}: not a safetensors file ({error})") from error
