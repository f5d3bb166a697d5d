"""Every environment's id there is here, for `dna list envs`."""

import gymnasium

from dna.common.errors import MissingExtra
from dna.config.environments import PROCGEN
from dna.envs.atari.vector import roms
from dna.envs.factory import register_minatar
from dna.envs.procgen import GAMES


def ids() -> tuple[list[str], list[str]]:
    """(all ids, what is missing and how to get it)."""
    missing: list[str] = []
    for register in (register_minatar, roms):
        try:
            register()
        except MissingExtra as error:
            missing.append(str(error))
    return sorted([*gymnasium.registry, *(PROCGEN + game for game in GAMES)]), missing
