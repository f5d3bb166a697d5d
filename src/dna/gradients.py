"""Gradients of any torch loss over chosen rows of data: what the noise scale is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dna.errors import BadInput


class Rows(Protocol):
    """Data of which any rows can be taken."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor, /) -> Any: ...


Data = Tensor | Sequence[Tensor] | Mapping[str, Tensor] | Rows


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    b_small: int = 32
    b_big: int | None = None  # None: all rows
    samples: int = 16  # small mini-batches
    chunk: int | None = None  # rows of the large one at a time, where the loss is a plain mean

    def check(self, rows: int) -> int:
        """B_big, if there are enough rows for it."""
        big = rows if self.b_big is None else self.b_big
        if not 1 <= self.b_small < big <= rows:
            text = f"b_small = {self.b_small} < b_big = {big} ≤ {rows} rows does not hold"
            raise BadInput(f"noise: {text}; choose other sizes or more data")
        if self.samples < 2:
            raise BadInput(f"noise: samples = {self.samples}, must be at least 2")
        return big


def sample(rng: np.random.Generator, rows: int, size: int) -> Tensor:
    """Rows drawn without replacement; all of them need no dice."""
    if size == rows:
        return torch.arange(rows)
    return torch.from_numpy(rng.choice(rows, size, replace=False))


def gradient(
    loss_fn: Callable[[Any], Tensor],
    params: list[Tensor],
    rows: Rows,
    index: Tensor,
    chunk: int | None = None,
) -> Tensor:
    """∇L over these rows as one vector in float64, on the host; no `.grad` is touched."""
    total = torch.zeros(sum(p.numel() for p in params), dtype=torch.float64)
    for part in torch.split(index, chunk or len(index)):
        with torch.enable_grad():
            loss = loss_fn(rows[part])
            # A head that this loss does not reach has no gradient.
            found = torch.autograd.grad(loss, params, allow_unused=True)
        pieces = [
            torch.zeros(p.numel()) if g is None else g.detach().reshape(-1).cpu()
            for p, g in zip(params, found, strict=True)
        ]
        total += torch.cat(pieces).double() * (len(part) / len(index))
    return total


class _Columns:
    """A sequence or dictionary of tensors, row by row."""

    def __init__(self, data: Any) -> None:
        self.data = data
        columns = data.values() if isinstance(data, Mapping) else data
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise BadInput(f"noise: columns of {sorted(lengths)} rows; all need the same")
        self.length = lengths.pop()

    def __len__(self) -> int:
        return int(self.length)

    def __getitem__(self, index: Tensor) -> Any:
        if isinstance(self.data, Mapping):
            return {name: column[index] for name, column in self.data.items()}
        return tuple(column[index] for column in self.data)


def rows_of(data: Data) -> Rows:
    """Whatever form the data has, something of which rows can be taken."""
    if isinstance(data, Mapping | list | tuple):
        return _Columns(data)
    return data  # type: ignore[return-value]
