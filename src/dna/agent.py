"""`DNA`, `PPO` and `PPG` as objects that learn, predict, save and load.

A thin layer over `dna.train.train`: for the same configuration and seed it writes the same
bytes. Settings are checked at once, before torch is imported.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dna.arguments import changes_from, check_environment, either, starting_point
from dna.config import Config
from dna.envs.instances import World
from dna.errors import BadInput, Preempted
from dna.habits import refuse_arguments
from dna.player import Player
from dna.randomness import whole_seed
from dna.tweak import tweak

if TYPE_CHECKING:
    from dna.folder import RunFolder
    from dna.setup import How


class Agent(Player):
    """An agent and the run that it learns in."""

    algorithm: ClassVar[str | None] = None  # None: whatever its phases make it

    def __init__(
        self,
        env: Any,
        preset: str | Config | None = None,
        seed: int = 0,
        encoder: Any = None,
        folder: Path | str | None = None,
        **overrides: Any,
    ) -> None:
        """`overrides` are settings: `policy__sgd__epochs=1` or `**{"policy.sgd.epochs": 1}`."""
        check_environment(env)
        world, changes = World(env), changes_from(overrides)
        config = starting_point(world, self.algorithm, preset, changes)
        super().__init__(tweak(config, **changes), whole_seed(seed), world, folder)
        self._begun = False
        self._trusted = ":" in (world.id or "")  # who passes a module's name has it imported
        if world.agents not in (None, self.config.agents):
            given = self.config.agents
            raise BadInput(f"agents: given {given}, but the VectorEnv has {world.agents}")
        if encoder is not None:
            self._use(encoder)

    def learn(
        self,
        interactions: int | None = None,
        callback: Any = None,
        progress: bool = True,
        how: "How | None" = None,
        total_timesteps: int | None = None,
        **others: Any,
    ) -> Self:
        """Learn so many interactions, or so many more; None: as far as the settings say.

        `callback`: one, or a list of them (`dna.callbacks`). `total_timesteps` is SB3's name
        of `interactions`.
        """
        refuse_arguments("learn", others)
        self._check_world("learn")
        asked = either(interactions, total_timesteps)
        from dna.callbacks import Callbacks
        from dna.textual import text_progress
        from dna.train import train

        given = callback if isinstance(callback, list | tuple) else [callback]
        callbacks = Callbacks(*(one for one in given if one is not None))
        source = self._world.source(self.config.agents, self.config.env)
        self.config = self._lengthened(asked)
        self._register()
        how, sinks = self._how(how), [callbacks, text_progress(progress)]
        try:
            train(self.config, self.seed, self._folder, how=how, sinks=sinks, source=source)
        except Preempted:
            if not callbacks.stopped:
                raise
        finally:  # a run that was refused is not this agent's
            self._begun = self._begun or callbacks.networks is not None
            self._forget(callbacks.networks)
        self._begun = True
        return self

    def _lengthened(self, asked: int | None) -> Config:
        """The settings of what is to be learned now; a run that was loaded is copied first."""
        from dna.folder import RunFolder
        from dna.lengthen import copy_run, lengthened
        from dna.opening import check_goes_on

        own = self.config.env.id
        if own is not None and self._world.env is not None and self._world.id != own:
            raise BadInput(f"learn: this agent learned in {own}; make a new one for another")
        if self._begun and not (asked is None and self._run.done):
            check_goes_on(self._run)
        if self._from is not None:
            copy_run(RunFolder(self._from), self._folder)
            self._from = None
        if self._begun and self._run.exists:
            return lengthened(self._run, asked)
        return self.config if asked is None else tweak(self.config, interactions=asked)

    def save(self, path: Path | str, overwrite: bool = False) -> Path:
        """Copy the run, as it stands, to a folder that `load` reads; returns the folder."""
        from dna.lengthen import copy_run

        if not self._run.exists:
            raise BadInput("save: nothing is learned yet; call learn first")
        copy_run(self._run, Path(path), overwrite=overwrite)
        return Path(path)

    @classmethod
    def load(
        cls,
        path: Path | str,
        env: Any = None,
        encoder: Any = None,
        folder: Any = None,
        **others: Any,
    ) -> Self:
        """The agent of a run's folder, or of one that `save` wrote.

        `env` is needed where the run's came from Python; `encoder` where it was your own.
        Learning goes on in `folder`, or in a temporary one: what was loaded stays as it is,
        unless `folder` is the very same.
        """
        refuse_arguments("load", others)
        run = _run_of(path)
        config, seed = run.read()
        if cls.algorithm not in (None, config.algorithm):
            raise BadInput(f"{path}: holds a run of {config.algorithm}; load it with dna.load")
        self = cls.__new__(cls)
        named = env is not None and env == config.env.id
        Player.__init__(self, config, seed, World(None if named else env), folder)
        self._begun, self._trusted = True, isinstance(env, str)
        if self._folder.resolve() != run.path.resolve():
            self._from = run.path
        if encoder is not None:
            self._use(encoder, config.network.encoder.removeprefix("custom:"))
            if self.config != config:
                raise BadInput(f"encoder: the run has {config.network.encoder} of its own")
        return self


class DNA(Agent):
    """Two networks, and a distillation between them (the paper)."""

    algorithm = "dna"


class PPO(Agent):
    """One network with both losses."""

    algorithm = "ppo"


class PPG(Agent):
    """Two networks, and an auxiliary phase now and then."""

    algorithm = "ppg"


def load(
    path: Path | str, env: Any = None, encoder: Any = None, folder: Any = None, **others: Any
) -> Agent:
    """The agent of a run's folder, of whichever class it is."""
    algorithm = _run_of(path).read()[0].algorithm
    kinds: dict[str, type[Agent]] = {"dna": DNA, "ppo": PPO, "ppg": PPG}
    return kinds.get(algorithm, Agent).load(path, env, encoder, folder, **others)


def _run_of(path: Path | str) -> "RunFolder":
    """The run there; a policy alone has no settings to learn or be loaded with."""
    from dna.folder import RunFolder

    run = RunFolder(Path(path))
    if not run.exists and (run.policy / "manifest.json").is_file():
        raise BadInput(
            f"{path}: holds a policy without a run, as `dna import-sb3` writes it; "
            f"dna.hub.load reads it, `dna eval {path}` plays it"
        )
    return RunFolder.of(path)
