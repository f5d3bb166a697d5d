"""Write the state of a run to a checkpoint, and restore it: safetensors and JSON, no pickle.

A checkpoint holds everything that training carries from one iteration to the next: both
networks, one Adam state per phase, both normalizers, penalty counters, the observations acted
on, unfinished episodes, scores and counters, PPG's replay, and the environments themselves
where they can be saved. Random generators have no state (`dna.common.randomness`), and
schedules are functions of the interactions.

When to save and which checkpoints to keep is decided in `dna.runs.retention`.
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
from dna.distributed.collectives import (
    fail_together,
    gather_lines,
    on_rank_zero,
    write_together,
)
from dna.distributed.world import SOLO, World
from dna.envs import Array, VectorEnv
from dna.networks.networks import Networks
from dna.runs.checkpoint_checks import (
    check_complete,
    check_counts,
    check_moments,
    check_numbered,
    check_ranks,
    check_replay,
    check_state,
    check_tensors,
)

#: Names of checkpoints; anything else beside them is left alone.
NAME = re.compile(r"[0-9]{12,}")
#: Prefixes of tensors that each rank saves for itself; rank 0 saves the others for all.
PER_RANK = ("collector/", "env/", "replay/")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read and verified."""

    path: Path
    iteration: int
    interactions: int
    lengths: dict[str, int]  # of the log files
    resumes: int
    inexact: list[str]  # why the run differs from one that was never interrupted
    setting: dict[str, Any]  # what the last bits depend on: torch, threads, …
    tensors: dict[str, Tensor]
    rejected: tuple[str, ...] = ()  # newer checkpoints that cannot be used, and why

    @property
    def replay(self) -> int:
        """Number of rollouts in PPG's replay."""
        return len({name.split("/")[1] for name in self.tensors if name.startswith("replay/")})


@dataclass(frozen=True)
class Parts:
    """Everything in a run that has state."""

    networks: Networks
    optimizers: dict[str, torch.optim.Adam]
    collector: Collector
    replay: Replay
    probe: NoiseProbe | None = None  # of the noise scale


# ── saving ────────────────────────────────────────────────────────────────────────────────


def save(folder: Path, parts: Parts, progress: dict[str, Any], digest: str) -> Path:
    """Write `checkpoints/<interactions>`; `progress` holds the other fields of `Saved`.

    Each rank writes its own part; if one fails, all fail.
    """
    scores = parts.collector.scores
    world = parts.collector.world
    state = {
        **progress,
        "interactions": scores.interactions,
        "score": scores.score,
        "replay": len(parts.replay.rollouts),
    }
    if world.size > 1:
        state["ranks"] = world.size
    target = folder / "checkpoints" / f"{scores.interactions:012d}"
    if on_rank_zero(world, target.exists):
        try:
            found = fail_together(world, lambda: load(target, digest, world=world))
            if found.replay == state["replay"]:  # a finished run has cleared its replay
                return target  # the same state: rewriting it would only put it at risk
        except StorageFailure:
            on_rank_zero(world, lambda: remove(target))
    files = {f"rank{world.rank}.safetensors": tensor_bytes(_tensors(parts))}
    if world.rank == 0:
        files = {"state.json": json.dumps(state, indent=2).encode()} | files
    write_together(world, target, files, {"digest": digest})
    return target


def learned(parts: Parts) -> dict[str, Tensor]:
    """Everything that learning changes: weights, Adam's moments, both normalizers."""
    networks = parts.networks
    collector = parts.collector
    tensors: dict[str, Tensor] = {f"networks/{k}": v for k, v in networks.state_dict().items()}
    for phase, optimizer in parts.optimizers.items():
        for index, slots in optimizer.state_dict()["state"].items():
            for name, slot in slots.items():
                tensors[f"optimizer/{phase}/{index}/{name}"] = slot
    arrays: dict[str, Array] = {}
    if networks.normalizer is not None:
        arrays |= prefixed("observation", networks.normalizer.moments.state())
    if collector.reward_normalizer is not None:
        arrays |= prefixed("collector/reward", collector.reward_normalizer.state())
    return tensors | _as_tensors(arrays)


def replicated(learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of `learned` that is equal on all ranks: all but each agent's running return."""
    return {n: x for n, x in learned.items() if n != "collector/reward/running"}


def _tensors(parts: Parts) -> dict[str, Tensor]:
    tensors = _fresh(parts)
    tensors |= _as_tensors(prefixed("env", _environment_state(parts.collector.env)))
    tensors |= {f"replay/{name}": tensor for name, tensor in parts.replay.state().items()}
    if parts.collector.world.rank == 0:
        return tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith(PER_RANK)}


def _fresh(parts: Parts) -> dict[str, Tensor]:
    """What every checkpoint holds, whatever the environments are and however long it ran."""
    arrays = prefixed("collector", parts.collector.state())
    if parts.probe is not None:
        arrays |= prefixed("noise", parts.probe.state())
    return learned(parts) | _as_tensors(arrays)


def _as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _environment_state(env: VectorEnv) -> Mapping[str, Array]:
    """Return the environments' state; empty where it cannot be saved, now or ever.

    The rest is worth saving without it: a resume then begins new episodes, with a warning
    and an entry in `machine.json`.
    """
    try:
        return env.snapshot()
    except Unsaveable:
        return {}


# ── finding and reading ───────────────────────────────────────────────────────────────────


def names(folder: Path) -> list[str]:
    """List the checkpoints of a run, oldest first."""
    found = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(name for name in found if NAME.fullmatch(name))


def only_policy(folder: Path) -> bool:
    """Whether a folder holds a policy without the run it is from, as one from the hub does."""
    run = names(folder) or (folder / "machine.json").exists()
    return (folder / "policy" / "manifest.json").is_file() and not run


def latest(
    folder: Path, digest: str, rejected: tuple[str, ...] = (), world: World = SOLO
) -> Saved | None:
    """Read the newest checkpoint of this run that verifies; None if it has none at all.

    `rejected` are the reasons why as many of the newest were ruled out before. All ranks take
    the same checkpoint: each verifies the files that it reads.
    """
    found = on_rank_zero(world, lambda: names(folder))
    for name in reversed(found[: len(found) - len(rejected)]):
        path = folder / "checkpoints" / name
        try:
            return fail_together(world, functools.partial(load, path, digest, rejected, world))
        except StorageFailure as error:
            rejected = (*rejected, str(error))
    if rejected:
        raise StorageFailure(
            f"{folder}: none of its {len(rejected)} checkpoints can be used ({rejected[0]})"
        )
    return None


def load(path: Path, digest: str, rejected: tuple[str, ...] = (), world: World = SOLO) -> Saved:
    """Read one checkpoint, verified, of the run with this digest."""
    own = f"rank{world.rank}.safetensors"
    needed = {"state.json", "rank0.safetensors", own}
    files = verified(path, digest, None if world.size == 1 else needed)
    check_complete(path, files, ["state.json"])
    state = parse_json(files["state.json"], path / "state.json")
    progress = check_state(path, state)
    check_ranks(path, state.get("ranks", 1), world.size)
    check_complete(path, files, sorted(needed))
    tensors = tensors_from(files["rank0.safetensors"], str(path))
    if world.rank:
        shared = {k: v for k, v in tensors.items() if not k.startswith(PER_RANK)}
        tensors = shared | tensors_from(files[own], str(path))
    return Saved(path=path, tensors=tensors, rejected=rejected, **progress)


def verified(path: Path, digest: str, only: set[str] | None = None) -> dict[str, bytes]:
    """Read the files of a checkpoint, of any number of ranks, of the run with this digest."""
    files, about = read_folder(path, only), read_manifest(path)["about"]
    if about.get("digest") != digest:
        raise StorageFailure(f"{path}: of another run (its digest is not this run's)")
    return files


# ── restoring ─────────────────────────────────────────────────────────────────────────────


def restore_or_older(saved: Saved, parts: Parts, digest: str) -> tuple[Saved, list[str]]:
    """Restore this checkpoint, or else the newest older one that fits.

    Returns the one that was used and the reasons why the run is not exact from there on. A
    checkpoint that verifies may still not fit, if another version or a person wrote it.
    """
    folder = saved.path.parent.parent
    world = parts.collector.world
    while True:
        try:
            reasons = fail_together(world, functools.partial(restore, saved, parts))
            return saved, gather_lines(world, reasons)
        except StorageFailure as error:
            older = latest(folder, digest, (*saved.rejected, str(error)), world)
            assert older is not None  # it raises when all are rejected
            saved = older


def restore(saved: Saved, parts: Parts) -> list[str]:
    """Restore a checkpoint into a freshly built run; returns why that is not exact, if so."""
    networks = parts.networks
    collector = parts.collector
    check_tensors(saved.path, saved.tensors, _fresh(parts))
    check_counts(saved.path, saved.tensors, saved.interactions)
    networks.load_state_dict(under(saved.tensors, "networks"))
    check_numbered(saved.path, saved.tensors, "replay")
    rollouts = numbered(saved.tensors, "replay")
    check_replay(saved.path, rollouts, collector.config.horizon * collector.share.each)
    parts.replay.load(rollouts, collector.share)
    for phase, optimizer in parts.optimizers.items():
        check_numbered(saved.path, saved.tensors, f"optimizer/{phase}")
        slots = numbered(saved.tensors, f"optimizer/{phase}")
        (weights,) = optimizer.param_groups[0]["params"]
        check_moments(saved.path, phase, slots, weights)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
    if networks.normalizer is not None:
        networks.normalizer.moments.load(arrays_of(under(saved.tensors, "observation")))
        networks.refresh()
    if parts.probe is not None:
        parts.probe.load(arrays_of(under(saved.tensors, "noise")))
    env = arrays_of(under(saved.tensors, "env"))
    if saved.rejected and not env:
        collector.restart()  # a newer one that did not fit may have moved the environments
    restarted = _restore_environments(collector, env)
    acting = arrays_of(under(saved.tensors, "collector"))
    collector.load(acting, same_episodes=restarted is None)
    return [] if restarted is None else [restarted]


def _restore_environments(collector: Collector, state: Mapping[str, Array]) -> str | None:
    """Restore the environments, or restart them and return why."""
    if not state:
        reason = collector.env.inexact or "it was saved without its environments"
        return f"environments were restarted ({reason})"
    try:
        collector.env.restore(state)
    except EnvironmentFailure as error:
        collector.restart()
        return f"environments were restarted ({error})"
    return None
