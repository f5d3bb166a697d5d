"""Write the state of a run to a checkpoint, and restore it: safetensors and JSON, no pickle.

A checkpoint holds everything that training carries from one iteration to the next: both
networks, one Adam state per phase, both normalizers, penalty counters, the observations to act
on next, unfinished episodes, scores and counters, PPG's replay, and the environments themselves
where they can be saved. Random generators have no state (`dna.common.randomness`), and
schedules are functions of the interactions.

When to save and which checkpoints to keep is decided in `dna.runs.retention`.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dna.algorithm.noise_probe import NoiseProbe
from dna.algorithm.rollout import COLUMNS, Collector, Replay
from dna.common.console import typed
from dna.common.errors import (
    BadInput,
    EnvironmentFailure,
    EnvironmentTimeout,
    StorageFailure,
    Unsaveable,
)
from dna.common.messages import shown
from dna.common.storage import (
    LARGE,
    damaged,
    parse_json,
    read_folder,
    read_manifest,
    remove,
)
from dna.common.tensor_files import (
    TensorFile,
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
from dna.envs import Array
from dna.envs.state.comparison import difference
from dna.networks.networks import Networks

#: Names of checkpoints; anything else beside them is left alone.
NAME = re.compile(r"[0-9]{12,}")
#: First parts of the names of all tensors.
GROUPS = ("networks", "optimizer", "observation", "collector", "noise", "env", "replay")
#: Prefixes of tensors that each rank saves for itself; rank 0 saves the others for all.
PER_RANK = ("collector/", "env/", "replay/")
#: Entries of `state.json` → their types.
STATE_TYPES = {
    "iteration": int,
    "interactions": int,
    "lengths": dict,
    "hashes": dict,
    "resumes": int,
    "inexact": list,
    "setting": dict,
}
#: Entries that checkpoints of older versions lack → what stands for them.
STATE_DEFAULTS: dict[str, Any] = {"hashes": {}}
#: Upper bound on the number of ranks that a checkpoint may name.
MOST_RANKS = 2**16
#: Bytes of environments that are always read, and beyond that how many times a new snapshot's.
ENV_LIMIT = 2**30
ENV_GROWTH = 4
#: Bytes of a row of PPG's replay, at most, beside twice its observation.
ROW = 128
#: Tensors whose first dimension grows during a run.
GROWING = ("collector/scores/window",)
#: Prefixes of tensors that may hold NaN: ratios that are undefined at first.
MAY_BE_NAN = ("noise/",)
#: Types of safetensors that NumPy does not have.
NOT_IN_NUMPY = (
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
)
#: Tensors of a rollout whose observations are stored as frames.
FRAMES = ("frames/frames", "frames/age", "frames/elapsed", "frames/numbers")


class Large(NamedTuple):
    """A file that is only read and verified once its tensors are known to fit the run."""

    file: TensorFile
    sha256: str
    wanted: Callable[[str], bool]  # whether this rank uses the tensor of this name


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read and verified, except for its large files."""

    path: Path
    iteration: int
    interactions: int
    lengths: dict[str, int]  # of the log files
    hashes: dict[str, str]  # sha256 of the log files up to there; empty: an older version
    resumes: int
    inexact: list[str]  # why the run differs from one that was never interrupted
    setting: dict[str, Any]  # what the last bits depend on: torch, threads, …
    small: dict[str, Tensor]  # tensors of small files
    large: tuple[Large, ...] = ()
    rejected: tuple[str, ...] = ()  # newer checkpoints that cannot be used, and why

    def read(self, groups: Collection[str] = GROUPS) -> dict[str, Tensor]:
        """Return the tensors of these groups; raises StorageFailure if a file is damaged."""

        def asked(name: str) -> bool:
            return name.partition("/")[0] in groups

        found = {name: x for name, x in self.small.items() if asked(name)}
        for file, sha256, wanted in self.large:
            names = {name for name in file.entries if wanted(name) and asked(name)}
            found |= file.read(sha256, names)
        return found

    def verify(self) -> None:
        """Check the hashes of the large files, without keeping their content in memory."""
        for file, sha256, _ in self.large:
            file.read(sha256, ())

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each tensor."""
        found = {name: tensor.nbytes for name, tensor in self.small.items()}
        for file, _, wanted in self.large:
            found |= {name: x.bytes for name, x in file.entries.items() if wanted(name)}
        return found

    @property
    def replay(self) -> int:
        """Number of rollouts in PPG's replay."""
        return len({name.split("/")[1] for name in self.sizes() if name.startswith("replay/")})


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
            found = fail_together(world, lambda: _sound(target, digest, world))
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
    tensors |= _as_tensors(prefixed("env", _environment_state(parts.collector)))
    tensors |= {f"replay/{name}": tensor for name, tensor in parts.replay.state().items()}
    if parts.collector.world.rank == 0:
        return tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith(PER_RANK)}


def _fresh(parts: Parts) -> dict[str, Tensor]:
    """What every checkpoint holds, whatever the environments and the length of the run."""
    arrays = prefixed("collector", parts.collector.state())
    if parts.probe is not None:
        arrays |= prefixed("noise", parts.probe.state())
    return learned(parts) | _as_tensors(arrays)


def _as_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _environment_state(collector: Collector) -> Mapping[str, Array]:
    """Return the environments' state; empty if it cannot be saved at this point, or at all.

    The rest is worth saving without it: a resume then begins new episodes, with a warning
    and an entry in `machine.json`.
    """
    try:
        return collector.call(collector.env.snapshot)
    except Unsaveable:
        return {}


# ── finding and reading ───────────────────────────────────────────────────────────────────


def names(folder: Path) -> list[str]:
    """List the checkpoints of a run, oldest first."""
    found = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(name for name in found if NAME.fullmatch(name))


def only_policy(folder: Path) -> bool:
    """Whether a folder holds a policy without its run, like a folder from the hub."""
    run = names(folder) or (folder / "machine.json").exists()
    return (folder / "policy" / "manifest.json").is_file() and not run


def latest(
    folder: Path,
    digest: str,
    rejected: tuple[str, ...] = (),
    world: World = SOLO,
    check: Callable[[Saved], object] = Saved.verify,
) -> Saved | None:
    """Read the newest checkpoint of this run that verifies; None if it has none at all.

    `rejected` are the reasons why that many of the newest were ruled out before. All ranks take
    the same checkpoint: each verifies the files that it reads. `check` raises StorageFailure
    for a checkpoint that is not to be taken.
    """

    def candidate(path: Path) -> Saved:
        saved = load(path, digest, rejected, world)
        check(saved)
        return saved

    found = on_rank_zero(world, lambda: names(folder))
    for name in reversed(found[: len(found) - len(rejected)]):
        path = folder / "checkpoints" / name
        try:
            return fail_together(world, functools.partial(candidate, path))
        except StorageFailure as error:
            rejected = (*rejected, str(error))
    if rejected:
        raise StorageFailure(
            f"{folder}: none of its {len(rejected)} checkpoints can be used ({rejected[0]})"
        )
    return None


def load(path: Path, digest: str, rejected: tuple[str, ...] = (), world: World = SOLO) -> Saved:
    """Read and verify a checkpoint of the run with this digest, except for its large files."""
    own = f"rank{world.rank}.safetensors"
    uses: dict[str, Callable[[str], bool]] = {own: lambda name: True}
    if world.rank:
        uses = {
            "rank0.safetensors": lambda name: not name.startswith(PER_RANK),
            own: lambda name: name.startswith(PER_RANK),
        }
    listed = read_manifest(path)["files"]
    heads = _large(path, [name for name in uses if name in listed])
    files = verified(path, digest, {"state.json", *uses} - heads.keys())
    state = state_in(path, files)
    _check_ranks(path, state.get("ranks", 1), world.size)
    _check_complete(path, listed, sorted(uses))
    small: dict[str, Tensor] = {}
    large = []
    for name, wanted in uses.items():
        if name in heads:
            if heads[name].size != listed[name]["bytes"]:
                raise damaged(path / name)
            large.append(Large(heads[name], listed[name]["sha256"], wanted))
        else:
            tensors = tensors_from(files[name], str(path))
            small |= {name: tensor for name, tensor in tensors.items() if wanted(name)}
    progress = {name: state[name] for name in STATE_TYPES}
    return Saved(path=path, small=small, large=tuple(large), rejected=rejected, **progress)


def _sound(path: Path, digest: str, world: World) -> Saved:
    saved = load(path, digest, world=world)
    saved.verify()
    return saved


def verified(path: Path, digest: str, only: set[str] | None = None) -> dict[str, bytes]:
    """Read and verify the files of this run's checkpoint, saved by any number of ranks."""
    files, about = read_folder(path, only), read_manifest(path)["about"]
    if about.get("digest") != digest:
        raise StorageFailure(f"{path}: of another run (its digest is not this run's)")
    return files


def state_in(path: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the checked content of `state.json`, one of the `verified` files."""
    _check_complete(path, files, ["state.json"])
    return _check_state(path, parse_json(files["state.json"], path / "state.json"))


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
            rejected = (*saved.rejected, str(error))
            older = latest(folder, digest, rejected, world, check=unchecked)
            assert older is not None  # it raises when all are rejected
            saved = older


def unchecked(saved: Saved) -> None:
    """For `latest`: leave it to `restore_or_older` to verify the large files."""


def restore(saved: Saved, parts: Parts) -> list[str]:
    """Restore a checkpoint into a newly built run; return why that is inexact, if it is."""
    networks = parts.networks
    collector = parts.collector
    fresh = _fresh(parts)
    limits = _limits(fresh, saved.sizes(), parts)
    too_large = _bytes_of(saved.sizes())["env"] > limits.pop("env") + LARGE
    _check_sizes(saved, limits)
    # Not kept in `saved`, which lives as long as the run: the replay must be freed before.
    tensors = saved.read(set(GROUPS) - {"env"} if too_large else GROUPS)
    _check_tensors(saved.path, tensors, fresh)
    _check_counts(saved.path, tensors, saved.interactions)
    networks.load_state_dict(under(tensors, "networks"))
    _check_numbered(saved.path, tensors, "replay")
    rollouts = numbered(tensors, "replay")
    _check_replay(saved.path, rollouts, collector.config.horizon * collector.share.each)
    parts.replay.load(rollouts, collector.share)
    for phase, optimizer in parts.optimizers.items():
        _check_numbered(saved.path, tensors, f"optimizer/{phase}")
        slots = numbered(tensors, f"optimizer/{phase}")
        (weights,) = optimizer.param_groups[0]["params"]
        _check_moments(saved.path, phase, slots, weights)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": slots, "param_groups": groups})
    if networks.normalizer is not None:
        networks.normalizer.moments.load(arrays_of(under(tensors, "observation")))
        networks.refresh()
    if parts.probe is not None:
        parts.probe.load(arrays_of(under(tensors, "noise")))
    env = arrays_of(under(tensors, "env"))
    if saved.rejected and not env:
        collector.restart()  # a newer one that did not fit may have moved the environments
    missing = "their state is larger than is read" if too_large else None
    restarted = _restore_environments(collector, env, missing)
    acting = arrays_of(under(tensors, "collector"))
    collector.load(acting, same_episodes=restarted is None)
    reason = _check_environments(collector, env) if restarted is None else restarted
    return [] if reason is None else [reason]


def _check_environments(collector: Collector, state: Mapping[str, Array]) -> str | None:
    """Take a new snapshot of the restored environments; return where it differs."""
    try:
        found = difference(state, collector.call(collector.env.snapshot))
    except Unsaveable as error:
        return f"restored environments cannot be compared with the checkpoint ({error})"
    return (
        None if found is None else f"restored environments differ from the checkpoint ({found})"
    )


def restore_networks(saved: Saved, networks: Networks) -> None:
    """Restore only the networks of a checkpoint, to act with them."""
    fresh = {f"networks/{name}": tensor for name, tensor in networks.state_dict().items()}
    _check_sizes(saved, _bytes_of({name: tensor.nbytes for name, tensor in fresh.items()}))
    tensors = saved.read(["networks"])
    _check_tensors(saved.path, tensors, fresh)
    networks.load_state_dict(under(tensors, "networks"))


def _restore_environments(
    collector: Collector, state: Mapping[str, Array], missing: str | None = None
) -> str | None:
    """Restore the environments, or restart them and return why.

    `missing` is why there is no state, if not for the way in which it was saved.
    """
    if not state:
        reason = missing or collector.env.inexact or "it was saved without its environments"
        return f"environments were restarted ({reason})"
    try:
        collector.call(collector.env.restore, state)
    except EnvironmentTimeout:
        raise
    except EnvironmentFailure as error:
        collector.restart()
        return f"environments were restarted ({error})"
    return None


# ── checks ────────────────────────────────────────────────────────────────────────────────
#
# A checkpoint whose hashes are right may still have been written by hand or by another
# version. Every mismatch is found here, before anything is restored: later, a tensor of the
# wrong shape could be broadcast or read past its end.


def _check_complete(path: Path, files: Collection[str], expected: Collection[str]) -> None:
    """Require the files of a checkpoint to be listed in its manifest."""
    for name in expected:
        if name not in files:
            raise _foreign(path, f"{name} is missing")


def _check_state(path: Path, found: Any) -> dict[str, Any]:
    """Check the types of the entries that `STATE_TYPES` names; return all, with defaults."""
    if not isinstance(found, dict):
        raise _foreign(path, "state.json is not an object")
    state: dict[str, Any] = STATE_DEFAULTS | found
    for name, kind in STATE_TYPES.items():
        if name not in state:
            raise _foreign(path, f"{name} is missing")
        value = state[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _foreign(path, f"{name} is {value!r:.40}, not of type {kind.__name__}")
    lengths = state["lengths"]
    whole = all(isinstance(length, int) and length >= 0 for length in lengths.values())
    if "metrics.jsonl" not in lengths or not whole:  # the logs would be truncated to nothing
        raise _foreign(path, "the lengths of the logs")
    if not all(isinstance(sha256, str) for sha256 in state["hashes"].values()):
        raise _foreign(path, "the hashes of the logs")
    if f"{state['interactions']:012d}" != path.name:
        raise StorageFailure(f"{path}: under another name (of {state['interactions']})")
    return state


def _large(path: Path, files: Collection[str]) -> dict[str, TensorFile]:
    """Read the headers of large files, and refuse unknown tensors before they are hashed."""
    found = {}
    for file in files:
        if (path / file).is_file() and (path / file).stat().st_size > LARGE:
            found[file] = TensorFile(path / file)
            for name in found[file].entries:
                if name.partition("/")[0] not in GROUPS:
                    raise _foreign(path, f"the tensor {shown(name, 60)} is unknown")
    return found


def _bytes_of(sizes: Mapping[str, int]) -> Counter[str]:
    """Add up the bytes of the tensors of each group."""
    found = Counter[str]()
    for name, size in sizes.items():
        found[name.partition("/")[0]] += size
    return found


def _limits(
    fresh: Mapping[str, Tensor], sizes: Mapping[str, int], parts: Parts
) -> Counter[str]:
    """Return the bytes that the tensors of each group may take in a checkpoint of this run."""
    collector = parts.collector
    limits = Counter(dict.fromkeys(GROUPS, 0))
    limits.update(_bytes_of({name: tensor.nbytes for name, tensor in fresh.items()}))
    for optimizer in parts.optimizers.values():
        (weights,) = optimizer.param_groups[0]["params"]
        limits["optimizer"] += 2 * weights.nbytes
    # Frames take less than twice the observations, if these are not tiny.
    row = 2 * collector.obs[0].nbytes + ROW
    rows = collector.config.horizon * collector.share.each
    limits["replay"] = parts.replay.length * rows * row
    limits["env"] = ENV_LIMIT
    if _bytes_of(sizes)["env"] > ENV_LIMIT:  # a snapshot of that size is seldom and slow
        now = _environment_state(collector).values()
        limits["env"] = max(ENV_LIMIT, ENV_GROWTH * sum(array.nbytes for array in now))
    return limits


def _check_sizes(saved: Saved, limits: Counter[str]) -> None:
    """Refuse tensors that take more memory than this run's, before they are hashed or read.

    A group may exceed its limit by the size of a small file, which is read in any case.
    """
    found = _bytes_of(saved.sizes())
    for group, limit in limits.items():
        size = found[group]
        if size > limit + LARGE:
            raise _misfit(saved.path, f"{group} of {size:,} bytes")


def _check_ranks(path: Path, then: Any, now: int) -> None:
    """Require as many ranks as before: the environments are split among them."""
    if not isinstance(then, int) or not 1 <= then <= MOST_RANKS:
        raise _foreign(path, f"ranks is {then!r:.40}")
    if then != now:
        start = "dna" if then == 1 else f"torchrun --nproc-per-node {then} -m dna"
        folder = path.parent.parent
        raise BadInput(
            f"{folder}: saved by {then} rank(s), but now there are {now}; "
            f"`{start} resume {typed(folder)}` continues it"
        )


def _check_tensors(
    path: Path, saved: Mapping[str, Tensor], fresh: Mapping[str, Tensor]
) -> None:
    """Require every tensor of a fresh run, with the same shape and type and finite values."""
    for name, like in fresh.items():
        if name not in saved:
            raise _misfit(path, f"{name} is missing")
        tensor = saved[name]
        shape = tuple(tensor.shape)
        expected = tuple(like.shape)
        if name in GROWING:
            shape = shape[1:]
            expected = expected[1:]
        if (shape, tensor.dtype, tensor.dim()) != (expected, like.dtype, like.dim()):
            raise _misfit(path, f"{name} is {tuple(tensor.shape)} of {tensor.dtype}")
        must_be_finite = tensor.is_floating_point() and not name.startswith(MAY_BE_NAN)
        if must_be_finite and not bool(torch.isfinite(tensor).all()):
            raise _misfit(path, f"{name} is not finite")
    for name, tensor in saved.items():
        if name.startswith("networks/") and name not in fresh:
            raise _misfit(path, f"{name} belongs to no network of this run")
        if name.startswith("noise/") and tensor.dim():
            raise _misfit(path, f"{name} is not a single number")
        if tensor.dtype in NOT_IN_NUMPY:
            raise _misfit(path, f"{name} is of {tensor.dtype}")


def _check_counts(path: Path, saved: Mapping[str, Tensor], interactions: int) -> None:
    """Require the collector's counters to agree with `state.json`."""
    counts = saved["collector/scores/counts"]
    if int(counts[0]) != interactions or bool((counts < 0).any()):
        raise _misfit(path, f"counts {counts.tolist()} are not of {interactions} interactions")


def _check_numbered(path: Path, saved: Mapping[str, Tensor], prefix: str) -> None:
    """Require names of the form `prefix/<number>/<name>` under a prefix."""
    for name in saved:
        if name.startswith(prefix + "/"):
            number, _, rest = name.removeprefix(prefix + "/").partition("/")
            if not (number.isascii() and number.isdecimal() and rest):
                raise _misfit(path, f"{name} has no number")


def _check_replay(path: Path, rollouts: Mapping[int, Mapping[str, Tensor]], rows: int) -> None:
    """Require whole rollouts of `rows` rows."""
    for number, tensors in rollouts.items():
        framed = any(name.startswith("frames/") for name in tensors)
        expected = (*COLUMNS, *(FRAMES if framed else ("obs",)))
        for name in expected:
            if name not in tensors:
                raise _misfit(path, f"replay/{number}/{name} is missing")
        for name in COLUMNS:
            if tuple(tensors[name].shape) != (rows,):
                raise _misfit(path, f"replay/{number}/{name} is not of {rows} rows")
        if framed and tuple(tensors["frames/numbers"].shape) != (2,):
            raise _misfit(path, f"replay/{number}/frames/numbers are not two")


def _check_moments(
    path: Path, phase: str, slots: Mapping[int, Mapping[str, Tensor]], like: Tensor
) -> None:
    """Require Adam's moments to have the shape of the flat weights, `like`."""
    for index, moments in slots.items():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            if index != 0 or name not in moments:
                raise _misfit(path, f"{phase}: its moments are not of these weights")
        shapes = {moments[name].shape for name in ("exp_avg", "exp_avg_sq")}
        if shapes != {like.shape} or moments["step"].numel() != 1:
            raise _misfit(path, f"{phase}: its moments are not of these weights")


def _misfit(path: Path, reason: str) -> StorageFailure:
    """The error for a checkpoint of a run that was built differently."""
    return StorageFailure(f"{path}: does not fit this run ({reason})")


def _foreign(path: Path, reason: str) -> StorageFailure:
    return StorageFailure(f"{path}: not a checkpoint of this version ({reason})")
