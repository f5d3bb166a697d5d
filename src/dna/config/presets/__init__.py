"""Presets by name, the preset of an environment's family, and profiles on top.

One settings table is one file; a preset is built with `Config`, `tweak` and `without` and
nothing else, cites where its numbers come from and says only what differs.
"""

from collections.abc import Callable
from typing import NamedTuple

from dna.common.errors import BadInput
from dna.common.messages import nearest, quoted
from dna.config import Config
from dna.config.overrides import tweak
from dna.config.presets import (
    ablation,
    as_run,
    classic,
    easy,
    minatar,
    small,
    table1_atari,
    table2_ppg,
    table6_mujoco,
    table7_procgen,
    targets,
    tuned,
)


class Family(NamedTuple):
    """Presets that belong together; `dna`, `ppo` and `ppg` are what `--algo` picks from."""

    about: str
    presets: dict[str, Config]


def _three(about: str, dna: Config, ppo: Config, ppg: Config) -> Family:
    return Family(about, {"dna": dna, "ppo": ppo, "ppg": ppg})


FAMILIES: dict[str, Family] = {
    "tuned": Family(
        "Atari, hard: what the results used (section 6, appendices C, G, I)",
        {
            "dna": tuned.DNA,
            "ppo": tuned.PPO,
            "ppg": tuned.PPG,
            "ppo_1x": tuned.PPO_1X,
            "ppo_basic": tuned.PPO_BASIC,
            "ppo_e2": tuned.PPO_E2,
            "ppo_lambda": tuned.PPO_LAMBDA,
        },
    ),
    "easy": _three("Atari, easy (table 3, appendix F)", easy.DNA, easy.PPO, easy.PPG),
    "table1": Family(
        "Atari: the coarse search (table 1)",
        {"dna": table1_atari.DNA, "ppo": table1_atari.PPO, "ppo_orig": table1_atari.PPO_ORIG},
    ),
    "table2": Family(
        "Atari: PPG (table 2)", {"ppg": table2_ppg.PPG, "ppg_tuned": table2_ppg.PPG_TUNED}
    ),
    "ablation": Family(
        "Atari: tuned DNA with one change (appendix C)",
        {
            "no_distil": ablation.NO_DISTIL,
            "mb512": ablation.MB512,
            "lambda_equal": ablation.LAMBDA_EQUAL,
        },
    ),
    "targets": Family(
        "Atari: distillation targets (appendix J)",
        {
            "none": targets.NONE,
            "value": targets.VALUE,
            "projection": targets.PROJECTION,
            "features": targets.FEATURES,
        },
    ),
    "mujoco": _three(
        "MuJoCo (table 6)", table6_mujoco.DNA, table6_mujoco.PPO, table6_mujoco.PPG
    ),
    "procgen": _three(
        "Procgen (table 7)", table7_procgen.DNA, table7_procgen.PPO, table7_procgen.PPG
    ),
    "minatar": _three("MinAtar (ours)", minatar.DNA, minatar.PPO, minatar.PPG),
    "minatar_freeway": _three(
        "MinAtar's Freeway (ours)",
        minatar.FREEWAY_DNA,
        minatar.FREEWAY_PPO,
        minatar.FREEWAY_PPG,
    ),
    "cartpole": _three(
        "CartPole (ours)", classic.CARTPOLE_DNA, classic.CARTPOLE_PPO, classic.CARTPOLE_PPG
    ),
    "acrobot": _three(
        "Acrobot, MountainCar (ours)",
        classic.ACROBOT_DNA,
        classic.ACROBOT_PPO,
        classic.ACROBOT_PPG,
    ),
    "pendulum": _three(
        "Pendulum (ours)", classic.PENDULUM_DNA, classic.PENDULUM_PPO, classic.PENDULUM_PPG
    ),
    "lunarlander": _three(
        "LunarLander (ours)", classic.LANDER_DNA, classic.LANDER_PPO, classic.LANDER_PPG
    ),
    "small": _three("everything else (ours)", small.DNA, small.PPO, small.PPG),
}

#: `family.name` → configuration.
PRESETS: dict[str, Config] = {
    f"{family}.{name}": config
    for family, (_, presets) in FAMILIES.items()
    for name, config in presets.items()
}

#: The beginning of an environment's id → its family; the first that fits wins.
PREFIXES = {
    "ALE/": "tuned",
    "procgen/": "procgen",
    # The paper's eight, then the other three that Gymnasium has.
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

#: What may be laid over a preset, by name.
PROFILES: dict[str, Callable[[Config], Config]] = {"as_run": as_run.as_run}


def family(env_id: str) -> str:
    """The family whose presets `dna train ENV_ID` uses."""
    for prefix, name in PREFIXES.items():
        if env_id.startswith(prefix):
            return name
    return "small"


def preset(name: str) -> Config:
    """A preset by its name, or one line that names the nearest."""
    if name not in PRESETS:
        raise BadInput(f"--preset {quoted(name)}: no such preset{nearest(name, list(PRESETS))}")
    return PRESETS[name]


def with_profile(config: Config, name: str) -> Config:
    """The configuration under a profile, or one line that names the nearest profile."""
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
    """What `dna train ENV_ID [--algo …] [--preset …] [--profile …]` starts from."""
    config = preset(name or f"{family(env_id)}.{algorithm or 'dna'}")
    if name is not None and algorithm not in (None, config.algorithm):
        raise BadInput(f"--algo {algorithm}: contradicts --preset {name}; give one of them")
    if profile is not None:
        config = with_profile(config, profile)
    try:
        return tweak(config, **{"env.id": env_id})
    except BadInput as error:  # an Atari preset for another environment
        raise BadInput(f"--preset {name}: {error}" if name else str(error)) from None
