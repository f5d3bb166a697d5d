"""Going on where a run ended, and taking runs elsewhere.

A run's length is a setting, because schedules are stretched over it. To learn longer is
therefore another run, which begins with the last checkpoint of the one before: it is given the
longer configuration's digest, in the same folder. Without schedules the two in a row are, to
the bit, the run that was long from the start; with them they are not, and `machine.json` says
so. A crash between any two of these writes leaves a folder that goes on as one or the other.
"""

import json
import warnings
from pathlib import Path
from typing import Any

from dna import checkpoint
from dna.config import Config, json_tree
from dna.errors import BadInput
from dna.folder import RunFolder
from dna.keeping import check_may_start_over
from dna.lock import locked
from dna.storage import (
    read,
    read_folder,
    read_manifest,
    recover,
    remove,
    write,
    write_folder,
)
from dna.tweak import digest, tweak

#: What speaks of the shorter run only.
STALE = ("done", "policy", "eval.json", "curve.png", "episode.mp4", "report.html")
#: Plain files of a run that a copy holds too; `config.json` goes last: it marks the run.
COPIED = ("machine.json", "metrics.jsonl", "episodes.csv", "timings.jsonl", "done")


def lengthened(run: RunFolder, asked: int | None) -> Config:
    """The configuration with which this run learns so many interactions more.

    None: as far as it was to go anyway. More are counted from where a finished run was to end,
    and from where an unfinished one stands.
    """
    config, seed = run.read()
    if asked is None:
        return config
    recover(run.path / "checkpoints")
    saved = checkpoint.latest(run.path, digest(config, seed))
    reached = config.interactions
    if not run.done:
        reached = saved.interactions if saved else 0
    longer = tweak(config, interactions=reached + asked)
    if longer == config:
        return config
    if saved is None:
        check_may_start_over(run.path, config, None)
        with locked(run.path):
            run.clear()
        return longer
    _check_replay(config, saved)
    with locked(run.path):
        _hand_over(run, saved, (config, longer), seed)
    return longer


def _hand_over(
    run: RunFolder, saved: checkpoint.Saved, configs: tuple[Config, Config], seed: int
) -> None:
    """Make the checkpoint one of the longer run, then the folder."""
    config, longer = configs
    files = read_folder(saved.path)
    state = json.loads(files["state.json"])
    moving = schedules(config)
    if moving:
        reason = f"went on from a run of {config.interactions:,} interactions, over which "
        reason += f"{moving[0]} was to change"
        state["inexact"] = [*state["inexact"], reason]
        warnings.warn(
            f"learn: {moving[0]} is stretched over the longer run and jumps now; learn all at "
            "once, or set it to a number",
            stacklevel=4,
        )
    files["state.json"] = json.dumps(state, indent=2).encode()
    write_folder(saved.path, files, {"digest": digest(longer, seed)})
    for name in STALE:
        remove(run.path / name)
    run.begin(longer, seed)
    for name in checkpoint.names(run.path):
        if run.path / "checkpoints" / name != saved.path:
            remove(run.path / "checkpoints" / name)


def schedules(config: Config) -> list[str]:
    """Settings that change over the run."""
    found = []
    for phase in json_tree(config)["phases"]:
        for prefix, section in (("", phase), ("sgd.", phase["sgd"])):
            for name, value in section.items():
                if isinstance(value, dict) and "start" in value:
                    found.append(f"{phase['name']}.{prefix}{name}")
    return found


def _check_replay(config: Config, saved: checkpoint.Saved) -> None:
    """A finished run has forgotten the rollouts that PPG's next auxiliary phase would read."""
    every = config.replay_length
    kept = len({name.split("/")[1] for name in saved.tensors if name.startswith("replay/")})
    if every and saved.iteration % every != kept:
        raise BadInput(
            f"learn: this run ended between two auxiliary phases and cannot go on; learn "
            f"multiples of {every * config.batch:,} interactions"
        )


def copy_run(run: RunFolder, target: Path, *, overwrite: bool = False) -> None:
    """The run as it stands, with its newest checkpoint only, in another folder."""
    config, seed = run.read()
    there = RunFolder(target)
    there.check_free()
    if there.exists and there.read() != (config, seed) and not overwrite:
        raise BadInput(f"{target}: holds another run; choose another folder, or overwrite=True")
    if target.resolve() == run.path.resolve():
        return
    there.clear()
    for name in checkpoint.names(run.path)[-1:]:
        _copy_folder(run.path / "checkpoints" / name, target / "checkpoints" / name)
    if (run.path / "policy").is_dir():
        _copy_folder(run.path / "policy", target / "policy")
    boards = sorted((run.path / "tensorboard").glob("*"))
    names = [*COPIED, *(f"tensorboard/{path.name}" for path in boards)]
    for name in [*names, "config.json"]:
        if (run.path / name).is_file():
            write(target / name, read(run.path / name))


def _copy_folder(source: Path, target: Path) -> None:
    about: dict[str, Any] = read_manifest(source)["about"]
    write_folder(target, read_folder(source), about)
