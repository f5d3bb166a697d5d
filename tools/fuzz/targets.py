"""The five targets: how an input is used, and what may happen.

An input either works or ends in a `DnaError` with an exit code of its own. Every other
exception is a crash. Each target has valid inputs to start from, and mutations that keep
their structure.
"""

import json
import random
import shutil
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

import dna.runs.train
from dna.common.errors import BadInput, DnaError, Preempted
from dna.config import Config, json_tree
from dna.config.overrides import digest, from_tree, parse_overrides, tweak
from dna.config.presets import PRESETS, preset
from dna.config.search_space import Space, as_words, grid, label, split, tree_of
from dna.evaluation.report.page import page_of
from dna.evaluation.sb3 import import_model
from dna.runs.folder import RunFolder
from dna.runs.policy import load_policy
from dna.runs.setup import How
from fuzz.mutate import (
    Mutation,
    dumped,
    mutate_bytes,
    mutate_json,
    mutate_safetensors,
    mutate_zip,
    nasty,
    zipped,
)
from helpers import Stopper, tiny

#: Longest message of an error, in characters.
LONGEST = 200


class Wrong(AssertionError):
    """Something that a target did without raising, but must not do."""


@dataclass(frozen=True)
class Target:
    """Something to fuzz."""

    seeds: Callable[[], list[bytes]]
    use: Callable[[bytes], None]  # raises whatever goes wrong, except what `refused` accepts
    mutate: Mutation


@contextmanager
def refused() -> Iterator[None]:
    """Accept an error that the command line reports in one line with its own exit code."""
    try:
        yield
    except DnaError as error:
        if error.exit_code == 1:
            raise
    except OSError as error:
        # The command line reports the file and ends with exit code 6.
        if error.filename is None and error.strerror is None:
            raise


def check_message(error: DnaError) -> None:
    """Require a message of one line without control characters."""
    text = str(error)
    if len(text) > LONGEST or not text.isprintable():
        raise Wrong(f"message: {text!r}") from error


# ── a run on disk ────────────────────────────────────────────────────────────────────────────


class Ground:
    """A small stopped run, whose folder is copied for every input."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dna-fuzz-")
        self.root = Path(self._folder.name)
        self.whole = self.root / "whole"
        self.place = self.root / "run"
        self.config = tweak(tiny("ppo", "CartPole-v1"), **{"network.width": 4})
        self.how = How(threads=1, tensorboard=False, checkpoint_every=64, env_timeout=None)
        with suppress(Preempted):
            dna.runs.train.train(self.config, 0, self.whole, how=self.how, sinks=[Stopper(1)])
        finished = self.root / "finished"
        dna.runs.train.train(self.config, 0, finished, how=self.how)
        shutil.copytree(finished / "policy", self.whole / "policy")
        shutil.copy(finished / "done", self.root / "done")
        self.checkpoint = max(path.name for path in (self.whole / "checkpoints").iterdir())
        for path in (self.whole / "checkpoints").iterdir():
            if path.name != self.checkpoint:
                shutil.rmtree(path)

    def put(self, name: str, data: bytes) -> None:
        """Copy the run, and replace one of its files; manifests are made to match."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.whole, self.place)
        path = self.place / name
        path.write_bytes(data)
        manifest = path.parent / "manifest.json"
        if manifest.exists() and path != manifest:
            tree = json.loads(manifest.read_text())
            tree["files"][path.name] = {
                "bytes": len(data),
                "sha256": sha256(data).hexdigest(),
            }
            manifest.write_text(json.dumps(tree))

    def resume(self) -> None:
        """Train the last iteration."""
        dna.runs.train.train(self.config, 0, self.place, how=self.how)


_ground: list[Ground] = []


def ground() -> Ground:
    """Return the run that all inputs of this process start from."""
    if not _ground:
        _ground.append(Ground())
    return _ground[0]


def run_files() -> list[str]:
    """Name the JSON files of a run; an input begins with the number of one of them."""
    saved = f"checkpoints/{ground().checkpoint}"
    return [
        "config.json",
        "machine.json",
        "metrics.jsonl",
        "timings.jsonl",
        "episodes.csv",
        "done",
        "eval.json",
        f"{saved}/state.json",
        f"{saved}/manifest.json",
        "policy/policy.json",
        "policy/manifest.json",
    ]


EVALUATION = {
    "run": "run",
    "seed": 0,
    "deterministic": False,
    "policy": {"episodes": 2, "mean": 10.0, "std": 1.0, "low": 9.0, "high": 11.0},
    "random": {"episodes": 2, "mean": 1.0, "std": 1.0, "low": 0.5, "high": 1.5},
}


def _run_seeds() -> list[bytes]:
    known = {"done": (ground().root / "done").read_bytes(), "eval.json": dumped(EVALUATION)}
    found = []
    for number, name in enumerate(run_files()):
        data = known.get(name) or (ground().whole / name).read_bytes()
        found.append(bytes([number]) + data)
    return found


def use_run(data: bytes) -> None:
    """Read, report on and resume a run in which one file was replaced."""
    names = run_files()
    name = names[data[0] % len(names)] if data else names[0]
    ground().put(name, data[1:])
    folder = RunFolder(ground().place)
    with refused():
        RunFolder.of(folder.path).read()
    with refused():
        folder.machine()
    with refused():
        folder.result()
    with refused():
        page_of([folder.path])
    if name.startswith("policy/"):
        use_policy()
    else:
        with refused():
            ground().resume()


def use_policy() -> None:
    """Load the policy and act with it once."""
    with refused():
        policy = load_policy(ground().place / "policy")
        policy.opinion(torch.zeros(2, 4))


def _mutate_rest(mutate: Mutation) -> Mutation:
    """Keep the first byte, which says what the input is for."""

    def mutation(data: bytes, chance: random.Random) -> bytes:
        return data[:1] + mutate(data[1:], chance)

    return mutation


# ── safetensors ──────────────────────────────────────────────────────────────────────────────


def tensor_files() -> list[str]:
    """Name the safetensors files of a run."""
    return ["policy/policy.safetensors", f"checkpoints/{ground().checkpoint}/rank0.safetensors"]


def _tensor_seeds() -> list[bytes]:
    names = tensor_files()
    found = [bytes([n]) + (ground().whole / name).read_bytes() for n, name in enumerate(names)]
    tiny_one = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return [*found, b"\0" + struct.pack("<Q", len(tiny_one)) + tiny_one + bytes(4)]


def use_tensors(data: bytes) -> None:
    """Use a safetensors file as the policy or as the checkpoint of a run."""
    names = tensor_files()
    name = names[data[0] % len(names)] if data else names[0]
    ground().put(name, data[1:])
    if name.startswith("policy/"):
        use_policy()
    else:
        with refused():
            ground().resume()


# ── SB3 models ───────────────────────────────────────────────────────────────────────────────


def _sb3_seeds() -> list[bytes]:
    def model(width: int, **more: torch.Tensor) -> bytes:
        weights: dict[str, torch.Tensor] = {}
        for net in ("policy_net", "value_net"):
            weights[f"mlp_extractor.{net}.0.weight"] = torch.zeros(width, 4)
            weights[f"mlp_extractor.{net}.0.bias"] = torch.zeros(width)
        weights |= {
            "action_net.weight": torch.zeros(2, width),
            "action_net.bias": torch.zeros(2),
        }
        weights |= {"value_net.weight": torch.zeros(1, width), "value_net.bias": torch.zeros(1)}
        file = BytesIO()
        torch.save(weights | more, file)  # noqa: TID251
        about = {"policy_kwargs": {}, "num_timesteps": 7, "use_sde": False}
        return zipped({"data": json.dumps(about).encode(), "policy.pth": file.getvalue()})

    return [model(4), model(2, log_std=torch.zeros(2))]


def use_sb3(data: bytes) -> None:
    """Import a model and load the policy that this wrote."""
    root = ground().root
    path = root / "model.zip"
    out = root / "imported"
    path.write_bytes(data)
    shutil.rmtree(out, ignore_errors=True)
    with refused():
        import_model(path, "CartPole-v1", out)
        load_policy(out / "policy").opinion(torch.zeros(2, 4))


# ── settings ─────────────────────────────────────────────────────────────────────────────────

#: Presets that an input of settings is tried on.
BASES = ("minatar.dna", "atari.ppo", "mujoco.ppg")


def bases() -> list[Config]:
    """Return configurations of all algorithms."""
    names = [name for name in BASES if name in PRESETS] or list(PRESETS)[:3]
    return [preset(name) for name in names]


def _keys() -> list[str]:
    """Every key of these configurations, as the user writes it."""
    found: dict[str, None] = {}
    for config in bases():
        tree = json_tree(config)
        phases = {phase["name"]: phase for phase in tree.pop("phases")}
        for key, value in (tree | phases).items():
            found |= dict.fromkeys(_below(key, value))
    return [*found, "phases", "noise.every", "warm_up.steps", "env.options.x", "lr", "n_steps"]


def _below(path: str, node: Any) -> list[str]:
    if not isinstance(node, Mapping):
        return [path]
    return [path, *(inner for key in node for inner in _below(f"{path}.{key}", node[key]))]


def _words(data: bytes) -> list[str]:
    return data.decode(errors="surrogateescape").split("\n")


def _override_seeds() -> list[bytes]:
    return [
        b"policy.sgd.epochs=2\nreturns.gamma=0.99",
        b'env.id="CartPole-v1"\nhorizon=16\nagents=4',
        b'policy.sgd.learning_rate={"start":1e-3,"end":0}\nwarm_up=null',
        b"normalize_observation.clip=5\nnoise.every=10\nenv.options.x=[1,2]",
        *(f"{key}=1".encode() for key in _keys()),
    ]


def use_overrides(data: bytes) -> None:
    """Apply `key=value` words to presets; what is accepted must survive a round trip."""
    words = _words(data)
    for base in bases():
        try:
            config = tweak(base, **parse_overrides(words))
        except BadInput as error:
            check_message(error)
            continue
        again = from_tree(json.loads(json.dumps(json_tree(config))))
        if again != config or digest(again, 0) != digest(config, 0):
            raise Wrong("the configuration changes when it is written and read")


def mutate_words(data: bytes, chance: random.Random) -> bytes:
    """Change a key, a value or the number of `key=value` words."""
    words = _words(data)[:8]
    at = chance.randrange(len(words))
    key, _, value = words[at].partition("=")
    kind = chance.randrange(6)
    keys = _all_keys()
    if kind == 0:
        key = chance.choice(keys)
    elif kind == 1:
        value = dumped(nasty(chance)).decode()
    elif kind == 2:
        value = _range_text(chance)
    elif kind == 3:
        value = ",".join(dumped(nasty(chance)).decode() for _ in range(chance.randrange(1, 4)))
    elif kind == 4:
        words.append(f"{chance.choice(keys)}={dumped(nasty(chance)).decode()}")
    else:
        changed = mutate_json(value.encode(errors="surrogateescape"), chance)
        value = changed.decode(errors="surrogateescape")
    words[at] = f"{key}={value}"
    return "\n".join(words).encode(errors="surrogateescape")


_known_keys: list[str] = []


def _all_keys() -> list[str]:
    if not _known_keys:
        _known_keys.extend(_keys())
    return _known_keys


def _range_text(chance: random.Random) -> str:
    numbers = (
        "0",
        "1",
        "-1",
        "1e-4",
        "1e-2",
        "1e400",
        "9" * 30,
        ".5",
        "1.",
        "-0",
        "1e-320",
        "10",
    )
    count = chance.choice(("", ":2", ":3", ":0", ":10000", ":10001", ":" + "9" * 5000, ":-1"))
    return f"{chance.choice(numbers)}..{chance.choice(numbers)}{count}"


def _sweep_seeds() -> list[bytes]:
    return [
        b"policy.sgd.epochs=1,2,3",
        b"policy.sgd.learning_rate=1e-4..1e-2:3\nreturns.gamma=0.99,0.999",
        b"joint.sgd.epochs=1..4\nhorizon=16",
        b'env.id="a","b"\nphases=[1,2],[3]',
        b"returns.lambda_pi=0.8..0.95",
    ]


def use_sweep(data: bytes) -> None:
    """Split words into settings and axes, and configure the points of a grid or search."""
    try:
        plain, axes = split(_words(data))
        json.dumps(tree_of(axes))
        plain_changes = parse_overrides([word for word in plain if word])
    except BadInput as error:
        check_message(error)
        return
    for base in bases()[:2]:
        try:
            with_plain = tweak(base, **plain_changes)
            space = Space(axes, lambda point: tweak(with_plain, **point))  # noqa: B023
            space.check()
            points = grid(axes)
        except BadInput as error:
            check_message(error)
            continue
        for point in points[:5]:
            label(point)
            _check_words(point)
            with suppress(BadInput):
                tweak(with_plain, **point)


def _check_words(point: Mapping[str, Any]) -> None:
    """Require the words of a point to be parsed to the same point."""
    again = parse_overrides(as_words(point))
    if json.dumps(again) != json.dumps(dict(point)):
        raise Wrong(f"{point!r:.200} is parsed as {again!r:.200}")


TARGETS = {
    "run": Target(_run_seeds, use_run, _mutate_rest(mutate_json)),
    "safetensors": Target(_tensor_seeds, use_tensors, _mutate_rest(mutate_safetensors)),
    "sb3": Target(_sb3_seeds, use_sb3, mutate_zip),
    "overrides": Target(_override_seeds, use_overrides, mutate_words),
    "sweep": Target(_sweep_seeds, use_sweep, mutate_words),
}


def quiet() -> None:
    """Suppress warnings, which are expected."""
    warnings.simplefilter("ignore")


__all__ = ["TARGETS", "Target", "Wrong", "mutate_bytes", "quiet"]
