"""Malicious files and names: refused in one line, with nothing executed or written."""

import io
import json
import os
import pickle  # noqa: TID251  to create files that must never be loaded
import resource
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dna.cli
from dna.agents.hub import Packing, package
from dna.common.storage import write_folder
from torture.extremes import EITHER, extremes
from torture.ground import Child, Outcome, Work, finish, timed
from torture.strangers import HARMLESS, hubs, models

MEMORY = 200 * 2**20  # bytes that a refusal may allocate
LARGEST = 3 * 2**30  # bytes that the process can allocate


class Evil:
    """An object that creates a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


def hostile(root: Path, *, extreme: bool = True) -> Outcome:
    """Use each artifact in place of a valid file, or as an argument of a command.

    `extreme` adds extreme sizes, wrong types and files that are no plain files.
    """
    with timed("hostile file or name") as outcome:
        ground = root / "ground"
        ground.mkdir()
        trouble = finish(Work("ppo", "CartPole-v1", interactions=128), ground / "run")
        assert not trouble, trouble
        canary = root / "canary"
        package(ground / "run", ground / "hub", Packing(episodes=1, film=False))
        cases = _policies(canary) | _configs(canary) | _runs(canary) | _words(canary)
        cases |= hubs(canary) | models(canary)
        if extreme:
            cases |= extremes()
        for name, case in cases.items():
            _one(root, ground, name, case, canary, outcome)
    return outcome


Case = Callable[[Path], list[str]]


def _one(
    root: Path, ground: Path, name: str, case: Case, canary: Path, outcome: Outcome
) -> None:
    place = root / "place"
    shutil.copytree(ground, place)
    words = case(place)
    outside = _listing(root, place)

    def live() -> None:
        os.chdir(place)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        _limit_memory()
        code = dna.cli.main(words)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        os._exit(code if code == 0 or more < MEMORY else 88)

    child = Child(live, root / "log")
    code, said = child.wait(30), child.said()
    child.newest()
    (root / "log").unlink(missing_ok=True)
    wanted = (0,) if name.startswith(HARMLESS) else (2, 3, 6)
    lines = 1
    if name.startswith(HARMLESS):
        lines = 3  # the progress and the result
    elif name.startswith(EITHER):
        wanted = (0, 2, 3, 6)
        lines = 20  # warnings: one for each reason why the run is no longer exact
    good = code in wanted and not canary.exists() and _listing(root, place) == outside
    plain = "Traceback" not in said and "\x1b" not in said and len(said.splitlines()) <= lines
    outcome.executed += canary.exists()
    outcome.memory += "MemoryError" in said
    outcome.lost += _listing(root, place) != outside
    outcome.count(good and plain, f"{name}: exit {code}, {said[-200:]!r}")
    canary.unlink(missing_ok=True)
    shutil.rmtree(root / "victims", ignore_errors=True)
    shutil.rmtree(place)


def _limit_memory() -> None:
    """Let a larger allocation fail: the machine must survive a file that is read whole."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + LARGEST, resource.RLIM_INFINITY))


def _listing(root: Path, place: Path) -> list[tuple[str, int]]:
    """Return everything outside the folder of the command."""
    found = [path for path in root.rglob("*") if place not in (path, *path.parents)]
    skip = {"log"}
    return sorted(
        (str(path), path.lstat().st_size if path.is_file() else 0)
        for path in found
        if path.name not in skip
    )


def _torch_bytes(canary: Path, **how: Any) -> bytes:
    file = io.BytesIO()
    torch.save({"weights": Evil(canary)}, file, **how)  # noqa: TID251
    return file.getvalue()


def _archive(canary: Path, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(f"../../{canary.name}", "out")
    else:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            info = tarfile.TarInfo(f"../../{canary.name}")
            archive.addfile(info, io.BytesIO(b""))
    return file.getvalue()


def _policies(canary: Path) -> dict[str, Case]:
    """Replace the tensors of a policy, with a matching manifest."""
    header = struct.pack("<Q", 2**63) + b"{}"
    shape = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    lying = json.dumps(shape).encode()
    contents = {
        "pickle": pickle.dumps(Evil(canary)),
        "pickle, old protocol": pickle.dumps(Evil(canary), protocol=0),
        "torch zip": _torch_bytes(canary),
        "torch legacy": _torch_bytes(canary, _use_new_zipfile_serialization=False),
        "zip with ../ names": _archive(canary, "zip"),
        "tar with ../ names": _archive(canary, "tar"),
        "header of 2^63 bytes": header,
        "tensor of 4 TB": struct.pack("<Q", len(lying)) + lying,
        "header that is not JSON": struct.pack("<Q", 8) + b"notjson!",
        "nothing": b"",
    }

    def put(data: bytes) -> Case:
        def case(place: Path) -> list[str]:
            policy = place / "run" / "policy"
            text = (policy / "policy.json").read_bytes()
            write_folder(policy, {"policy.json": text, "policy.safetensors": data})
            return ["eval", "run", "--episodes", "1"]

        return case

    return {f"policy: {name}": put(data) for name, data in contents.items()}


def _configs(canary: Path) -> dict[str, Case]:
    """Pass the artifact as a configuration file."""
    tag = f"!!python/object/apply:os.system ['touch {canary}']"
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb">' + "<!ENTITY c '&b;&b;&b;'>" * 20 + "]><a>&c;</a>"
    contents: dict[str, bytes] = {
        "YAML tag": tag.encode(),
        "entity bomb": bomb.encode(),
        "JSON 10,000 deep": b"[" * 10_000 + b"]" * 10_000,
        "JSON of 17 MB": b'{"a": "' + b"x" * (17 * 2**20) + b'"}',
        "a number of 10,000 digits": b'{"interactions": ' + b"9" * 10_000 + b"}",
        "class target": json.dumps(
            {"env": {"id": "os:system"}, "_target_": "os.system"}
        ).encode(),
        "not UTF-8": b"\xff\xfe\x00",
        "a key twice": b'{"horizon": 1, "horizon": 2}',
    }

    def put(data: bytes) -> Case:
        def case(place: Path) -> list[str]:
            (place / "settings.json").write_bytes(data)
            return ["train", "CartPole-v1", "--config", "settings.json", "--out", "new"]

        return case

    return {f"config: {name}": put(data) for name, data in contents.items()}


def _runs(canary: Path) -> dict[str, Case]:
    """Use a run folder whose links lead elsewhere."""

    def link(name: str) -> Case:
        def case(place: Path) -> list[str]:
            (place / "bad").mkdir()
            (place / "bad" / name).symlink_to(canary.parent / "ground" / "run" / name)
            return ["train", "CartPole-v1", "--out", "bad", "--interactions", "100"]

        return case

    def outside(place: Path) -> list[str]:
        policy = place / "run" / "policy"
        manifest = json.loads((policy / "manifest.json").read_text())
        listed = manifest["files"].pop("policy.safetensors")
        manifest["files"]["../../../canary"] = listed
        (policy / "manifest.json").write_text(json.dumps(manifest))
        return ["eval", "run", "--episodes", "1"]

    found: dict[str, Case] = {
        f"{name} is a link": link(name)
        for name in ("metrics.jsonl", "checkpoints", "policy", "run.lock")
    }
    return found | {"manifest with a ../ name": outside}


def _words(canary: Path) -> dict[str, Case]:
    """Pass hostile arguments to commands."""
    ids = {
        "env os:system": "os:system",
        "env with a NUL": "Cart\0Pole",
        "env ../": "../../etc/passwd",
        "env with a newline": "CartPole-v1\nrm",
        "env with wide characters": "CartPole-v1\u202e",
        "env module": "subprocess:run",
        "env of a package": f"os:system('touch {canary}')",
    }
    return {name: (lambda place, word=word: ["train", word]) for name, word in ids.items()}
