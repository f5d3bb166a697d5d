"""Any Gymnasium environment, many of them stepped one after the other in one process.

`GymVector` resets an environment in the step that ends its episode, so it has no rows that
only carry a reset, and keeps the true last observation beside.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from dna.common.errors import BadInput, EnvironmentFailure
from dna.config import EnvConfig
from dna.envs import ALL, Array, Factory, Making, State, Step, mujoco
from dna.envs.actions import action_codec, meanings_of, uniform_rows
from dna.envs.guard import close, guard
from dna.envs.masks import asked
from dna.envs.packing import PackedCodec, observer
from dna.envs.spaces import ObservationCodec, check_finite
from dna.envs.state import graph
from dna.envs.state.shared_generators import SharedDice
from dna.envs.vector import no_snapshot


class GymVector:
    """Many single environments in one process, on one thread or several."""

    can_hold = can_reseed = True

    def __init__(self, create: Factory, config: EnvConfig, making: Making) -> None:
        self.name = config.id or "environment"
        with guard(self.name):
            made = [self._create(create) for _ in range(making.agents)]
            if len({id(env) for env in made}) < making.agents:
                text = "the factory must make a new environment each time"
                raise BadInput(f"{self.name}: {text}")
            self.envs = [asked(env) for env in made]
            self._action = action_codec(self.envs[0].action_space)
            self._obs = self._codec(self.envs[0], making.seeds[0])
        self.agents = making.agents
        self.seeds = making.seeds
        self.limit = config.max_episode_steps
        self.observation, self.action = self._obs.spec, self._action.spec
        self.legal: Array | None = None  # [A, C] what may be chosen next; None: everything
        self.elapsed = np.zeros(self.agents, dtype=np.int64)
        self.upcoming: dict[int, int] = {}  # agent → seed of its next episode
        self.fps = int((self.envs[0].metadata or {}).get("render_fps") or 15)
        self.dice = SharedDice(self.name)
        self.mujoco = all(mujoco.exact(env) for env in self.envs)
        self.threads = min(making.threads or 1, self.agents)
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    @staticmethod
    def _create(create: Factory) -> gymnasium.Env[Any, Any]:
        env = create()
        if not isinstance(env, gymnasium.Env):
            raise BadInput(f"the factory made a {type(env).__name__}, not a gymnasium.Env")
        return env

    def _codec(self, env: gymnasium.Env[Any, Any], seed: int) -> ObservationCodec | PackedCodec:
        """Whether it says in `info` what is legal shows at a reset; the run begins with one."""
        action = self._action.spec
        info = env.reset(seed=seed)[1] if action.choices else {}
        return observer(env.observation_space, action, info)

    def reset(self) -> Array:
        """Every environment from its own hashed seed."""
        obs = self._obs.empty(self.agents)
        self.elapsed[:] = 0
        with guard(self.name), self.dice.watched():
            for i, env in enumerate(self.envs):
                obs[i] = self._obs.encode(*env.reset(seed=self.seeds[i]))
        check_finite("observation", self._obs.numbers(obs))
        self.legal = self._obs.legal(obs)
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
        with self.dice.watched():
            self._step_all(rows, action, out)
        check_finite("observation", self._obs.numbers(out.obs[rows]), rows)
        check_finite("reward", out.reward)
        if self.legal is not None:
            self.legal[rows] = self._obs.legal(out.obs[rows])
        return out

    def _step_all(self, rows: Array, action: Array, out: Step) -> None:
        if self.pool is None:
            self._step_rows(rows, action, out)
        else:
            parts = np.array_split(rows, self.threads)
            list(self.pool.map(lambda part: self._step_rows(part, action, out), parts))

    def _step_rows(self, rows: Array, action: Array, out: Step) -> None:
        for i in rows:
            with guard(self.name, i):
                self._step_one(int(i), action[i], out)

    def _step_one(self, i: int, action: Array, out: Step) -> None:
        decided = self._action.decode(action)
        obs, reward, terminated, truncated, info = self.envs[i].step(decided)
        self.elapsed[i] += 1
        truncated = truncated or (self.limit is not None and self.elapsed[i] >= self.limit)
        out.reward[i], out.terminated[i] = reward, terminated
        if terminated or truncated:
            out.done[i] = True
            last = self._obs.empty(1)
            last[0] = self._obs.encode(obs, info, final=True)
            check_finite("final observation", self._obs.numbers(last), [i])
            out.final_obs[i] = last[0]
            obs, info = self.envs[i].reset(seed=self.upcoming.pop(i, None))
            self.elapsed[i] = 0
        out.obs[i] = self._obs.encode(obs, info)

    def reseed(self, agent: int, seed: int) -> None:
        """The reset behind this agent's episode takes the seed."""
        self.upcoming[agent] = seed

    def uniform(
        self,
        rng: np.random.Generator,
        agents: int | None = None,
        own: slice = ALL,
        only: int | None = None,
    ) -> Array:
        """Actions drawn uniformly from the space, legal ones where that is known."""
        drawn = (agents or self.agents, own)
        return uniform_rows(self._action, rng, self.legal, drawn, only)

    @property
    def inexact(self) -> str | None:
        """What of the first environment cannot be saved, if anything."""
        own = None if self.mujoco else graph.opaque(self.envs[0], self.name)
        return self.dice.inexact or own

    def snapshot(self) -> State:
        """The environments' own state and our count of steps."""
        if self.dice.drawn:
            raise no_snapshot(self.name, f"the state of {self.dice.drawn}")
        elapsed = {"elapsed": self.elapsed.copy()}
        if self.legal is not None:
            elapsed["legal"] = self.legal.copy()
        with guard(self.name):
            if self.mujoco:
                return elapsed | mujoco.snapshot(self.envs)
            try:
                saved = [graph.save(env) for env in self.envs]
            except graph.Opaque as thing:
                raise no_snapshot(self.name, thing) from None
        parts = enumerate(saved)
        return elapsed | {f"{i}/{name}": a for i, part in parts for name, a in part.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Into environments just made; no reset is needed."""
        own = ("elapsed", "legal")
        rest = {name: array for name, array in state.items() if name not in own}
        with guard(self.name):
            if self.mujoco:
                mujoco.restore(self.envs, rest)
            else:
                self._restore_graphs(rest)
            self.elapsed[:] = state["elapsed"]
            if self._obs.spec.masked:
                self.legal = state["legal"].copy()

    def _restore_graphs(self, state: Mapping[str, Array]) -> None:
        self.reset()  # some objects are there only after it
        for i, env in enumerate(self.envs):
            start = f"{i}/"
            own = {k.removeprefix(start): a for k, a in state.items() if k.startswith(start)}
            try:
                graph.load(env, own)
            except graph.Mismatch as error:
                raise EnvironmentFailure(f"{self.name}: {error}") from error

    def picture(self) -> Array:
        """What the first environment draws."""
        picture: Any = None
        with guard(self.name, 0), suppress(NotImplementedError):  # Env.render's own answer
            picture = self.envs[0].render()
        if not isinstance(picture, np.ndarray):
            raise BadInput(f"{self.name}: has no render_mode='rgb_array' pictures to record")
        return picture

    def meanings(self) -> tuple[str, ...]:
        """As the environment calls them."""
        return meanings_of(self.envs[0].unwrapped, self.action)

    def close(self) -> None:
        """Close every environment and the threads."""
        if self.pool is not None:
            self.pool.shutdown()
        for env in self.envs:
            close(env)
