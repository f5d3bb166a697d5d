"""Check that a checkpoint fits a run before any of it is restored.

A checkpoint whose hashes are right may still have been written by hand or by another version.
Every mismatch must be found here, as a `StorageFailure`: later, a tensor of the wrong shape
could be broadcast or read past its end.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dna.algorithm.replay import COLUMNS
from dna.common.errors import BadInput, StorageFailure

#: Entries of `state.json` → their types.
STATE_TYPES = {
    "iteration": int,
    "interactions": int,
    "lengths": dict,
    "resumes": int,
    "inexact": list,
    "setting": dict,
}
#: Tensors whose first dimension grows during a run.
GROWING = ("collector/scores/window",)
#: Prefixes of tensors that may hold NaN: ratios that are undefined at first.
MAY_BE_NAN = ("noise/",)
#: Types of safetensors that NumPy does not have.
NOT_IN_NUMPY = (
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
)
#: Tensors of a rollout whose observations are stored as frames.
FRAMES = ("frames/frames", "frames/age", "frames/elapsed", "frames/numbers")


def check_complete(path: Path, files: Collection[str], expected: Collection[str]) -> None:
    """Require the files of a checkpoint to be listed in its manifest."""
    for name in expected:
        if name not in files:
            raise _foreign(path, f"{name} is missing")


def check_state(path: Path, state: Any) -> dict[str, Any]:
    """Return the entries of `state.json` that `STATE_TYPES` names, with their types checked."""
    if not isinstance(state, dict):
        raise _foreign(path, "state.json is not an object")
    for name, kind in STATE_TYPES.items():
        if name not in state:
            raise _foreign(path, f"{name} is missing")
        value = state[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _foreign(path, f"{name} is {value!r:.40}, not of type {kind.__name__}")
    lengths = state["lengths"]
    whole = all(isinstance(length, int) and length >= 0 for length in lengths.values())
    if "metrics.jsonl" not in lengths or not whole:  # the logs would be truncated to nothing
        raise _foreign(path, "the lengths of the logs")
    if f"{state['interactions']:012d}" != path.name:
        raise StorageFailure(f"{path}: under another name (of {state['interactions']})")
    return {name: state[name] for name in STATE_TYPES}


def check_ranks(path: Path, then: Any, now: int) -> None:
    """Require as many ranks as before: the environments are split among them."""
    if then != now:
        raise BadInput(
            f"{path}: saved by {then} rank(s), but now there are {now}; resume with "
            f"`torchrun --nproc-per-node {then} -m dna resume …`, or `dna resume` for one"
        )


def check_tensors(path: Path, saved: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> None:
    """Require every tensor of a fresh run, with its shape and type, and finite."""
    for name, like in fresh.items():
        if name not in saved:
            raise misfit(path, f"{name} is missing")
        tensor = saved[name]
        shape = tuple(tensor.shape)
        expected = tuple(like.shape)
        if name in GROWING:
            shape = shape[1:]
            expected = expected[1:]
        if (shape, tensor.dtype, tensor.dim()) != (expected, like.dtype, like.dim()):
            raise misfit(path, f"{name} is {tuple(tensor.shape)} of {tensor.dtype}")
        must_be_finite = tensor.is_floating_point() and not name.startswith(MAY_BE_NAN)
        if must_be_finite and not bool(torch.isfinite(tensor).all()):
            raise misfit(path, f"{name} is not finite")
    for name, tensor in saved.items():
        if name.startswith("networks/") and name not in fresh:
            raise misfit(path, f"{name} belongs to no network of this run")
        if name.startswith("noise/") and tensor.dim():
            raise misfit(path, f"{name} is not a single number")
        if tensor.dtype in NOT_IN_NUMPY:
            raise misfit(path, f"{name} is of {tensor.dtype}")


def check_counts(path: Path, saved: Mapping[str, Tensor], interactions: int) -> None:
    """Require the collector's counters to agree with `state.json`."""
    counts = saved["collector/scores/counts"]
    if int(counts[0]) != interactions or bool((counts < 0).any()):
        raise misfit(path, f"counts {counts.tolist()} are not of {interactions} interactions")


def check_numbered(path: Path, saved: Mapping[str, Tensor], prefix: str) -> None:
    """Require names of the form `prefix/<number>/<name>` under a prefix."""
    for name in saved:
        if name.startswith(prefix + "/"):
            number, _, rest = name.removeprefix(prefix + "/").partition("/")
            if not (number.isascii() and number.isdecimal() and rest):
                raise misfit(path, f"{name} has no number")


def check_replay(path: Path, rollouts: Mapping[int, Mapping[str, Tensor]], rows: int) -> None:
    """Require whole rollouts of `rows` rows."""
    for number, tensors in rollouts.items():
        framed = any(name.startswith("frames/") for name in tensors)
        expected = (*COLUMNS, *(FRAMES if framed else ("obs",)))
        for name in expected:
            if name not in tensors:
                raise misfit(path, f"replay/{number}/{name} is missing")
        for name in COLUMNS:
            if tuple(tensors[name].shape) != (rows,):
                raise misfit(path, f"replay/{number}/{name} is not of {rows} rows")
        if framed and tuple(tensors["frames/numbers"].shape) != (2,):
            raise misfit(path, f"replay/{number}/frames/numbers are not two")


def check_moments(
    path: Path, phase: str, slots: Mapping[int, Mapping[str, Tensor]], like: Tensor
) -> None:
    """Require Adam's moments to have the shape of the flat weights, `like`."""
    for index, moments in slots.items():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            if index != 0 or name not in moments:
                raise misfit(path, f"{phase}: its moments are not of these weights")
        shapes = {moments[name].shape for name in ("exp_avg", "exp_avg_sq")}
        if shapes != {like.shape} or moments["step"].numel() != 1:
            raise misfit(path, f"{phase}: its moments are not of these weights")


def misfit(path: Path, reason: str) -> StorageFailure:
    """The error of a checkpoint that belongs to a run built otherwise."""
    return StorageFailure(f"{path}: does not fit this run ({reason})")


def _foreign(path: Path, reason: str) -> StorageFailure:
    return StorageFailure(f"{path}: not a checkpoint of this version ({reason})")
