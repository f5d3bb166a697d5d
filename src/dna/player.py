"""A policy and the environment it belongs to: acting, evaluating, looking at what was learned.

What brings torch is imported when it is first used.
"""

import json
import shutil
import weakref
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from dna.config import Config
from dna.envs.instances import World, codecs, plain_spaces
from dna.errors import BadInput
from dna.habits import missing, refuse_arguments
from dna.randomness import generator, whole_seed
from dna.tweak import tweak

if TYPE_CHECKING:
    from dna.evaluate import Evaluation
    from dna.folder import RunFolder
    from dna.networks import Networks
    from dna.policy import SavedPolicy
    from dna.predict import Predictor
    from dna.setup import How


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
        from dna.folder import RunFolder

        return RunFolder(self.folder)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row per iteration: interactions, score, losses, learning rates."""
        from dna.storage import read

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
        from dna.plots import curves_figure

        if not self._run.exists:
            raise BadInput("plot: nothing is learned yet; call learn first")
        return curves_figure([self._run])

    def __repr__(self) -> str:
        what = self.config.env.id or self._world.name or "own environment"
        name = type(self).__name__
        return f"<{name} on {what}: {self.interactions:,} interactions, seed {self.seed}>"

    def _repr_html_(self) -> str:
        from dna.notebook import card

        what = self.config.env.id or self._world.name or "own environment"
        return card(self.config.algorithm.upper(), what, self.seed, self.history)

    def _use(self, encoder: Any, name: str | None = None) -> None:
        """An encoder of ours by its name, or one from outside."""
        if not isinstance(encoder, str):
            from dna.combined import register_encoder

            self._encoder, encoder = encoder, register_encoder(encoder, name)
        self.config = tweak(self.config, **{"network.encoder": encoder})

    def _register(self) -> None:
        """Another agent may have registered another encoder under the same name since."""
        if self._encoder is not None:
            from dna.combined import PREFIX, register_encoder

            register_encoder(self._encoder, self.config.network.encoder.removeprefix(PREFIX))

    def _forget(self, networks: "Networks | None") -> None:
        """What was derived from weights that are no longer the newest."""
        self._networks = networks
        self._predictor: Predictor | None = None

    def _how(self, how: "How | None") -> "How":
        from dna.setup import How

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
        from dna.predict import Predictor

        policy = self._policy(may_reset=False)
        spec, action = policy.preprocess.spec, policy.action
        self._check_world("predict")
        rng = generator(self.seed, "predict")
        return Predictor(policy, codecs(self._spaces, spec, action), rng)

    def evaluate(
        self, episodes: int = 20, seed: int | None = None, deterministic: bool = False
    ) -> "Evaluation":
        """Play whole episodes in new environments, seeded by themselves."""
        from dna.evaluate import PARALLEL, Playing, evaluate

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
        from dna.predict import final_policy, policy_from, policy_now

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
        from dna.setup import build_environments

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
