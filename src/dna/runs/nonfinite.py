"""What a run writes down about its own end: the batch with a number that is not one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dna.common.errors import NonFinite, StorageFailure
from dna.common.storage import write
from dna.common.tensor_files import tensor_bytes


@contextmanager
def dumping(folder: Path, iteration: int) -> Iterator[None]:
    """Whatever is not finite inside is written to `nonfinite.safetensors`, and said where."""
    try:
        yield
    except NonFinite as error:
        raise _dumped(error, folder, iteration) from error


def _dumped(error: NonFinite, folder: Path, iteration: int) -> NonFinite:
    text = f"{error} (iteration {iteration}"
    if error.tensors:
        path = folder / "nonfinite.safetensors"
        with suppress(StorageFailure):
            write(path, tensor_bytes(_tensors(error.tensors)))
            text += f"; the batch is in {path}"
    return NonFinite(f"{text}); checkpoints are untouched", error.tensors)


def _tensors(found: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        for name, value in found.items()
    }


def check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Stop at the first tensor that holds a number that is not one, and name it."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NonFinite(f"{what}: {name} is not finite", tensors)
