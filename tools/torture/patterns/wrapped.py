"""State in wrappers, in what wrappers and environments share, and in vector environments."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from torture.patterns.base import Hidden, built, folded, mixed, pattern


class Simple(Hidden):
    """A counter in an attribute, and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.state = 1
        self.history: list[int] = [1]

    def advance(self, action: int) -> float:
        self.state = mixed(self.state, action) % 1009
        self.history.append(self.state)
        return float(self.state + len(self.history))


class Delayed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that hands over the reward of the step before, and counts."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.last = 0.0
        self.history = env.unwrapped.history

    def step(self, action: Any) -> Any:
        seen, reward, over, late, info = self.env.step(action)
        self.history[-1] += 1
        self.last, reward = float(reward), self.last + len(self.history) % 5
        return seen, reward, over, late, info


@pattern
def wrapper_with_state() -> Any:
    """A wrapper with state that shares a list with the environment"""
    return Delayed(Simple())


@pattern
def wrapper_shares_until_replaced() -> Any:
    """A wrapper that shares a list with the environment until a reset replaces it"""

    class Replacing(Simple):
        def begin(self) -> None:
            if self.np_random.random() < 0.3:
                self.history = list(self.history)

    return Delayed(Replacing())


@pattern
def time_limit_and_statistics() -> Any:
    """TimeLimit, RecordEpisodeStatistics and a second TimeLimit"""
    inner = wrappers.TimeLimit(Simple(), 6)
    return wrappers.TimeLimit(wrappers.RecordEpisodeStatistics(inner), 5)


@pattern
def normalized() -> Any:
    """NormalizeObservation and NormalizeReward"""
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(Simple()))


@pattern
def stacked() -> Any:
    """FrameStackObservation and DelayObservation, which keep arrays in deques"""
    return wrappers.FrameStackObservation(wrappers.DelayObservation(Simple(), 2), 3)


@pattern
def time_aware() -> Any:
    """TimeAwareObservation, StickyAction and a transformed reward with a closure"""
    count = 0

    def change(reward: Any) -> float:
        nonlocal count
        count += 1
        return float(reward) + count % 3

    env: Any = wrappers.TransformReward(wrappers.StickyAction(Simple(), 0.3), change)
    return wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 8))


@pattern
def autoreset_inside() -> Any:
    """A wrapper that swaps its inner environment at resets"""

    class Swapping(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.both = [env, Simple()]

        def reset(self, **how: Any) -> Any:
            self.both.reverse()
            self.env = self.both[0]
            return self.env.reset(**how)

    return Swapping(Simple())


@built
def instance_passed() -> Any:
    """An instance instead of a factory, changed before it is passed"""
    env = Simple()
    env.state = 77
    env.reset(seed=1)
    env.step(1)
    return env


@built
def sync_vector_next_step() -> Any:
    """A SyncVectorEnv that resets in the next step"""
    return SyncVectorEnv([Simple, Simple], autoreset_mode=AutoresetMode.NEXT_STEP)


@built
def sync_vector_same_step() -> Any:
    """A SyncVectorEnv that resets in the same step"""
    return SyncVectorEnv([Simple, Simple], autoreset_mode=AutoresetMode.SAME_STEP)


@built
def async_vector() -> Any:
    """An AsyncVectorEnv, whose environments live in other processes"""
    return AsyncVectorEnv([Simple, Simple])


class Batch(VectorEnv[Any, Any, Any]):
    """A vectorized environment whose state is one array."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self) -> None:
        self.num_envs = 2
        self.single_observation_space = spaces.Box(-1, 2, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(-1, 2, (2, 2), np.float32)
        self.action_space = spaces.MultiDiscrete([2, 2])
        self.state = np.array([[1, 0], [2, 0]])
        self.numbers = self.state[:, 0]
        self.steps = self.state[:, 1]

    def _seen(self) -> Any:
        return np.stack([[folded(n) for n in self.numbers], self.steps / 10], 1).astype(
            np.float32
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if isinstance(seed, int):
            super().reset(seed=seed)
        self.steps[:] = 0
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        self.numbers[:] = (self.numbers * 7 + 1 + actions) % 1009
        self.steps += 1
        over = self.steps >= 5 + self.numbers % 3
        seen = self._seen()
        info = {"final_obs": np.array([*seen, None], object)[:2], "_final_obs": over}
        self.steps[over] = 0
        rewards = np.array([folded(n) for n in self.numbers])
        return self._seen(), rewards, over, np.zeros(2, bool), info


@built
def own_vector() -> Any:
    """A vectorized environment of the user, with views of one array of state"""
    return Batch()


class DictObservation(gymnasium.Env[Any, Any]):
    """Observations and actions in dicts, and a mask, kept and changed in place."""

    observation_space = spaces.Dict(
        {"cells": spaces.Box(-1, 2, (3,), np.float32), "kind": spaces.Discrete(3)}
    )
    action_space = spaces.Dict(
        {"go": spaces.Discrete(3), "force": spaces.Box(-1, 1, (1,), np.float32)}
    )

    def __init__(self) -> None:
        self.seen: Any = {"cells": np.full(3, 0.3, np.float32), "kind": 0}
        self.last: Any = None
        self.info: Any = {}
        self.steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.seen, self.info

    def step(self, action: Any) -> Any:
        before = 0.0 if self.last is None else float(self.last["force"][0])
        self.last = action
        cells = self.seen["cells"]
        cells[self.steps % 3] = (cells[0] * 3.7 * (1 - cells[1]) + 0.1 * before) % 1
        self.seen["kind"] = int(cells[2] * 10 + action["go"]) % 3
        self.steps += 1
        return self.seen, float(cells.sum()), bool(cells[0] > 0.9), self.steps > 7, self.info


@pattern
def dict_spaces() -> Any:
    """One dict that is returned as the observation each time, and the last action kept"""
    return DictObservation()


@pattern
def kept_wrapper_attribute() -> Any:
    """An environment that refers to its outermost wrapper"""
    inner: Any = Simple()
    outer = Delayed(inner)
    inner.outer = outer

    def advance(action: int) -> float:
        return float(Simple.advance(inner, action) + inner.outer.last * 10)

    inner.advance = advance
    return outer
