"""Files of extreme sizes, with values of wrong types, or that are no plain files."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dna.common.storage import blocks, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from
from dna.runs import checkpoint
from torture.strangers import model_case, replaced, sb3_weights, tensors, zipped

Case = Callable[[Path], list[str]]
#: Cases with this prefix may succeed or be refused: the value may not matter.
EITHER = "either: "
#: Length of a sparse file: it takes no space on the disk.
HUGE = 6 * 2**30
#: Bytes of a tensor in a sparse file whose hash is right.
LARGE_TENSOR = 3 * 2**30
EVAL = ["eval", "run", "--episodes", "1"]
REPORT = ["report", "run", "--out", "x.html"]
RESUME = ["resume", "run", "--quiet"]
#: Name → a JSON value that is written as it is.
VALUES = {
    "1e400": "1e400",
    "10^400": "9" * 401,
    "300 deep": "[" * 300 + "]" * 300,
    "an object": "{}",
    "a text": '"\\u001b[31mx"',
}
#: File → its entries, and the command that reads it.
ENTRIES: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "policy/policy.json": (("clip", "gain", "format", "network", "about"), EVAL),
    "done": (("score", "seed"), REPORT),
    "machine.json": (("asked", "threads"), RESUME),
    "config.json": (("seed", "config"), RESUME),
    "state.json": (("interactions", "lengths", "setting", "resumes"), RESUME),
    "metrics.jsonl": (("score", "interactions"), REPORT),
    "eval.json": (("policy",), REPORT),
}


def extremes() -> dict[str, Case]:
    """Return all cases."""
    return _types() | _sizes() | _no_files() | _weights() | _models() | _escapes()


def unfinished(place: Path) -> Path:
    """Make the run one that a resume continues; return its folder."""
    run = place / "run"
    (run / "done").unlink(missing_ok=True)
    names = checkpoint.names(run)
    for name in names[1:]:
        _remove(run / "checkpoints" / name)
    _remove(run / "policy")
    return run


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _path(place: Path, name: str) -> Path:
    run = place / "run"
    if name == "state.json":
        return run / "checkpoints" / checkpoint.names(run)[0] / name
    return run / name


# ── types ────────────────────────────────────────────────────────────────────────────────────


def _types() -> dict[str, Case]:
    found = {}
    for file, (entries, words) in ENTRIES.items():
        for entry in entries:
            for what, value in VALUES.items():
                found[f"{EITHER}{file}: {entry} is {what}"] = _entry(file, entry, value, words)
    return found


def _entry(file: str, entry: str, value: str, words: list[str]) -> Case:
    def case(place: Path) -> list[str]:
        if words is RESUME:
            unfinished(place)
        path = _path(place, file)
        if file == "eval.json":
            path.write_text("{}")
        lines = path.read_text().splitlines() if file == "metrics.jsonl" else [path.read_text()]
        tree = json.loads(lines[-1]) | {entry: "@"}
        lines[-1] = json.dumps(tree).replace('"@"', value)
        path.write_text("\n".join(lines) + "\n")
        _list_again(path)
        return words

    return case


def _list_again(path: Path) -> None:
    """Make the manifest beside a file match it."""
    manifest = path.parent / "manifest.json"
    if manifest.exists():
        about = json.loads(manifest.read_text())["about"]
        names = [found.name for found in path.parent.iterdir() if found != manifest]
        write_folder(path.parent, {n: (path.parent / n).read_bytes() for n in names}, about)


# ── sizes ────────────────────────────────────────────────────────────────────────────────────


def _sparse(name: str, words: list[str], half: bool = False) -> Case:
    def case(place: Path) -> list[str]:
        if half:
            unfinished(place)
        path = _path(place, name) if not name.startswith("/") else place / name[1:]
        path.touch()
        os.truncate(path, HUGE)
        return words

    return case


def _claims(folder: str, file: str, words: list[str], sparse: bool) -> Case:
    """A manifest that lists 6 GB, with or without a file of that size."""

    def case(place: Path) -> list[str]:
        run = place / "run"
        at = run / folder
        if folder == "checkpoints":
            unfinished(place)
            at = at / checkpoint.names(run)[0]
        tree = json.loads((at / "manifest.json").read_text())
        tree["files"][file]["bytes"] = HUGE
        (at / "manifest.json").write_text(json.dumps(tree))
        if sparse:
            os.truncate(at / file, HUGE)
        return words

    return case


def _sizes() -> dict[str, Case]:
    convert = ["import-sb3", "model.zip", "CartPole-v1", "--out", "new"]
    train = ["train", "CartPole-v1", "--config", "settings.json", "--out", "new"]
    found = {
        f"{EITHER}6 GB: {name}, {words[0]}": _sparse(name, words, half=words is RESUME)
        for name, words in (
            ("metrics.jsonl", REPORT),
            ("metrics.jsonl", RESUME),
            ("metrics.jsonl", ["plot", "run"]),
            ("metrics.jsonl", ["export", "run", "--format", "hub", "--out", "h"]),
            ("timings.jsonl", REPORT),
            ("timings.jsonl", RESUME),
            ("episodes.csv", RESUME),
            ("machine.json", RESUME),
            ("machine.json", REPORT),
            ("state.json", RESUME),
            ("eval.json", REPORT),
            ("episode.mp4", REPORT),
            ("run.lock", RESUME),
        )
    }
    found |= {
        "6 GB: config.json": _sparse("config.json", RESUME),
        "6 GB: done": _sparse("done", RESUME),
        "6 GB: policy.json": _sparse("policy/policy.json", EVAL),
        "6 GB: policy.safetensors": _sparse("policy/policy.safetensors", EVAL),
        "6 GB: manifest.json": _sparse("policy/manifest.json", EVAL),
        "6 GB: model.zip": _sparse("/model.zip", convert),
        "6 GB: --config": _sparse("/settings.json", train),
    }
    for sparse in (False, True):
        also = " and has it" if sparse else ""
        for folder, file, words in (
            ("policy", "policy.safetensors", EVAL),
            ("policy", "policy.json", EVAL),
            ("checkpoints", "rank0.safetensors", RESUME),
            ("checkpoints", "state.json", RESUME),
        ):
            found[f"manifest lists 6 GB of {file}{also}"] = _claims(folder, file, words, sparse)
    found["networks of 3 GB in a checkpoint"] = _large_tensor
    return found


def _large_tensor(place: Path) -> list[str]:
    """A checkpoint whose header, size and hash are right, with a tensor of another run."""
    run = unfinished(place)
    folder = run / "checkpoints" / checkpoint.names(run)[0]
    file = folder / "rank0.safetensors"
    entry = {"dtype": "U8", "shape": [LARGE_TENSOR], "data_offsets": [0, LARGE_TENSOR]}
    header = json.dumps({"networks/evil": entry}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(file, 8 + len(header) + LARGE_TENSOR)
    found = hashlib.sha256()
    for block in blocks(file):
        found.update(block)
    tree = json.loads((folder / "manifest.json").read_text())
    listed = {"bytes": file.stat().st_size, "sha256": found.hexdigest()}
    tree["files"]["rank0.safetensors"] = listed
    (folder / "manifest.json").write_text(json.dumps(tree))
    return RESUME


# ── no plain files ───────────────────────────────────────────────────────────────────────────


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": _fifo,
    "a link to itself": _loop,
    "a link to /dev/zero": _device,
    "a folder": _folder,
}


def _no_files() -> dict[str, Case]:
    files = {
        "config.json": RESUME,
        "machine.json": RESUME,
        "metrics.jsonl": RESUME,
        "episodes.csv": RESUME,
        "run.lock": RESUME,
        "state.json": RESUME,
        "policy/policy.json": EVAL,
        "policy/manifest.json": EVAL,
    }
    found: dict[str, Case] = {}
    for what, make in KINDS.items():
        for name, words in files.items():
            found[f"{EITHER}{name} is {what}"] = _instead(name, make, words)
    found |= {
        f"{EITHER}{name} has a second name": _hard_link(name)
        for name in ("metrics.jsonl", "episodes.csv", "timings.jsonl", "machine.json")
    }
    return found


def _instead(name: str, make: Callable[[Path], None], words: list[str]) -> Case:
    def case(place: Path) -> list[str]:
        if words is RESUME:
            unfinished(place)
        path = _path(place, name)
        path.unlink(missing_ok=True)
        make(path)
        return words

    return case


def _hard_link(name: str) -> Case:
    """Let a file outside of the run share its content with a log."""

    def case(place: Path) -> list[str]:
        path = unfinished(place) / name
        victims = place.parent / "victims"
        victims.mkdir()
        os.link(path, victims / path.name)
        return RESUME

    return case


# ── tensors of policies ──────────────────────────────────────────────────────────────────────

Change = Callable[[dict[str, torch.Tensor], str], Any]


def _weights() -> dict[str, Case]:
    def at(value: float) -> Change:
        return lambda found, name: found[name].view(-1).__setitem__(0, value)

    changes: dict[str, Change] = {
        "NaN": at(float("nan")),
        "infinity": at(float("inf")),
        "a missing tensor": lambda found, name: found.pop(name),
        "an unknown tensor": lambda found, name: found.update({"policy/x": torch.zeros(1)}),
        "an unknown part": lambda found, name: found.update({"other/x": torch.zeros(1)}),
        "another shape": lambda found, name: found.update({name: torch.zeros(3, 5, 7)}),
        "float64 of 1e300": lambda found, name: found.update(
            {name: torch.full_like(found[name], 1e300, dtype=torch.float64)}
        ),
        "a complex tensor": lambda found, name: found.update({name: found[name] + 0j}),
    }

    def put(change: Change) -> Case:
        def case(place: Path) -> list[str]:
            policy = place / "run" / "policy"
            data = (policy / "policy.safetensors").read_bytes()
            found = {k: v.clone() for k, v in tensors_from(data, "").items()}
            name = next(name for name in sorted(found) if name.startswith("policy/"))
            change(found, name)
            text = (policy / "policy.json").read_bytes()
            write_folder(
                policy, {"policy.json": text, "policy.safetensors": tensor_bytes(found)}
            )
            return EVAL

        return case

    cases = {f"policy with {name}": put(change) for name, change in changes.items()}
    for name, value in (("clip", "1e308"), ("clip", "-1"), ("gain", "0"), ("gain", "1e39")):
        case = _entry("policy/policy.json", name, value, EVAL)
        cases[f"policy with a {name} of {value}"] = case
    return cases


# ── SB3 models ───────────────────────────────────────────────────────────────────────────────


def _models() -> dict[str, Case]:
    weights = sb3_weights()
    good = tensors(weights)
    about = b'{"policy_kwargs": {}}'
    programs = {
        "50,000 marks and tuples": b"\x80\x02" + b"(" * 50_000 + b"t" * 50_000 + b".",
        "marks before a million pops": b"\x80\x02" + b"(" * 45_000 + b"1" * 45_000 + b".",
        "50,000 lists": b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".",
        "90,000 numbers": b"\x80\x02(" + b"K\x01" * 45_000 + b"t.",
        "a memo of 2^31": b"\x80\x02}r\xff\xff\xff\x7f.",
        "a long of 2^31 bytes": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    }
    found = {
        f"SB3: {name}": model_case(
            zipped({"data": about, "policy.pth": replaced(good, program)})
        )
        for name, program in programs.items()
    }
    changed: dict[str, dict[str, torch.Tensor]] = {
        "another width": weights | {"action_net.weight": torch.zeros(2, 3)},
        "no layers": {},
        "a scalar": weights | {"action_net.bias": torch.tensor(0.0)},
        "an unknown name": weights | {"\x1b[31mname": torch.zeros(1)},
        "continuous actions": weights | {"log_std": torch.zeros(2)},
    }
    found |= {
        f"SB3: {name}": model_case(zipped({"data": about, "policy.pth": tensors(content)}))
        for name, content in changed.items()
    }
    for name, data in {
        "timesteps of 10^400": b'{"policy_kwargs": {}, "num_timesteps": ' + b"9" * 401 + b"}",
        "kwargs are a list": b'{"policy_kwargs": [1]}',
    }.items():
        packed = zipped({"data": data, "policy.pth": good})
        found[f"{EITHER}SB3: {name}"] = model_case(packed)
    return found


# ── names ────────────────────────────────────────────────────────────────────────────────────


def _escapes() -> dict[str, Case]:
    bad = "\x1b[31m\x07\r\u202e"
    words = {
        "environment": ["train", f"Cart{bad}Pole-v1"],
        "setting": ["train", "CartPole-v1", f"returns.{bad}=1"],
        "value": ["train", "CartPole-v1", f"horizon={bad}"],
        "run": ["eval", f"no{bad}run"],
        "--config": ["train", "CartPole-v1", "--config", f"no{bad}file"],
        "model": ["import-sb3", f"no{bad}file", "CartPole-v1", "--out", "new"],
        "preset": ["train", "CartPole-v1", "--preset", bad],
        "command": [bad],
        "option": ["train", "CartPole-v1", f"--{bad}"],
        "axis": ["sweep", "CartPole-v1", f"{bad}=1,2"],
        "repository": ["push", "hub", bad],
    }
    return {f"escapes in the {name}": (lambda place, w=w: w) for name, w in words.items()}
