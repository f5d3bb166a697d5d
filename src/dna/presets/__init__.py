"""Presets by name, and the preset of an environment's family.

One settings table is one file; a preset is built with `Config`, `tweak` and `without` and
nothing else, cites where its numbers come from and says only what differs.
"""

from dna.complaints import nearest, quoted
from dna.config import Config
from dna.errors import BadInput
from dna.presets import classic, minatar, small
from dna.tweak import tweak

ALGORITHMS = ("dna", "ppo", "ppg")

#: Family → (DNA, PPO, PPG).
FAMILIES: dict[str, tuple[Config, Config, Config]] = {
    "small": (small.DNA, small.PPO, small.PPG),
    "cartpole": (classic.CARTPOLE_DNA, classic.CARTPOLE_PPO, classic.CARTPOLE_PPG),
    "acrobot": (classic.ACROBOT_DNA, classic.ACROBOT_PPO, classic.ACROBOT_PPG),
    "pendulum": (classic.PENDULUM_DNA, classic.PENDULUM_PPO, classic.PENDULUM_PPG),
    "lunarlander": (classic.LANDER_DNA, classic.LANDER_PPO, classic.LANDER_PPG),
    "minatar": (minatar.DNA, minatar.PPO, minatar.PPG),
    "minatar_freeway": (minatar.FREEWAY_DNA, minatar.FREEWAY_PPO, minatar.FREEWAY_PPG),
}

#: `family.algorithm` → configuration.
PRESETS: dict[str, Config] = {
    f"{family}.{algorithm}": config
    for family, configs in FAMILIES.items()
    for algorithm, config in zip(ALGORITHMS, configs, strict=True)
}

#: The beginning of an environment's id → its family; the first that fits wins.
PREFIXES = {
    "MinAtar/Freeway": "minatar_freeway",
    "MinAtar/": "minatar",
    "CartPole": "cartpole",
    "Acrobot": "acrobot",
    "MountainCar-": "acrobot",
    "Pendulum": "pendulum",
    "LunarLander": "lunarlander",
}


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


def for_environment(
    env_id: str, algorithm: str | None = None, name: str | None = None
) -> Config:
    """The configuration `dna train ENV_ID [--algo …] [--preset …]` starts from."""
    if name is not None and algorithm is not None and not name.endswith(f".{algorithm}"):
        raise BadInput(f"--algo {algorithm}: contradicts --preset {name}; give one of them")
    config = preset(name or f"{family(env_id)}.{algorithm or 'dna'}")
    return tweak(config, **{"env.id": env_id})
