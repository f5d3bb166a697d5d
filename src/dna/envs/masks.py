"""Environments that answer which choices are legal when they are asked: `action_masks()`.

The method of sb3-contrib's MaskablePPO, on the environment or a wrapper of it. It is asked
after every reset and step, and the answer put where all of the package looks for it.
"""

from typing import Any

import gymnasium

from dna.envs.specs import MASK

#: The method's name; the environment may have it at any depth of its wrappers.
METHOD = "action_masks"


class AskedMasks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The method's answer as `info["action_mask"]`, unless that is there already."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the environment does, and ask."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._with_mask(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment does; where an episode is over there is nothing to ask."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):
            info = self._with_mask(info)
        return observation, reward, terminated, truncated, info

    def _with_mask(self, info: dict[str, Any] | None) -> dict[str, Any]:
        if info and MASK in info:
            return info
        return {**(info or {}), MASK: self.env.get_wrapper_attr(METHOD)()}


def answers(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether this environment is to be asked: it has the method, and no mask to be seen."""
    space = env.observation_space
    seen = isinstance(space, gymnasium.spaces.Dict) and MASK in space.spaces
    return not seen and env.has_wrapper_attr(METHOD) and callable(env.get_wrapper_attr(METHOD))


def asked(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment, asked for its masks where it answers."""
    return AskedMasks(env) if answers(env) else env
