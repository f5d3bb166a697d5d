"""Which folder a run goes to, and whether it may."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from dna.common.console import typed
from dna.common.errors import BadInput, StorageFailure
from dna.config import Config
from dna.config.overrides import digest
from dna.config.phases import Count, Frozen
from dna.distributed.launch import launched

#: The largest seed, that of `--seed`.
LAST_SEED = 2**63 - 1


def folder_of(config: Config, seed: int, out: Path | None, *, many: bool = False) -> Path:
    """Named by the digest, or as the user says; several seeds share the user's folder."""
    if out is not None and str(out) == ".":
        raise BadInput("--out: name a folder for the run, for example runs/first")
    if out is None:
        return Path("runs") / digest(config, seed)
    return out / f"seed{seed}" if many else out


def prepare(
    config: Config,
    seeds: tuple[int, int],
    out: Path | None,
    track: str | None,
    *,
    restart: bool,
    resume: bool,
) -> dict[int, Path]:
    """The folders of several seeds (first, how many): all may be used, or none is touched."""
    from dna.common.lock import locked
    from dna.runs.folder import RunFolder

    if launched().size > 1:
        raise BadInput("--seeds: makes a process per seed itself; not under torchrun")
    if track is not None:
        raise BadInput("--track: not with --seeds; track runs one by one")
    first, count = seeds
    if first + count - 1 > LAST_SEED:
        raise BadInput(f"--seeds: from --seed {first} on there are not {count} seeds left")
    many = {s: folder_of(config, s, out, many=True) for s in range(first, first + count)}
    for seed, path in many.items():
        _check(path, config, seed, restart=restart, resume=resume)
    for path in many.values() if restart else []:
        folder = RunFolder(path)
        folder.check_free()
        with locked(path):  # somebody may be training there
            folder.clear()
    return many


def check_folder(
    config: Config, seed: int, out: Path | None, *, restart: bool, resume: bool
) -> Path:
    """The folder of a run, if it may be used."""
    path = folder_of(config, seed, out)
    _check(path, config, seed, restart=restart, resume=resume)
    return path


class Asked(Frozen):
    """How a run was begun, as its `machine.json` remembers it (`dna.runs.setup.REMEMBERED`)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    compile: Literal["auto", "off", "on"] = "auto"
    checkpoint_every: Count | None = None


def remembered(path: Path) -> dict[str, Any]:
    """The choices with which a run was begun; none of one that was not, or of an older one."""
    from dna.runs.folder import RunFolder

    asked = RunFolder(path).machine().get("asked", {})
    try:
        return Asked(**asked).model_dump(exclude_none=True)
    except (ValidationError, TypeError):
        path = path / "machine.json"
        raise StorageFailure(f"{path}: damaged; delete it, then `dna resume`") from None


def _check(path: Path, config: Config, seed: int, *, restart: bool, resume: bool) -> None:
    """Refuse to mix a run with another, or to start over without being told."""
    from dna.runs.folder import RunFolder

    folder = RunFolder(path)
    if restart and resume:
        raise BadInput("--restart, --resume: give one of them")
    if not folder.exists or restart:
        return
    if not resume:
        raise BadInput(
            f"{path}: holds a run already; add --resume or --restart, or another --out"
        )
    if folder.read() != (config, seed):
        raise BadInput(
            f"{path}: holds a run with other settings; `dna show {typed(path)}` prints them"
        )
