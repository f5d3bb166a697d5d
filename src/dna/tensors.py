"""Tensors as the bytes of a safetensors file, and back: no pickle."""

from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from dna.errors import StorageFailure


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
