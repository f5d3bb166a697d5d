"""Table 3 (tab:env_settings): *hard* Atari (Machado et al. 2018) and *easy* (Rainbow's).

Rows below the table's rule are the same in both, and are the defaults of `Atari`.
"""

from typing import Any

from dna.config import Atari, Config
from dna.config.overrides import tweak

#: The three rows that tell easy from hard. Rewards are clipped in neither.
_EASY: dict[str, Any] = {"life_loss": "terminal", "actions": "minimal", "sticky": 0.0}

HARD = Atari(
    life_loss="continue",
    actions="full",
    sticky=0.25,
    stack=4,
    skip=4,
    max_frames=108_000,
    size=84,
    noops=(1, 30),
)
EASY = HARD.model_copy(update=_EASY)


def easy(config: Config) -> Config:
    """An Atari configuration with the easy settings."""
    return tweak(config, **{f"env.atari.{key}": value for key, value in _EASY.items()})
