"""Names with slashes: how a checkpoint's tensors are told apart in one flat file."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]


def prefixed(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """`name` → `prefix/name`."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The inverse: what stands under a prefix."""
    start = prefix + "/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def numbered(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    """`prefix/3/name` → {3: {name: …}}, in order."""
    groups: dict[int, dict[str, Tensor]] = {}
    for key, tensor in under(tensors, prefix).items():
        index, _, name = key.partition("/")
        groups.setdefault(int(index), {})[name] = tensor
    return dict(sorted(groups.items()))


def arrays_of(tensors: dict[str, Tensor]) -> dict[str, Array]:
    """As numpy sees them."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}
