"""TensorBoard, Weights & Biases and trackio.

They get CleanRL's tags, with SB3's as aliases, so that existing dashboards work.
"""

import importlib
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dna.common.append_log import AppendLog, changed, damage
from dna.common.errors import BadInput, MissingExtra
from dna.common.storage import remove
from dna.config import Config, json_tree
from dna.runs.metrics import Row

#: Prefix of the names of event files.
STEM = "events.out.tfevents."
#: Last part of a metric's name → its tags, whatever the phase is called.
TAGS = {
    "entropy": ("losses/entropy",),
    "approx_kl": ("losses/approx_kl", "train/approx_kl"),
    "clip_fraction": ("losses/clipfrac", "train/clip_fraction"),
}
#: Whole name of a metric → its tags.
SPECIAL = {
    "policy/loss": ("losses/policy_loss", "train/policy_gradient_loss"),
    "joint/policy_loss": ("losses/policy_loss", "train/policy_gradient_loss"),
    "joint/value_loss": ("losses/value_loss", "train/value_loss"),
    "value/loss": ("losses/value_loss", "train/value_loss"),
    "distil/loss": ("losses/distil/total",),
    "distil/value_loss": ("losses/distil/value",),
    "distil/kl": ("losses/distil/kl",),
    "aux/kl": ("losses/aux/kl_loss",),
    "aux/aux_value_loss": ("losses/aux/aux_value_loss",),
    "aux/value_loss": ("losses/aux/real_value_loss",),
    "returns/explained_variance": ("losses/explained_variance", "train/explained_variance"),
}


def scalars(row: Row) -> dict[str, float]:
    """Return one iteration under its dashboard tags; the x axis is interactions."""
    named: dict[str, float] = {"charts/SPS": row.rate, "time/fps": row.rate}
    if row.score is not None and row.length is not None:
        named |= {"charts/avg_episodic_return": row.score, "rollout/ep_rew_mean": row.score}
        named |= {"rollout/ep_len_mean": row.length}
    for name, value in row.metrics.items():
        phase, _, metric = name.partition("/")
        tags = SPECIAL.get(name) or TAGS.get(metric) or (f"losses/{name}",)
        if phase == "noise":
            tags = (name,)
        if metric == "learning_rate":
            tags = (f"charts/{phase}_learning_rate",)
            if phase in ("policy", "joint"):
                tags += ("charts/learning_rate", "train/learning_rate")
        named |= dict.fromkeys(tags, value)
    return named | {f"time/{part}": value for part, value in row.seconds.items()}


class TensorBoard:
    """Event files in `RUN/tensorboard`, one for each start or resume of the run.

    They are written like the other logs, not by TensorBoard's own thread, so that they can be
    truncated to a checkpoint and a full disk is handled as elsewhere.
    """

    FOLDER = "tensorboard"

    def __init__(
        self,
        folder: Path,
        config: Config,
        seed: int,
        lengths: dict[str, int],
        step: int,
        hashes: dict[str, str] | None = None,
    ) -> None:
        """Continue the files of a checkpoint at `step` interactions, or begin anew."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard import summary

        self.Event: Any = Event
        self.scalar: Any = summary.scalar
        before = {n: size for n, size in lengths.items() if n.startswith(self.FOLDER)}
        self.earlier, self.damage = _truncate(folder / self.FOLDER, before, hashes or {})
        name = f"{self.FOLDER}/{STEM}{_next_number(before):010d}.dna"
        self.log = AppendLog(folder / name, lines=False)
        self.name = name
        self.records = RecordWriter(_Bytes(self.log))
        self._add(0, file_version="brain.Event:2")
        if step:  # an open viewer drops what it read beyond the checkpoint
            self._add(step, session_log=SessionLog(status=SessionLog.START))
        about = {
            "env_id": config.env.id,
            "exp_name": config.algorithm,
            "seed": seed,
            "config": json.dumps(json_tree(config)),
        }
        table = "\n".join(f"|{key}|{value}|" for key, value in about.items())
        describe: Any = summary.text
        text = describe("hyperparameters", f"|key|value|\n|-|-|\n{table}")
        self._add(step, summary=text)
        self.log.flush()

    def _add(self, step: int, **what: Any) -> None:
        event = self.Event(wall_time=time.time(), step=step, **what)
        self.records.write(event.SerializeToString())

    def start(self) -> None:
        """Do nothing: the event file is open already."""

    def write(self, row: Row) -> None:
        """Write the scalars of one iteration and of the episodes that ended in it."""
        for e in row.finished:
            pair = {"charts/episodic_return": e.score, "charts/episodic_length": e.length}
            for tag, value in pair.items():
                self._add(e.interactions, summary=self.scalar(tag, value))
        for tag, value in scalars(row).items():
            self._add(row.interactions, summary=self.scalar(tag, value))
        self.log.flush()

    def damaged(self) -> list[str]:
        """One line per event file that is missing or does not match its checkpoint."""
        return self.damage

    def changed(self) -> list[str]:
        """One line if another process changed the event file since the last call."""
        return changed({self.name: self.log})

    def sync(self) -> dict[str, int]:
        """Flush everything to disk; returns the lengths for a checkpoint."""
        before = {name: length for name, (length, _) in self.earlier.items()}
        return before | {self.name: self.log.sync()}

    def hashes(self) -> dict[str, str]:
        """Return the sha256 of each file up to the length that `sync` returned."""
        before = {name: sha256 for name, (_, sha256) in self.earlier.items()}
        return before | {self.name: self.log.sha256}

    def close(self) -> None:
        """Write what is pending, and close the file."""
        self.log.close()


class _Bytes:
    """Adapts a log to the file interface of TensorBoard's record writer."""

    def __init__(self, log: AppendLog) -> None:
        self.write = log.add


def _truncate(
    folder: Path, lengths: dict[str, int], hashes: dict[str, str]
) -> tuple[dict[str, tuple[int, str]], list[str]]:
    """Truncate the event files to a checkpoint.

    Returns the length and sha256 of each that exists, and a line for each that is damaged.
    """
    stay = {}
    lines = []
    for path in sorted(folder.glob(f"{STEM}*")):
        name = f"{folder.name}/{path.name}"
        if name not in lengths:
            remove(path)
            continue
        log = AppendLog(path, lengths[name], lines=False)
        stay[name] = (log.length, log.sha256)
        lines += damage(name, log, hashes.get(name))
        log.close()
    lines += [f"{name} was cut short" for name in lengths if name not in stay]
    return stay, sorted(lines)


def _next_number(names: Iterable[str]) -> int:
    """Return the number after the largest one used so far; files may have been deleted."""
    found = (re.search(rf"{re.escape(STEM)}(\d+)", name) for name in names)
    return max((int(match[1]) + 1 for match in found if match), default=0)


class Tracker:
    """Weights & Biases or trackio, which share `init`, `log` and `finish`."""

    def __init__(self, service: str, project: str, name: str, config: dict[str, Any]) -> None:
        try:
            self.module = importlib.import_module(service)
        except ImportError:
            raise MissingExtra(f"--track {service}", "track") from None
        self.service = service
        self.about: dict[str, Any] = {"project": project, "name": name, "config": config}
        self.started = False

    def start(self) -> None:
        """Open a run with the service; `global_step` (interactions) is its x axis."""
        try:
            self.module.init(**self.about)
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
            raise BadInput(f"--track {self.service}: could not start ({reason})") from error
        self.started = True
        if hasattr(self.module, "define_metric"):
            self.module.define_metric("*", step_metric="global_step")

    def write(self, row: Row) -> None:
        """Log one iteration."""
        self.module.log(scalars(row) | {"global_step": row.interactions})

    def close(self) -> None:
        """End the tracked run."""
        if self.started:
            self.module.finish()
