"""Describe the inputs and outputs of an exported policy, as JSON and in sentences.

The contract is stored in the ONNX file and in a JSON file next to it. With it, onnxruntime
alone is enough to act: it describes all preprocessing between the environment's frames and the
file's inputs.
"""

from typing import Any

from dna.config.environments import Atari
from dna.envs.atari.time_bar import AHEAD, BAR, BORDER, GONE, MARK
from dna.envs.spaces import ActionPart, RawObservation, SpaceDescription
from dna.envs.specs import MASK, ActionSpec
from dna.evaluation.export.onnx_policy import Input, action_name, has_bfloat16
from dna.runs.policy import SavedPolicy

#: Version of the contract's format.
FORMAT = 1
TYPES = {"uint8": "uint8", "bool": "bool", "float32": "float32"}


def contract(
    policy: SavedPolicy,
    spec: ActionSpec,
    given: list[Input],
    parts: tuple[ActionPart, ...],
    known: SpaceDescription | None,
) -> dict[str, Any]:
    """Return the contract as plain JSON values."""
    seen = known.observations if known is not None else {}
    norm = policy.preprocess
    tree: dict[str, Any] = {
        "format": FORMAT,
        "made_by": "ppo-dna",
        "environment": policy.env.model_dump(mode="json"),
        "about": policy.about,
        "inputs": [_input(entry, seen) for entry in given],
        "outputs": _outputs(spec, parts),
        "normalizer": {"inside": True, "clip": norm.clip, "gain": norm.gain},
        "post_processing": known is not None,
        "precision": "float32",
        "preprocessing": _atari(policy.env.atari) if policy.env.atari is not None else [],
    }
    if known is not None and known.meanings:
        tree["meanings"] = list(known.meanings)
    tree["words"] = words(tree, bfloat16=has_bfloat16(policy.network))
    return tree


def _input(entry: Input, seen: dict[str, RawObservation]) -> dict[str, Any]:
    part = entry.part
    tree: dict[str, Any] = {
        "name": entry.name,
        "shape": ["batch", *part.shape],
        "dtype": TYPES[part.dtype],
        "kind": part.kind,
    }
    if part.kind == "image":
        tree["layout"] = "batch, height, width, channels"
    own = seen.get(part.name, seen.get("")) if part.kind != "mask" else None
    if own is not None:
        tree["space"] = own.space
        tree["steps"] = list(own.steps)
    return tree


def _outputs(spec: ActionSpec, parts: tuple[ActionPart, ...]) -> list[dict[str, Any]]:
    found = []
    for part in parts:
        tree: dict[str, Any] = {
            "name": action_name(part),
            "shape": ["batch", *part.shape],
            "dtype": part.dtype,
            "what": "the most likely choice" if part.kind == "choices" else "the mean",
            "columns": list(part.columns),
        }
        if part.kind == "choices":
            tree["start"] = list(part.start)
        elif part.low:
            # JSON has no infinity: null is no bound.
            tree["low"] = _finite(part.low)
            tree["high"] = _finite(part.high)
            tree["what"] = "the mean, clipped to the bounds"
        found.append(tree)
    if spec.choices:
        what = "of all choices, group after group; illegal ones are -1e8"
        found.append(_plain("logits", sum(spec.choices), what) | {"groups": [*spec.choices]})
    if spec.numbers:
        found.append(_plain("mean", spec.numbers, "of the normal distribution, not clipped"))
        found.append(_plain("log_std", spec.numbers, "logarithm of its standard deviation"))
    what = "V_π, of the reward as it was normalized in training"
    return [*found, {"name": "value", "shape": ["batch"], "dtype": "float32", "what": what}]


def _plain(name: str, width: int, what: str) -> dict[str, Any]:
    return {"name": name, "shape": ["batch", width], "dtype": "float32", "what": what}


def _finite(bounds: tuple[float, ...]) -> list[float | None]:
    return [x if abs(x) < float("inf") else None for x in bounds]


def _atari(atari: Atari) -> list[dict[str, Any]]:
    """Return the steps from the emulator's screens to an observation, in order."""
    steps: list[dict[str, Any]] = [
        {
            "step": "start",
            "noops": list(atari.noops or ()),
            "what": "no-ops before an episode's first frame",
        },
        {"step": "skip", "frames": atari.skip, "sticky": atari.sticky},
        {"step": "gray", "what": "the emulator's own gray-scale screen, 210 × 160 bytes"},
        {"step": "max", "of": 2 if atari.skip > 1 else 1, "what": "of the last skipped frames"},
        {"step": "resize", "size": [atari.size, atari.size], "how": "OpenCV INTER_AREA"},
    ]
    if atari.last_action == "mark":
        what = "rows 4a to 4a + 3 and columns 0 to 3 of the new frame, a the action before it"
        steps.append(
            {
                "step": "mark",
                "pixels": MARK,
                "brightness": GONE,
                "what": what,
                "first_frame": "no mark",
            }
        )
    order = "oldest first along the last axis; a first frame fills the whole stack"
    steps.append({"step": "stack", "frames": atari.stack, "order": order})
    if atari.time == "bar":
        steps.append(_bar(atari))
    return steps


def _bar(atari: Atari) -> dict[str, Any]:
    return {
        "step": "time",
        "on": "the oldest frame of the stack",
        "full_at": atari.max_frames,
        "rows": BAR,
        "border": BORDER,
        "brightness": [GONE, AHEAD],
        "what": (
            f"the last {BAR} rows are 0; in the middle two, of the columns {BORDER} to "
            f"width − {BORDER + 1}, those before r = {BORDER} + (width − {2 * BORDER}) · "
            f"elapsed / full_at are {GONE}, those behind it {AHEAD}, column floor(r) is "
            f"{AHEAD} + floor({GONE - AHEAD} · (r − floor(r)))"
        ),
        "elapsed": "raw frames of this game, no-ops too; 0 at an episode's first observation",
    }


def words(tree: dict[str, Any], *, bfloat16: bool) -> list[str]:
    """Return the contract as sentences."""
    lines = ["Feed observations as the environment gives them: the normalizer is inside."]
    lines += [_input_words(entry) for entry in tree["inputs"]]
    for number, step in enumerate(tree["preprocessing"], 1):
        rest = ", ".join(f"{k} {v}" for k, v in step.items() if k not in ("step", "what"))
        line = f"Preprocessing step {number}, {step['step']}"
        if "what" in step:
            line += f": {step['what']}"
        if rest:
            line += f" ({rest})"
        lines.append(f"{line}.")
    lines += [_output_words(entry) for entry in tree["outputs"]]
    if "meanings" in tree:
        lines.append(f"The choices mean, from 0: {', '.join(tree['meanings'])}.")
    if not tree["post_processing"]:
        lines.append(
            "Made without the environment: choices count from 0 and real numbers are not "
            "clipped; apply the offsets and bounds of the action space yourself."
        )
    if bfloat16:
        lines.append("Trained with an encoder in bfloat16; this file computes in float32.")
    return [
        *lines,
        "To act as in training, sample from the parameters instead of using the action.",
    ]


def _input_words(entry: dict[str, Any]) -> str:
    shape = ", ".join(map(str, entry["shape"]))
    text = f"Input '{entry['name']}': {entry['dtype']} [{shape}]"
    if entry["kind"] == "image":
        numbers = ", bytes from 0 to 255" if entry["dtype"] == "uint8" else ""
        text += f", an image in the order {entry['layout']}{numbers}"
    if entry["kind"] == "mask":
        text += f", true for every legal choice (the environment's {MASK})"
    if entry.get("space"):
        text += f", from {entry['space']}"
    for step in entry.get("steps", []):
        text += f"; {step}"
    return text + "."


def _output_words(entry: dict[str, Any]) -> str:
    shape = ", ".join(map(str, entry["shape"]))
    offset = ""
    if any(entry.get("start", ())):
        offset = f" with the offset {entry['start']} applied"
    return f"Output '{entry['name']}': {entry['dtype']} [{shape}], {entry['what']}{offset}."
