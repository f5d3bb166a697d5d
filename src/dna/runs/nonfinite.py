"""Stop a run at the first number that is not finite, and save the batch that holds it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dna.common.errors import NonFinite, StorageFailure
from dna.common.storage import write
from dna.common.tensor_files import tensor_bytes


def check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise `NonFinite` for the first tensor that holds NaN or infinity."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NonFinite(f"{what}: {name} is not finite", tensors)


@contextmanager
def dumping(folder: Path, iteration: int) -> Iterator[None]:
    """On `NonFinite`, write its batch to `nonfinite.safetensors` and name that file."""
    try:
        yield
    except NonFinite as error:
        text = f"{error} (iteration {iteration}"
        if error.tensors:
            path = folder / "nonfinite.safetensors"
            batch = {
                name: x if isinstance(x, Tensor) else torch.from_numpy(np.array(x))
                for name, x in error.tensors.items()
            }
            with suppress(StorageFailure):
                write(path, tensor_bytes(batch))
                text += f"; the batch is in {path}"
        raise NonFinite(f"{text}); checkpoints are untouched", error.tensors) from error
