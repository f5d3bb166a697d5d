"""Look up presets by name or environment, and apply profiles to them.

Presets are built with `Config`, `tweak` and `without` only; a module cites the tables that its
numbers come from.
"""

from collections.abc import Callable
from typing import NamedTuple

from dna.common.errors import BadInput
from dna.common.messages import nearest, quoted
from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets import as_run, atari, mujoco, procgen, small


class Family(NamedTuple):
    """Presets that belong together; `--algo` chooses among `dna`, `ppo` and `ppg`."""

    about: str
    presets: dict[str, Config]


FAMILIES: dict[str, Family] = {
    "tuned": Family(
        "Atari, hard: what the results used (section 6, appendices C, G, I)", atari.TUNED
    ),
    "easy": Family("Atari, easy (table 3, appendix F)", atari.EASY),
    "table1": Family("Atari: the coarse search (table 1)", atari.TABLE1),
    "table2": Family("Atari: PPG (table 2)", atari.TABLE2),
    "ablation": Family("Atari: tuned DNA with one change (appendix C)", atari.ABLATION),
    "targets": Family("Atari: distillation targets (appendix J)", atari.TARGETS),
    "mujoco": Family("MuJoCo (table 6)", mujoco.MUJOCO),
    "procgen": Family("Procgen (table 7)", procgen.PROCGEN),
    "minatar": Family("MinAtar (ours)", small.MINATAR),
    "minatar_freeway": Family("MinAtar's Freeway (ours)", small.MINATAR_FREEWAY),
    "cartpole": Family("CartPole (ours)", small.CARTPOLE),
    "acrobot": Family("Acrobot, MountainCar (ours)", small.ACROBOT),
    "pendulum": Family("Pendulum (ours)", small.PENDULUM),
    "lunarlander": Family("LunarLander (ours)", small.LUNARLANDER),
    "small": Family("everything else (ours)", small.SMALL),
}

#: `family.name` → configuration.
PRESETS: dict[str, Config] = {
    f"{family}.{name}": config
    for family, (_, presets) in FAMILIES.items()
    for name, config in presets.items()
}

#: Prefix of an environment's id → its family; the first match wins.
PREFIXES = {
    "ALE/": "tuned",
    "procgen/": "procgen",
    # The paper's eight tasks, then the other three of Gymnasium.
    "Ant-": "mujoco",
    "HalfCheetah-": "mujoco",
    "Hopper-": "mujoco",
    "InvertedDoublePendulum-": "mujoco",
    "InvertedPendulum-": "mujoco",
    "Reacher-": "mujoco",
    "Swimmer-": "mujoco",
    "Walker2d-": "mujoco",
    "Humanoid-": "mujoco",
    "HumanoidStandup-": "mujoco",
    "Pusher-": "mujoco",
    "MinAtar/Freeway": "minatar_freeway",
    "MinAtar/": "minatar",
    "CartPole": "cartpole",
    "Acrobot": "acrobot",
    "MountainCar-": "acrobot",
    "Pendulum": "pendulum",
    "LunarLander": "lunarlander",
}

#: Changes that may be applied on top of a preset, by name.
PROFILES: dict[str, Callable[[Config], Config]] = {"as_run": as_run.as_run}


def family(env_id: str) -> str:
    """Return the family whose presets `dna train ENV_ID` uses."""
    for prefix, name in PREFIXES.items():
        if env_id.startswith(prefix):
            return name
    return "small"


def preset(name: str) -> Config:
    """Return a preset by its name."""
    if name not in PRESETS:
        hint = nearest(name, list(PRESETS)) or "; `dna list presets` shows all"
        raise BadInput(f"--preset {quoted(name)}: no such preset{hint}")
    return PRESETS[name]


def with_profile(config: Config, name: str) -> Config:
    """Return the configuration changed by a profile."""
    if name not in PROFILES:
        hint = nearest(name, list(PROFILES))
        raise BadInput(f"--profile {quoted(name)}: no such profile{hint}")
    return PROFILES[name](config)


def for_environment(
    env_id: str,
    algorithm: str | None = None,
    name: str | None = None,
    profile: str | None = None,
) -> Config:
    """Return what `dna train ENV_ID [--algo …] [--preset …] [--profile …]` starts from."""
    config = preset(name or f"{family(env_id)}.{algorithm or 'dna'}")
    if name is not None and algorithm not in (None, config.algorithm):
        raise BadInput(f"--algo {algorithm}: contradicts --preset {name}; give one of them")
    if profile is not None:
        config = with_profile(config, profile)
    try:
        return tweak(config, **{"env.id": env_id})
    except BadInput as error:  # an Atari preset for another environment
        raise BadInput(f"--preset {name}: {error}" if name else str(error)) from None
