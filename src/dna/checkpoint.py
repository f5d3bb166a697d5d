"""A run's state as safetensors + JSON, and back. No pickle.

Everything that training carries from one iteration to the next: both networks, one Adam per
phase, both normalizers, penalty counters, the states acted on, unfinished episodes, scores and
counters, PPG's replay, and the environments themselves where they can be saved. Generators
need no state (`dna.randomness`), and schedules are functions of the interactions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dna.batch import Experience
from dna.envs import Array
from dna.errors import EnvironmentFailure, StorageFailure
from dna.frames import Frames
from dna.networks import Networks
from dna.probe import Probe
from dna.replay import COLUMNS, Replay
from dna.rollout import Collector
from dna.slashes import arrays_of, numbered, prefixed, under
from dna.storage import (
    read_folder,
    read_manifest,
    remove,
    tensor_bytes,
    tensors_from,
    write_folder,
)
from dna.strict import parse_json

#: Names of checkpoints; whatever else lies beside them is not ours.
NAME = re.compile(r"[0-9]{12,}")
#: What `state.json` holds of a run's progress.
KINDS = {
    "iteration": int,
    "interactions": int,
    "lengths": dict,
    "resumes": int,
    "inexact": list,
    "setting": dict,
}


@dataclass(frozen=True)
class Saved:
    """Where a run stood."""

    path: Path
    iteration: int
    interactions: int
    lengths: dict[str, int]  # of the log files
    resumes: int
    inexact: list[str]  # why the run is not the one that was never interrupted
    setting: dict[str, Any]  # what the last bits depend on: torch, threads, …
    tensors: dict[str, Tensor]
    rejected: tuple[str, ...] = ()  # newer checkpoints that cannot be used, and why


@dataclass(frozen=True)
class Parts:
    """Everything of a run that has state."""

    networks: Networks
    optimizers: dict[str, torch.optim.Adam]
    collector: Collector
    replay: Replay
    probe: Probe | None = None  # of the noise scale


def save(folder: Path, parts: Parts, progress: dict[str, Any], digest: str) -> Path:
    """Write `checkpoints/<interactions>`; `progress` is what `Saved` gives back."""
    scores = parts.collector.scores
    state = progress | {"interactions": scores.interactions, "score": scores.score}
    state |= {"replay": len(parts.replay.rollouts)}
    target = folder / "checkpoints" / f"{scores.interactions:012d}"
    if target.exists():
        try:
            load(target, digest)
            return target  # the same state: there is nothing to gain by putting it at risk
        except StorageFailure:
            remove(target)
    files = {
        "state.json": json.dumps(state, indent=2).encode(),
        "rank0.safetensors": tensor_bytes(_tensors(parts)),
    }
    write_folder(target, files, {"digest": digest})
    return target


def learned(parts: Parts) -> dict[str, Tensor]:
    """Everything that learning moves: weights, Adam's moments, both normalizers."""
    networks, collector = parts.networks, parts.collector
    tensors: dict[str, Tensor] = {f"networks/{k}": v for k, v in networks.state_dict().items()}
    for phase, optimizer in parts.optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{phase}/{index}/{k}": v for k, v in slots.items()}
    arrays: dict[str, Array] = {}
    if networks.normalizer is not None:
        arrays |= prefixed("observation", networks.normalizer.moments.state())
    if collector.reward_normalizer is not None:
        arrays |= prefixed("collector/reward", collector.reward_normalizer.state())
    return tensors | _as_tensors(arrays)


def _tensors(parts: Parts) -> dict[str, Tensor]:
    tensors, collector = learned(parts), parts.collector
    arrays = prefixed("collector", collector.state())
    if parts.probe is not None:
        arrays |= prefixed("noise", parts.probe.state())
    if collector.env.inexact is None:
        arrays |= prefixed("env", collector.env.snapshot())
    for index, rollout in enumerate(parts.replay.rollouts):
        tensors |= {f"replay/{index}/{k}": v for k, v in _rollout_tensors(rollout).items()}
    return tensors | _as_tensors(arrays)


def _as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def names(folder: Path) -> list[str]:
    """The run's checkpoints, oldest first."""
    found = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(name for name in found if NAME.fullmatch(name))


def latest(folder: Path, digest: str, rejected: tuple[str, ...] = ()) -> Saved | None:
    """The newest checkpoint of this very run that verifies; None when it has none at all.

    `rejected` are reasons why as many of the newest are out of the question already.
    """
    found = names(folder)
    for name in reversed(found[: len(found) - len(rejected)]):
        try:
            return load(folder / "checkpoints" / name, digest, rejected)
        except StorageFailure as error:
            rejected = (*rejected, str(error))
    if rejected:
        raise StorageFailure(
            f"{folder}: none of its {len(rejected)} checkpoints can be used ({rejected[0]})"
        )
    return None


def load(path: Path, digest: str, rejected: tuple[str, ...] = ()) -> Saved:
    """One checkpoint, verified, and of the run with this digest."""
    files = read_folder(path)
    about = read_manifest(path)["about"]
    if about.get("digest") != digest:
        raise StorageFailure(f"{path}: of another run (its digest is not this run's)")
    try:
        state = parse_json(files["state.json"], path / "state.json")
        tensors = tensors_from(files["rank0.safetensors"], str(path))
        if f"{state['interactions']:012d}" != path.name:
            raise StorageFailure(f"{path}: under another name (of {state['interactions']})")
        progress = {name: _of_kind(state[name], kind) for name, kind in KINDS.items()}
        progress["lengths"] = _lengths(state["lengths"])
        return Saved(path=path, tensors=tensors, rejected=rejected, **progress)
    except (KeyError, ValueError, TypeError) as error:
        raise StorageFailure(f"{path}: not a checkpoint of this version ({error})") from error


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


def restore(saved: Saved, parts: Parts) -> list[str]:
    """Put a checkpoint's state back into a freshly built run; why that is not exact, if so."""
    try:
        return _restore(saved, parts)
    except (RuntimeError, KeyError, ValueError, TypeError, IndexError) as error:
        reason = " ".join(str(error).split())[:120]
        raise StorageFailure(f"{saved.path}: does not fit this run ({reason})") from error


def _restore(saved: Saved, parts: Parts) -> list[str]:
    networks, collector = parts.networks, parts.collector
    networks.load_state_dict(under(saved.tensors, "networks"))
    rollouts = numbered(saved.tensors, "replay").values()
    parts.replay.rollouts = [_rollout_from(tensors) for tensors in rollouts]
    for phase, optimizer in parts.optimizers.items():
        slots = numbered(saved.tensors, f"optimizer/{phase}")
        _check_moments(slots, optimizer, f"{saved.path}: {phase}")
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
    if networks.normalizer is not None:
        networks.normalizer.moments.load(arrays_of(under(saved.tensors, "observation")))
        networks.refresh()
    if parts.probe is not None:
        parts.probe.load(arrays_of(under(saved.tensors, "noise")))
    env = arrays_of(under(saved.tensors, "env"))
    trouble = _restore_env(collector, env)
    acting = arrays_of(under(saved.tensors, "collector"))
    collector.load(acting, same_episodes=trouble is None)
    return [] if trouble is None else [trouble]


def _check_moments(
    slots: dict[int, dict[str, Tensor]], optimizer: torch.optim.Adam, name: str
) -> None:
    """Moments of another length would be read past their end."""
    (vector,) = optimizer.param_groups[0]["params"]
    for index, moments in slots.items():
        shapes = {moments[slot].shape for slot in ("exp_avg", "exp_avg_sq")}
        if index != 0 or shapes != {vector.shape}:
            raise StorageFailure(f"{name}: its moments are not of these weights")


def _restore_env(collector: Collector, state: Mapping[str, Array]) -> str | None:
    if not state:
        reason = collector.env.inexact or "it was saved without its environments"
        return f"environments were restarted ({reason})"
    try:
        collector.env.restore(state)
    except EnvironmentFailure as error:
        collector.restart()
        return f"environments were restarted ({error})"
    return None


def _rollout_tensors(rollout: Experience) -> dict[str, Tensor]:
    obs = {"obs": rollout.obs} if isinstance(rollout.obs, Tensor) else {}
    if isinstance(rollout.obs, Frames):
        obs = {f"frames/{k}": v for k, v in rollout.obs.state().items()}
    return obs | rollout.columns


def _rollout_from(tensors: dict[str, Tensor]) -> Experience:
    frames = under(tensors, "frames")
    columns = {name: tensors[name] for name in COLUMNS}
    return Experience(Frames.load(frames) if frames else tensors["obs"], columns)
