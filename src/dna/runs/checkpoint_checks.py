"""Whether a saved state is of a run made like this one, before any of it is put back.

A checkpoint whose hashes hold may still have been made by hand or by another version. What
does not fit must be found out here: later it could be broadcast, or read past its end.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dna.common.errors import BadInput

#: Lists that grow: only their rows are alike.
GROWING = ("collector/scores/window",)
#: Ratios that may be undefined.
UNDEFINED = ("noise/",)


def check_fit(saved: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> None:
    """Every tensor of a fresh run is there, of its shape and kind, and finite; ValueError."""
    for name, like in fresh.items():
        if name not in saved:
            raise ValueError(f"{name} is missing")
        tensor = saved[name]
        shape, wanted = tuple(tensor.shape), tuple(like.shape)
        if name in GROWING:
            shape, wanted = shape[1:], wanted[1:]
        if (shape, tensor.dtype, tensor.dim()) != (wanted, like.dtype, like.dim()):
            raise ValueError(f"{name} is {tuple(tensor.shape)} of {tensor.dtype}")
        odd = tensor.is_floating_point() and not name.startswith(UNDEFINED)
        if odd and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} is not finite")


def check_counts(saved: Mapping[str, Tensor], interactions: int) -> None:
    """What was counted while acting is what the checkpoint says of itself; ValueError."""
    counts = saved["collector/scores/counts"]
    if int(counts[0]) != interactions or bool((counts < 0).any()):
        raise ValueError(f"counts {counts.tolist()} are not of {interactions} interactions")


def check_ranks(path: Path, then: Any, now: int) -> None:
    """The parts of other shares do not fit: the environments could not go on."""
    if then != now:
        raise BadInput(
            f"{path}: saved by {then} rank(s), but now there are {now}; go on with "
            f"`torchrun --nproc-per-node {then} -m dna resume …`, or `dna resume` for one"
        )


#: Name → what it must be.
KINDS = {
    "iteration": int,
    "interactions": int,
    "lengths": dict,
    "resumes": int,
    "inexact": list,
    "setting": dict,
}


def progress_of(state: Any) -> dict[str, Any]:
    """The numbers and lists of a run's progress; KeyError or TypeError if it is not one."""
    progress = {name: _of_kind(state[name], kind) for name, kind in KINDS.items()}
    progress["lengths"] = _lengths(state["lengths"])
    return progress


def _of_kind(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _lengths(value: Any) -> Any:
    """Of the logs: without them, all would be cut to nothing."""
    known = isinstance(value, dict) and "metrics.jsonl" in value
    if not known or not all(isinstance(n, int) and n >= 0 for n in value.values()):
        raise TypeError("lengths of the logs")
    return value
