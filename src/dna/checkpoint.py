"""A run's state as safetensors + JSON, and back. No pickle.

Everything that training carries from one iteration to the next: both networks, one Adam per
phase, both normalizers, the scores' window and counters, PPG's replay. Generators need no
state (`dna.randomness`). Environments restart, and with them what is counted per episode:
`exact` says so.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dna.batch import Experience
from dna.errors import StorageFailure
from dna.frames import Frames
from dna.networks import Networks
from dna.replay import COLUMNS, Replay
from dna.rollout import Collector
from dna.storage import read_folder, tensor_bytes, tensors_from, write_folder


@dataclass(frozen=True)
class Saved:
    """Where a run stood."""

    iteration: int
    interactions: int
    lengths: dict[str, int]  # of the log files
    resumes: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


@dataclass(frozen=True)
class Parts:
    """Everything of a run that has state."""

    networks: Networks
    optimizers: dict[str, torch.optim.Adam]
    collector: Collector
    replay: Replay


def save(folder: Path, parts: Parts, progress: dict[str, Any]) -> Path:
    """Write `checkpoints/<interactions>`; `progress` is what `Saved` gives back."""
    scores = parts.collector.scores
    state = progress | {
        "interactions": scores.interactions,
        "episodes": scores.episodes,
        "window": list(scores.window),
        "exact": False,  # environments restart
    }
    target = folder / "checkpoints" / f"{scores.interactions:012d}"
    files = {
        "state.json": json.dumps(state, indent=2).encode(),
        "rank0.safetensors": tensor_bytes(_tensors(parts)),
    }
    write_folder(target, files)
    return target


def _tensors(parts: Parts) -> dict[str, Tensor]:
    networks, collector = parts.networks, parts.collector
    tensors: dict[str, Tensor] = {f"networks/{k}": v for k, v in networks.state_dict().items()}
    for phase, optimizer in parts.optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{phase}/{index}/{k}": v for k, v in slots.items()}
    arrays: dict[str, Any] = {}
    if networks.normalizer is not None:
        arrays |= _prefixed("observation", networks.normalizer.moments.state())
    if collector.reward_normalizer is not None:
        arrays |= _prefixed("reward", collector.reward_normalizer.moments.state())
    for index, rollout in enumerate(parts.replay.rollouts):
        tensors |= {f"replay/{index}/{k}": v for k, v in _rollout_tensors(rollout).items()}
    return tensors | {k: torch.from_numpy(np.array(v)) for k, v in arrays.items()}


def names(folder: Path) -> list[str]:
    """The run's checkpoints, oldest first."""
    return sorted(path.name for path in (folder / "checkpoints").glob("[0-9]*"))


def latest(folder: Path) -> Saved | None:
    """The newest checkpoint that verifies; None when the run has none at all."""
    found = names(folder)
    for name in reversed(found):
        try:
            return load(folder / "checkpoints" / name)
        except StorageFailure:
            continue
    if found:
        raise StorageFailure(f"{folder}: none of its {len(found)} checkpoints is intact")
    return None


def load(path: Path) -> Saved:
    """One checkpoint, verified."""
    files = read_folder(path)
    try:
        state = json.loads(files["state.json"])
        tensors = tensors_from(files["rank0.safetensors"], str(path))
        return Saved(
            iteration=state["iteration"],
            interactions=state["interactions"],
            lengths=state["lengths"],
            resumes=state["resumes"],
            tensors=tensors,
            state=state,
        )
    except (KeyError, ValueError) as error:
        raise StorageFailure(f"{path}: not a checkpoint of this version ({error})") from error


def restore(saved: Saved, parts: Parts) -> None:
    """Put a checkpoint's state back into a freshly built run."""
    networks, collector = parts.networks, parts.collector
    networks.load_state_dict(_under(saved.tensors, "networks"))
    numbered = _numbered(saved.tensors, "replay")
    parts.replay.rollouts = [_rollout_from(tensors) for tensors in numbered.values()]
    for phase, optimizer in parts.optimizers.items():
        slots = _numbered(saved.tensors, f"optimizer/{phase}")
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
    if networks.normalizer is not None:
        networks.normalizer.moments.load(_numpy(_under(saved.tensors, "observation")))
        networks.refresh()
    if collector.reward_normalizer is not None:
        reward = _numpy(_under(saved.tensors, "reward"))
        collector.reward_normalizer.moments.load(reward)
    scores = collector.scores
    scores.interactions, scores.episodes = saved.interactions, saved.state["episodes"]
    scores.window.extend((score, length) for score, length in saved.state["window"])


def _rollout_tensors(rollout: Experience) -> dict[str, Tensor]:
    obs = {"obs": rollout.obs} if isinstance(rollout.obs, Tensor) else {}
    if isinstance(rollout.obs, Frames):
        obs = {f"frames/{k}": v for k, v in rollout.obs.state().items()}
    return obs | rollout.columns


def _rollout_from(tensors: dict[str, Tensor]) -> Experience:
    frames = _under(tensors, "frames")
    columns = {name: tensors[name] for name in COLUMNS}
    return Experience(Frames.load(frames) if frames else tensors["obs"], columns)


def _prefixed(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    start = prefix + "/"
    return {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}


def _numbered(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Tensor]]:
    """`prefix/3/name` → {3: {name: …}}, in order."""
    groups: dict[int, dict[str, Tensor]] = {}
    for key, tensor in _under(tensors, prefix).items():
        index, _, name = key.partition("/")
        groups.setdefault(int(index), {})[name] = tensor
    return dict(sorted(groups.items()))


def _numpy(tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
