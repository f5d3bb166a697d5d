"""Convert a saved policy to an ONNX file, compare the file with torch, and run it.

ONNX's libraries are imported here only, when they are needed.
"""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.common.errors import BadInput, MissingExtra, StorageFailure
from dna.common.storage import read, write, write_json
from dna.envs import Making, Source, make
from dna.envs.protocol import close
from dna.envs.spaces import ActionPart, SpaceDescription, describe_spaces
from dna.envs.specs import ActionSpec, ObservationSpec, spans
from dna.evaluation.export.contract import contract
from dna.evaluation.export.onnx_policy import (
    ExportedPolicy,
    Input,
    action_name,
    action_parts,
    in_float32,
    inputs,
    output_names,
    spec_of,
)
from dna.runs.policy import SavedPolicy

Array = npt.NDArray[Any]
#: Version of ONNX's operators; onnxruntime 1.20 supports it.
OPSET = 20
#: Largest ONNX file that is read.
MAX_BYTES = 2**30
#: Largest accepted difference, relative to the largest number of an output (at least 1).
TOLERANCE = 1e-5
#: Batch sizes of the random observations that are compared.
BATCHES = (1, 7, 56)


@dataclass(frozen=True)
class Comparison:
    """The largest relative difference between the file and torch."""

    difference: float
    observations: int


@dataclass(frozen=True)
class OnnxFile:
    """An exported policy: the file, the description of its inputs, and its precision."""

    data: bytes
    contract: dict[str, Any]
    compared: Comparison

    def write(self, path: Path) -> Path:
        """Write the file, and the contract beside it; return the contract's path."""
        beside = path.with_suffix(".json")
        write(path, self.data)
        write_json(beside, self.contract)
        return beside


def environment_interface(
    policy: SavedPolicy, *, allow_import: bool = False, source: Source = None
) -> SpaceDescription:
    """Make the policy's environment once, to read its spaces and how they are encoded."""
    if policy.env.id is None and source is None:
        raise BadInput(
            "export: the environment came from Python and cannot be made here; add --no-env"
        )
    vector = make(policy.env, Making(1, (0,), 1, allow_import), source)
    try:
        expected = (policy.preprocess.spec, spec_of(policy.distribution))
        if (vector.observation, vector.action) != expected:
            raise BadInput(f"{policy.env.id}: its spaces differ from those of the policy")
        return describe_spaces(vector)
    finally:
        close(vector)


def to_onnx(policy: SavedPolicy, known: SpaceDescription | None) -> OnnxFile:
    """Convert a policy and compare; with None, actions stay as the network returns them."""
    check_installed()
    spec = spec_of(policy.distribution)
    obs = policy.preprocess.spec
    parts = action_parts(spec, known)
    outputs = output_names(spec, parts)
    given = inputs(obs, outputs)
    about = contract(policy, spec, given, parts, known)
    example = feeds(obs, given, random_rows(policy, spec, 3, 0))
    data = _convert(
        ExportedPolicy(policy, spec, parts),
        [torch.from_numpy(x) for x in example.values()],
        [entry.name for entry in given],
        outputs,
        {"contract": json.dumps(about), "words": "\n".join(about["words"])},
    )
    return OnnxFile(data, about, compare(policy, spec, parts, Runtime(data), given))


# ── ONNX's libraries ──────────────────────────────────────────────────────────────────────


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings, which concern torch's internals."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def check_installed() -> None:
    """Raise an error that names the missing extra before any work is done."""
    try:
        with _quiet():
            import onnx  # noqa: F401
            import onnxruntime
            import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("ONNX", "export") from None
    # It would warn about graphics cards that are not there.
    onnxruntime.set_default_logger_severity(3)


def _convert(
    module: ExportedPolicy,
    example: list[Tensor],
    input_names: list[str],
    output_names: list[str],
    properties: Mapping[str, str],
) -> bytes:
    """Return a module as an ONNX file that accepts any batch size."""
    import onnx

    batch = torch.export.Dim("batch", min=1, max=2**20)
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module.eval(),
                (example,),
                dynamo=True,
                opset_version=OPSET,
                input_names=input_names,
                output_names=output_names,
                dynamic_shapes=([{0: batch} for _ in example],),
                external_data=False,
                verbose=False,
            )
            assert program is not None
            model: Any = program.model_proto
    except Exception as error:  # the exporter raises many kinds
        reason = " ".join(str(error).split())[:120]
        raise BadInput(f"this network cannot be written as ONNX ({reason})") from error
    for node in model.graph.node:  # source locations
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.helper.set_model_props(model, dict(properties))
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


class Runtime:
    """An ONNX file in onnxruntime, on one thread."""

    def __init__(self, data: bytes) -> None:
        check_installed()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises many kinds
            reason = " ".join(str(error).split())[:120]
            raise BadInput(f"onnxruntime cannot load this file ({reason})") from error

    @property
    def properties(self) -> dict[str, str]:
        """The metadata in the file."""
        found: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        return found

    def run(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Return all outputs by name."""
        names = [output.name for output in self.session.get_outputs()]
        outputs = self.session.run(names, dict(feed))
        return {name: np.asarray(x) for name, x in zip(names, outputs, strict=True)}


class OnnxPolicy:
    """An ONNX file that `evaluate` can play like a saved policy.

    `like` supplies the layout of observation and action rows; everything else is in the file.
    """

    def __init__(self, path: Path, like: SavedPolicy) -> None:
        self.runtime = Runtime(read(path, MAX_BYTES))
        self.contract: dict[str, Any] = json.loads(self.runtime.properties["contract"])
        self.obs = like.preprocess.spec
        self.spec = spec_of(like.distribution)
        self.distribution = like.distribution

    def outputs(self, rows: Array) -> dict[str, Array]:
        """Return all outputs for rows of observations."""
        names = [entry["name"] for entry in self.contract["outputs"]]
        return self.runtime.run(feeds(self.obs, inputs(self.obs, names), rows))

    def parameters(self, obs: Tensor) -> Tensor:
        """Return π's parameters [B, P]."""
        out = self.outputs(obs.numpy())
        found = [out[name] for name in ("logits", "mean", "log_std") if name in out]
        return torch.from_numpy(np.concatenate(found, axis=1))

    def act(self, obs: Tensor, rng: np.random.Generator, *, deterministic: bool) -> Tensor:
        """Return rows of actions [B, W]: the file's own, or samples from its parameters."""
        if deterministic:
            return self._rows(self.outputs(obs.numpy()), len(obs))
        noise = torch.from_numpy(self.distribution.draw(rng, (len(obs),)))
        return self.distribution.sample(self.parameters(obs), noise)

    def _rows(self, out: dict[str, Array], size: int) -> Tensor:
        """Convert actions that `step` takes to rows, without their offsets."""
        dtype = np.float32 if self.spec.numbers else np.int64
        rows: Array = np.zeros((size, self.spec.width), dtype)
        for entry in self.contract["outputs"]:
            if "columns" in entry:
                own = out[entry["name"]].reshape(size, -1) - np.asarray(entry.get("start", 0))
                rows[:, entry["columns"]] = own
        return torch.from_numpy(rows)


def feeds(obs: ObservationSpec, given: list[Input], rows: Array) -> dict[str, Array]:
    """Split rows of observations [B, …] into the inputs of the file, by name."""
    if obs.kind != "packed":
        return {given[0].name: rows}
    found = {}
    for (part, span), entry in zip(spans(obs).items(), given, strict=True):
        piece = np.ascontiguousarray(rows[:, span])
        if part.kind == "mask":
            piece = piece != 0
        found[entry.name] = piece.view(np.dtype(part.dtype)).reshape(-1, *part.shape)
    return found


# ── Comparison with torch ─────────────────────────────────────────────────────────────────
#
# Torch's side is that of acting in a run: rows as environments return them, `Preprocess` or
# `Unpack`, the network. It shares nothing with `ExportedPolicy`, so that mistakes there show.


def compare(
    policy: SavedPolicy,
    spec: ActionSpec,
    parts: tuple[ActionPart, ...],
    runtime: Runtime,
    given: list[Input],
) -> Comparison:
    """Compare all outputs on random observations; more than rounding is an error."""
    policy = replace(policy, network=in_float32(policy.network))
    worst = 0.0
    for seed, size in enumerate(BATCHES):
        rows = random_rows(policy, spec, size, seed)
        out = runtime.run(feeds(policy.preprocess.spec, given, rows))
        worst = max(worst, _compare_batch(policy, spec, parts, rows, out))
    if not worst <= TOLERANCE:  # also if it is NaN
        raise StorageFailure(
            f"the ONNX file differs from torch by {worst:.1e} of the scale, more than "
            f"{TOLERANCE:.0e}; nothing was written"
        )
    return Comparison(worst, sum(BATCHES))


def _compare_batch(
    policy: SavedPolicy,
    spec: ActionSpec,
    parts: tuple[ActionPart, ...],
    rows: Array,
    out: dict[str, Array],
) -> float:
    with torch.inference_mode():
        obs = torch.from_numpy(rows)
        expected = policy.network(policy.preprocess(obs), policy.preprocess.legal(obs))
        mode = policy.distribution.mode(expected.pi).numpy()
    pi = expected.pi.numpy()
    size = sum(spec.choices)
    reals = spec.numbers
    differences = [_difference(out["value"], expected.value.numpy())]
    if size:
        legal = pi[:, :size] > -1e7
        if not np.array_equal(out["logits"] > -1e7, legal):
            return float("inf")
        differences.append(_difference(out["logits"][legal], pi[:, :size][legal]))
    if reals:
        differences.append(_difference(out["mean"], pi[:, size : size + reals]))
        differences.append(_difference(out["log_std"], pi[:, -reals:]))
    worst = max(differences)
    for part in parts:
        got = out[action_name(part)]
        wanted = mode[:, list(part.columns)]
        if got.shape != (len(rows), *part.shape):
            return float("inf")
        got = got.reshape(wanted.shape)
        if part.kind == "choices":
            sure = _clear_choices(pi[:, :size], spec, worst)[:, list(part.columns)]
            if not np.array_equal((got - np.array(part.start))[sure], wanted[sure]):
                return float("inf")
        else:
            bounded = np.clip(wanted, part.low, part.high) if part.low else wanted
            worst = max(worst, _difference(got, bounded))
    return worst


def _difference(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return float("inf")
    scale = max(1.0, float(np.abs(b).max(initial=0)))
    return float(np.abs(a.astype(np.float64) - b).max(initial=0)) / scale


def _clear_choices(logits: Array, spec: ActionSpec, worst: float) -> Array:
    """Return [B, C]: where rounding cannot change which choice is the most likely."""
    groups = np.split(logits, np.cumsum(spec.choices)[:-1], axis=1)
    scale = 2 * worst * max(1.0, float(np.abs(logits[logits > -1e7]).max(initial=0)))
    clear = []
    for group in groups:
        top = np.sort(group, axis=1)[:, -2:]
        single = group.shape[1] == 1
        clear.append((top[:, -1] - top[:, 0] > scale) | single)
    return np.stack(clear, axis=1)


def random_rows(policy: SavedPolicy, spec: ActionSpec, size: int, seed: int) -> Array:
    """Return observations that cover the normalizer's range, with a legal choice in each."""
    rng = np.random.default_rng(seed)
    obs = policy.preprocess.spec
    shift = policy.preprocess.shift.numpy()
    scale = policy.preprocess.scale.numpy()
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
        part_shift = shift[own] if shift.ndim else shift
        part_scale = scale[own] if shift.ndim else scale
        piece = _random(rng, part.dtype, (size, part.elements), part_shift, part_scale)
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
