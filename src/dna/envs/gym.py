"""Gymnasium environments, single or vector, behind the package's `VectorEnv` protocol.

`GymVector` steps single environments in one process, on one thread or several. It resets an
environment in the step that ends its episode and keeps the true last observation, so that no
row records only a reset. `VectorAdapter` wraps an existing `gymnasium.vector.VectorEnv` in any
autoreset mode:

| mode | what the library does | what the adapter does |
|---|---|---|
| NEXT_STEP | the step after an end only resets: action ignored, reward 0 | row not valid |
| SAME_STEP | the ending step already shows the new episode | read `info["final_obs"]` |
| DISABLED | nothing | reset by mask after the step, keep the last observation |
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from dna.common.errors import BadInput, EnvironmentFailure
from dna.common.messages import shown, text_of
from dna.common.randomness import integer
from dna.common.threads import DaemonThread
from dna.config import EnvConfig
from dna.envs import mujoco
from dna.envs.protocol import (
    ALL,
    Array,
    Factory,
    Making,
    State,
    Step,
    check_finite,
    close,
    guard,
    unsaveable,
)
from dna.envs.spaces import (
    NUMBERS,
    Codec,
    Observer,
    action_codec,
    meanings_of,
    observation_codec,
    row_of,
    uniform_rows,
)
from dna.envs.specs import MASK
from dna.envs.state import graph
from dna.envs.state.comparison import SHARING
from dna.envs.state.generators import GlobalDraws
from dna.envs.state.outside import Outside

#: sb3-contrib's method that returns the action mask, on the environment or a wrapper of it.
MASK_METHOD = "action_masks"


#: Types of most rewards.
_USUAL = frozenset((float, int, np.float64, np.float32))
#: What Gymnasium's methods return, for errors about environments with the older gym API.
RESET_API = "Gymnasium's reset(seed=None, options=None) returns obs, info"
STEP_API = "Gymnasium's step returns obs, reward, terminated, truncated, info"


class ActionMaskInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts the result of `action_masks()` into `info["action_mask"]`, unless that is there."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and add its mask."""
        observation, info = reset_of(self.env, seed=seed, options=options)
        return observation, self._with_mask(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and add its mask, unless the episode is over."""
        observation, reward, terminated, truncated, info = step_of(self.env, action)
        if not (terminated or truncated):
            info = self._with_mask(info)
        return observation, reward, terminated, truncated, info

    def _with_mask(self, info: dict[str, Any] | None) -> dict[str, Any]:
        if info and MASK in info:
            return info
        return {**(info or {}), MASK: self.env.get_wrapper_attr(MASK_METHOD)()}


def reset_of(env: Any, **how: Any) -> tuple[Any, Any]:
    """Reset an environment; the error for one with the older gym API states Gymnasium's."""
    try:
        found = env.reset(**how)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" in text_of(error):
            raise TypeError(f"reset takes no seed; {RESET_API}") from error
        raise
    except ValueError as error:  # a wrapper of such an environment
        if "to unpack (expected 2" in text_of(error):
            raise ValueError(f"{text_of(error)}; {RESET_API}") from error
        raise
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise TypeError(f"reset returned {_returned(found)}; {RESET_API}")
    observation, info = found
    return observation, info


def step_of(env: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Step an environment; the error for one with the older gym API states Gymnasium's."""
    try:
        found = env.step(action)
    except ValueError as error:  # a wrapper of such an environment
        if "to unpack (expected 5" in text_of(error):
            raise ValueError(f"{text_of(error)}; {STEP_API}") from error
        raise
    if not isinstance(found, tuple | list) or len(found) != 5:
        raise TypeError(f"step returned {_returned(found)}; {STEP_API}")
    observation, reward, terminated, truncated, info = found
    return observation, reward, terminated, truncated, info


def number(name: str, value: Any) -> Any:
    """Check and return a reward; numpy would silently convert text, None and some arrays."""
    # The usual types first: this is called at every step of every environment.
    if type(value) in (float, int) or isinstance(
        value, float | int | np.floating | np.integer | np.bool_
    ):
        return value
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in NUMBERS:
        raise TypeError(f"{name} is {shown(repr(value), 60)}, not a number")
    return array


def boolean(name: str, value: Any) -> bool:
    """Check and return an episode-end flag; `bool` would accept any object."""
    if value is False or value is True:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in NUMBERS or array not in (0, 1):
        raise TypeError(f"{name} is {shown(repr(value), 60)}, not a bool")
    return bool(array)


def _returned(found: Any) -> str:
    several = isinstance(found, tuple | list)
    return f"{len(found)} values" if several else f"a {type(found).__name__:.40}"


def has_mask_method(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether masks come from `action_masks()`: it exists, and no observation has a mask."""
    space = env.observation_space
    if isinstance(space, gymnasium.spaces.Dict) and MASK in space.spaces:
        return False
    return env.has_wrapper_attr(MASK_METHOD) and callable(env.get_wrapper_attr(MASK_METHOD))


class _Adapter:
    """What single and vector environments of Gymnasium have in common."""

    name: str
    agents: int
    draws: GlobalDraws
    legal: Array | None = None  # [A, C] choices that are legal next; None: all
    _action: Codec
    _obs: Observer

    def uniform(
        self,
        rng: np.random.Generator,
        agents: int | None = None,
        own: slice = ALL,
        only: int | None = None,
    ) -> Array:
        """Actions drawn uniformly from the space, legal ones if there is a mask."""
        total = agents or self.agents
        return uniform_rows(self._action, rng, self.legal, agents=total, own=own, only=only)

    def _check_saveable(self) -> None:
        if self.draws.drawn:
            raise unsaveable(self.name, f"the state of {self.draws.drawn}")


class GymVector(_Adapter):
    """Many single environments in one process, on one thread or several."""

    can_hold = True
    can_reseed = True

    def __init__(self, create: Factory, config: EnvConfig, making: Making) -> None:
        self.name = config.id or "environment"
        with guard(self.name):
            self.envs = self._made(create, making.agents)
            self._action = action_codec(self.envs[0].action_space)
            self._obs = self._codec(self.envs[0], making.seeds[0])
        self.create = create
        self.config = config
        self.agents = making.agents
        self.seeds = making.seeds
        self.limit = config.max_episode_steps
        self.observation = self._obs.spec
        self.action = self._action.spec
        self.elapsed = np.zeros(self.agents, dtype=np.int64)
        self.upcoming: dict[int, int] = {}  # agent → seed of its next episode
        self.fps = int((self.envs[0].metadata or {}).get("render_fps") or 15)
        self.draws = GlobalDraws(self.name)
        self.mujoco = all(mujoco.exact(env) for env in self.envs)
        self.threads = min(making.threads or 1, self.agents)
        numbers = range(self.threads if self.threads > 1 else 0)
        self.pool = [DaemonThread(f"environments {i}") for i in numbers]

    def _made(self, create: Factory, agents: int) -> list[gymnasium.Env[Any, Any]]:
        made = [self._create(create) for _ in range(agents)]
        if len({id(env) for env in made}) < agents:
            raise BadInput(f"{self.name}: the factory must make a new environment each time")
        return [ActionMaskInfo(env) if has_mask_method(env) else env for env in made]

    @staticmethod
    def _create(create: Factory) -> gymnasium.Env[Any, Any]:
        env = create()
        if not isinstance(env, gymnasium.Env):
            raise BadInput(f"the factory made a {type(env).__name__}, not a gymnasium.Env")
        return env

    def _codec(self, env: gymnasium.Env[Any, Any], seed: int) -> Observer:
        """Reset to see whether `info` has a mask; every run begins with another reset."""
        action = self._action.spec
        info = reset_of(env, seed=seed)[1] if action.choices else {}
        return observation_codec(env.observation_space, action, info)

    def reset(self) -> Array:
        """Reset every environment with its own hashed seed."""
        obs = self._obs.empty(self.agents)
        self.elapsed[:] = 0
        with guard(self.name), self.draws.watched():
            for i, env in enumerate(self.envs):
                obs[i] = self._obs.encode(*reset_of(env, seed=self.seeds[i]))
        check_finite("observation", self._obs.numbers(obs))
        self.legal = self._obs.legal(obs)
        return obs

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """Step, and reset at once where an episode ended; inactive rows are not valid."""
        out = Step(
            obs=self._obs.empty(self.agents),
            reward=np.zeros(self.agents, np.float32),
            terminated=np.zeros(self.agents, np.bool_),
            done=np.zeros(self.agents, np.bool_),
            valid=np.ones(self.agents, np.bool_) if active is None else active.copy(),
            final_obs={},
        )
        rows = np.arange(self.agents) if active is None else np.flatnonzero(active)
        with self.draws.watched():
            self._step_all(rows, action, out)
        seen = out.obs if active is None else out.obs[rows]
        check_finite("observation", self._obs.numbers(seen), rows)
        check_finite("reward", out.reward)
        if self.legal is not None:
            self.legal[rows] = self._obs.legal(seen)
        return out

    def _step_all(self, rows: Array, action: Array, out: Step) -> None:
        if not self.pool:
            self._step_rows(rows, action, out)
            return
        parts = np.array_split(rows, len(self.pool))
        for thread, part in zip(self.pool, parts, strict=True):
            thread.start(partial(self._step_rows, part, action, out))
        for outcome in [thread.wait() for thread in self.pool]:
            assert outcome is not None
            outcome.get()

    def _step_rows(self, rows: Array, action: Array, out: Step) -> None:
        within = guard(self.name)  # one for all rows: entering it at each would take time
        with within:
            for i in rows.tolist():
                within.agent = i
                self._step_one(i, action[i], out)

    def _step_one(self, i: int, action: Array, out: Step) -> None:
        env = self.envs[i]
        obs, reward, terminated, truncated, info = step_of(env, self._action.decode(action))
        out.reward[i] = number("reward", reward)
        self.elapsed[i] += 1
        late = self.limit is not None and self.elapsed[i] >= self.limit
        ended = boolean("terminated", terminated)
        if boolean("truncated", truncated) or ended or late:
            out.terminated[i] = ended
            out.done[i] = True
            last = self._obs.empty(1)
            last[0] = self._obs.encode(obs, info, final=True)
            check_finite("final observation", self._obs.numbers(last), [i])
            out.final_obs[i] = last[0]
            obs, info = reset_of(env, seed=self.upcoming.pop(i, None))
            self.elapsed[i] = 0
        out.obs[i] = self._obs.encode(obs, info)

    def reseed(self, agent: int, seed: int) -> None:
        """Use this seed for the reset at the end of this agent's episode."""
        self.upcoming[agent] = seed

    def first(self, state: State, agents: int) -> State:
        """The part of a snapshot that belongs to the first agents."""
        kept: State = {}
        for name, array in state.items():
            number, _, inner = name.partition("/")
            if not inner and name != SHARING:
                kept[name] = array[:agents]
            elif inner and int(number) < agents:
                kept[name] = array
        return kept

    def made_again(self, agents: int) -> "GymVector":
        """This many new environments from the same factory, with other seeds."""
        seeds = tuple(integer(seed, "made again") for seed in self.seeds[:agents])
        return GymVector(self.create, self.config, Making(agents, seeds))

    @property
    def inexact(self) -> str | None:
        """What part of the first environment cannot be saved, if any."""
        own = None if self.mujoco else graph.opaque(self.envs[0], self.name)
        return self.draws.inexact or own

    def snapshot(self) -> State:
        """The environments' own state, the step counts and the masks."""
        self._check_saveable()
        state = {"elapsed": self.elapsed.copy()}
        if self.legal is not None:
            state["legal"] = self.legal.copy()
        with guard(self.name):
            if self.mujoco:
                return state | mujoco.snapshot(self.envs)
            try:
                names = Outside(self.envs).names()
                graphs, sharing = graph.save_all(self.envs, names)
            except graph.Opaque as thing:
                raise unsaveable(self.name, thing) from None
        if self.agents > 1:
            state[SHARING] = np.frombuffer(json.dumps(sharing).encode(), np.uint8)
        for i, part in enumerate(graphs):
            for name, array in part.items():
                state[f"{i}/{name}"] = array
        return state

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore into newly made environments, which need no reset first."""
        rest = {name: a for name, a in state.items() if name not in ("elapsed", "legal")}
        with guard(self.name):
            if self.mujoco:
                mujoco.restore(self.envs, rest)
            else:
                self._restore_graphs(rest)
            self.elapsed[:] = state["elapsed"]
            if self._obs.spec.masked:
                self.legal = state["legal"].copy()

    def _restore_graphs(self, state: Mapping[str, Array]) -> None:
        self.reset()  # some objects exist only after it
        parts = []
        for i in range(self.agents):
            start = f"{i}/"
            own = {k.removeprefix(start): a for k, a in state.items() if k.startswith(start)}
            parts.append(own)
        try:
            graph.load_all(self.envs, parts, self._sharing(state), Outside(self.envs))
        except (graph.Mismatch, ValueError, TypeError) as error:
            with suppress(Exception):  # half restored, these may not even survive a reset
                self.envs = self._made(self.create, self.agents)
            raise EnvironmentFailure(f"{self.name}: {error}") from error

    def _sharing(self, state: Mapping[str, Array]) -> graph.Sharing | None:
        """Which objects the environments of a snapshot share; None: not recorded."""
        if SHARING not in state:
            return None if self.agents > 1 else []
        rows: Any = json.loads(state[SHARING].tobytes())
        if not all(len(row) == 4 and all(type(x) is int for x in row) for row in rows):
            raise graph.Mismatch("not a list of what environments share")
        found: graph.Sharing = rows
        return found

    def picture(self) -> Array:
        """The first environment's rendered frame."""
        picture: Any = None
        with guard(self.name, 0), suppress(NotImplementedError):  # what Env.render raises
            picture = self.envs[0].render()
        if not isinstance(picture, np.ndarray):
            raise BadInput(f"{self.name}: has no render_mode='rgb_array' pictures to record")
        return picture

    def meanings(self) -> tuple[str, ...]:
        """The environment's own names of its actions."""
        return meanings_of(self.envs[0].unwrapped, self.action)

    def close(self) -> None:
        """Close every environment and the threads."""
        for thread in self.pool:
            thread.end()
        for thread in self.pool:
            thread.join()
        for env in self.envs:
            close(env, self.name)


class VectorAdapter(_Adapter):
    """Adapts an existing Gymnasium vector environment, whose steps become `Step`s."""

    can_hold = False
    can_reseed = False
    fps = 15

    def __init__(
        self, env: GymnasiumVectorEnv[Any, Any, Any], config: EnvConfig, seeds: tuple[int, ...]
    ) -> None:
        if config.max_episode_steps is not None:
            raise BadInput(
                "env.max_episode_steps: a ready VectorEnv sets its own limit; leave it null"
            )
        self.env = env
        self.name = config.id or type(env).__name__
        self.agents = env.num_envs
        self.seeds = seeds
        self.mode = _autoreset_mode(env)
        self.draws = GlobalDraws(self.name)
        self._action = action_codec(env.single_action_space)
        self._obs = self._codec()
        self.observation = self._obs.spec
        self.action = self._action.spec
        self.resetting = np.zeros(self.agents, np.bool_)  # NEXT_STEP: rows that reset next

    def _codec(self) -> Observer:
        """Reset to see whether `info` has a mask; every run begins with another reset."""
        action = self._action.spec
        with guard(self.name):
            info = reset_of(self.env, seed=self._seed())[1] if action.choices else {}
        codec = observation_codec(self.env.single_observation_space, action, info)
        if codec.maskless:
            with guard(self.name):
                _refuse_mask_method(self.env, self.name)
        return codec

    def reset(self) -> Array:
        """First observations; each environment gets its own hashed seed."""
        self.resetting[:] = False
        with guard(self.name), self.draws.watched():
            obs, info = reset_of(self.env, seed=self._seed())
        return self._encode(obs, info)

    def _seed(self) -> Any:
        """One hashed seed per environment where the library takes a list, else a single one."""
        if isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            return list(self.seeds)
        return self.seeds[0]

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """Step all environments; `active` is not supported (`can_hold`)."""
        assert active is None, "a VectorEnv cannot hold some of its environments"
        with guard(self.name), self.draws.watched():
            obs, reward, terminated, truncated, info = step_of(
                self.env, self._action.decode_batch(action)
            )
        valid = ~self.resetting
        terminated = np.asarray(terminated, dtype=np.bool_) & valid
        done = (np.asarray(truncated, dtype=np.bool_) & valid) | terminated
        final_obs: dict[int, Array] = {}
        if self.mode is AutoresetMode.NEXT_STEP:
            self.resetting = done.copy()
        elif self.mode is AutoresetMode.SAME_STEP:
            final_obs = self._final(info, done)
        elif done.any():
            with guard(self.name):
                rows = self._obs.encode_batch(obs, info, done)
                final_obs = {int(i): rows[i].copy() for i in np.flatnonzero(done)}
                obs, info = reset_of(self.env, options={"reset_mask": done})
        rewards = np.where(valid, np.asarray(reward, dtype=np.float32), np.float32(0))
        check_finite("reward", rewards)
        if final_obs:
            last = self._obs.numbers(np.array(list(final_obs.values())))
            check_finite("final observation", last, list(final_obs))
        encoded = self._encode(obs, info, self.resetting)
        return Step(encoded, rewards, terminated, done, valid, final_obs)

    def _encode(self, obs: Any, info: Any, over: Array | None = None) -> Array:
        with guard(self.name):
            encoded = self._obs.encode_batch(obs, info, over)
        check_finite("observation", self._obs.numbers(encoded))
        self.legal = self._obs.legal(encoded)
        return encoded

    def _final(self, info: dict[str, Any], done: Array) -> dict[int, Array]:
        if done.any() and "final_obs" not in info:
            raise EnvironmentFailure(
                f"{self.name}: SAME_STEP autoreset without info['final_obs']"
            )
        last: Any = info.get("final_obs")
        found: dict[int, Array] = {}
        for i in map(int, np.flatnonzero(done)):
            found[i] = self._obs.encode(row_of(last, i), final=True).copy()
        return found

    def reseed(self, agent: int, seed: int) -> None:
        """Fail: a vector environment resets by itself."""
        raise EnvironmentFailure(f"{self.name}: cannot be seeded anew")

    @property
    def inexact(self) -> str | None:
        """What part of the vector environment cannot be saved, if any."""
        return self.draws.inexact or graph.opaque(self.env, self.name)

    def snapshot(self) -> State:
        """The object graph of the vector environment, and which rows reset next."""
        self._check_saveable()
        state = {"resetting": self.resetting.copy()}
        if self.legal is not None:
            state["legal"] = self.legal.copy()
        try:
            return state | graph.save(self.env, Outside([self.env]).names())
        except graph.Opaque as thing:
            raise unsaveable(self.name, thing) from None

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore into a vector environment that was made in the same way."""
        rest = {name: a for name, a in state.items() if name not in ("resetting", "legal")}
        with guard(self.name):
            try:
                graph.load(self.env, rest, Outside([self.env]))
            except graph.Mismatch as error:
                raise EnvironmentFailure(f"{self.name}: {error}") from error
            self.resetting[:] = state["resetting"]
            self.legal = state["legal"].copy() if self._obs.spec.masked else None

    def picture(self) -> Array:
        """Fail: pictures of vector environments have no common form."""
        raise BadInput(f"{self.name}: a vector environment cannot be recorded")

    def meanings(self) -> tuple[str, ...]:
        """Empty: a vector environment does not name its actions."""
        return ()

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()


def _refuse_mask_method(env: GymnasiumVectorEnv[Any, Any, Any], name: str) -> None:
    """Refuse environments with `action_masks()`: it can only be called on single ones."""
    inner: Any = env.unwrapped
    if isinstance(inner, SyncVectorEnv):
        found = has_mask_method(inner.envs[0])
    elif isinstance(inner, AsyncVectorEnv):  # the others are in processes of their own
        one = inner.env_fns[0]()
        found = has_mask_method(one)
        close(one)
    else:
        return
    if found:
        raise BadInput(
            f"{name}: {MASK_METHOD}() works with single environments only; pass a factory, or "
            f"give info['{MASK}'] at every reset and step"
        )


def _autoreset_mode(env: GymnasiumVectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Read the mode, never guess it: Gymnasium 1.0 changed the default silently."""
    mode = (env.metadata or {}).get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise BadInput(
            f"{type(env).__name__}: metadata['autoreset_mode'] is {mode!r}; set it to one of "
            "gymnasium.vector.AutoresetMode"
        )
    return mode
