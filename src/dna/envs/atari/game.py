"""One Atari game behind `ALEInterface`, with the paper's rules (table 3, app. A).

No-ops at the start, frames skipped under sticky actions, ends of lives and of the time. No
fire on reset, no reward clipping. Imports no torch: worker processes load this module.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import EnvironmentFailure, MissingExtra
from dna.common.randomness import generator
from dna.config.environments import Atari

try:
    import ale_py
    from ale_py import roms
except ImportError:
    raise MissingExtra("Atari", "atari") from None

Frame = npt.NDArray[np.uint8]
#: Decisions whose stickiness is drawn at once.
BLOCK = 1024
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class Game:
    """A game, and all that decides what happens next in it."""

    def __init__(self, rom: str, settings: Atari, seed: int, screens: Frame) -> None:
        self.settings, self.rom = settings, rom
        self.insert(seed)
        self.actions = actions_of(self.ale, settings)
        self.newer, self.older = screens  # views: all games of a process are resized at once
        self.lives = 0
        self.elapsed = 0  # raw frames of this game
        self.held = 0  # the action of the frame before
        self.decisions = 0  # of this game
        self.luck: list[list[bool]] = []

    def insert(self, seed: int) -> None:
        """A new console with the cartridge: nothing of the games before is left in it."""
        self.seed = seed
        self.ale = emulator(self.rom, seed)
        self.games = 0  # begun so far

    def reset(self) -> None:
        """Begin a game."""
        self.ale.reset_game()
        self.elapsed = self.held = self.decisions = 0
        for _ in range(self._noops()):
            self.ale.act(0)
            self.elapsed += 1
            if self.ale.game_over(with_truncation=False):
                self.ale.reset_game()
        self.games += 1
        self.lives = self.ale.lives()
        self.ale.getScreenGrayscale(self.newer)
        self.older.fill(0)

    def _noops(self) -> int:
        """1 to 30, drawn anew for every game."""
        if self.settings.noops is None:
            return 0
        low, high = self.settings.noops
        return int(generator(self.seed, "noops", self.games).integers(low, high + 1))

    def _luck(self, block: int) -> list[list[bool]]:
        """For a block of decisions: which of their frames repeat the action before them."""
        rng = generator(self.seed, "sticky", self.games, block)
        chance = rng.random((BLOCK, self.settings.skip))
        return (chance < self.settings.sticky).tolist()  # type: ignore[no-any-return]

    def skip(self, action: int) -> tuple[int, bool]:
        """Repeat an action over the skipped frames; (their reward, whether the game is over).

        The last two screens stay for the maximum; where a game ends amid them, older ones.
        """
        ale, last, total, over = self.ale, self.settings.skip - 1, 0, False
        block, row = divmod(self.decisions, BLOCK)
        if row == 0:
            self.luck = self._luck(block)
        self.decisions += 1
        for t, repeats in enumerate(self.luck[row]):
            if not repeats:
                self.held = action
            total += ale.act(self.actions[self.held])
            self.elapsed += 1
            over = ale.game_over(with_truncation=False)
            if over or self.timeout():
                break
            if t == last:
                ale.getScreenGrayscale(self.newer)
            elif t == last - 1:
                ale.getScreenGrayscale(self.older)
        return total, over

    def lost_life(self) -> bool:
        """Whether the last decision cost a life that ends an episode.

        A game may show no lives for some frames before it ends: that is one end, not two.
        """
        before, self.lives = self.lives, self.ale.lives()
        return self.settings.life_loss == "terminal" and 0 < self.lives < before

    def timeout(self) -> bool:
        """Whether the limit of frames is reached."""
        return self.elapsed >= self.settings.max_frames

    def next_life(self) -> tuple[int, bool]:
        """Go on behind a lost life with one no-op; (its reward, whether the game ended)."""
        reward, over = self.skip(0)
        self.lives = self.ale.lives()
        return reward, over or self.timeout()

    def save(self) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The emulator with its generator, and our counters; screens are saved beside."""
        state: bytes = self.ale.cloneState(include_rng=True).serialize()
        numbers = (self.games, self.lives, self.elapsed, self.held, self.decisions)
        return state, np.array([self.seed, *numbers])

    def load(self, state: bytes, counters: npt.NDArray[Any]) -> None:
        """Go on from there, in this instance or a fresh one."""
        # Qbert and Tetris diverge unless the emulator ran a frame before it is restored.
        self.ale.reset_game()
        self.ale.act(0)
        try:
            self.ale.restoreState(ale_py.ALEState(state))
        except Exception as error:
            raise EnvironmentFailure("the emulator does not take this snapshot") from error
        self.seed, *numbers = map(int, counters)
        self.games, self.lives, self.elapsed, self.held, self.decisions = numbers
        self.luck = self._luck(self.decisions // BLOCK)


def emulator(rom: str, seed: int = 0) -> ale_py.ALEInterface:
    """A console with its cartridge."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed & 0x7FFFFFFF)
    # Sticky actions are ours: the emulator's snapshot forgets which action it repeats.
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(rom))
    return ale


def actions_of(ale: ale_py.ALEInterface, settings: Atari) -> list[int]:
    """The emulator's numbers of the actions the agent has."""
    full = settings.actions == "full"
    known = ale.getLegalActionSet() if full else ale.getMinimalActionSet()
    return [int(action.value) for action in known]


def name_of(action: int) -> str:
    """What the emulator calls an action."""
    return str(ale_py.Action(action).name).lower()
