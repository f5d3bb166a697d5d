"""`DNA`, `PPO` and `PPG` as objects that learn, predict, save and load.

A thin layer over `dna.runs.train.train`: the same configuration and seed give a
byte-identical run. Settings are checked before torch is imported, which is why methods import
the modules that need it.
"""

import shutil
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel

from dna.common.errors import BadInput, EnvironmentTimeout, Preempted
from dna.common.messages import no_attribute, quoted, refuse_arguments
from dna.common.randomness import generator, whole_seed
from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets import FAMILIES, family, for_environment, preset
from dna.envs.factory import UserEnv, codecs, plain_spaces

#: Preset families for environments that only this package makes.
OWN_FAMILIES = ("tuned", "procgen")


class TemporaryRun:
    """A temporary folder for a run, removed at exit or when no agent uses it any more."""

    #: The folder of a run → the object that keeps it.
    existing: ClassVar["weakref.WeakValueDictionary[Path, TemporaryRun]"] = (
        weakref.WeakValueDictionary()
    )

    def __init__(self) -> None:
        made = mkdtemp(prefix="dna-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        self.folder = Path(made).resolve() / "run"
        self.existing[self.folder] = self


def check_environment(env: Any) -> None:
    """Refuse None, and a policy class, which is SB3's first argument."""
    if env is None:
        raise BadInput("env: which environment? For example CartPole-v1")
    name = env if isinstance(env, str) else getattr(env, "__name__", "")
    if name.endswith("Policy"):
        raise BadInput(
            f"env: {quoted(name)}: there is no policy class to choose here, the encoder "
            "follows from the observations; leave it out: PPO('CartPole-v1')"
        )


def changes_from(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides with dotted names: `policy__sgd__epochs` is `policy.sgd.epochs`."""
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        path = name.replace("__", ".")
        if path in changes:
            raise BadInput(f"{path}: given twice")
        changes[path] = _plain(value)
    if "env.id" in changes:
        raise BadInput("env.id: is set by the first argument; leave it out here")
    return changes


def _plain(value: Any) -> Any:
    """Convert settings models to the JSON that `tweak` takes."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def either(interactions: Any, total_timesteps: Any) -> int | None:
    """Return the value of whichever of the two is given; whole floats such as 1e6 count."""
    if interactions is not None and total_timesteps is not None:
        raise BadInput("learn: interactions and total_timesteps mean the same; give one")
    asked = total_timesteps if interactions is None else interactions
    if isinstance(asked, float) and asked.is_integer():
        asked = int(asked)
    if asked is not None and (
        isinstance(asked, bool) or not isinstance(asked, int) or asked < 1
    ):
        raise BadInput(f"interactions: given {asked!r}, must be an integer of at least 1")
    return asked


def starting_point(
    world: UserEnv,
    algorithm: str | None,
    start: str | Config | None,
    changes: Mapping[str, Any],
) -> Config:
    """Return the named preset, or that of the environment, adapted to the environment."""
    config = _named(world, algorithm, start)
    known = algorithm is None or config.algorithm not in FAMILIES["small"].presets
    if not known and config.algorithm != algorithm:
        name = start if isinstance(start, str) else "this one"
        other = config.algorithm.upper()
        raise BadInput(f"preset: {name} is for {other}, not {(algorithm or '').upper()}")
    if world.agents is None or "agents" in changes:
        return config
    return _sized(config, world.agents, fixed="horizon" in changes)


def _named(world: UserEnv, algorithm: str | None, start: str | Config | None) -> Config:
    try:
        if isinstance(start, Config):
            return tweak(start, **{"env.id": world.id})
        if isinstance(start, str):
            return tweak(preset(start), **{"env.id": world.id})
        if world.id is not None:
            return for_environment(world.id, algorithm)
    except BadInput as error:
        raise BadInput(str(error).removeprefix("--")) from None
    kin = family(world.name or "")
    return preset(f"{'small' if kin in OWN_FAMILIES else kin}.{algorithm or 'dna'}")


def _sized(config: Config, agents: int, *, fixed: bool) -> Config:
    """Return the settings for that many agents; the rollout keeps its size if possible."""
    changes: dict[str, Any] = {"agents": agents}
    if not fixed and config.batch % agents == 0:
        changes["horizon"] = config.batch // agents
    return tweak(config, **changes)


if TYPE_CHECKING:
    from dna.evaluation.evaluate import Evaluation
    from dna.evaluation.predictor import Predictor
    from dna.networks.networks import Networks
    from dna.runs.folder import RunFolder
    from dna.runs.policy import SavedPolicy
    from dna.runs.setup import How


class Agent:
    """An agent and the run that it learns in."""

    algorithm: ClassVar[str | None] = None  # None: any
    _networks: "Networks | None"
    _predictor: "Predictor | None"

    # ── Creating, saving, loading ─────────────────────────────────────────────────────────

    def __init__(
        self,
        env: Any,
        preset: str | Config | None = None,
        seed: int = 0,
        encoder: Any = None,
        folder: Path | str | None = None,
        **overrides: Any,
    ) -> None:
        """Check the settings; nothing is trained or written yet.

        `env` is an id, an environment, a function that makes one, or a Gymnasium `VectorEnv`.
        `overrides` are settings: `policy__sgd__epochs=1` or `**{"policy.sgd.epochs": 1}`.
        """
        check_environment(env)
        world = UserEnv(env)
        changes = changes_from(overrides)
        config = tweak(starting_point(world, self.algorithm, preset, changes), **changes)
        self._set_up(config, whole_seed(seed), world, folder)
        self._trusted = ":" in (world.id or "")  # passing a module's name permits its import
        if world.agents not in (None, config.agents):
            raise BadInput(
                f"agents: given {config.agents}, but the VectorEnv has {world.agents}"
            )
        if encoder is not None:
            self._use_encoder(encoder)

    def _set_up(
        self, config: Config, seed: int, world: UserEnv, folder: Path | str | None
    ) -> None:
        """Set all attributes."""
        self.config = config
        self.seed = seed
        self._world = world
        self._temporary: TemporaryRun | None = None
        if folder is None:
            self._temporary = TemporaryRun()
            folder = self._temporary.folder
        self._folder = Path(folder).absolute()  # an environment may change the directory
        self._loaded_from: Path | None = None  # until it learns
        self._source: TemporaryRun | None = None  # of another agent, which may go before
        self._begun = False
        self._stuck = False  # whether a call into the user's own environment never returned
        self._encoder: Any = None
        self._trusted = False  # whether a module named by an id may be imported
        self._set_networks(None)

    @classmethod
    def load(
        cls,
        path: Path | str,
        env: Any = None,
        encoder: Any = None,
        folder: Any = None,
        **others: Any,
    ) -> Self:
        """Load the agent of a run's folder, or of one that `save` wrote.

        `env` is needed if the run's environment came from Python, `encoder` if its encoder did.
        Learning continues in `folder`, or in a temporary one: the loaded folder stays as it is
        unless `folder` is that same folder.
        """
        refuse_arguments("load", others)
        run = _run_of(path)
        config, seed = run.read()
        if cls.algorithm not in (None, config.algorithm):
            raise BadInput(f"{path}: holds a run of {config.algorithm}; load it with dna.load")
        self = cls.__new__(cls)
        named = env is not None and env == config.env.id
        self._set_up(config, seed, UserEnv(None if named else env), folder)
        self._begun = True
        self._trusted = isinstance(env, str)
        if self._folder.resolve() != run.path.resolve():
            self._loaded_from = run.path
            self._source = TemporaryRun.existing.get(run.path.resolve())
        if encoder is not None:
            self._use_encoder(encoder, config.network.encoder.removeprefix("custom:"))
            if self.config != config:
                raise BadInput(f"encoder: the run has its own, {config.network.encoder}")
        return self

    def save(self, path: Path | str, overwrite: bool = False) -> Path:
        """Copy the run as it stands to a folder that `load` reads; return the folder."""
        from dna.runs.extend import copy_run

        if not self._run.exists:
            raise BadInput("save: nothing has been learned yet; call learn first")
        copy_run(self._run, Path(path), overwrite=overwrite)
        return Path(path)

    # ── Learning ──────────────────────────────────────────────────────────────────────────

    def learn(
        self,
        interactions: int | None = None,
        callback: Any = None,
        progress: bool = True,
        how: "How | None" = None,
        total_timesteps: int | None = None,
        **others: Any,
    ) -> Self:
        """Learn for that many (more) interactions; None: as many as the settings say.

        `callback` is one callback or a list of them (`dna.callbacks`). `total_timesteps` is
        SB3's name for `interactions`.
        """
        refuse_arguments("learn", others)
        self._check_environment("learn")
        self._check_returned("learn")
        asked = either(interactions, total_timesteps)
        from dna.runs.callbacks import Callbacks
        from dna.runs.text_progress import rounding_note, text_progress
        from dna.runs.train import train

        given = callback if isinstance(callback, list | tuple) else [callback]
        callbacks = Callbacks(*(one for one in given if one is not None))
        source = self._world.source(self.config.agents, self.config.env)
        self.config = self._config_to_learn(asked)
        self._register_encoder()
        how = self._how(how)
        new_budget = asked is not None or not self._begun
        note = rounding_note(self.config) if new_budget else ""
        sinks = [callbacks, text_progress(progress, note)]
        try:
            train(self.config, self.seed, self._folder, how=how, sinks=sinks, source=source)
        except Preempted:
            if not callbacks.stopped:
                raise
        except EnvironmentTimeout as error:
            self._stuck = self._world.owned(self.config.agents)
            error.args = (f"{error}; {self._after_hang()}",)
            raise
        finally:  # a run that was refused does not belong to this agent
            self._begun = self._begun or callbacks.networks is not None
            self._set_networks(callbacks.networks)
        self._begun = True
        return self

    def _config_to_learn(self, asked: int | None) -> Config:
        """Return the settings to train with; a loaded run is copied to this agent's folder."""
        from dna.runs.extend import copy_run, lengthened
        from dna.runs.folder import RunFolder
        from dna.runs.start import check_goes_on

        own = self.config.env.id
        if own is not None and self._world.env is not None and self._world.id != own:
            raise BadInput(f"learn: this agent learned in {own}; make a new one for another")
        if self._begun and not (asked is None and self._run.done):
            check_goes_on(self._run)
        if self._loaded_from is not None:
            copy_run(RunFolder(self._loaded_from), self._folder)
            self._loaded_from = None
            self._source = None
        if self._begun and self._run.exists:
            return lengthened(self._run, asked)
        return self.config if asked is None else tweak(self.config, interactions=asked)

    def _how(self, how: "How | None") -> "How":
        from dna.runs.setup import How

        how = how or How(tensorboard=self._temporary is None)
        return replace(how, allow_import=how.allow_import or self._trusted)

    def _use_encoder(self, encoder: Any, name: str | None = None) -> None:
        """Use a built-in encoder by its name, or register one from Python."""
        if not isinstance(encoder, str):
            from dna.networks.encoders import register_encoder

            self._encoder = encoder
            encoder = register_encoder(encoder, name)
        self.config = tweak(self.config, **{"network.encoder": encoder})

    def _register_encoder(self) -> None:
        """Register the encoder again: another agent may have used its name since."""
        if self._encoder is not None:
            from dna.networks.encoders import PREFIX, register_encoder

            register_encoder(self._encoder, self.config.network.encoder.removeprefix(PREFIX))

    # ── Acting ────────────────────────────────────────────────────────────────────────────

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_mask: Any = None,
        **others: Any,
    ) -> tuple[Any, None]:
        """Return (action, None) for one observation, or (actions, None) for a batch.

        Observations and actions are in the environment's own spaces. `state` and
        `episode_start` exist because SB3's functions pass them; policies here have no state.
        """
        refuse_arguments("predict", others)
        if self._predictor is None:
            self._predictor = self._make_predictor()
        actions = self._predictor(observation, action_mask, deterministic=deterministic)
        return actions, None

    def _make_predictor(self) -> "Predictor":
        from dna.evaluation.predictor import Predictor

        policy = self._policy(may_reset=False)
        self._check_environment("predict")
        observer, codec = codecs(self._spaces, policy.preprocess.spec, policy.action)
        return Predictor(policy, observer, codec, generator(self.seed, "predict"))

    def evaluate(
        self, episodes: int = 20, seed: int | None = None, deterministic: bool = False
    ) -> "Evaluation":
        """Play whole episodes in new environments, each with its own seed."""
        from dna.evaluation.evaluate import PARALLEL, Playing, evaluate

        if episodes < 1:
            raise BadInput(f"episodes: given {episodes}, must be at least 1")
        self._check_environment("evaluate")
        self._check_returned("evaluate")
        agents = self.config.agents
        policy = self._policy(may_reset=True)
        how = Playing(
            self._trusted,
            self._world.source(agents, self.config.env),
            parallel=1 if self._world.owned(agents) else PARALLEL,
        )
        return evaluate(
            policy,
            self.config.env,
            episodes=episodes,
            seed=self.seed if seed is None else whole_seed(seed),
            deterministic=deterministic,
            how=how,
        )

    def _policy(self, *, may_reset: bool) -> "SavedPolicy":
        """Return the newest policy; without one, build it from an environment's spaces."""
        from dna.evaluation.predictor import final_policy, policy_from, policy_now

        self._register_encoder()
        policy = final_policy(self._run)
        if policy is None and self._networks is not None:
            policy = policy_from(self._networks, self.config)
        if policy is not None:
            return policy
        if self._begun and not self._run.exists:
            raise BadInput(f"{self.folder}: its run is gone; load or train again")
        self._check_environment("predict")
        if self._world.owned(self.config.agents) and not may_reset:
            raise BadInput(
                "predict: nothing has been learned yet, and your environment is in use"
            )
        from dna.envs.protocol import close
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

    def _set_networks(self, networks: "Networks | None") -> None:
        """Keep the newest networks and drop what was derived from older ones."""
        self._networks = networks
        self._predictor = None

    def _check_environment(self, verb: str) -> None:
        if self._world.env is None and self.config.env.id is None:
            raise BadInput(f"{verb}: the run's environment came from Python; load with env=")

    def _after_hang(self) -> str:
        """Advise what to do after a call into the environments did not return."""
        from dna.runs.checkpoint import names

        if self._stuck:
            return "save(FOLDER) this agent, and dna.load(FOLDER, env=…) with a new environment"
        if names(self._run.path):
            return "learn() continues from the last checkpoint"
        return "learn() starts from the beginning"

    def _check_returned(self, verb: str) -> None:
        """Refuse to use an environment that a hanging call may still be changing."""
        if self._stuck:
            raise BadInput(
                f"{verb}: a call into your environment did not return, it is not used again; "
                f"{self._after_hang()}"
            )

    @cached_property
    def _spaces(self) -> tuple[Any, Any]:
        """(observation, action) spaces; those of the policy where Gymnasium has none."""
        self._check_environment("observation_space, action_space")
        found = self._world.spaces(self.config.env, self._trusted)
        if found is None:
            policy = self._policy(may_reset=True)
            found = plain_spaces(policy.preprocess.spec, policy.action)
        return found

    @property
    def observation_space(self) -> Any:
        """The Gymnasium space of the observations that `predict` takes."""
        return self._spaces[0]

    @property
    def action_space(self) -> Any:
        """The Gymnasium space of the actions that `predict` returns."""
        return self._spaces[1]

    # ── Progress ──────────────────────────────────────────────────────────────────────────

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._loaded_from or self._folder

    @property
    def _run(self) -> "RunFolder":
        from dna.runs.folder import RunFolder

        return RunFolder(self.folder)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row per iteration: interactions, score, losses, learning rates."""
        from dna.common.json_lines import rows

        path = self._metrics
        return [] if path is None else list(rows(path, "score"))

    @property
    def _metrics(self) -> Path | None:
        """The log of the iterations; None before the first one."""
        path = self.folder / "metrics.jsonl"
        return path if self._run.exists and path.is_file() else None

    @property
    def _last_row(self) -> dict[str, Any]:
        from dna.common.json_lines import last_row

        path = self._metrics
        return (None if path is None else last_row(path)) or {}

    @property
    def score(self) -> float | None:
        """Mean score of the last 100 training episodes; None before the first one ends."""
        score: float | None = self._last_row.get("score")
        return score

    @property
    def interactions(self) -> int:
        """Interactions learned from so far."""
        return int(self._last_row.get("interactions", 0))

    @property
    def num_timesteps(self) -> int:
        """SB3's name for `interactions`."""
        return self.interactions

    def plot(self) -> Any:
        """Return the learning curve as a matplotlib Figure (extra `media`)."""
        from dna.evaluation.plots import curves_figure

        if not self._run.exists:
            raise BadInput("plot: nothing has been learned yet; call learn first")
        return curves_figure([self._run])

    @property
    def _environment_name(self) -> str:
        return self.config.env.id or self._world.name or "custom environment"

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} on {self._environment_name}: "
            f"{self.interactions:,} interactions, seed {self.seed}>"
        )

    def _repr_html_(self) -> str:
        from dna.agents.notebook import card

        algorithm = self.config.algorithm.upper()
        return card(algorithm, self._environment_name, self.seed, self.history)

    if not TYPE_CHECKING:  # type checkers should see only the attributes that exist

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the equivalent of an SB3 attribute here."""
            raise no_attribute(type(self).__name__, name)


class DNA(Agent):
    """Two networks, and distillation from one to the other (the paper's algorithm)."""

    algorithm = "dna"


class PPO(Agent):
    """One network trained with both losses."""

    algorithm = "ppo"


class PPG(Agent):
    """Two networks, and an auxiliary phase every few iterations."""

    algorithm = "ppg"


def load(
    path: Path | str, env: Any = None, encoder: Any = None, folder: Any = None, **others: Any
) -> Agent:
    """Load the agent of a run's folder as `DNA`, `PPO`, `PPG` or `Agent`."""
    algorithm = _run_of(path).read()[0].algorithm
    kinds: dict[str, type[Agent]] = {"dna": DNA, "ppo": PPO, "ppg": PPG}
    return kinds.get(algorithm, Agent).load(path, env, encoder, folder, **others)


def _run_of(path: Path | str) -> "RunFolder":
    """Return the run in a folder; a policy alone lacks the settings that an agent needs."""
    from dna.runs.folder import RunFolder

    run = RunFolder(Path(path))
    if not run.exists and (run.policy / "manifest.json").is_file():
        raise BadInput(
            f"{path}: holds a policy without a run, as `dna import-sb3` writes it; "
            f"dna.hub.load reads it, `dna eval {path}` plays it"
        )
    return RunFolder.of(path)
