"""Is the file the policy? Random observations through torch and through onnxruntime.

Torch's side goes the way of acting in a run: rows as environments give them, `Preprocess` or
`Unpack`, the network. Nothing of `Acting` is in it, so a mistake there is found.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dna.common.errors import StorageFailure
from dna.envs.outside import ActionPart
from dna.envs.packing import spans
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.evaluation.export.acting import Input, action_name, in_float32
from dna.evaluation.export.conversion import Runtime
from dna.runs.policy import SavedPolicy

Array = npt.NDArray[Any]
#: Of the largest number of an output, or of 1 where that is less.
TOLERANCE = 1e-5
#: Observations that are compared, in batches of these sizes.
BATCHES = (1, 7, 56)


def feeds(obs: ObservationSpec, given: list[Input], rows: Array) -> dict[str, Array]:
    """Observations as our environments give them [B, …] → what is fed, by name."""
    if obs.kind != "packed":
        return {given[0].name: rows}
    found = {}
    for (part, span), entry in zip(spans(obs).items(), given, strict=True):
        piece = np.ascontiguousarray(rows[:, span])
        if part.kind == "mask":
            piece = piece != 0
        found[entry.name] = piece.view(np.dtype(part.dtype)).reshape(-1, *part.shape)
    return found


def random_rows(policy: SavedPolicy, spec: ActionSpec, size: int, seed: int) -> Array:
    """Observations that reach all of the normalizer's range, some legal choice in each."""
    rng, obs = np.random.default_rng(seed), policy.preprocess.spec
    shift, scale = (x.numpy() for x in (policy.preprocess.shift, policy.preprocess.scale))
    if obs.kind != "packed":
        return _random(rng, obs.dtype, (size, *obs.shape), shift, scale)
    rows: Array = np.zeros((size, *obs.shape), np.uint8)
    start = 0
    for part, span in spans(obs).items():
        if part.kind == "mask":
            rows[:, span] = _random_mask(rng, size, spec)
            continue
        own = slice(start, start + part.elements)
        start = own.stop
        place = (shift[own], scale[own]) if shift.ndim else (shift, scale)
        piece = _random(rng, part.dtype, (size, part.elements), *place)
        rows[:, span] = piece.view(np.uint8)
    return rows


def _random(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], shift: Array, scale: Array
) -> Array:
    if dtype == "uint8":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return (shift + 2 * rng.standard_normal(shape) / scale).astype(np.float32)


def _random_mask(rng: np.random.Generator, size: int, spec: ActionSpec) -> Array:
    groups = []
    for choices in spec.choices:
        mask = rng.random((size, choices)) < 0.5
        mask[np.arange(size), rng.integers(0, choices, size)] = True
        groups.append(mask)
    return np.concatenate(groups, axis=1)


@dataclass(frozen=True)
class Compared:
    """How far apart the two are, relative to the scale of what is compared."""

    difference: float
    observations: int


def compare(
    policy: SavedPolicy, spec: ActionSpec, parts: tuple[ActionPart, ...], file: "Exported"
) -> Compared:
    """The largest difference over all outputs; more than rounding is an error."""
    policy = replace(policy, network=in_float32(policy.network))
    worst = 0.0
    for seed, size in enumerate(BATCHES):
        rows = random_rows(policy, spec, size, seed)
        out = file.runtime.run(feeds(policy.preprocess.spec, file.given, rows))
        worst = max(worst, _compare_batch(policy, spec, parts, rows, out))
    if not worst <= TOLERANCE:  # also where it is not a number
        raise StorageFailure(
            f"the ONNX file differs from torch by {worst:.1e} of the scale, more than "
            f"{TOLERANCE:.0e}; nothing was written"
        )
    return Compared(worst, sum(BATCHES))


@dataclass(frozen=True)
class Exported:
    """A file behind onnxruntime, and what it is fed."""

    runtime: Runtime
    given: list[Input]


def _compare_batch(
    policy: SavedPolicy,
    spec: ActionSpec,
    parts: tuple[ActionPart, ...],
    rows: Array,
    out: dict[str, Array],
) -> float:
    with torch.inference_mode():
        obs = torch.from_numpy(rows)
        said = policy.network(policy.preprocess(obs), policy.preprocess.legal(obs))
        row = policy.distribution.mode(said.pi).numpy()
    pi, size, reals = said.pi.numpy(), sum(spec.choices), spec.numbers
    pairs = [(out["value"], said.value.numpy())]
    if size:
        legal = pi[:, :size] > -1e7
        pairs.append((out["logits"][legal], pi[:, :size][legal]))
        if not np.array_equal(out["logits"] > -1e7, legal):
            return float("inf")
    if reals:
        pairs += [(out["mean"], pi[:, size : size + reals]), (out["log_std"], pi[:, -reals:])]
    worst = max(_apart(*pair) for pair in pairs)
    for part in parts:
        got, wanted = out[action_name(part)], row[:, list(part.columns)]
        if got.shape != (len(rows), *part.shape):
            return float("inf")
        got = got.reshape(wanted.shape)
        if part.kind == "choices":
            sure = _sure(pi[:, :size], spec, worst)[:, list(part.columns)]
            if not np.array_equal((got - np.array(part.start))[sure], wanted[sure]):
                return float("inf")
        else:
            bound = np.clip(wanted, part.low, part.high) if part.low else wanted
            worst = max(worst, _apart(got, bound))
    return worst


def _apart(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return float("inf")
    scale = max(1.0, float(np.abs(b).max(initial=0)))
    return float(np.abs(a.astype(np.float64) - b).max(initial=0)) / scale


def _sure(logits: Array, spec: ActionSpec, worst: float) -> Array:
    """[B, C] where rounding cannot decide which choice is the most likely."""
    groups = np.split(logits, np.cumsum(spec.choices)[:-1], axis=1)
    scale = 2 * worst * max(1.0, float(np.abs(logits[logits > -1e7]).max(initial=0)))
    sure = []
    for group in groups:
        top = np.sort(group, axis=1)[:, -2:]
        alone = group.shape[1] == 1
        sure.append((top[:, -1] - top[:, 0] > scale) | alone)
    return np.stack(sure, axis=1)
