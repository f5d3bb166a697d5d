"""`DNA`, `PPO` and `PPG` as objects that learn, predict, save and load.

A thin layer over `dna.runs.train.train`: for the same configuration and seed it writes the same
bytes. Settings are checked at once, before torch is imported.
"""

import json
import shutil
import weakref
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dna.agents.arguments import changes_from, check_environment, either, starting_point
from dna.common.errors import BadInput, Preempted
from dna.common.randomness import generator, whole_seed
from dna.common.sb3_hints import missing, refuse_arguments
from dna.config import Config
from dna.config.overrides import tweak
from dna.envs.instances import World, codecs, plain_spaces

if TYPE_CHECKING:
    from dna.evaluation.evaluate import Evaluation
    from dna.evaluation.predictor import Predictor
    from dna.networks.networks import Networks
    from dna.runs.folder import RunFolder
    from dna.runs.policy import SavedPolicy
    from dna.runs.setup import How


class Player:
    """Acts with the newest policy of a run."""

    def __init__(
        self, config: Config, seed: int, world: World, folder: Path | str | None
    ) -> None:
        """A temporary folder is gone when the object is, or Python."""
        self.config, self.seed, self._world = config, seed, world
        self._temporary = folder is None
        if folder is None:
            made = mkdtemp(prefix="dna-")
            weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
            folder = Path(made) / "run"
        self._folder = Path(folder).absolute()  # an environment may go elsewhere
        self._from: Path | None = None  # where it was loaded from, until it learns
        self._encoder: Any = None
        self._trusted = False  # whether a module may be imported that an id names
        self._forget(None)

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return self._from or self._folder

    @property
    def _run(self) -> "RunFolder":
        from dna.runs.folder import RunFolder

        return RunFolder(self.folder)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row per iteration: interactions, score, losses, learning rates."""
        from dna.common.storage import read

        path = self.folder / "metrics.jsonl"
        lines = read(path).splitlines() if self._run.exists and path.is_file() else []
        return [json.loads(line) for line in lines]

    @property
    def score(self) -> float | None:
        """Mean of the last 100 episodes while learning; None before the first ends."""
        history = self.history
        return history[-1]["score"] if history else None

    @property
    def interactions(self) -> int:
        """How many were learned from."""
        history = self.history
        return int(history[-1]["interactions"]) if history else 0

    @property
    def num_timesteps(self) -> int:
        """SB3's name of `interactions`."""
        return self.interactions

    @cached_property
    def _spaces(self) -> tuple[Any, Any]:
        """(observation, action); of ids that only we make, those of the policy."""
        self._check_world("observation_space, action_space")
        found = self._world.spaces(self.config.env, self._trusted)
        if found is None:
            policy = self._policy(may_reset=True)
            found = plain_spaces(policy.preprocess.spec, policy.action)
        return found

    @property
    def observation_space(self) -> Any:
        """What `predict` takes one of, a space of Gymnasium's."""
        return self._spaces[0]

    @property
    def action_space(self) -> Any:
        """What `predict` gives one of, a space of Gymnasium's."""
        return self._spaces[1]

    if not TYPE_CHECKING:  # checkers of types are to see what there is, and no more

        def __getattr__(self, name: str) -> Any:
            """Names that SB3's models have are answered with what it is here."""
            raise missing(type(self).__name__, name)

    def plot(self) -> Any:
        """The learning curve, a matplotlib Figure (extra `media`)."""
        from dna.evaluation.plots import curves_figure

        if not self._run.exists:
            raise BadInput("plot: nothing is learned yet; call learn first")
        return curves_figure([self._run])

    def __repr__(self) -> str:
        what = self.config.env.id or self._world.name or "own environment"
        name = type(self).__name__
        return f"<{name} on {what}: {self.interactions:,} interactions, seed {self.seed}>"

    def _repr_html_(self) -> str:
        from dna.agents.notebook import card

        what = self.config.env.id or self._world.name or "own environment"
        return card(self.config.algorithm.upper(), what, self.seed, self.history)

    def _use(self, encoder: Any, name: str | None = None) -> None:
        """An encoder of ours by its name, or one from outside."""
        if not isinstance(encoder, str):
            from dna.networks.encoders import register_encoder

            self._encoder, encoder = encoder, register_encoder(encoder, name)
        self.config = tweak(self.config, **{"network.encoder": encoder})

    def _register(self) -> None:
        """Another agent may have registered another encoder under the same name since."""
        if self._encoder is not None:
            from dna.networks.encoders import PREFIX, register_encoder

            register_encoder(self._encoder, self.config.network.encoder.removeprefix(PREFIX))

    def _forget(self, networks: "Networks | None") -> None:
        """What was derived from weights that are no longer the newest."""
        self._networks = networks
        self._predictor: Predictor | None = None

    def _how(self, how: "How | None") -> "How":
        from dna.runs.setup import How

        how = how or How(tensorboard=not self._temporary)
        return replace(how, allow_import=how.allow_import or self._trusted)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_mask: Any = None,
        **others: Any,
    ) -> tuple[Any, None]:
        """(action, None) for one observation, or (actions, None) for a batch of them.

        In the environment's own spaces. `state` and `episode_start` are there because SB3's
        functions pass them; nothing here has a state.
        """
        refuse_arguments("predict", others)
        if self._predictor is None:
            self._predictor = self._make_predictor()
        found = self._predictor(observation, action_mask, deterministic=deterministic)
        return found, None

    def _make_predictor(self) -> "Predictor":
        from dna.evaluation.predictor import Predictor

        policy = self._policy(may_reset=False)
        spec, action = policy.preprocess.spec, policy.action
        self._check_world("predict")
        rng = generator(self.seed, "predict")
        return Predictor(policy, codecs(self._spaces, spec, action), rng)

    def evaluate(
        self, episodes: int = 20, seed: int | None = None, deterministic: bool = False
    ) -> "Evaluation":
        """Play whole episodes in new environments, seeded by themselves."""
        from dna.evaluation.evaluate import PARALLEL, Playing, evaluate

        if episodes < 1:
            raise BadInput(f"episodes: given {episodes}, must be at least 1")
        self._check_world("evaluate")
        agents, policy = self.config.agents, self._policy(may_reset=True)
        parallel = 1 if self._world.owned(agents) else PARALLEL
        how = Playing(
            self._trusted, self._world.source(agents, self.config.env), parallel=parallel
        )
        return evaluate(
            policy,
            self.config.env,
            episodes=episodes,
            seed=self.seed if seed is None else whole_seed(seed),
            deterministic=deterministic,
            how=how,
        )

    def _check_world(self, verb: str) -> None:
        if self._world.env is None and self.config.env.id is None:
            raise BadInput(f"{verb}: the run's environment came from Python; load with env=")

    def _policy(self, *, may_reset: bool) -> "SavedPolicy":
        """The newest policy; before there is one to read, an environment must be looked at."""
        from dna.evaluation.predictor import final_policy, policy_from, policy_now

        self._register()
        policy = final_policy(self._run)
        if policy is None and self._networks is not None:
            policy = policy_from(self._networks, self.config)
        if policy is not None:
            return policy
        self._check_world("predict")
        if self._world.owned(self.config.agents) and not may_reset:
            raise BadInput("predict: nothing is learned yet, and your environment is in use")
        from dna.envs.guard import close
        from dna.runs.setup import build_environments

        env = build_environments(
            self.config,
            self.seed,
            0,
            self._how(None),
            self._world.source(self.config.agents, self.config.env),
        )
        try:
            return policy_now(self._run, self.config, self.seed, env)
        finally:
            close(env)


if TYPE_CHECKING:
    from dna.runs.folder import RunFolder
    from dna.runs.setup import How


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
        from dna.runs.callbacks import Callbacks
        from dna.runs.text_progress import text_progress
        from dna.runs.train import train

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
        from dna.runs.extend import copy_run, lengthened
        from dna.runs.folder import RunFolder
        from dna.runs.start import check_goes_on

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
        from dna.runs.extend import copy_run

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
    from dna.runs.folder import RunFolder

    run = RunFolder(Path(path))
    if not run.exists and (run.policy / "manifest.json").is_file():
        raise BadInput(
            f"{path}: holds a policy without a run, as `dna import-sb3` writes it; "
            f"dna.hub.load reads it, `dna eval {path}` plays it"
        )
    return RunFolder.of(path)
