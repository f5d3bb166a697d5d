"""Training: algorithm 1 of the paper, for any list of phases.

`train` is a pure function of (config, seed) up to wall-clock: on one machine with the same
number of torch threads, two runs write the same bytes.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dna.algorithm.compiled_step import check_ranks, compiled_phases, make_steps
from dna.algorithm.engine import due, run_phase
from dna.algorithm.noise_probe import attach
from dna.algorithm.replay import Replay
from dna.algorithm.returns import estimate
from dna.algorithm.rollout import Collector
from dna.common.console import typed
from dna.common.errors import Preempted
from dna.common.process import Stop, stop_signals
from dna.common.randomness import generator, whole_seed
from dna.common.timing import Clock
from dna.config import Config
from dna.config.overrides import digest
from dna.distributed.collectives import asked, check_alike, on_first, together
from dna.distributed.shard import Share
from dna.envs import Source, VectorEnv
from dna.envs.guard import close
from dna.networks.flat_weights import FlatWeights
from dna.runs import callbacks, checkpoint
from dna.runs.folder import MEMORY, RunFolder
from dna.runs.machine import Account, changes, packages_of, said
from dna.runs.metrics import Pace, Sink
from dna.runs.nonfinite import check_finite, dumping
from dna.runs.policy import save_policy
from dna.runs.recorder import Journal
from dna.runs.retention import Keeper, restored
from dna.runs.setup import How, build_environments, build_networks, choose_device, tune
from dna.runs.start import finished, held, one_voice, where_it_stood
from dna.runs.watchdog import Watch, watching


def train(
    config: Config,
    seed: int,
    path: Path | str,
    *,
    how: How | None = None,
    sinks: Sequence[Sink] = (),
    source: Source = None,
) -> dict[str, Any]:
    """Train in this folder, continuing its newest checkpoint if it has one.

    On several ranks (`how.world`) every one of them calls this; the first writes the files.
    """
    how = how or How()
    seed, world = whole_seed(seed), how.world
    folder = RunFolder(Path(path)).here()
    check_ranks(config, how.compile, world)
    if (result := finished(folder, config, seed, how)) is not None:
        return result
    watch, name = Watch(), config.env.id or "environment"
    looking = watching(watch, name, how.env_timeout, folder.path, world.report)
    with one_voice(world), stop_signals() as stop, looking:
        seen = checkpoint.names(folder.path)
        saved = where_it_stood(folder, config, seed, how)
        resumes = saved.resumes + 1 if saved else 0
        with watch:
            env = build_environments(config, seed, resumes, how, source)
        tune(how, env)
        try:
            run = Run(config, seed, folder, env, how, watch)
            with held(folder, (config, seed), how, seen) as run.keeper.hold:
                return run.train(saved, resumes, sinks, stop)
        finally:
            with watch:
                close(env)


class Run:
    """The state of one training run."""

    def __init__(
        self,
        config: Config,
        seed: int,
        folder: RunFolder,
        env: VectorEnv,
        how: How,
        watch: Watch | None = None,
    ) -> None:
        self.config, self.seed, self.folder, self.how = config, seed, folder, how
        world = self.world = how.world
        networks = build_networks(config, seed, env, choose_device(how.device, world))
        self.networks, self.clock, self.weights = networks, Clock(), FlatWeights(networks)
        self.steps = make_steps(config, networks, self.weights, how.compile, self.clock, world)
        self.probe = attach(config, networks, seed, self.steps, self.clock)
        share = Share(world, config.agents)
        self.collector = Collector(env, networks, config, seed, watch, share)
        self.replay = Replay(config.replay_length)
        self.iteration = self.resumes = 0
        self.inexact: list[str] = []  # why it is not the run that was never interrupted
        self.keeper = Keeper(folder.path, config.interactions, how.checkpoint_every, world)
        packages = packages_of(env, config.env.id)
        self.account = Account(folder, how, networks.device, packages)
        self.journal = Journal(folder.path, config, seed, tensorboard=how.tensorboard)
        self.callbacks = callbacks.Callbacks()

    def train(
        self, saved: checkpoint.Saved | None, resumes: int, sinks: Sequence[Sink], stop: Stop
    ) -> dict[str, Any]:
        """Begin or go on, to the end of the budget."""
        self.callbacks = callbacks.among(sinks, self, stop)
        with ExitStack() as closing:
            sinks = sinks if self.world.rank == 0 else ()
            for sink in sinks:
                closing.callback(sink.close)
                sink.start()
            if saved is None and self.world.rank == 0 and self.folder.exists:
                self.folder.clear(keep=() if self.how.restart else MEMORY)
            self.open(saved, resumes)
            for sink in self.journal.sinks:
                closing.callback(sink.close)
            self.warm_up(fresh=saved is None, stop=stop)
            return self.loop([*self.journal.sinks, *sinks], stop)

    def open(self, saved: checkpoint.Saved | None, resumes: int) -> None:
        """Begin the folder, or continue it from a checkpoint."""
        self.resumes, new = resumes, list[str]()
        if saved is not None:
            saved, new = restored(saved, self.parts(), digest(self.config, self.seed))
            new += changes(saved.setting, self._setting())
            self.iteration = saved.iteration
        self.keeper.begin(saved)
        if self.world.rank == 0:
            if saved is None:
                self.folder.begin(self.config, self.seed, self.how.asked())
            lengths = saved.lengths if saved else None
            new += self.journal.open(lengths, self.collector.scores.interactions)
        self.inexact = [*(saved.inexact if saved else []), *said(new)]

    def warm_up(self, *, fresh: bool, stop: Stop) -> None:
        """Play the warm-up of a run that begins, and describe the machine."""
        with dumping(self.folder.path, self.iteration):
            steps = (
                self.collector.warm_up(lambda: bool(asked(self.world, stop))) if fresh else 0
            )
        if asked(self.world, stop):  # nothing new was learned, so there is nothing to save
            raise self._stopped(stop)
        self.account.begin(self.resumes, steps)
        self._tell()

    def _tell(self) -> None:
        """Write down the machine, again if a phase could not be compiled or a log was cut."""
        self.account.tell(self.inexact, compiled_phases(self.steps))

    def loop(self, sinks: Sequence[Sink], stop: Stop) -> dict[str, Any]:
        """Iterate to the end of the budget."""
        pace = Pace(self.config.interactions, self.collector.scores.interactions)
        while self.collector.scores.interactions < self.config.interactions:
            with dumping(self.folder.path, self.iteration):
                metrics = self.iterate()
            self.keeper.hold()
            row = pace.row(self.iteration, self.collector.scores, metrics, self.clock.take())
            for sink in sinks:
                sink.write(row)
            self.iteration += 1
            self._tell()
            self._checkpoint_if_due(stop)
        return self._finish(pace.rate)

    def iterate(self) -> dict[str, float]:
        """One iteration of algorithm 1."""
        config, clock, networks = self.config, self.clock, self.networks
        progress = self.collector.scores.interactions / config.interactions
        if self.probe is not None:
            self.probe.begin(self.iteration)
        rollout = self.collector.collect(self.iteration, clock)
        self.callbacks.rollout_end()
        with clock("returns"):
            experience, metrics = estimate(rollout, networks, config.returns)
            check_finite(experience.columns, "rollout")
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
                self.callbacks.phase_end(phase.name, metrics)
                if phase.reads == "replay" and phase.every == self.replay.length:
                    self.replay.clear()
        learned = checkpoint.learned(self.parts())
        check_finite(learned, "after learning")
        check_alike(self.world, checkpoint.common(learned), self.iteration)
        return metrics

    def parts(self) -> checkpoint.Parts:
        """Everything that has state."""
        adams = {n: step.optimizer for n, step in self.steps.items()}
        return checkpoint.Parts(self.networks, adams, self.collector, self.replay, self.probe)

    def _setting(self) -> dict[str, Any]:
        return self.account.setting(compiled_phases(self.steps))

    def save(self) -> Path:
        """Write a checkpoint."""
        lengths = together(self.world, self.journal.sync)
        self.inexact = [*self.inexact, *said(self.journal.changed())]
        self._tell()
        progress: dict[str, Any] = {"iteration": self.iteration, "resumes": self.resumes}
        progress |= {"inexact": self.inexact, "setting": self._setting(), "lengths": lengths}
        named = digest(self.config, self.seed)
        return checkpoint.save(self.folder.path, self.parts(), progress, named)

    def _checkpoint_if_due(self, stop: Stop) -> None:
        interactions = self.collector.scores.interactions
        if asked(self.world, stop):
            self.keeper.save_now(self.save)
            raise self._stopped(stop)
        # PPG waits for its replay to be empty: it is by far the largest part of its state.
        if self.keeper.due(interactions) and not self.replay.rollouts:
            self.keeper.save(self.save, interactions)

    def _stopped(self, stop: Stop) -> Preempted:
        ranks = self.world.local_size
        start = "dna" if ranks == 1 else f"torchrun --nproc-per-node {ranks} -m dna"
        text = f"stopped by {stop.asked}; `{start} resume {typed(self.folder.name)}` goes on"
        return Preempted(text)

    def _finish(self, rate: float) -> dict[str, Any]:
        scores = self.collector.scores
        about: dict[str, Any] = {"algorithm": self.config.algorithm, "seed": self.seed}
        about |= {"interactions": scores.interactions, "episodes": scores.episodes}
        about |= {"score": scores.score}
        self.replay.clear()  # nothing will read it
        self.keeper.save_now(self.save)
        result = {"run": self.folder.name} | about | {"interactions_per_second": rate}

        def write() -> dict[str, Any]:
            save_policy(self.folder.policy, self.networks, self.config, about)
            self.folder.finish(result)
            return result

        return on_first(self.world, write)
