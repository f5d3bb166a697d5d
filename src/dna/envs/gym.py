"""Any Gymnasium environment: found by id or `module:factory`, stepped many at a time.

`GymVector` resets an environment in the step that ends its episode, so it has no rows that
only carry a reset, and keeps the true last observation beside.
"""

import importlib
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from dna.complaints import nearest, quoted
from dna.config import EnvConfig
from dna.envs import Array, Factory, Making, Source, State, Step, mujoco
from dna.envs.atari import rom_of
from dna.envs.guard import close, guard, one_line
from dna.envs.spaces import ActionCodec, ObservationCodec, check_finite
from dna.envs.vector import no_snapshot
from dna.errors import BadInput, MissingExtra
from dna.scores import atari_game, procgen_game
from dna.worlds import ATARI, PROCGEN


def factory(config: EnvConfig, *, allow_import: bool = False, render: bool = False) -> Source:
    """What makes one environment of this id; refuses ids that do not exist."""
    if not config.id:
        raise BadInput("env.id: which environment? For example CartPole-v1")
    options: dict[str, Any] = dict(config.options)
    if render:
        options["render_mode"] = "rgb_array"
    if ":" in config.id:
        return _imported(config.id, options, allow_import)
    _check_registered(config.id)
    return lambda: _make(config.id or "", options)


def _make(env_id: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        with mujoco.building(env_id, render="render_mode" in options):
            return gymnasium.make(env_id, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise BadInput(f"{env_id}: {str(error).splitlines()[0]}") from error
    except Exception as error:
        raise BadInput(f"{env_id}: cannot be made ({one_line(error)})") from error


def _check_registered(env_id: str) -> None:
    if env_id.startswith("MinAtar/"):
        register_minatar()
    if env_id.startswith(ATARI):
        rom_of(env_id)
    mujoco.check(env_id)
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.Error:
        raise BadInput(f"{quoted(env_id)}: no such environment{_hint(env_id)}") from None


def _hint(env_id: str) -> str:
    """The nearest id; a game's other names are ours to know, not Gymnasium's."""
    if game := atari_game(env_id):
        return f"; did you mean '{ATARI}{game}-v5'?"
    if game := procgen_game(env_id):
        return f"; did you mean '{PROCGEN}{game}'?"
    hint = nearest(env_id, list(gymnasium.registry))
    return hint or "; `dna list envs` shows what is installed"


def register_minatar() -> None:
    """MinAtar's ids appear only after its own call."""
    if "MinAtar/Breakout-v1" in gymnasium.registry:
        return
    try:
        minatar = importlib.import_module("minatar.gym")
    except ImportError:
        raise MissingExtra("MinAtar", "minatar") from None
    minatar.register_envs()


def _imported(env_id: str, options: dict[str, Any], allow_import: bool) -> Source:
    """`module:factory`, or Gymnasium's `module:Id-v0`; both run code of that module."""
    module_name, _, name = env_id.partition(":")
    if not allow_import:
        raise BadInput(f"{env_id}: would import the module {module_name}; add --allow-import")
    here = str(Path.cwd())
    if here not in sys.path:  # the installed command does not look where the user stands
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{env_id}: cannot import {module_name} ({one_line(error)})") from error
    if name in gymnasium.registry:
        return lambda: _make(name, options)
    made = getattr(module, name, None)
    if not callable(made):
        raise BadInput(f"{env_id}: {module_name} has neither a callable nor an id '{name}'")
    return lambda: _call(made, options)


def _call(made: Any, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """A user's factory; one that knows no `render_mode` may still draw pictures."""
    try:
        env: gymnasium.Env[Any, Any] = made(**options)
    except TypeError:
        if "render_mode" not in options:
            raise
        env = made(**{k: v for k, v in options.items() if k != "render_mode"})
    return env


class GymVector:
    """Many single environments in one process, on one thread or several."""

    can_hold = True

    def __init__(self, create: Factory, config: EnvConfig, making: Making) -> None:
        self.name = config.id or "environment"
        with guard(self.name):
            self.envs = [self._create(create) for _ in range(making.agents)]
            self._obs = ObservationCodec(self.envs[0].observation_space)
            self._action = ActionCodec(self.envs[0].action_space)
        if len({id(env) for env in self.envs}) < making.agents:
            raise BadInput(f"{self.name}: the factory must make a new environment each time")
        self.agents = making.agents
        self.seeds = making.seeds
        self.limit = config.max_episode_steps
        self.observation, self.action = self._obs.spec, self._action.spec
        self.elapsed = np.zeros(self.agents, dtype=np.int64)
        self.fps = int((self.envs[0].metadata or {}).get("render_fps") or 15)
        self.exact = all(mujoco.exact(env) for env in self.envs)
        self.threads = min(making.threads or 1, self.agents)
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    @staticmethod
    def _create(create: Factory) -> gymnasium.Env[Any, Any]:
        env = create()
        if not isinstance(env, gymnasium.Env):
            raise BadInput(f"the factory made a {type(env).__name__}, not a gymnasium.Env")
        return env

    def reset(self) -> Array:
        """Every environment from its own hashed seed."""
        obs = self._obs.empty(self.agents)
        self.elapsed[:] = 0
        with guard(self.name):
            for i, env in enumerate(self.envs):
                obs[i] = self._obs.encode(env.reset(seed=self.seeds[i])[0])
        check_finite("observation", obs)
        return obs

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """Step, and reset at once what ended; an inactive row is not valid."""
        out = Step(
            obs=self._obs.empty(self.agents),
            reward=np.zeros(self.agents, np.float32),
            terminated=np.zeros(self.agents, np.bool_),
            done=np.zeros(self.agents, np.bool_),
            valid=np.ones(self.agents, np.bool_) if active is None else active.copy(),
            final_obs={},
        )
        rows = np.flatnonzero(out.valid)
        if self.pool is None:
            self._step_rows(rows, action, out)
        else:
            parts = np.array_split(rows, self.threads)
            list(self.pool.map(lambda part: self._step_rows(part, action, out), parts))
        check_finite("observation", out.obs[rows], rows)
        check_finite("reward", out.reward)
        return out

    def _step_rows(self, rows: Array, action: Array, out: Step) -> None:
        for i in rows:
            with guard(self.name, i):
                self._step_one(int(i), action[i], out)

    def _step_one(self, i: int, action: Array, out: Step) -> None:
        obs, reward, terminated, truncated, _ = self.envs[i].step(self._action.decode(action))
        self.elapsed[i] += 1
        truncated = truncated or (self.limit is not None and self.elapsed[i] >= self.limit)
        out.reward[i], out.terminated[i] = reward, terminated
        if terminated or truncated:
            out.done[i] = True
            last = self._obs.empty(1)
            last[0] = self._obs.encode(obs)
            check_finite("final observation", last, [i])
            out.final_obs[i] = last[0]
            obs = self.envs[i].reset()[0]
            self.elapsed[i] = 0
        out.obs[i] = self._obs.encode(obs)

    def uniform(self, rng: np.random.Generator) -> Array:
        """Actions drawn uniformly from the space."""
        return self._action.uniform(rng, self.agents)

    def snapshot(self) -> State:
        """The tasks' own state and our count of steps."""
        if not self.exact:
            raise no_snapshot(self.name)
        with guard(self.name):
            return {"elapsed": self.elapsed.copy(), **mujoco.snapshot(self.envs)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Into environments just made; no reset is needed."""
        if not self.exact:
            raise no_snapshot(self.name)
        tasks = {name: array for name, array in state.items() if name != "elapsed"}
        with guard(self.name):
            mujoco.restore(self.envs, tasks)
            self.elapsed[:] = state["elapsed"]

    def picture(self) -> Array:
        """What the first environment draws."""
        with guard(self.name, 0):
            picture = self.envs[0].render()
        if not isinstance(picture, np.ndarray):
            raise BadInput(f"{self.name}: has no render_mode='rgb_array' pictures to record")
        return picture

    def close(self) -> None:
        """Close every environment and the threads."""
        if self.pool is not None:
            self.pool.shutdown()
        for env in self.envs:
            close(env)
