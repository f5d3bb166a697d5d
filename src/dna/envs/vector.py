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

from dna.config import EnvConfig
from dna.envs import Array, State, Step, graph
from dna.envs.guard import guard
from dna.envs.spaces import ActionCodec, ObservationCodec, check_finite
from dna.errors import BadInput, EnvironmentFailure


class VectorAdapter:
    """Episodes of a vector environment as `Step`s."""

    can_hold = False
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
        self._obs = ObservationCodec(env.single_observation_space)
        self._action = ActionCodec(env.single_action_space)
        self.observation, self.action = self._obs.spec, self._action.spec
        self.resetting = np.zeros(self.agents, np.bool_)  # NEXT_STEP: rows that reset next

    def reset(self) -> Array:
        """First observations; each environment gets its own hashed seed."""
        self.resetting[:] = False
        with guard(self.name):
            obs, _ = self.env.reset(seed=self._seed())
        return self._encode(obs)

    def _seed(self) -> Any:
        """One hashed seed per environment where the library takes a list, else a single one."""
        if isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            return list(self.seeds)
        return self.seeds[0]

    def step(self, action: Array, active: npt.NDArray[np.bool_] | None = None) -> Step:
        """One step of all; `active` is not for vector environments (`can_hold`)."""
        assert active is None, "a VectorEnv cannot hold some of its environments"
        with guard(self.name):
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
            final_obs = {int(i): self._obs.encode(obs[i]).copy() for i in np.flatnonzero(done)}
            with guard(self.name):
                obs, _ = self.env.reset(options={"reset_mask": done})
        rewards = np.where(valid, np.asarray(reward, dtype=np.float32), np.float32(0))
        check_finite("reward", rewards)
        check_finite("final observation", np.array(list(final_obs.values())), list(final_obs))
        return Step(self._encode(obs), rewards, terminated, done, valid, final_obs)

    def _encode(self, obs: Any) -> Array:
        with guard(self.name):
            encoded = self._obs.encode_batch(obs)
        check_finite("observation", encoded)
        return encoded

    def _final(self, info: dict[str, Any], done: Array) -> dict[int, Array]:
        if done.any() and "final_obs" not in info:
            raise EnvironmentFailure(
                f"{self.name}: SAME_STEP autoreset without info['final_obs']"
            )
        rows = np.flatnonzero(done)
        return {int(i): self._obs.encode(info["final_obs"][i]).copy() for i in rows}

    def uniform(self, rng: np.random.Generator, agents: int | None = None) -> Array:
        """Actions drawn uniformly from the space."""
        return self._action.uniform(rng, agents or self.agents)

    @property
    def inexact(self) -> str | None:
        """What of the vector environment cannot be saved, if anything."""
        return graph.opaque(self.env, self.name)

    def snapshot(self) -> State:
        """The object graph of the vector environment, and which rows reset next."""
        try:
            return {"resetting": self.resetting.copy(), **graph.save(self.env)}
        except graph.Opaque:
            raise no_snapshot(self.name) from None

    def restore(self, state: Mapping[str, Array]) -> None:
        """Into a vector environment made alike."""
        rest = {name: array for name, array in state.items() if name != "resetting"}
        try:
            graph.load(self.env, rest)
        except graph.Mismatch as error:
            raise EnvironmentFailure(f"{self.name}: {error}") from error
        self.resetting[:] = state["resetting"]

    def picture(self) -> Array:
        """Their pictures have no common form."""
        raise BadInput(f"{self.name}: a vector environment cannot be recorded")

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()


def no_snapshot(name: str) -> EnvironmentFailure:
    """Why an inexact environment cannot be saved; ask `inexact` first."""
    return EnvironmentFailure(f"{name}: its state cannot be saved; start new episodes instead")


def _mode(env: GymnasiumVectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Read, never guessed: Gymnasium 1.0 changed the default silently."""
    mode = (env.metadata or {}).get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise BadInput(
            f"{type(env).__name__}: metadata['autoreset_mode'] is {mode!r}; set it to one of "
            "gymnasium.vector.AutoresetMode"
        )
    return mode
