"""Malicious folders from the hub and malicious SB3 models."""

import io
import json
import os
import pickle  # noqa: TID251  to create files that must never be loaded
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dna.agents.hub
import dna.evaluation.export.onnx_file
import dna.evaluation.sb3  # noqa: F401  imported once, by the common parent
from dna.common.storage import write_folder

Case = Callable[[Path], list[str]]
#: Cases with this prefix succeed, because the malicious part is never read.
HARMLESS = "harmless: "
DEEP = b"[" * 10_000 + b"]" * 10_000
VAST = {"kind": "vector", "shape": [2**38], "dtype": "float32", "stack": None}
FILES = ("policy.json", "policy.safetensors")


class Evil:
    """An object that creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


# ── the hub ───────────────────────────────────────────────────────────────────────────────


def hubs(canary: Path) -> dict[str, Case]:
    """Return downloaded folders with one defect each."""
    play = ["eval", "hub", "--episodes", "1"]
    found: dict[str, Case] = {
        f"hub: {name} is a link": _linked(canary, name, play)
        for name in ("config.json", "policy", "policy/policy.json", "policy/manifest.json")
    }
    found |= {
        f"hub: {name} is a link, pushed": _linked(canary, name, ["push", "hub", "me/it"])
        for name in ("README.md", "replay.mp4", "policy/policy.safetensors")
    }
    found |= {f"hub: {name}": _described(change, play) for name, change in _changes(canary)}
    found |= {
        "hub: pickle for the policy, exported": _weights(pickle.dumps(Evil(canary))),
        "hub: header of 2^63 bytes, exported": _weights(struct.pack("<Q", 2**63) + b"{}"),
        "hub: config 10,000 deep": _file("config.json", DEEP, play),
        "hub: eval 10,000 deep, pushed": _file("eval.json", DEEP, ["push", "hub", "me/it"]),
        "hub: manifest with a ../ name": _manifest("../../canary", play),
        "hub: manifest with an absolute name": _manifest("/etc/passwd", play),
        "hub: pushed to ../": lambda place: ["push", "hub", "../../etc"],
        f"{HARMLESS}YAML tag in the card": _file(
            "README.md",
            f"---\nx: !!python/object/apply:os.system ['touch {canary}']\n".encode(),
            play,
        ),
        f"{HARMLESS}pickle beside the policy": _file(
            "policy/extra.pkl", pickle.dumps(Evil(canary)), play
        ),
    }
    return found


def _changes(canary: Path) -> list[tuple[str, dict[str, Any] | bytes]]:
    call = f"os:system('touch {canary}')"
    return [
        ("env os:system", {"env": {"id": "os:system"}}),
        ("env that is a call", {"env": {"id": call}}),
        ("env ../", {"env": {"id": "../../etc/passwd"}}),
        ("encoder of a package", {"network": {"encoder": "custom:os"}}),
        ("encoder with a target", {"network": {"_target_": "os.system"}}),
        ("network of gigabytes", {"network": {"width": 8192, "depth": 16}}),
        ("observation of a terabyte", {"observation": VAST}),
        ("a trillion actions", {"action": {"kind": "categorical", "sizes": [2**40]}}),
        ("description 10,000 deep", DEEP),
        ("description that is a pickle", pickle.dumps(Evil(canary))),
        ("description of a newer format", {"format": 10**9}),
    ]


def _linked(canary: Path, name: str, words: list[str]) -> Case:
    def case(place: Path) -> list[str]:
        target = place / "hub" / name
        if target.is_dir():
            target.rename(place / "moved")
        else:
            target.unlink(missing_ok=True)
        target.symlink_to(canary.parent / "ground" / "hub" / name)
        return words

    return case


def _file(name: str, data: bytes, words: list[str]) -> Case:
    def case(place: Path) -> list[str]:
        (place / "hub" / name).write_bytes(data)
        return words

    return case


def _described(change: dict[str, Any] | bytes, words: list[str]) -> Case:
    """Replace the content of policy.json, with a matching manifest."""

    def case(place: Path) -> list[str]:
        policy = place / "hub" / "policy"
        files = {name: (policy / name).read_bytes() for name in FILES}
        if isinstance(change, bytes):
            files["policy.json"] = change
        else:
            files["policy.json"] = json.dumps(
                json.loads(files["policy.json"]) | change
            ).encode()
        write_folder(policy, files)
        return words

    return case


def _weights(data: bytes) -> Case:
    def case(place: Path) -> list[str]:
        policy = place / "hub" / "policy"
        text = (policy / "policy.json").read_bytes()
        write_folder(policy, {"policy.json": text, "policy.safetensors": data})
        return ["export", "hub", "--no-env", "--out", "x.onnx"]

    return case


def _manifest(name: str, words: list[str]) -> Case:
    def case(place: Path) -> list[str]:
        path = place / "hub" / "policy" / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["files"][name] = manifest["files"].pop("policy.safetensors")
        path.write_text(json.dumps(manifest))
        return words

    return case


# ── SB3 models ─────────────────────────────────────────────────────────────────────────


def models(canary: Path) -> dict[str, Case]:
    """Return malicious models to import."""
    evil = f"touch {canary}"
    good, data = tensors(sb3_weights()), b'{"policy_kwargs": {}}'
    touch = pickle.dumps(Evil(canary), protocol=2)
    programs = {
        "os.system": touch,
        "os.system, oldest protocol": pickle.dumps(Evil(canary), protocol=0),
        "os.system, newest protocol": pickle.dumps(Evil(canary), protocol=5),
        "os.system among tensors": pickle.dumps({"log_std": Evil(canary)}, protocol=2),
        "the instruction OBJ": f"(cos\nsystem\nS'{evil}'\no.".encode(),
        "the instruction INST": f"(S'{evil}'\nios\nsystem\n.".encode(),
        "the instruction EXT1": b"\x80\x02\x82\x01.",
        "a name that is a tree of tuples": b"\x80\x04" + _tree() + b"h\x00\x93.",
        "a storage that is a tree of tuples": b"\x80\x04(\x8c\x07storage"
        + _tree()
        + _tree()
        + b"K\x01K\x01tQ.",
        "no end": b"\x80\x02}",
        "nothing": b"",
        "a text of 2^31 bytes": b"\x80\x02X\xff\xff\xff\x7fa.",
        "a number of 10,000 digits": b"\x80\x02L" + b"9" * 10_000 + b"L\n.",
        "200,000 marks": b"\x80\x02" + b"(" * 200_000 + b".",
    }
    files: dict[str, dict[str, bytes]] = {
        f"pickle: {name}": {"data": data, "policy.pth": replaced(good, program)}
        for name, program in programs.items()
    }
    files |= {
        "torch file of before zips": {"data": data, "policy.pth": _legacy(canary)},
        "policy.pth is a pickle": {"data": data, "policy.pth": touch},
        "data 10,000 deep": {"data": DEEP, "policy.pth": good},
        "data of 17 MB": {"data": b'"' + b"x" * (17 * 2**20) + b'"', "policy.pth": good},
        "60 MB of zeros": {"data": data, "policy.pth": bytes(60 * 2**20)},
        "200 MB of zeros": {"data": bytes(200 * 2**20), "policy.pth": good},
        "../ name": {"data": data, "policy.pth": good, f"../../{canary.name}": b"out"},
        "absolute name": {"data": data, "policy.pth": good, "/tmp/x": b"out"},
        "nothing in it": {},
    }
    found = {f"SB3: {name}": model_case(zipped(content)) for name, content in files.items()}
    packed = zipped({"data": data, "policy.pth": good})
    return found | {
        "SB3: a bare pickle": model_case(touch),
        "SB3: a size that lies": model_case(packed.replace(*_lie(packed))),
        "SB3: env os:system": model_case(packed, "os:system"),
        "SB3: env that is a call": model_case(packed, f"os:system('{evil}')"),
        "SB3: out is a link": model_case(packed, out="link"),
    }


def _tree() -> bytes:
    """Return a pickle of sixty nested pairs of the same tuple: 2^60 elements as text."""
    return b")" + b"q\x00" + b"h\x00\x86q\x00" * 60


def sb3_weights() -> dict[str, torch.Tensor]:
    """Return the tensors of an MlpPolicy for CartPole."""
    shapes = {"policy_net.0": (64, 4), "policy_net.2": (64, 64), "value_net.0": (64, 4)}
    shapes |= {"value_net.2": (64, 64)}
    named = {f"mlp_extractor.{name}": shape for name, shape in shapes.items()}
    named |= {"action_net": (2, 64), "value_net": (1, 64)}
    weights = {f"{name}.weight": torch.zeros(shape) for name, shape in named.items()}
    return weights | {f"{name}.bias": torch.zeros(shape[0]) for name, shape in named.items()}


def tensors(content: Any) -> bytes:
    """Return the bytes that torch.save writes."""
    file = io.BytesIO()
    torch.save(content, file)  # noqa: TID251
    return file.getvalue()


def _legacy(canary: Path) -> bytes:
    file = io.BytesIO()
    content = {"log_std": Evil(canary)}
    torch.save(content, file, _use_new_zipfile_serialization=False)  # noqa: TID251
    return file.getvalue()


def replaced(data: bytes, program: bytes) -> bytes:
    """Return a torch file with a different pickle program."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        content = {name: old.read(name) for name in old.namelist()}
    content[next(name for name in content if name.endswith("data.pkl"))] = program
    return zipped(content)


def zipped(content: dict[str, bytes]) -> bytes:
    """Return a compressed zip file with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return file.getvalue()


def _lie(packed: bytes) -> tuple[bytes, bytes]:
    """Return the encoded size of policy.pth in the zip directory, and 4 GB to replace it."""
    size = zipfile.ZipFile(io.BytesIO(packed)).getinfo("policy.pth").file_size
    return struct.pack("<L", size), struct.pack("<L", 2**32 - 2)


def model_case(data: bytes, env_id: str = "CartPole-v1", out: str = "new") -> Case:
    """Return the case of importing a model."""

    def case(place: Path) -> list[str]:
        (place / "model.zip").write_bytes(data)
        (place / "link").symlink_to(place.parent / "canary")
        return ["import-sb3", "model.zip", env_id, "--out", out]

    return case
