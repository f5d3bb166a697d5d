"""What a run writes while it runs: metrics, episodes, timings, dashboards.

`metrics.jsonl` and `episodes.csv` hold only what the run computed, so that they are equal to
the byte for equal (config, seed); wall-clock goes to `timings.jsonl`. TensorBoard and the
trackers see CleanRL's tags, with SB3's as aliases, so existing dashboards work.
"""

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dna.episodes import Episode
from dna.errors import BadInput, MissingExtra
from dna.storage import AppendLog


@dataclass(frozen=True)
class Row:
    """One iteration."""

    iteration: int
    interactions: int
    total: int  # interactions of the whole run
    episodes: int
    score: float | None
    length: float | None
    metrics: dict[str, float]  # `<phase>/<metric>`
    seconds: dict[str, float]  # wall-clock split of this iteration
    elapsed: float  # seconds since this process began the run
    rate: float  # interactions per second of this iteration
    finished: tuple[Episode, ...]


class Sink(Protocol):
    """Something that is told of every iteration."""

    def start(self) -> None:
        """The run is about to begin: its settings and environments are good."""

    def write(self, row: Row) -> None:
        """One more iteration."""

    def close(self) -> None:
        """No more iterations."""


class Files:
    """`metrics.jsonl`, `episodes.csv` and `timings.jsonl` of a run's folder."""

    NAMES = ("metrics.jsonl", "episodes.csv", "timings.jsonl")

    def __init__(self, folder: Path, lengths: dict[str, int] | None = None) -> None:
        """`lengths`: cut the files back to a checkpoint; None: start them anew."""
        keep = lengths or {}
        self.logs = {name: AppendLog(folder / name, keep.get(name, 0)) for name in self.NAMES}
        if not keep:
            self.logs["episodes.csv"].write("interactions,agent,score,length")

    def start(self) -> None:
        """The files are open already."""

    def write(self, row: Row) -> None:
        """Append one iteration to each file."""
        head = {"iteration": row.iteration, "interactions": row.interactions}
        line = head | {"episodes": row.episodes, "score": row.score, "length": row.length}
        self.logs["metrics.jsonl"].write(json.dumps(line | row.metrics))
        for e in row.finished:
            text = f"{e.interactions},{e.agent},{e.score!r},{e.length}"
            self.logs["episodes.csv"].write(text)
        times = {f"time/{part}": round(value, 6) for part, value in row.seconds.items()}
        times |= {"time/elapsed": round(row.elapsed, 3), "rate": round(row.rate, 1)}
        self.logs["timings.jsonl"].write(json.dumps(head | times))
        for log in self.logs.values():
            log.flush()

    def sync(self) -> dict[str, int]:
        """Everything on disk; the lengths a checkpoint remembers."""
        return {name: log.sync() for name, log in self.logs.items()}

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()


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
        if metric == "learning_rate":
            tags = (f"charts/{phase}_learning_rate",)
            if phase in ("policy", "joint"):
                tags += ("charts/learning_rate", "train/learning_rate")
        named |= dict.fromkeys(tags, value)
    return named | {f"time/{part}": value for part, value in row.seconds.items()}


class TensorBoard:
    """Event files in `RUN/tensorboard`."""

    def __init__(self, folder: Path, config: dict[str, Any], purge: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)
        table = "\n".join(f"|{key}|{value}|" for key, value in config.items())
        self.writer.add_text("hyperparameters", f"|key|value|\n|-|-|\n{table}")

    def start(self) -> None:
        """The event file is open already."""

    def write(self, row: Row) -> None:
        """Scalars of one iteration and of the episodes it finished."""
        add: Callable[[str, float, int], None] = self.writer.add_scalar
        for episode in row.finished:
            add("charts/episodic_return", episode.score, episode.interactions)
            add("charts/episodic_length", episode.length, episode.interactions)
        for tag, value in scalars(row).items():
            add(tag, value, row.interactions)

    def close(self) -> None:
        """Flush and close."""
        self.writer.close()


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
