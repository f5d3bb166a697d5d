"""A ready `gymnasium.vector.VectorEnv`, in any autoreset mode, behind our convention.

| mode | what the library does | what we do |
|---|---|---|
| NEXT_STEP | the step after an end only resets: action ignored, reward 0 | row not valid |
| SAME_STEP | the ending step already shows the new episode | read `info["final_obs"]` |
| DISABLED | nothing | reset by mask right after the step, keep the last observation |
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv

from dna.common.errors import BadInput, EnvironmentFailure, Unsaveable
from dna.config import EnvConfig
from dna.envs import ALL, Array, State, Step
from dna.envs.actions import action_codec, uniform_rows
from dna.envs.guard import close, guard
from dna.envs.masks import METHOD, answers
from dna.envs.packing import PackedCodec, observer, row_of
from dna.envs.spaces import ObservationCodec, check_finite
from dna.envs.specs import MASK
from dna.envs.state import graph
from dna.envs.state.shared_generators import SharedDice


class VectorAdapter:
    """Episodes of a vector environment as `Step`s."""

    can_hold = can_reseed = False
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
        self.mode = _mode(env)
        self.dice = SharedDice(self.name)
        self._action = action_codec(env.single_action_space)
        self._obs = self._codec()
        self.legal: Array | None = None  # [A, C] what may be chosen next; None: everything
        self.observation, self.action = self._obs.spec, self._action.spec
        self.resetting = np.zeros(self.agents, np.bool_)  # NEXT_STEP: rows that reset next

    def _codec(self) -> ObservationCodec | PackedCodec:
        """Whether it says in `info` what is legal shows at a reset; the run begins with one."""
        space, action = self.env.single_observation_space, self._action.spec
        with guard(self.name):
            found = self.env.reset(seed=self._seed())[1] if action.choices else {}
        codec = observer(space, action, found)
        if codec.maskless:
            with guard(self.name):
                _check_not_asked(self.env, self.name)
        return codec

    def reset(self) -> Array:
        """First observations; each environment gets its own hashed seed."""
        self.resetting[:] = False
        with guard(self.name), self.dice.watched():
            obs, info = self.env.reset(seed=self._seed())
        return self._encode(obs, info)

    def _seed(self) -> Any:
        """One hashed seed per environment where the library takes a list, else a single one."""
        if isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            return list(self.seeds)
        return self.seeds[0]

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """One step of all; `active` is not for vector environments (`can_hold`)."""
        assert active is None, "a VectorEnv cannot hold some of its environments"
        with guard(self.name), self.dice.watched():
            obs, reward, terminated, truncated, info = self.env.step(
                self._action.decode_batch(action)
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
                obs, info = self.env.reset(options={"reset_mask": done})
        rewards = np.where(valid, np.asarray(reward, dtype=np.float32), np.float32(0))
        check_finite("reward", rewards)
        if final_obs:
            last = self._obs.numbers(np.array(list(final_obs.values())))
            check_finite("final observation", last, list(final_obs))
        seen = self._encode(obs, info, self.resetting)
        return Step(seen, rewards, terminated, done, valid, final_obs)

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
        """A vector environment resets by itself: there is no way."""
        raise EnvironmentFailure(f"{self.name}: cannot be seeded anew")

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
        """What of the vector environment cannot be saved, if anything."""
        return self.dice.inexact or graph.opaque(self.env, self.name)

    def snapshot(self) -> State:
        """The object graph of the vector environment, and which rows reset next."""
        if self.dice.drawn:
            raise no_snapshot(self.name, f"the state of {self.dice.drawn}")
        try:
            own = {"resetting": self.resetting.copy()}
            own |= {} if self.legal is None else {"legal": self.legal.copy()}
            return own | graph.save(self.env)
        except graph.Opaque as thing:
            raise no_snapshot(self.name, thing) from None

    def restore(self, state: Mapping[str, Array]) -> None:
        """Into a vector environment made alike."""
        own = ("resetting", "legal")
        rest = {name: array for name, array in state.items() if name not in own}
        with guard(self.name):
            try:
                graph.load(self.env, rest)
            except graph.Mismatch as error:
                raise EnvironmentFailure(f"{self.name}: {error}") from error
            self.resetting[:] = state["resetting"]
            self.legal = state["legal"].copy() if self._obs.spec.masked else None

    def picture(self) -> Array:
        """Their pictures have no common form."""
        raise BadInput(f"{self.name}: a vector environment cannot be recorded")

    def meanings(self) -> tuple[str, ...]:
        """Nobody says."""
        return ()

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()


def no_snapshot(name: str, thing: Exception | str = "its state") -> Unsaveable:
    """Why an environment cannot be saved; `inexact` tells of those that never can."""
    return Unsaveable(f"{name}: {thing} cannot be saved; start new episodes instead")


def _check_not_asked(env: GymnasiumVectorEnv[Any, Any, Any], name: str) -> None:
    """Masks that would have to be asked for, one environment at a time."""
    inner: Any = env.unwrapped
    if isinstance(inner, SyncVectorEnv):
        found = answers(inner.envs[0])
    elif isinstance(inner, AsyncVectorEnv):  # the others are in processes of their own
        one = inner.env_fns[0]()
        found = answers(one)
        close(one)
    else:
        return
    if found:
        raise BadInput(
            f"{name}: {METHOD}() is asked of single environments only; pass a factory, or give "
            f"info['{MASK}'] at every reset and step"
        )


def _mode(env: GymnasiumVectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Read, never guessed: Gymnasium 1.0 changed the default silently."""
    mode = (env.metadata or {}).get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise BadInput(
            f"{type(env).__name__}: metadata['autoreset_mode'] is {mode!r}; set it to one of "
            "gymnasium.vector.AutoresetMode"
        )
    return mode
