"""A run's state as safetensors + JSON, and back. No pickle.

Everything that training carries from one iteration to the next: both networks, one Adam per
phase, both normalizers, penalty counters, the states acted on, unfinished episodes, scores and
counters, PPG's replay, and the environments themselves where they can be saved. Generators
need no state (`dna.common.randomness`), and schedules are functions of the interactions.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dna.algorithm.noise_probe import NoiseProbe
from dna.algorithm.replay import Replay
from dna.algorithm.rollout import Collector
from dna.common.errors import EnvironmentFailure, StorageFailure, Unsaveable
from dna.common.storage import parse_json, read_folder, read_manifest, remove
from dna.common.tensor_files import (
    arrays_of,
    numbered,
    prefixed,
    tensor_bytes,
    tensors_from,
    under,
)
from dna.distributed.collectives import on_first, together, write_together
from dna.distributed.world import SOLO, World
from dna.envs import Array, VectorEnv
from dna.networks.flat_weights import check_moments
from dna.networks.networks import Networks
from dna.runs.checkpoint_checks import check_counts, check_fit, check_ranks, progress_of


def environment_state(env: VectorEnv) -> Mapping[str, Array]:
    """Their state; nothing where it cannot be written down, be it ever or just now.

    That is no reason to save nothing: whoever goes on from here begins new episodes, is told
    so, and finds it in `machine.json`.
    """
    try:
        return env.snapshot()
    except Unsaveable:
        return {}


def restore_environments(collector: Collector, state: Mapping[str, Array]) -> str | None:
    """Put it back; else why the environments were restarted instead."""
    if not state:
        reason = collector.env.inexact or "it was saved without its environments"
        return f"environments were restarted ({reason})"
    try:
        collector.env.restore(state)
    except EnvironmentFailure as error:
        collector.restart()
        return f"environments were restarted ({error})"
    return None


#: How a state that is not of this run shows itself.
UNFIT = (
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    AttributeError,
)
#: Names of checkpoints; whatever else lies beside them is not ours.
NAME = re.compile(r"[0-9]{12,}")
#: What each rank has of its own; the rest is in the file of rank 0.
OWN = ("collector/", "env/", "replay/")


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

    @property
    def replay(self) -> int:
        """Rollouts that it holds for PPG."""
        return len({name.split("/")[1] for name in self.tensors if name.startswith("replay/")})


@dataclass(frozen=True)
class Parts:
    """Everything of a run that has state."""

    networks: Networks
    optimizers: dict[str, torch.optim.Adam]
    collector: Collector
    replay: Replay
    probe: NoiseProbe | None = None  # of the noise scale


def save(folder: Path, parts: Parts, progress: dict[str, Any], digest: str) -> Path:
    """Write `checkpoints/<interactions>`; `progress` is what `Saved` gives back.

    Of several ranks each writes its part, or none does.
    """
    scores, world = parts.collector.scores, parts.collector.world
    state = progress | {"interactions": scores.interactions, "score": scores.score}
    state |= {"replay": len(parts.replay.rollouts)}
    state |= {"ranks": world.size} if world.size > 1 else {}
    target = folder / "checkpoints" / f"{scores.interactions:012d}"
    if on_first(world, target.exists):
        try:
            found = together(world, lambda: load(target, digest, world=world))
            if found.replay == state["replay"]:  # a run that is over forgets it
                return target  # the same state: nothing is gained by putting it at risk
        except StorageFailure:
            on_first(world, lambda: remove(target))
    files = {f"rank{world.rank}.safetensors": tensor_bytes(_tensors(parts))}
    if world.rank == 0:
        files = {"state.json": json.dumps(state, indent=2).encode()} | files
    write_together(world, target, files, {"digest": digest})
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


def common(learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of it all ranks must hold alike: all but each agent's running return."""
    return {n: x for n, x in learned.items() if n != "collector/reward/running"}


def _tensors(parts: Parts) -> dict[str, Tensor]:
    tensors, collector = learned(parts), parts.collector
    arrays = prefixed("collector", collector.state())
    if parts.probe is not None:
        arrays |= prefixed("noise", parts.probe.state())
    arrays |= prefixed("env", environment_state(collector.env))
    tensors |= {f"replay/{name}": tensor for name, tensor in parts.replay.state().items()}
    tensors |= _as_tensors(arrays)
    if collector.world.rank == 0:
        return tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith(OWN)}


def _as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def names(folder: Path) -> list[str]:
    """The run's checkpoints, oldest first."""
    found = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(name for name in found if NAME.fullmatch(name))


def only_policy(folder: Path) -> bool:
    """Whether there is a policy, but nothing of the run it is of: a folder for the hub."""
    run = names(folder) or (folder / "machine.json").exists()
    return (folder / "policy" / "manifest.json").is_file() and not run


def latest(
    folder: Path, digest: str, rejected: tuple[str, ...] = (), world: World = SOLO
) -> Saved | None:
    """The newest checkpoint of this very run that verifies; None when it has none at all.

    `rejected` are reasons why as many of the newest are out of the question already. Several
    ranks take the same one: each verifies what it reads of it.
    """
    found = on_first(world, lambda: names(folder))
    for name in reversed(found[: len(found) - len(rejected)]):
        words = (folder / "checkpoints" / name, digest, rejected, world)
        try:
            return together(world, functools.partial(load, *words))
        except StorageFailure as error:
            rejected = (*rejected, str(error))
    if rejected:
        raise StorageFailure(
            f"{folder}: none of its {len(rejected)} checkpoints can be used ({rejected[0]})"
        )
    return None


def load(path: Path, digest: str, rejected: tuple[str, ...] = (), world: World = SOLO) -> Saved:
    """One checkpoint, verified, and of the run with this digest."""
    own = f"rank{world.rank}.safetensors"
    only = None if world.size == 1 else {"state.json", "rank0.safetensors", own}
    files = verified(path, digest, only)
    try:
        state = parse_json(files["state.json"], path / "state.json")
        check_ranks(path, state.get("ranks", 1), world.size)
        tensors = tensors_from(files["rank0.safetensors"], str(path))
        if world.rank:
            shared = {k: v for k, v in tensors.items() if not k.startswith(OWN)}
            tensors = shared | tensors_from(files[own], str(path))
        if f"{state['interactions']:012d}" != path.name:
            raise StorageFailure(f"{path}: under another name (of {state['interactions']})")
        return Saved(path=path, tensors=tensors, rejected=rejected, **progress_of(state))
    except UNFIT as error:
        raise StorageFailure(f"{path}: not a checkpoint of this version ({error})") from error


def verified(path: Path, digest: str, only: set[str] | None = None) -> dict[str, bytes]:
    """Files of one checkpoint of the run with this digest, as many ranks as it may be of."""
    files, about = read_folder(path, only), read_manifest(path)["about"]
    if about.get("digest") != digest:
        raise StorageFailure(f"{path}: of another run (its digest is not this run's)")
    return files


def restore(saved: Saved, parts: Parts) -> list[str]:
    """Put a checkpoint's state back into a freshly built run; why that is not exact, if so."""
    try:
        return _restore(saved, parts)
    except UNFIT as error:
        reason = " ".join(str(error).split())[:120]
        raise StorageFailure(f"{saved.path}: does not fit this run ({reason})") from error


def _restore(saved: Saved, parts: Parts) -> list[str]:
    networks, collector = parts.networks, parts.collector
    check_fit(saved.tensors, _fresh(parts))
    check_counts(saved.tensors, saved.interactions)
    networks.load_state_dict(under(saved.tensors, "networks"))
    parts.replay.load(numbered(saved.tensors, "replay"), collector.share)
    for phase, optimizer in parts.optimizers.items():
        slots = numbered(saved.tensors, f"optimizer/{phase}")
        check_moments(slots, optimizer, f"{saved.path}: {phase}")
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
    if networks.normalizer is not None:
        networks.normalizer.moments.load(arrays_of(under(saved.tensors, "observation")))
        networks.refresh()
    if parts.probe is not None:
        parts.probe.load(arrays_of(under(saved.tensors, "noise")))
    env = arrays_of(under(saved.tensors, "env"))
    if saved.rejected and not env:
        collector.restart()  # one that did not fit may have moved the environments
    trouble = restore_environments(collector, env)
    acting = arrays_of(under(saved.tensors, "collector"))
    collector.load(acting, same_episodes=trouble is None)
    return [] if trouble is None else [trouble]


def _fresh(parts: Parts) -> dict[str, Tensor]:
    """What every checkpoint holds, whatever the environments are and however long it ran."""
    arrays = prefixed("collector", parts.collector.state())
    if parts.probe is not None:
        arrays |= prefixed("noise", parts.probe.state())
    return learned(parts) | _as_tensors(arrays)
