"""Training: algorithm 1 of the paper, for any list of phases.

`train` is a pure function of (config, seed) up to wall-clock: on one machine with the same
number of torch threads, two runs write the same bytes.
"""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dna import checkpoint
from dna.clock import Clock
from dna.compiled import compiled_phases, make_steps
from dna.config import Config, json_tree
from dna.envs import Source, VectorEnv
from dna.envs.guard import close
from dna.errors import FolderBusy, Preempted
from dna.estimate import estimate
from dna.flat import FlatWeights
from dna.folder import RunFolder
from dna.machine import changes, describe, setting
from dna.metrics import Files, Row, Sink, TensorBoard
from dna.optimise import due, run_phase
from dna.policy import save_policy
from dna.randomness import generator
from dna.replay import Replay
from dna.rollout import Collector
from dna.setup import (
    How,
    build_environments,
    build_networks,
    choose_device,
    tune,
    whole_seed,
)
from dna.signals import Stop, stop_signals
from dna.storage import locked, remove

#: Checkpoints to keep; the newest of them is the one `dna resume` continues.
KEEP = 3


def train(
    config: Config,
    seed: int,
    path: Path | str,
    *,
    how: How | None = None,
    sinks: Sequence[Sink] = (),
    source: Source = None,
) -> dict[str, Any]:
    """Train in this folder, continuing its newest checkpoint if it has one."""
    how = how or How()
    seed, path = whole_seed(seed), Path(path)
    folder = RunFolder(path)
    folder.check_free()
    if not how.restart and (result := folder.finished(config, seed)) is not None:
        return result
    seen = checkpoint.names(path)
    saved = checkpoint.latest(path) if folder.exists and not how.restart else None
    resumes = saved.resumes + 1 if saved else 0
    env = build_environments(config, seed, resumes, how, source)
    tune(how, env)
    try:
        run = Run(config, seed, folder, env, how)
        with locked(path), stop_signals() as stop, ExitStack() as closing:
            ended = not how.restart and folder.done
            if ended or seen != checkpoint.names(path):
                raise FolderBusy(f"{path}: another process changed the run just now; try again")
            for sink in sinks:
                closing.callback(sink.close)
                sink.start()
            if saved is None and folder.exists:
                folder.clear()
            own = run.open(saved, resumes)
            for sink in own:
                closing.callback(sink.close)
            run.warm_up(fresh=saved is None, stop=stop)
            return run.loop([*own, *sinks], stop)
    finally:
        close(env)


class Run:
    """The state of one training run."""

    def __init__(
        self, config: Config, seed: int, folder: RunFolder, env: VectorEnv, how: How
    ) -> None:
        self.config, self.seed, self.folder, self.how = config, seed, folder, how
        self.networks = build_networks(config, seed, env, choose_device(how.device))
        self.clock = Clock()
        self.weights = FlatWeights(self.networks)
        self.steps = make_steps(config, self.networks, self.weights, how.compile, self.clock)
        self.collector = Collector(env, self.networks, config, seed)
        self.replay = Replay(config.replay_length)
        self.iteration = 0
        self.resumes = 0
        self.inexact: list[str] = []  # why it is not the run that was never interrupted
        self.next_checkpoint = 0
        self.machine: dict[str, Any] = {}
        self.files: Files

    def open(self, saved: checkpoint.Saved | None, resumes: int) -> list[Sink]:
        """Begin the folder, or continue it from a checkpoint; returns its own sinks."""
        self.resumes = resumes
        if saved is None:
            self.folder.begin(self.config, self.seed)
            self.files = Files(self.folder.path)
        else:
            self.inexact = [*saved.inexact, *checkpoint.restore(saved, self._parts())]
            self.inexact += changes(saved.setting, self._setting())
            self.iteration = saved.iteration
            self.files = Files(self.folder.path, saved.lengths)
        self.next_checkpoint = self.collector.scores.interactions + self.checkpoint_every
        return [self.files, *self._dashboards()]

    def _dashboards(self) -> list[Sink]:
        """TensorBoard's event files, cut back to where the run stands."""
        if not self.how.tensorboard:
            return []
        name: Any = {"env_id": self.config.env.id, "exp_name": self.config.algorithm}
        about = name | {"seed": self.seed, "config": json.dumps(json_tree(self.config))}
        interactions = self.collector.scores.interactions
        purge = interactions + 1 if interactions else None
        return [TensorBoard(self.folder.path, about, purge)]

    def warm_up(self, *, fresh: bool, stop: Stop) -> None:
        """Play the warm-up of a run that begins, and describe the machine."""
        steps = self.collector.warm_up(stop) if fresh else 0
        if stop.asked:  # nothing new was learned, so there is nothing to save
            raise self._stopped(stop)
        machine = describe(self.networks.device, self.how.env_threads)
        machine |= {"resumes": self.resumes, "exact": not self.inexact, "warm_up_steps": steps}
        self.machine = machine | {"why_not_exact": self.inexact}
        self._describe()

    def _describe(self) -> None:
        """Write down the machine, again if a phase could not be compiled."""
        compiled = compiled_phases(self.steps)
        if self.machine.get("compiled") != compiled:
            self.machine["compiled"] = compiled
            self.folder.write_machine(self.machine)

    def loop(self, sinks: Sequence[Sink], stop: Stop) -> dict[str, Any]:
        """Iterate to the end of the budget."""
        start, first = time.perf_counter(), self.collector.scores.interactions
        while self.collector.scores.interactions < self.config.interactions:
            before = time.perf_counter(), self.collector.scores.interactions
            metrics = self.iterate()
            row = self._row(metrics, before, start)
            for sink in sinks:
                sink.write(row)
            self.iteration += 1
            self._describe()
            self._checkpoint_if_due(stop)
        return self._finish(time.perf_counter() - start, first)

    def iterate(self) -> dict[str, float]:
        """One iteration of algorithm 1."""
        config, clock, networks = self.config, self.clock, self.networks
        progress = self.collector.scores.interactions / config.interactions
        rollout = self.collector.collect(self.iteration, clock)
        with clock("returns"):
            experience, metrics = estimate(rollout, networks, config.returns)
            self.replay.add(experience)  # on the host: a GPU may not hold 32 rollouts
            experience = experience.to(networks.device)
        for phase in config.phases:
            if due(phase, self.iteration):
                data = experience
                if phase.reads == "replay":
                    data = self.replay.experience(phase.every).to(networks.device)
                rng = generator(self.seed, f"shuffle/{phase.name}", self.iteration)
                step = self.steps[phase.name]
                with clock(phase.name):
                    metrics |= run_phase(phase, networks, step, data, rng, progress)
                if phase.reads == "replay" and phase.every == self.replay.length:
                    self.replay.clear()
        return metrics

    def _parts(self) -> checkpoint.Parts:
        optimizers = {name: step.optimizer for name, step in self.steps.items()}
        return checkpoint.Parts(self.networks, optimizers, self.collector, self.replay)

    def _setting(self) -> dict[str, Any]:
        return setting(self.networks.device) | {"compiled": compiled_phases(self.steps)}

    @property
    def checkpoint_every(self) -> int:
        """Interactions between checkpoints."""
        return self.how.checkpoint_every or max(self.config.interactions // 10, 1)

    def save(self) -> None:
        """Write a checkpoint and forget those beyond the newest few."""
        progress: dict[str, Any] = {"iteration": self.iteration, "resumes": self.resumes}
        progress |= {"inexact": self.inexact, "setting": self._setting()}
        progress |= {"lengths": self.files.sync()}
        checkpoint.save(self.folder.path, self._parts(), progress)
        for old in checkpoint.names(self.folder.path)[:-KEEP]:
            remove(self.folder.path / "checkpoints" / old)

    def _checkpoint_if_due(self, stop: Stop) -> None:
        interactions = self.collector.scores.interactions
        if stop.asked:
            self.save()
            raise self._stopped(stop)
        # PPG waits for its replay to be empty: it is by far the largest part of its state.
        late = self.next_checkpoint <= interactions < self.config.interactions
        if late and not self.replay.rollouts:
            self.save()
            self.next_checkpoint = interactions + self.checkpoint_every

    def _stopped(self, stop: Stop) -> Preempted:
        return Preempted(f"stopped by {stop.asked}; `dna resume {self.folder.path}` goes on")

    def _row(self, metrics: dict[str, float], before: tuple[float, int], start: float) -> Row:
        scores, now = self.collector.scores, time.perf_counter()
        return Row(
            iteration=self.iteration,
            interactions=scores.interactions,
            total=self.config.interactions,
            episodes=scores.episodes,
            score=scores.score,
            length=scores.length,
            metrics=metrics,
            seconds=self.clock.take(),
            elapsed=now - start,
            rate=(scores.interactions - before[1]) / (now - before[0]),
            finished=tuple(scores.take()),
        )

    def _finish(self, seconds: float, first: int) -> dict[str, Any]:
        scores = self.collector.scores
        about = {
            "algorithm": self.config.algorithm,
            "seed": self.seed,
            "interactions": scores.interactions,
            "episodes": scores.episodes,
            "score": scores.score,
        }
        self.replay.clear()  # nothing will read it
        self.save()
        save_policy(self.folder.policy, self.networks, self.config, about)
        rate = (scores.interactions - first) / seconds if seconds > 0 else 0.0
        result = {"run": str(self.folder.path)} | about | {"interactions_per_second": rate}
        self.folder.finish(result)
        return result
