"""One Atari game behind `ALEInterface`, prepared as the paper prepares it (table 3, app. A).

Order of the authors' code: no-ops, frame skip with the maximum of the last two frames, area
resize, action mark, ends of lives. No fire on reset, no reward clipping. Imports no torch:
worker processes load this module.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dna.errors import EnvironmentFailure, MissingExtra
from dna.marks import draw_action
from dna.randomness import generator
from dna.worlds import Atari

try:
    import ale_py
    import cv2
    from ale_py import roms
except ImportError:
    raise MissingExtra("Atari", "atari") from None

Frame = npt.NDArray[np.uint8]
#: Frames whose stickiness is drawn at once.
BLOCK = 4096
# A worker steps its games one after the other: OpenCV's own threads would only get in the way.
cv2.setNumThreads(1)
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class Outcome(NamedTuple):
    """One decision's consequences; where an episode ended, the next one has begun."""

    reward: float
    unseen: float  # reward of the no-op behind a lost life: of the score, of no decision
    terminated: bool
    done: bool
    over: bool  # the game's true end
    last: int  # frames elapsed at the last observation of an episode that ended


class Game:
    """A game, and all that decides what happens next in it."""

    def __init__(self, rom: str, settings: Atari, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.ale = ale_py.ALEInterface()
        self.ale.setInt("random_seed", seed & 0x7FFFFFFF)
        # Sticky actions are ours: the emulator's snapshot forgets which action it repeats.
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(rom))
        full = settings.actions == "full"
        self.actions = self.ale.getLegalActionSet() if full else self.ale.getMinimalActionSet()
        self.screens: Frame = np.zeros((2, *self.ale.getScreenDims()), dtype=np.uint8)
        self.games = 0  # begun so far
        self.lives = 0
        self.elapsed = 0  # raw frames of this game
        self.held = 0  # the action of the frame before
        self.luck = self._luck(0)

    def reset(self, frame: Frame) -> None:
        """Begin a game; writes its first frame."""
        self.ale.reset_game()
        self.elapsed = self.held = 0
        for _ in range(self._noops()):
            self.ale.act(0)
            self.elapsed += 1
            if self.ale.game_over(with_truncation=False):
                self.ale.reset_game()
        self.games += 1
        self.lives = self.ale.lives()
        self.luck = self._luck(0)
        self.ale.getScreenGrayscale(self.screens[0])
        self.screens[1].fill(0)
        self._show(frame)

    def _noops(self) -> int:
        """1 to 30, drawn anew for every game."""
        if self.settings.noops is None:
            return 0
        low, high = self.settings.noops
        return int(generator(self.seed, "noops", self.games).integers(low, high + 1))

    def _luck(self, block: int) -> list[bool]:
        """Which frames of a block repeat the action before them, whatever is chosen."""
        rng = generator(self.seed, "sticky", self.games, block)
        luck: list[bool] = (rng.random(BLOCK) < self.settings.sticky).tolist()
        return luck

    def step(self, action: int, frame: Frame, final: Frame) -> Outcome:
        """Decide once. `frame` gets what is seen next, `final` an episode's last frame."""
        reward, over = self._skip(action)
        self._show(frame, action)
        lives, before = self.ale.lives(), self.lives
        self.lives = lives
        timeout = self.elapsed >= self.settings.max_frames
        # A game may show no lives for some frames before it ends: that is one end, not two.
        lost = self.settings.life_loss == "terminal" and 0 < lives < before
        if not (over or timeout or lost):
            return Outcome(reward, 0.0, False, False, False, 0)
        last = self.elapsed
        final[...] = frame
        terminated, ended = over or lost, over or timeout
        unseen = 0.0
        if not ended:
            unseen, ended = self._next_life(frame)
        if ended:
            self.reset(frame)
        return Outcome(reward, unseen, terminated, True, ended, last)

    def _next_life(self, frame: Frame) -> tuple[float, bool]:
        """Go on behind a lost life with one no-op; (its reward, whether the game is over)."""
        reward, over = self._skip(0)
        self._show(frame, 0)
        self.lives = self.ale.lives()
        return reward, over or self.elapsed >= self.settings.max_frames

    def _skip(self, action: int) -> tuple[float, bool]:
        """Repeat an action over the skipped frames; (their reward, whether the game is over).

        Where a game ends amid them, older frames stay in the maximum.
        """
        skip, total = self.settings.skip, 0
        for t in range(skip):
            block, frame = divmod(self.elapsed, BLOCK)
            if frame == 0:
                self.luck = self._luck(block)
            if not self.luck[frame]:
                self.held = action
            total += self.ale.act(self.actions[self.held])
            self.elapsed += 1
            if self.ale.game_over(with_truncation=False):
                return float(total), True
            if self.elapsed >= self.settings.max_frames:
                break
            if t >= skip - 2:
                self.ale.getScreenGrayscale(self.screens[skip - 1 - t])
        return float(total), False

    def _show(self, frame: Frame, action: int | None = None) -> None:
        """The maximum of the last two screens, resized by area, with the action's mark."""
        if self.settings.skip > 1:
            np.maximum(self.screens[0], self.screens[1], out=self.screens[0])
        size = (self.settings.size, self.settings.size)
        cv2.resize(self.screens[0], size, dst=frame, interpolation=cv2.INTER_AREA)
        if action is not None and self.settings.last_action == "mark":
            draw_action(frame, action)

    def picture(self) -> Frame:
        """The screen in colors."""
        screen: Frame = self.ale.getScreenRGB()
        return screen

    def save(self) -> tuple[bytes, npt.NDArray[np.int64]]:
        """The emulator with its generator, and our counters; `screens` is saved beside."""
        state: bytes = self.ale.cloneState(include_rng=True).serialize()
        return state, np.array([self.seed, self.games, self.lives, self.elapsed, self.held])

    def load(self, state: bytes, counters: npt.NDArray[Any]) -> None:
        """Go on from there, in this instance or a fresh one."""
        # Qbert and Tetris diverge unless the emulator ran a frame before it is restored.
        self.ale.reset_game()
        self.ale.act(0)
        try:
            self.ale.restoreState(ale_py.ALEState(state))
        except Exception as error:
            raise EnvironmentFailure("the emulator does not take this snapshot") from error
        self.seed, self.games, self.lives, self.elapsed, self.held = map(int, counters)
        self.luck = self._luck(self.elapsed // BLOCK)


def play(games: list[Game], rows: range, board: Mapping[str, npt.NDArray[Any]]) -> None:
    """Step the active ones among the agents `rows`, reading and writing the shared board."""
    for game, i in zip(games, rows, strict=True):
        if not board["active"][i]:
            continue
        out = game.step(int(board["action"][i]), board["frame"][i], board["final"][i])
        board["reward"][i], board["unseen"][i] = out.reward, out.unseen
        board["terminated"][i], board["done"][i] = out.terminated, out.done
        board["over"][i] = out.over
        # An episode's first observation shows time zero, in a new life too.
        board["elapsed"][i] = 0 if out.done else game.elapsed
        board["last"][i] = out.last


def begin(games: list[Game], rows: range, board: Mapping[str, npt.NDArray[Any]]) -> None:
    """Begin a game for each of the agents."""
    for game, i in zip(games, rows, strict=True):
        game.reset(board["frame"][i])
        board["elapsed"][i] = 0


def save(games: list[Game], rows: range, board: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write every game's state to the board."""
    for game, i in zip(games, rows, strict=True):
        state, counters = game.save()
        if len(state) > board["state"].shape[1]:
            raise EnvironmentFailure(f"a state of {len(state)} bytes is larger than expected")
        board["state"][i, : len(state)] = np.frombuffer(state, dtype=np.uint8)
        board["length"][i], board["counters"][i] = len(state), counters
        board["screens"][i] = game.screens


def load(games: list[Game], rows: range, board: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put every game where the board says."""
    for game, i in zip(games, rows, strict=True):
        state = board["state"][i, : board["length"][i]].tobytes()
        game.load(state, board["counters"][i])
        game.screens[...] = board["screens"][i]


#: What a worker can be told to do, by the byte that says so.
COMMANDS = {b"s": play, b"r": begin, b"w": save, b"l": load}
