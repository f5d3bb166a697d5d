"""Closed-form environments in which every number is known; public, for your own tests.

`Countdown` has an exact value function, `Identity` an exact optimum, and `Scripted` plays the
same episodes in each of Gymnasium's three autoreset modes, whatever the actions. Snapshots
record the attributes of these classes by name: they must not be renamed.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

Vector = npt.NDArray[np.float32]


class Countdown(gymnasium.Env[Vector, np.int64]):
    """Pays 1 on the k-th step, then terminates: V(s_t) = γ^(k−1−t) exactly."""

    def __init__(self, k: int = 5) -> None:
        self.k = k
        self.t = 0
        self.observation_space = spaces.Box(0, k, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Start at time zero."""
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Count one step."""
        self.t += 1
        end = self.t == self.k
        return np.full(1, self.t, np.float32), float(end), end, False, {}


class Identity(gymnasium.Env[Vector, np.int64]):
    """Shows one of `symbols` and pays 1 for naming it; truncated after `length` steps."""

    def __init__(self, symbols: int = 4, length: int = 16) -> None:
        self.symbols = symbols
        self.length = length
        self.observation_space = spaces.Box(0, 1, (symbols,), np.float32)
        self.action_space = spaces.Discrete(symbols)
        self.shown = 0
        self.t = 0

    def _show(self) -> Vector:
        self.shown = int(self.np_random.integers(self.symbols))
        return np.asarray(np.eye(self.symbols)[self.shown], dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Show a first symbol."""
        super().reset(seed=seed)
        self.t = 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Pay for naming the symbol, and show another one."""
        reward = float(action == self.shown)
        self.t += 1
        return self._show(), reward, False, self.t >= self.length, {}


#: One episode: its length, and whether it ends by termination (else by truncation).
EpisodeScript = tuple[int, bool]


class Scripted(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Each agent plays its list of episodes over and over, in a chosen autoreset mode.

    The observation is (agent, number of the episode, step); the reward is a fixed function of
    them, so the same episode looks the same in every mode.
    """

    def __init__(self, episodes: list[list[EpisodeScript]], mode: AutoresetMode) -> None:
        self.episodes = episodes
        self.mode = mode
        self.num_envs = len(episodes)
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.number = np.zeros(self.num_envs, np.int64)
        self.t = np.zeros(self.num_envs, np.int64)
        self.ended = np.zeros(self.num_envs, np.bool_)

    def _obs(self) -> Vector:
        agents = np.arange(self.num_envs)
        return np.stack([agents, self.number, self.t], axis=1).astype(np.float32)

    def _next(self, rows: npt.NDArray[np.bool_]) -> None:
        self.number[rows] += 1
        self.t[rows] = 0
        self.ended[rows] = False

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Vector, dict[str, Any]]:
        """Reset all agents, or those of `options["reset_mask"]`."""
        if options and "reset_mask" in options:
            self._next(np.asarray(options["reset_mask"]))
        else:
            self.number[:] = 0
            self.t[:] = 0
            self.ended[:] = False
        return self._obs(), {}

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Vector, Vector, npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Follow the script; actions change nothing."""
        resetting = self.ended.copy() if self.mode is AutoresetMode.NEXT_STEP else None
        if resetting is not None:
            self._next(resetting)
        moving = np.ones(self.num_envs, np.bool_) if resetting is None else ~resetting
        self.t[moving] += 1
        scripts = zip(self.episodes, self.number, strict=True)
        script = [episodes[number % len(episodes)] for episodes, number in scripts]
        length = np.array([length for length, _ in script])
        dies = np.array([dies for _, dies in script])
        end = moving & (self.t >= length)
        reward = np.where(moving, self.reward(), 0.0).astype(np.float32)
        self.ended = end.copy()
        info: dict[str, Any] = {}
        if self.mode is AutoresetMode.SAME_STEP and end.any():
            info = {"final_obs": self._obs(), "_final_obs": end.copy()}
            self._next(end)
        return self._obs(), reward, end & dies, end & ~dies, info

    def reward(self) -> Vector:
        """A number that differs between agents, episodes and steps."""
        agents = np.arange(self.num_envs)
        value = np.sin(1.0 + 3 * agents + 5 * self.number + 7 * self.t)
        return np.asarray(value, dtype=np.float32)
