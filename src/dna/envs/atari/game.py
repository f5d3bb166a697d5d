"""Atari games on `ALEInterface`, prepared as in the paper (table 3, appendix A).

`Game` is one game with the paper's rules: no-ops at the start, frames skipped under sticky
actions, ends of lives and of the time limit; no fire on reset, no reward clipping. `Games` are
the games of one process: an observation is the maximum of the last two screens, resized by
area, with a mark of the action. Imports no torch: worker processes load this module.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dna.common.errors import EnvironmentFailure, MissingExtra
from dna.common.randomness import generator
from dna.config.environments import Atari
from dna.envs.atari.time_bar import draw_action

try:
    import ale_py
    import cv2
    from ale_py import roms
except ImportError:
    raise MissingExtra("Atari", "atari") from None

Frame = npt.NDArray[np.uint8]
#: Number of decisions whose sticky frames are drawn at once.
BLOCK = 1024
#: Attributes of a game in its snapshot, beside the emulator's state.
COUNTERS = ("seed", "games", "lives", "elapsed", "held", "decisions")
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class Game:
    """One game, and everything that decides what happens next in it."""

    def __init__(self, rom: str, settings: Atari, seed: int, screens: Frame) -> None:
        self.settings = settings
        self.rom = rom
        self.insert(seed)
        self.actions = actions_of(self.ale, settings)
        self.newer, self.older = screens  # views: all games of a process are resized at once
        self.lives = 0
        self.elapsed = 0  # raw frames of this game
        self.held = 0  # the action of the frame before
        self.decisions = 0  # of this game
        self.sticky: list[list[bool]] = []  # for a block of decisions: which frames repeat

    def insert(self, seed: int) -> None:
        """Start a new emulator: nothing of the games before is left in it."""
        self.seed = seed
        self.ale = emulator(self.rom, seed)
        self.games = 0  # begun so far

    def reset(self) -> None:
        """Begin a game."""
        self.ale.reset_game()
        self.elapsed = 0
        self.held = 0
        self.decisions = 0
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

    def _draw_sticky(self, block: int) -> list[list[bool]]:
        """For a block of decisions: which of their frames repeat the previous action."""
        rng = generator(self.seed, "sticky", self.games, block)
        chance = rng.random((BLOCK, self.settings.skip))
        return (chance < self.settings.sticky).tolist()  # type: ignore[no-any-return]

    def skip(self, action: int) -> tuple[int, bool]:
        """Repeat an action over the skipped frames: (their reward, whether the game is over).

        The last two screens are kept for the maximum; older ones where a game ends among them.
        """
        ale = self.ale
        last = self.settings.skip - 1
        total = 0
        over = False
        block, row = divmod(self.decisions, BLOCK)
        if row == 0:
            self.sticky = self._draw_sticky(block)
        self.decisions += 1
        for t, repeats in enumerate(self.sticky[row]):
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
        """Whether the last decision lost a life that ends an episode.

        A game may show no lives for some frames before it ends: that is one end, not two.
        """
        before = self.lives
        self.lives = self.ale.lives()
        return self.settings.life_loss == "terminal" and 0 < self.lives < before

    def timeout(self) -> bool:
        """Whether the limit of frames is reached."""
        return self.elapsed >= self.settings.max_frames

    def next_life(self) -> tuple[int, bool]:
        """Continue after a lost life with one no-op: (its reward, whether the game ended)."""
        reward, over = self.skip(0)
        self.lives = self.ale.lives()
        return reward, over or self.timeout()

    def save(self) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The emulator with its generator, and our counters; screens are saved separately."""
        state: bytes = self.ale.cloneState(include_rng=True).serialize()
        return state, np.array([getattr(self, name) for name in COUNTERS])

    def load(self, state: bytes, counters: npt.NDArray[Any]) -> None:
        """Continue from a saved state, in this emulator or a new one."""
        # Qbert and Tetris diverge unless the emulator ran a frame before it is restored.
        self.ale.reset_game()
        self.ale.act(0)
        try:
            self.ale.restoreState(ale_py.ALEState(state))
        except Exception as error:
            raise EnvironmentFailure("the emulator does not take this snapshot") from error
        for name, value in zip(COUNTERS, counters, strict=True):
            setattr(self, name, int(value))
        self.sticky = self._draw_sticky(self.decisions // BLOCK)


class Games:
    """The games of one process: agents `rows` of the arrays that all processes share."""

    def __init__(
        self,
        rom: str,
        settings: Atari,
        seeds: Sequence[int],
        rows: range,
        shared: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        # Games are stepped one after the other: OpenCV's own threads would only get in the way.
        cv2.setNumThreads(1)
        self.settings = settings
        self.shared = {name: array[rows.start : rows.stop] for name, array in shared.items()}
        height_width = self.shared["screens"].shape[2:]
        # [2, n, H, W], newer first: in the shared [n, 2, H, W] the newer are not contiguous.
        self.screens: Frame = np.zeros((2, len(rows), *height_width), dtype=np.uint8)
        self.games = [
            Game(rom, settings, seed, self.screens[:, i]) for i, seed in enumerate(seeds)
        ]

    def run(self, command: bytes) -> None:
        """Carry out a command: step, reset, write a snapshot, load one."""
        {b"s": self.step, b"r": self.reset, b"w": self.save, b"l": self.load}[command]()

    def reset(self) -> None:
        """Begin a game for every agent."""
        for i in range(len(self.games)):
            self._begin(i)
        self._show(slice(None))
        self.shared["elapsed"][:] = 0

    def step(self) -> None:
        """Play one decision of each active agent."""
        shared = self.shared
        games = self.games
        for name in ("unseen", "terminated", "done", "over"):
            shared[name][:] = 0
        active = np.flatnonzero(shared["active"]).tolist()
        action = shared["action"].tolist()
        played = [games[i].skip(action[i]) for i in active]
        self._show(slice(None) if len(active) == len(games) else active, action)
        shared["reward"][active] = [reward for reward, _ in played]
        shared["elapsed"][active] = [games[i].elapsed for i in active]
        for i, (_, over) in zip(active, played, strict=True):
            lost = games[i].lost_life()
            if over or lost or games[i].timeout():
                self._end(i, over=over, lost=lost)

    def _begin(self, i: int) -> None:
        """Begin the next game, from a new seed if one was given."""
        seed = int(self.shared["seed"][i]) - 1
        if seed >= 0:
            self.games[i].insert(seed)
            self.shared["seed"][i] = 0
        self.games[i].reset()

    def _end(self, i: int, *, over: bool, lost: bool) -> None:
        """End an episode: keep its last frame, and begin the next life or game."""
        game = self.games[i]
        shared = self.shared
        shared["final"][i] = shared["frame"][i]
        shared["last"][i] = game.elapsed
        shared["done"][i] = True
        shared["terminated"][i] = over or lost
        ended = over or game.timeout()
        action = None
        if not ended:
            shared["unseen"][i], ended = game.next_life()
            action = {i: 0}
        if ended:
            self._begin(i)
            action = None
        shared["over"][i] = ended
        shared["elapsed"][i] = 0  # a first observation shows time zero, also in a new life
        self._show([i], action)

    def _show(
        self, rows: slice | list[int], action: Mapping[int, int] | list[int] | None = None
    ) -> None:
        """Write frames: the maximum of the last two screens, resized, with the action's mark.

        All games at once are one tall image: areas never cross from one game to the next.
        """
        frame = self.shared["frame"]
        newer, older = self.screens
        size = self.settings.size
        for part in [rows] if isinstance(rows, slice) else [slice(i, i + 1) for i in rows]:
            if self.settings.skip > 1:
                np.maximum(newer[part], older[part], out=newer[part])
            source = newer[part]
            cv2.resize(
                source.reshape(-1, source.shape[2]),
                (size, size * len(source)),
                dst=frame[part].reshape(-1, size),
                interpolation=cv2.INTER_AREA,
            )
        if action is not None and self.settings.last_action == "mark":
            for i in range(len(frame)) if isinstance(rows, slice) else rows:
                draw_action(frame[i], action[i])

    def save(self) -> None:
        """Write every game's state to the shared arrays."""
        states = self.shared["state"]
        for i, game in enumerate(self.games):
            state, self.shared["counters"][i] = game.save()
            if len(state) > states.shape[1]:
                raise EnvironmentFailure(f"a state of {len(state)} bytes is too large")
            states[i, : len(state)] = np.frombuffer(state, dtype=np.uint8)
            states[i, len(state) :] = 0  # the rest of a longer one before
            self.shared["length"][i] = len(state)
        self.shared["screens"][:] = self.screens.swapaxes(0, 1)

    def load(self) -> None:
        """Restore every game from the shared arrays."""
        for i, game in enumerate(self.games):
            state = self.shared["state"][i, : self.shared["length"][i]].tobytes()
            game.load(state, self.shared["counters"][i])
        self.screens[:] = self.shared["screens"].swapaxes(0, 1)


def emulator(rom: str, seed: int = 0) -> ale_py.ALEInterface:
    """An emulator with a game loaded."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed & 0x7FFFFFFF)
    # Sticky actions are drawn here: the emulator's snapshot forgets which action it repeats.
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(rom))
    return ale


def actions_of(ale: ale_py.ALEInterface, settings: Atari) -> list[int]:
    """The emulator's codes of the agent's actions."""
    full = settings.actions == "full"
    known = ale.getLegalActionSet() if full else ale.getMinimalActionSet()
    return [int(action.value) for action in known]


def action_name(action: int) -> str:
    """The emulator's name of an action, in lower case."""
    return str(ale_py.Action(action).name).lower()
