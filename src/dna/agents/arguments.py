"""Turn the arguments of an agent's constructor into a configuration."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from dna.common.errors import BadInput
from dna.common.messages import quoted
from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets import FAMILIES, family, for_environment, preset
from dna.envs.instances import UserEnv

#: Preset families for environments that only this package makes.
OWN_FAMILIES = ("tuned", "procgen")


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
