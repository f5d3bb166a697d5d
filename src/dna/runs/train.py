"""Training: algorithm 1 of the paper, for any list of phases.

Apart from wall-clock times, `train` is a pure function of (config, seed): on one machine, two
runs write the same bytes, on any number of threads.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from dna.algorithm.compiled_step import check_ranks
from dna.algorithm.engine import concurrent, due, run_phase
from dna.algorithm.returns import estimate
from dna.algorithm.rollout import Collector
from dna.common.console import typed
from dna.common.errors import Preempted
from dna.common.process import Stop, stop_signals
from dna.common.randomness import generator, whole_seed
from dna.common.threads import Caller, call_directly
from dna.common.timing import Clock
from dna.config import AnyPhase, Config
from dna.config.overrides import digest
from dna.distributed.collectives import (
    check_replicas,
    fail_together,
    gather_lines,
    on_rank_zero,
    stop_requested,
)
from dna.distributed.shard import Share
from dna.envs import Source, VectorEnv
from dna.networks.batch import Experience
from dna.runs import checkpoint
from dna.runs.callbacks import Callbacks, callbacks_in
from dna.runs.folder import MEMORY, RunFolder
from dna.runs.metrics import Recorder, RowMaker, Sink
from dna.runs.nonfinite import check_finite, dumping
from dna.runs.policy import save_policy
from dna.runs.reproducibility import MachineRecord, changes, packages_of
from dna.runs.restore_check import RestoreCheck
from dna.runs.retention import Saver
from dna.runs.setup import (
    UNSHARED,
    How,
    Learner,
    build_environments,
    build_networks,
    choose_device,
    make_workers,
    one_blas_thread,
    pieces_for,
    tune,
)
from dna.runs.start import finished, hold, newest_checkpoint
from dna.runs.watchdog import environment_calls


def train(
    config: Config,
    seed: int,
    path: Path | str,
    *,
    how: How | None = None,
    sinks: Sequence[Sink] = (),
    source: Source = None,
) -> dict[str, Any]:
    """Train in this folder, resuming from its newest checkpoint if it has one.

    On several ranks (`how.world`) each of them calls this; the first writes the files.
    """
    how = how or How()
    seed = whole_seed(seed)
    folder = RunFolder(Path(path)).here()
    check_ranks(config, how.compile, how.world)
    result = finished(folder, config, seed, how)
    if result is not None:
        return result
    with ExitStack() as stack:
        if how.world.rank > 0:  # the first rank warns for all
            stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(one_blas_thread())
        stop = stack.enter_context(stop_signals())
        check_held = stack.enter_context(hold(folder, config, seed, how))
        name = config.env.id or "environment"
        calls = stack.enter_context(environment_calls(name, how, folder.path))
        saved = newest_checkpoint(folder, config, seed, how)
        resumes = saved.resumes + 1 if saved else 0
        env = calls(build_environments, config, seed, resumes, how, source)
        try:
            tune(how, config, env)
            run = Run(config, seed, folder, env, how, calls, check_held)
            return run.train(saved, resumes, sinks, stop)
        finally:
            calls.close(env)


class Run:
    """The state of one training run, and the parts that work on it."""

    def __init__(
        self,
        config: Config,
        seed: int,
        folder: RunFolder,
        env: VectorEnv,
        how: How,
        call: Caller = call_directly,
        check_held: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_held` fails once the folder is no longer locked for this run."""
        self.config = config
        self.seed = seed
        self.folder = folder
        self.how = how
        self.world = how.world
        self.check_held = check_held
        self.clock = Clock()
        device = choose_device(how.device, self.world)
        self.networks = build_networks(config, seed, env, device)
        pieces = pieces_for(how, config, env.observation, device)
        self.networks.workers = make_workers(how, pieces)
        learning = pieces or (UNSHARED if env.observation.images else None)
        self.learner = Learner(config, seed, self.networks, how, learning)
        share = Share(self.world, config.agents)
        acting = pieces and pieces.acting
        self.collector = Collector(env, self.networks, config, seed, call, share, acting)
        self.recorder = Recorder(folder.path, config, seed, tensorboard=how.tensorboard)
        packages = packages_of(env, config.env.id)
        device = self.networks.device
        cut = self.learner.pieces() | self.collector.pieces()
        threads = self.networks.workers.threads
        self.machine = MachineRecord(
            folder, how, device, packages, self.learner.compiled, threads, cut
        )
        self.saver = Saver(folder.path, config.interactions, how.checkpoint_every, self.world)
        self.restore_check = RestoreCheck(self.collector, how.env_timeout, wanted=how.verify)
        self.callbacks = Callbacks()
        self.iteration = 0
        self.resumes = 0

    def train(
        self, saved: checkpoint.Saved | None, resumes: int, sinks: Sequence[Sink], stop: Stop
    ) -> dict[str, Any]:
        """Start from scratch or from a checkpoint, and train to the end of the budget."""
        self.resumes = resumes
        self.callbacks = callbacks_in(sinks, self, stop)
        if self.world.rank > 0:
            sinks = ()
        with ExitStack() as closing:
            for sink in sinks:
                closing.callback(sink.close)
                sink.start()
            if saved is None:
                self._begin()
            else:
                self._resume(saved)
            for log in self.recorder.sinks:
                closing.callback(log.close)
            self._warm_up(fresh=saved is None, stop=stop)
            return self._loop([*self.recorder.sinks, *sinks], stop)

    def _begin(self) -> None:
        """Start from scratch, in an empty folder."""
        if self.world.rank == 0 and self.folder.exists:
            self.folder.clear(keep=() if self.how.restart else MEMORY)
        self.saver.begin(None)
        if self.world.rank == 0:
            self.folder.begin(self.config, self.seed, self.how.asked())
            self.recorder.open()

    def _resume(self, saved: checkpoint.Saved) -> None:
        """Restore a checkpoint, or an older one if it does not fit."""
        run = digest(self.config, self.seed)
        saved, reasons = checkpoint.restore_or_older(saved, self.parts(), run)
        reasons += changes(saved.setting, self.machine.setting())
        self.iteration = saved.iteration
        self.saver.begin(saved)
        if self.world.rank == 0:
            reasons += self.recorder.open(saved.lengths, saved.hashes, saved.interactions)
        self.machine.continue_from(saved.inexact, older=not saved.hashes)
        self.machine.add_inexact(reasons)

    def _warm_up(self, *, fresh: bool, stop: Stop) -> None:
        """Play the warm-up of a run that starts from scratch, and describe the machine."""
        steps = 0
        if fresh:
            with dumping(self.folder.path, self.iteration):
                steps = self.collector.warm_up(lambda: bool(stop_requested(self.world, stop)))
        if stop_requested(self.world, stop):
            # Nothing was learned, so there is nothing to save.
            raise self._stopped(stop)
        if fresh:
            reason = self.collector.env.inexact
            reasons = gather_lines(self.world, [reason] if reason else [])
            self.machine.add_not_resumable(reasons)
        self.machine.begin(self.resumes, steps)

    def _loop(self, sinks: Sequence[Sink], stop: Stop) -> dict[str, Any]:
        """Iterate to the end of the budget, recording and saving; returns the result."""
        rows = RowMaker(self.config.interactions, self.collector.scores.interactions)
        while self.collector.scores.interactions < self.config.interactions:
            with (
                self.restore_check.during() as differences,
                dumping(self.folder.path, self.iteration),
            ):
                metrics = self.iterate()
            self.check_held()
            if differences is not None:
                reasons = gather_lines(self.world, differences())
                self.machine.add_not_resumable(reasons)
                self.restore_check.wanted &= not reasons  # known once, known for good
            row = rows.row(self.iteration, self.collector.scores, metrics, self.clock.take())
            for sink in sinks:
                sink.write(row)
            if self.iteration == 0:  # not only at a checkpoint, perhaps hours later
                self._name_changed_program()
            self.iteration += 1
            self.machine.update()
            self._save_if_due(stop)
        return self._finish(rows.rate)

    def iterate(self) -> dict[str, float]:
        """One iteration of algorithm 1."""
        config, clock, networks, learner = self.config, self.clock, self.networks, self.learner
        progress = self.collector.scores.interactions / config.interactions
        if learner.probe is not None:
            learner.probe.begin(self.iteration)
        rollout = self.collector.collect(self.iteration, clock)
        self.callbacks.rollout_end()
        with clock("returns"):
            experience, metrics = estimate(rollout, networks, config.returns)
            check_finite(experience.columns, "rollout")
            learner.replay.add(experience)  # on the host: a GPU may not hold 32 rollouts
            experience = experience.to(networks.device)
        due_now = [phase for phase in config.phases if due(phase, self.iteration)]
        for phases in concurrent(due_now):
            learn = partial(self._learn, experience, progress)
            found: list[dict[str, float]] = []
            for together in learner.together(phases):
                start = time.perf_counter()
                found += networks.workers.map(learn, together)
                clocks = [learner.steps[phase.name].clock for phase in together]
                clock.add_concurrent(clocks, time.perf_counter() - start)
            for phase, its in zip(phases, found, strict=True):
                metrics |= its
                self.callbacks.phase_end(phase.name, metrics)
                if phase.reads == "replay" and phase.every == learner.replay.length:
                    learner.replay.clear()
        learned = checkpoint.learned(self.parts())
        check_finite(learned, "after learning")
        check_replicas(self.world, checkpoint.replicated(learned), self.iteration)
        return metrics

    def _learn(
        self, experience: Experience, progress: float, phase: AnyPhase
    ) -> dict[str, float]:
        """Run one phase on its data."""
        learner, networks = self.learner, self.networks
        data = experience
        if phase.reads == "replay":
            data = learner.replay.experience(phase.every).to(networks.device)
        rng = generator(self.seed, f"shuffle/{phase.name}", self.iteration)
        step = learner.steps[phase.name]
        with step.clock(phase.name):
            return run_phase(phase, networks, step, data, rng, progress)

    def parts(self) -> checkpoint.Parts:
        """Return everything that has state."""
        learner = self.learner
        return checkpoint.Parts(
            self.networks, learner.optimizers, self.collector, learner.replay, learner.probe
        )

    def save(self) -> Path:
        """Write a checkpoint."""
        lengths = fail_together(self.world, self.recorder.sync)
        hashes = fail_together(self.world, self.recorder.hashes)
        self.machine.add_inexact(self.recorder.changed())
        self._name_changed_program()
        self.machine.update()
        progress = {
            "iteration": self.iteration,
            "resumes": self.resumes,
            "inexact": self.machine.inexact,
            "setting": self.machine.setting(),
            "lengths": lengths,
            "hashes": hashes,
        }
        run = digest(self.config, self.seed)
        return checkpoint.save(self.folder.path, self.parts(), progress, run)

    def _name_changed_program(self) -> None:
        changed = self.restore_check.changed_program()
        self.machine.add_not_resumable(gather_lines(self.world, changed))

    def _save_if_due(self, stop: Stop) -> None:
        """Save when a checkpoint is due; save and end when asked to stop."""
        interactions = self.collector.scores.interactions
        if stop_requested(self.world, stop):
            self.saver.save_now(self.save)
            raise self._stopped(stop)
        # PPG waits for its replay to be empty: it is by far the largest part of its state.
        if self.saver.due(interactions) and not self.learner.replay.rollouts:
            self.saver.save(self.save, interactions)
            self.restore_check.begin()

    def _stopped(self, stop: Stop) -> Preempted:
        ranks = self.world.local_size
        start = "dna" if ranks == 1 else f"torchrun --nproc-per-node {ranks} -m dna"
        command = f"{start} resume {typed(self.folder.name)}"
        return Preempted(f"stopped by {stop.asked}; `{command}` continues it")

    def _finish(self, rate: float) -> dict[str, Any]:
        """Save the last checkpoint, the policy and the result."""
        scores = self.collector.scores
        about = {
            "algorithm": self.config.algorithm,
            "seed": self.seed,
            "interactions": scores.interactions,
            "episodes": scores.episodes,
            "score": scores.score,
        }
        result = {"run": self.folder.name, **about, "interactions_per_second": rate}
        self.learner.replay.clear()  # nothing will read it
        self.saver.save_now(self.save)

        def write() -> dict[str, Any]:
            save_policy(self.folder.policy, self.networks, self.config, about)
            self.folder.finish(result)
            return result

        return on_rank_zero(self.world, write)
