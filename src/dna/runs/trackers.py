"""TensorBoard and the trackers.

They see CleanRL's tags, with SB3's as aliases, so existing dashboards work.
"""

import importlib
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dna.common.append_log import AppendLog, changed
from dna.common.errors import BadInput, MissingExtra
from dna.common.storage import remove
from dna.config import Config, json_tree
from dna.runs.metrics import Row

#: How the names of event files begin.
STEM = "events.out.tfevents."
#: Our metric's last part → the tag that dashboards know. A phase's own name never matters.
TAGS = {
    "entropy": ("losses/entropy",),
    "approx_kl": ("losses/approx_kl", "train/approx_kl"),
    "clip_fraction": ("losses/clipfrac", "train/clip_fraction"),
}
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
    """One iteration under the tags of dashboards; the x axis is interactions."""
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
    """Event files in `RUN/tensorboard`, one for each time the run was begun or resumed.

    They are written like the other logs, not by a thread of TensorBoard's: so they can be cut
    back to a checkpoint, and a full disk is an error like any other.
    """

    FOLDER = "tensorboard"

    def __init__(
        self, folder: Path, config: Config, seed: int, lengths: dict[str, int], step: int
    ) -> None:
        """`lengths` are the checkpoint's, of the files before; `step` is where it stands."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard import summary

        self.Event: Any = Event
        self.scalar: Any = summary.scalar
        before = {n: size for n, size in lengths.items() if n.startswith(self.FOLDER)}
        self.lengths = _cut_back(folder / self.FOLDER, before)
        self.cut = [name for name, size in before.items() if self.lengths.get(name) != size]
        name = f"{self.FOLDER}/{STEM}{_next_number(before):010d}.dna"
        self.log = AppendLog(folder / name, lines=False)
        self.name, self.records = name, RecordWriter(_Bytes(self.log))
        self._add(0, file_version="brain.Event:2")
        if step:  # a viewer that is open forgets what it saw after the checkpoint
            self._add(step, session_log=SessionLog(status=SessionLog.START))
        about: dict[str, Any] = {"env_id": config.env.id, "exp_name": config.algorithm}
        about |= {"seed": seed, "config": json.dumps(json_tree(config))}
        table = "\n".join(f"|{key}|{value}|" for key, value in about.items())
        describe: Any = summary.text
        text = describe("hyperparameters", f"|key|value|\n|-|-|\n{table}")
        self._add(step, summary=text)
        self.log.flush()

    def _add(self, step: int, **what: Any) -> None:
        event = self.Event(wall_time=time.time(), step=step, **what)
        self.records.write(event.SerializeToString())

    def start(self) -> None:
        """The event file is open already."""

    def write(self, row: Row) -> None:
        """Scalars of one iteration and of the episodes it finished."""
        for e in row.finished:
            pair = {"charts/episodic_return": e.score, "charts/episodic_length": e.length}
            for tag, value in pair.items():
                self._add(e.interactions, summary=self.scalar(tag, value))
        for tag, value in scalars(row).items():
            self._add(row.interactions, summary=self.scalar(tag, value))
        self.log.flush()

    def missing(self) -> list[str]:
        """Event files that were shorter than the checkpoint says, or gone."""
        return [f"{name} was cut short" for name in self.cut]

    def changed(self) -> list[str]:
        """The same while it is written, since this was last asked."""
        return changed({self.name: self.log})

    def sync(self) -> dict[str, int]:
        """Everything on disk; the lengths a checkpoint remembers."""
        return self.lengths | {self.name: self.log.sync()}

    def close(self) -> None:
        """Write what is pending, and close."""
        self.log.close()


class _Bytes:
    """A log as the file that TensorBoard's record writer wants."""

    def __init__(self, log: AppendLog) -> None:
        self.write = log.add


def _cut_back(folder: Path, lengths: dict[str, int]) -> dict[str, int]:
    """Cut the event files back to a checkpoint; the lengths of those that are there."""
    stay = {}
    for path in sorted(folder.glob(f"{STEM}*")):
        name = f"{folder.name}/{path.name}"
        if name not in lengths:
            remove(path)
            continue
        log = AppendLog(path, lengths[name], lines=False)
        stay[name] = log.length
        log.close()
    return stay


def _next_number(names: Iterable[str]) -> int:
    """Behind the largest that there was: the file of any other may be gone."""
    found = (re.search(rf"{re.escape(STEM)}(\d+)", name) for name in names)
    return max((int(match[1]) + 1 for match in found if match), default=0)


class Tracker:
    """Weights & Biases or trackio: both speak `init`, `log`, `finish`."""

    def __init__(self, service: str, project: str, name: str, config: dict[str, Any]) -> None:
        try:
            self.module = importlib.import_module(service)
        except ImportError:
            raise MissingExtra(f"--track {service}", "track") from None
        self.service = service
        self.about: dict[str, Any] = {"project": project, "name": name, "config": config}
        self.started = False

    def start(self) -> None:
        """Open the run there; `global_step` (interactions) is its x axis."""
        try:
            self.module.init(**self.about)
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
            raise BadInput(f"--track {self.service}: could not start ({reason})") from error
        self.started = True
        if hasattr(self.module, "define_metric"):
            self.module.define_metric("*", step_metric="global_step")

    def write(self, row: Row) -> None:
        """One iteration."""
        self.module.log(scalars(row) | {"global_step": row.interactions})

    def close(self) -> None:
        """End the tracked run."""
        if self.started:
            self.module.finish()
